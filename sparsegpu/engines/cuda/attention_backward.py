"""Attention's gradients on the device: the path that serves, then those of mask and sinks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._math import ceil_div
from ..._score import Score
from ...pattern import Pattern
from ._grid import THREADS, flat_blocks, grid, packed_mask, same_place
from ._heads import as_vectors
from .paths import ATTENTION_BACKWARD
from .paths._attention import simt_shape
from .paths._attention_backward import Reads, backward_of
from .paths._dispatch import works_of
from .runtime.launch import Launch, kernel, submit
from .runtime.structs import kernel_struct
from .runtime.types import ctype
from .runtime.view import batch_dims


def attention_backward(
    gradients: tuple[Any, Any, Any, Any, Any],
    grad: Any,
    query: Any,
    key: Any,
    value: Any,
    pattern: Pattern,
    mask_data: Any,
    out: Any,
    lse: Any,
    grad_lse: Any,
    score: Score,
    sinks: Any,
    *,
    allow_tf32: bool = False,
    config: dict[str, Any] | None = None,
) -> None:
    """Write the gradients of query, key, value, mask and sinks; None is not wanted.

    The formulas, and the arguments, are the reference's. ``config={"path": name, field: value,
    ...}`` chooses one of `paths.ATTENTION_BACKWARD` for the first three and fields of its tile. The
    gradient of query comes first: it leaves one number a query, which the others read.

    Raises
    ------
    paths._fields.ConfigError
        A ``config`` that these operands cannot have.
    """
    *of_rows, of_mask, of_sinks = gradients
    product = backward_of(
        tuple(of_rows),
        grad,
        query,
        key,
        value,
        pattern,
        mask_data,
        out,
        lse,
        grad_lse,
        score,
        allow_tf32,
    )
    function = "scaled_dot_product_attention_backward"
    works = [*works_of(ATTENTION_BACKWARD, product, config, function)]
    if of_mask is not None:
        more = {"rows": (pattern._rows, 1), "indices": (pattern._indices, 1)}
        works.append(_of_mask(product.reads(flat_blocks(of_mask), 2, more), pattern, score))
    if of_sinks is not None:
        more = {"sinks": (as_vectors(sinks), 1)}
        works.append(_of_sinks(product.reads(as_vectors(of_sinks), 1, more), lse))
    packed = packed_mask(mask_data) is not None
    submit(*works, whole=packed or same_place(product.arrays["mask"], mask_data))


def _of_mask(reads: Reads, pattern: Pattern, score: Score) -> Launch:
    """Return the launch for the gradient of the mask's stored elements."""
    (bm, bk), dtype = pattern.blocksize, reads["query"].dtype
    rows, warps, _ = simt_shape(bm, bk, dtype)
    row_tiles, key_tiles = ceil_div(bm, rows * warps), ceil_div(bk, 32)
    items = reads.owners * pattern.nnzb * row_tiles * key_tiles
    defines, score_argument = reads.score(score)
    compiled = kernel(
        "bsr_attention_backward_mask",
        T=ctype(dtype),
        INDEX=ctype(pattern._indices.dtype),
        ROWS=rows,
        **defines,
    )
    problem = kernel_struct("bsr_attention_backward_mask", "MaskProblem")(
        row_tiles=row_tiles,
        key_tiles=key_tiles,
        items=items,
        blocks=pattern.nnzb,
        shares=reads.shares,
        bm=bm,
        bk=bk,
        features=reads["query"].shape[-1],
        value_features=reads["value"].shape[-1],
    )
    operands = ("gradient", "query", "key", "value", "grad", "lse", "delta", "rows", "indices")
    return Launch(
        compiled,
        grid(items),
        (32 * warps,),
        (*reads.views(*operands), batch_dims(reads.batch), problem, score_argument),
    )


def _of_sinks(reads: Reads, lse: Any) -> Launch:
    """Return the launch for the gradient of the sinks."""
    return Launch(
        kernel("bsr_attention_backward_sinks", T=ctype(lse.dtype)),
        grid(reads.owners),
        (THREADS,),
        (
            *reads.views("gradient", "sinks", "lse", "delta"),
            batch_dims(reads.batch),
            np.int64(reads.owners),
            np.int64(reads.shares),
            np.int64(lse.shape[-1]),
        ),
    )
