"""Attention in full precision by register tiles (``bsr_attention_fma.cu``): float32 and float64.

Blocks of 8 rows and columns or more; up to 256 columns of query and key and 128 of value, multiples
of 16 bytes in rows that are aligned to 16 bytes. Other operands go to the plain kernel.
"""

from __future__ import annotations

from ...._math import ceil_div
from ..runtime.architectures import PORTABLE
from ..runtime.launch import Launch
from . import _attention, _attention_tiles
from ._attention import Attention, AttentionFacts
from ._attention_tiles import AttentionTile, score_defines
from ._facts import INDICES, always
from ._fields import Fields
from ._split_kv import tile_launches

NAME = "fma"
SOURCES = ("bsr_attention_fma",)
DTYPES, ARCHS = ("float32", "float64"), PORTABLE
TENSOR_CORES = False
BY_ADDRESS = INDICES

facts, examples, serves = Attention.facts, _attention.examples, _attention_tiles.serves
pays = worth_measuring = always

_THREADS = 128
_VECTOR = 16  # bytes
_ACROSS = 16  # threads that share a row
_MOST_FEATURES, _MOST_VALUE_FEATURES = 256, 128
_STATIC = 4096  # shared memory besides the tiles, at most


def tile(f: AttentionFacts, fields: Fields) -> AttentionTile | None:
    """Return the tile, or None for operands that it does not take.

    ``fields`` may say ``tile_k``, keys of a tile, and ``blocks``, the thread blocks that a
    multiprocessor is to hold.

    Examples
    --------
    >>> import numpy as np
    >>> f32 = np.dtype("float32")
    >>> f = AttentionFacts(dtype=f32, out_dtype=f32, mask_dtype=np.dtype(bool), blocksize=(64, 64),
    ...                    features=64, value_features=64)
    >>> chosen = tile(f, Fields())
    >>> chosen.tile_q, chosen.threads, chosen.shared_memory, chosen.defines["TILE_K"]
    (64, 128, 52224, 64)
    """
    size = f.dtype.itemsize
    piece, tile_q = _VECTOR // size, 256 // size
    if (
        min(f.blocksize) < 8
        or f.features > _MOST_FEATURES
        or f.value_features > _MOST_VALUE_FEATURES
        or f.features % piece
        or f.value_features % piece
    ):
        return None
    features = ceil_div(f.features, 32) * 32
    value_features = ceil_div(f.value_features, _ACROSS * piece) * _ACROSS * piece

    def shared_memory(tile_k: int) -> int:
        keys = tile_k * (features + piece)
        weights = tile_q * (tile_k + piece)  # where the keys were
        queries, values = tile_q * (features + piece), tile_k * (value_features + piece)
        return size * (queries + max(keys, weights) + values)

    fitting = [n for n in (32, 64) if shared_memory(n) + _STATIC <= f.shared_memory]
    if not fitting:
        return None
    # Scores with more to do leave fewer registers for a tile of scores.
    tile_k = fields.pick("tile_k", 64 if f.folded and not f.dropout else 32, fitting)
    # A third thread block is worth the few bytes that are spilled for it: 9% at 64 columns.
    usual = 3 if size == 4 and max(features, value_features) <= 64 else 1
    blocks = fields.pick("blocks", usual, (1, 2, 3))
    defines = score_defines(f)
    del defines["FOLD"]  # scores are as they are: exponentials are not what binds
    return AttentionTile(
        tile_q=tile_q,
        threads=_THREADS,
        shared_memory=shared_memory(tile_k),
        defines={
            **defines,
            "TILE_K": tile_k,
            "BLOCKS": blocks,
            "FEATURES": features,
            "VALUE_FEATURES": value_features,
        },
    )


def launches(p: Attention, tile: AttentionTile) -> tuple[Launch, ...] | None:
    """Return the launches, or None where the tiles are too many for a grid."""
    return tile_launches(p, tile, SOURCES[0])
