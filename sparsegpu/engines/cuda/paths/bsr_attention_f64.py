"""Attention of float64 on tensor cores (``bsr_attention_f64.cu``).

From compute capability 8.0 on. Blocks of 8 rows and columns or more; up to 256 columns of query and
key and 128 of value, multiples of 2 in rows that are aligned to 16 bytes. It is the default where
tensor cores multiply float64 faster than FMA units: compute capability 8.0, 9.0 and 10.0.
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

NAME = "mma_f64"
SOURCES = ("bsr_attention_f64",)
DTYPES, ARCHS = ("float64",), PORTABLE
TENSOR_CORES = True
BY_ADDRESS = INDICES

facts, examples, serves = Attention.facts, _attention.examples, _attention_tiles.serves
worth_measuring = always

_MOST_FEATURES, _MOST_VALUE_FEATURES = 256, 128
_STAGES, _SLOTS = 2, 3  # of keys and values, and of what is known of them
_INDEX = 8  # bytes, at most
_FAST = frozenset({(8, 0), (9, 0), (10, 0)})  # others have few units for float64


def pays(f: AttentionFacts) -> bool:
    """Return whether the device has fast tensor cores for float64."""
    return f.capability in _FAST


def tile(f: AttentionFacts, fields: Fields) -> AttentionTile | None:
    """Return the tile, or None for operands that it does not take.

    ``fields`` may say ``tile_q``, ``tile_k`` and ``blocks``, the thread blocks that a
    multiprocessor is to hold.

    Examples
    --------
    >>> import numpy as np
    >>> f64 = np.dtype("float64")
    >>> f = AttentionFacts(dtype=f64, out_dtype=f64, mask_dtype=np.dtype(bool), blocksize=(64, 64),
    ...                    features=64, value_features=64)
    >>> chosen = tile(f, Fields())
    >>> chosen.tile_q, chosen.threads, chosen.shared_memory, chosen.defines["TILE_K"]
    (64, 128, 98304, 32)
    """
    if (
        min(f.blocksize) < 8
        or f.features > _MOST_FEATURES
        or f.value_features > _MOST_VALUE_FEATURES
        or f.features % 2
        or f.value_features % 2
    ):
        return None
    features, value_features = (ceil_div(n, 16) * 16 for n in (f.features, f.value_features))

    def shared_memory(tile_q: int, tile_k: int) -> int:
        return 8 * (tile_q * features + _STAGES * tile_k * (features + value_features))

    def fits(tile_q: int, tile_k: int) -> bool:
        strips, block_rows = tile_k // 8, max(1, tile_q // f.blocksize[0])
        known = _SLOTS * strips * (4 + block_rows * _INDEX)
        return (
            strips * block_rows <= 2 * tile_q
            and shared_memory(tile_q, tile_k) + known <= f.shared_memory
        )

    queries = [q for q in (32, 64, 128) if fits(q, 16)]
    if not queries:
        return None
    tile_q = fields.pick("tile_q", min(64, queries[-1]), queries)
    # Wide sums, and what a score has besides, leave fewer registers for a tile of scores.
    light = f.folded and not f.dropout and value_features <= 96
    fitting = [k for k in (16, 32) if fits(tile_q, k)]
    tile_k = fields.pick("tile_k", fitting[-1] if light else 16, fitting)
    blocks = fields.pick("blocks", 1, (1, 2, 3))
    return AttentionTile(
        tile_q=tile_q,
        threads=2 * tile_q,
        shared_memory=shared_memory(tile_q, tile_k),
        defines={
            **score_defines(f),
            "TILE_Q": tile_q,
            "TILE_K": tile_k,
            "FEATURES": features,
            "VALUE_FEATURES": value_features,
            "BLOCKS": blocks,
        },
    )


def launches(p: Attention, tile: AttentionTile) -> tuple[Launch, ...] | None:
    """Return the launches, or None where the tiles are too many for a grid."""
    return tile_launches(p, tile, SOURCES[0])
