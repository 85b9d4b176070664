"""Attention's gradients without tensor cores: every dtype, block size and stride.

A launch for each of query (``bsr_attention_backward_simt.cu``), key and value. The path to read
first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...._math import ceil_div
from ....pattern import Pattern
from .._grid import grid
from .._score_args import mask_type
from ..runtime.architectures import PORTABLE
from ..runtime.launch import Launch, kernel
from ..runtime.structs import kernel_struct
from ..runtime.types import ctype
from ..runtime.view import batch_dims
from . import _attention
from ._attention import AttentionFacts, simt_shape
from ._attention_backward import AttentionBackward, Reads
from ._facts import FLOATS, INDICES, always
from ._fields import Fields

NAME = "simt"
SOURCES = ("bsr_attention_backward_simt",)
DTYPES, ARCHS = FLOATS, PORTABLE
TENSOR_CORES = False
BY_ADDRESS = {**INDICES, "GRADIENT": ("query", "key", "value")}

facts, examples, pays, serves = AttentionBackward.facts, _attention.examples, always, always


@dataclass(frozen=True, slots=True)
class Tile:
    """The ``-D`` names of the kernel for the gradient of query."""

    defines: dict[str, Any]


def tile(f: AttentionFacts, fields: Fields) -> Tile:
    """Return the tile; it has no fields."""
    rows, _, columns = simt_shape(f.blocksize[0], f.features, f.dtype)
    return Tile(
        {
            "T": ctype(f.dtype),
            "MASK": mask_type(f.packed, f.mask_dtype),
            "SOFTCAP": int(f.softcap),
            "SLOPES": int(f.slopes),
            "ROWS": rows,
            "COLUMNS": columns,
        }
    )


def launches(p: AttentionBackward, tile: Tile) -> tuple[Launch, ...]:
    """Return a launch for each gradient, that of query first: it leaves delta for the others."""
    of_pattern = {
        "starts": (p.pattern._indptr, 1),
        "indices": (p.pattern._indices, 1),
        "blocks": (None, 1),
    }
    of_transpose = {
        "starts": (p.transposed._indptr, 1),
        "indices": (p.transposed._indices, 1),
        "blocks": (p.origins, 1),
    }
    bm, bk = p.pattern.blocksize
    walks = (
        ("query", of_pattern, p.pattern, (bm, bk)),
        ("key", of_transpose, p.transposed, (bk, bm)),
        ("value", of_transpose, p.transposed, (bk, bm)),
    )
    return tuple(
        _of_rows(name, p.reads(p.gradients[name], 2, more), walked, sizes, p)
        for name, more, walked, sizes in walks
    )


def _of_rows(
    name: str, reads: Reads, walked: Pattern, sizes: tuple[int, int], p: AttentionBackward
) -> Launch:
    """Return the launch for the gradient of query, key or value.

    ``walked`` groups the blocks by the rows of that operand, of which a block has ``sizes[0]``.
    """
    (own, other), features = sizes, reads["query"].shape[-1]
    value_features, dtype = reads["value"].shape[-1], reads["query"].dtype
    width = value_features if name == "value" else features
    rows, warps, columns = simt_shape(own, width, dtype)
    tiles, slices = ceil_div(own, rows * warps), ceil_div(width, 32 * columns)
    groups = walked.block_shape[0]
    items = reads.owners * groups * tiles * slices
    defines, score_argument = reads.score(p.score)
    compiled = kernel(
        SOURCES[0],
        T=ctype(dtype),
        GRADIENT=name,
        INDEX=ctype(walked._indices.dtype),
        ROWS=rows,
        COLUMNS=columns,
        **defines,
    )
    problem = kernel_struct(SOURCES[0], "BackwardProblem")(
        tiles=tiles,
        slices=slices,
        items=items,
        groups=groups,
        shares=reads.shares,
        own=own,
        other=other,
        features=features,
        value_features=value_features,
    )
    operands = ("gradient", "query", "key", "value", "grad", "out", "lse", "grad_lse", "delta")
    return Launch(
        compiled,
        grid(items),
        (32 * warps,),
        (
            *reads.views(*operands, "starts", "indices", "blocks"),
            batch_dims(reads.batch),
            problem,
            score_argument,
        ),
    )
