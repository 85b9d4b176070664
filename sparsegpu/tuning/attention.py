"""What `tune` measures of attention: operands, the call, how far two results may be apart."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import sqrt
from typing import Any

import numpy as np

from .._arrays import as_array, common_namespace
from .._checks import bad_type
from .._score import Score
from ..bsr.block_mask import BlockMask, words
from ..bsr.make import random_bsr
from ..engines.cuda.winners import Kind
from ..ops._attention import mask_operand
from ..ops._common import is_block_mask, is_sparse, not_sparse
from ..ops.attention import scaled_dot_product_attention
from ..testing import ATTENTION_TOLERANCE
from .operands import random_array

OP = "scaled_dot_product_attention"
#: Heads of random operands.
_HEADS = 16
Operands = tuple[Any, Any, Any, Any]


def given_operands(mask: Any, dense: Any) -> Operands:
    """Return query, key, value and mask; ``dense`` are the first three."""
    if not isinstance(dense, (tuple, list)) or len(dense) != 3:
        raise bad_type("tune", "dense", f"(query, key, value) for op={OP!r}", type(dense).__name__)
    if not (is_sparse(mask) or is_block_mask(mask)):
        raise not_sparse("tune", "bsr", mask)
    query, key, value = (as_array(a, "tune", "dense") for a in dense)
    return query, key, value, mask


def random_operands(
    shape: tuple[int, int, int], blocksize: tuple[int, int], dtype: np.dtype, density: float
) -> Operands:
    """Return random operands of 16 heads, shape (L, S, E), and a mask of whole blocks."""
    import cupy

    length, keys, width = shape
    sizes = ((_HEADS, length, width), (_HEADS, keys, width), (_HEADS, keys, width))
    operands = [random_array(cupy, size, dtype, seed) for seed, size in enumerate(sizes)]
    pattern = random_bsr((length, keys), blocksize, density, dtype=dtype, rng=0, xp=cupy).pattern
    kind = cupy.ones(pattern.indices.shape, np.uint8)
    none = cupy.empty((0, blocksize[0], words(blocksize[1])), np.uint32)
    query, key, value = operands
    return query, key, value, BlockMask(pattern, kind, none, check=False)


def on_host(operands: Operands) -> bool:
    """Return whether there is nothing to tune."""
    query, key, value, mask = operands
    operand = mask_operand("tune", mask)
    operand.check("tune")
    arrays = {"bsr": operand.array, "dense": query}
    return common_namespace("tune", **arrays, key=key, value=value) is np


def call_of(operands: Operands, allow_tf32: bool) -> Callable[..., Any]:
    """Return the call that is measured."""
    return partial(scaled_dot_product_attention, *operands, allow_tf32=allow_tf32)


def kind_of(operands: Operands, out: Any, allow_tf32: bool) -> Kind:
    """Return the kind of attention that these operands are."""
    from ..engines.cuda.paths._attention import attention_of
    from ..engines.cuda.paths._tuned import attention_kind

    query, key, value, mask = operands
    pattern, data = mask_operand("tune", mask).canonical("tune")
    shape = query.shape[-2], key.shape[-2]
    score = Score(out.shape[:-2], shape, 1 / sqrt(max(query.shape[-1], 1)))
    arrays = out, None, query, key, value
    return attention_kind(attention_of(*arrays, pattern, data, score, None, allow_tf32))


def bound(out: Any, kind: Kind) -> Any:
    """Return how far two correct results may be apart: twice the tolerance, elementwise."""
    return 2 * ATTENTION_TOLERANCE[kind.family.dtype] * (1 + abs(out))
