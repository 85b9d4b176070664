"""Attention of few queries to many keys, from 8.0 on (``bsr_attention_decode.cu``).

Bfloat16 and float16; blocks of at most 16 rows and of 8 columns or more, widths as for the path
``mma``. Heads that share a key head are computed together, and long block rows are cut into pieces,
whose sums ``bsr_attention_decode_reduce.cu`` merges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

import numpy as np

from ...._math import ceil_div
from .._score_args import kept_scale
from ..runtime.architectures import PORTABLE
from ..runtime.device import multiprocessors
from ..runtime.launch import MAX_GRID, NULL, Launch, kernel
from ..runtime.structs import kernel_struct
from ..runtime.submission import workspace
from . import _attention, _attention_tiles
from ._attention import Attention, AttentionFacts
from ._attention_tiles import (
    AttentionTile,
    heads_arguments,
    schedule_of,
    score_defines,
    views,
    widths_for_mma,
)
from ._facts import HALVES, INDICES, always
from ._fields import Fields

NAME = "decode"
SOURCES = ("bsr_attention_decode",)
_MERGE = "bsr_attention_decode_reduce"
DTYPES, ARCHS = HALVES, PORTABLE
TENSOR_CORES = True
BY_ADDRESS = INDICES

facts, serves = Attention.facts, _attention_tiles.serves
worth_measuring = always

_MOST_FEATURES = 256
_FRAGMENT = 16  # rows of a tile
_STATIC = 2048  # shared memory besides the tiles, at most
_LANES = 32
_MERGING_WARPS = 4  # of a thread block of bsr_attention_decode_reduce.cu
_OF_MERGE = ("OUT", "BM", "HEADS", "VALUE_FEATURES")  # its -D names, besides INDEX
_PART_HEADER = 2  # numbers before a part's sums (common/attention_parts.cuh)
# Without a field that says it, pieces are so short that there are
_WAVES = 8  # thread blocks for every multiprocessor one after the other,
_FEWEST_KEYS = 512  # but a piece has at least so many keys.
# Blocks and heads of the examples, in place of blocks that other paths have examples of.
_EXAMPLES = {(64, 64): ((1, 64), 4), (128, 128): ((16, 128), 1), (48, 80): ((3, 20), 8)}


def examples(
    dtypes: Sequence[str], capability: tuple[int, int], *, all: bool = False
) -> Iterator[AttentionFacts]:
    """Yield attentions of few queries, as `_attention.examples` does of many."""
    for f in _attention.examples(dtypes, capability, all=all):
        if f.blocksize in _EXAMPLES:
            blocksize, group = _EXAMPLES[f.blocksize]
            yield replace(f, blocksize=blocksize, group=group)


@dataclass(frozen=True, slots=True)
class DecodeTile(AttentionTile):
    """A tile of `_attention_tiles`, of one block row.

    Attributes
    ----------
    heads : int
        Of a tile, at most.
    piece_keys : int
        Keys of a piece, at most; 0: as the number of pieces demands.
    """

    heads: int
    piece_keys: int


def pays(f: AttentionFacts) -> bool:
    """Return whether a tile of the other paths on tensor cores would be part empty."""
    return f.blocksize[0] < _FRAGMENT


def tile(f: AttentionFacts, fields: Fields) -> DecodeTile | None:
    """Return the tile, or None for operands that it does not take.

    ``fields`` may say ``tile_k``, keys of a warp's tile, ``stages``, for how many of those it has
    room, ``warps`` of a thread block, and ``piece_keys``.

    Examples
    --------
    >>> import numpy as np
    >>> f16 = np.dtype("float16")
    >>> f = AttentionFacts(dtype=f16, out_dtype=f16, mask_dtype=np.dtype(bool), blocksize=(1, 64),
    ...                    features=128, value_features=128, group=4)
    >>> chosen = tile(f, Fields())
    >>> chosen.heads, chosen.threads, chosen.shared_memory, chosen.defines["TILE_K"]
    (4, 128, 102400, 16)
    """
    bm = f.blocksize[0]
    widths = widths_for_mma(f, _MOST_FEATURES, least_rows=1)
    if widths is None or bm > _FRAGMENT:
        return None
    features, value_features = widths
    if value_features == _MOST_FEATURES and not f.folded:  # for want of registers
        return None
    query_bytes, of_key = 2 * _FRAGMENT * features, 2 * (features + value_features)

    def fits(tile_k: int, stages: int = 2, warps: int = 2) -> bool:
        strips = tile_k // 8 * (stages + 1)
        needed = warps * stages * tile_k * of_key + query_bytes + _STATIC
        return strips <= _LANES and needed <= f.shared_memory

    tile_k = fields.pick("tile_k", 16, [k for k in (16, 32, 64) if fits(k)])
    stages = fields.pick("stages", 3, [n for n in (2, 3, 4, 6) if fits(tile_k, n)])
    warps = fields.pick("warps", 4, [n for n in (2, 4, 8) if fits(tile_k, stages, n)])
    piece_keys = fields.pick("piece_keys", 0, (0, 512, 1024, 2048, 4096))
    heads = min(f.group, _FRAGMENT // bm)
    defines = score_defines(f)
    del defines["SINKS"]  # the kernel asks for them at the end
    return DecodeTile(
        tile_q=bm,
        threads=_LANES * warps,
        shared_memory=warps * stages * tile_k * of_key + query_bytes,
        defines={
            **defines,
            "HEADS": heads,
            "TILE_K": tile_k,
            "STAGES": stages,
            "WARPS": warps,
            "FEATURES": features,
            "VALUE_FEATURES": value_features,
        },
        heads=heads,
        piece_keys=piece_keys,
    )


def launches(p: Attention, tile: DecodeTile) -> tuple[Launch, ...] | None:
    """Return the launches, or None where the pieces are too many for a grid."""
    pattern, group = p.pattern, p.group
    (rows, columns), (bm, bk) = pattern.block_shape, pattern.blocksize
    heads = prod(p.batch)
    tiles = ceil_div(group, tile.heads)
    of_heads = heads // group * tiles
    if tile.piece_keys:
        length = ceil_div(tile.piece_keys, bk)
    else:
        length = _piece_blocks(of_heads * pattern.nnzb * bk, bk, pattern.nnzb / rows)
    pieces = pattern.nnzb // length + rows  # numbers of a head's (common/cut_rows.cuh)
    if of_heads * pieces > MAX_GRID:
        return None
    schedule = schedule_of(p, tile, SOURCES[0])
    groups, states, bits, _, score = schedule.arguments
    sinks, batch = heads_arguments(p)
    query, value = p.query.shape[-1], p.value.shape[-1]
    several = columns > length  # pieces of a row
    row_bytes = (tile.defines["VALUE_FEATURES"] + _PART_HEADER) * 4
    parts = workspace(of_heads * pieces * tile.heads * bm * row_bytes) if several else NULL
    sizes = {"pieces": pieces, "rows": rows, "length": length, "group": group, "tiles": tiles}
    decode = Launch(
        kernel(SOURCES[0], INDEX=schedule.index, **tile.defines),
        (of_heads * pieces,),
        (tile.threads,),
        (
            *views(p),
            schedule.matrices,
            sinks,
            batch,
            groups,
            states,
            bits,
            kernel_struct(SOURCES[0], "DecodeProblem")(
                nnzb=pattern.nnzb, features=query, value_features=value, **sizes
            ),
            score,
            parts,
        ),
        tile.shared_memory,
    )
    if not several:
        return (*schedule.setup, decode)
    out, lse, *_ = views(p)
    queries = heads * p.query.shape[-2]
    merge = Launch(
        kernel(_MERGE, INDEX=schedule.index, **{k: tile.defines[k] for k in _OF_MERGE}),
        (ceil_div(queries, _MERGING_WARPS),),
        (_LANES * _MERGING_WARPS,),
        (
            out,
            lse,
            schedule.matrices,
            sinks,
            batch,
            groups,
            kernel_struct(_MERGE, "PartsProblem")(queries=queries, value_features=value, **sizes),
            np.float32(kept_scale(p.score)),
            parts,
        ),
    )
    return (*schedule.setup, decode, merge)


def _piece_blocks(keys: int, bk: int, row_blocks: float) -> int:
    """Return the blocks of a piece, of so many keys of all heads, in blocks of ``bk`` columns.

    Where block rows of the usual length, ``row_blocks``, are cut, it is into equal pieces: none is
    the few blocks that the others left.
    """
    length = ceil_div(max(_FEWEST_KEYS, ceil_div(keys, multiprocessors() * _WAVES)), bk)
    return length if row_blocks <= length else ceil(row_blocks / round(row_blocks / length))
