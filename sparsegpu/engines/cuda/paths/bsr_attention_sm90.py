"""Attention on Hopper through wgmma (``bsr_attention_sm90.cu``): bfloat16 and float16.

Blocks of multiples of 16 rows and columns that divide a stage of keys or are its multiples; up to
256 columns of query, key and value. Other paths take operands that tensor maps cannot describe and,
for want of registers, values of more than 192 columns with dropout, a mask that is added, slopes,
sinks or a softcap.
"""

from __future__ import annotations

from ...._math import ceil_div
from ..runtime.architectures import HOPPER
from ..runtime.device import multiprocessors
from ..runtime.launch import Launch, kernel
from . import _attention, _attention_tiles
from ._attention import Attention, AttentionFacts
from ._attention_tiles import (
    AttentionTile,
    heads_arguments,
    schedule_of,
    score_defines,
    views,
)
from ._facts import HALVES, INDICES, always
from ._fields import Fields
from ._matrix_maps import described, numbers, rows_map
from ._sm90 import MOST_STAGES, RESERVED, SHARED
from ._split_kv import splits_of

NAME = "wgmma"
SOURCES = ("bsr_attention_sm90",)
DTYPES, ARCHS = HALVES, HOPPER
TENSOR_CORES = True
BY_ADDRESS = {**INDICES, "SPLIT_KV": (0, 1)}

facts, examples = Attention.facts, _attention.examples
pays = worth_measuring = always

_PANEL = 64  # columns of a box
_MOST_FEATURES = 256
# Keys of a stage by the columns of value: sums and scores share the registers.
_KEYS = {64: (64, 128), 128: (64, 128), 192: (32, 64), 256: (32,)}
_TEAM_BARRIERS = 2048  # bytes of a team's barriers and states, at most


def serves(p: Attention) -> bool:
    """Return whether tensor maps describe query, key and value."""
    return _attention_tiles.serves(p) and all(described(a) for a in (p.query, p.key, p.value))


def tile(f: AttentionFacts, fields: Fields) -> AttentionTile | None:
    """Return the tile, or None for blocks and widths that it does not take.

    ``fields`` may say ``tile_q``, ``consumers`` (warpgroups), ``tile_k``, ``stages`` of keys and
    values, ``query_stages``, and ``split_kv``: split the keys of rows that have many more than
    others.

    Examples
    --------
    >>> import numpy as np
    >>> f16 = np.dtype("float16")
    >>> f = AttentionFacts(dtype=f16, out_dtype=f16, mask_dtype=np.dtype(bool),
    ...                    blocksize=(128, 128), features=128, value_features=128)
    >>> chosen = tile(f, Fields()).defines
    >>> chosen["TILE_Q"], chosen["TILE_K"], chosen["STAGES"]
    (128, 64, 4)
    """
    (bm, bk), widths = f.blocksize, (f.features, f.value_features)
    if bm % 16 or bk % 16 or max(widths) > _MOST_FEATURES or f.capability != (9, 0):
        return None
    features, value_features = (ceil_div(n, _PANEL) * _PANEL for n in widths)
    light, of_key = f.folded and not f.dropout, 2 * (features + value_features)
    if value_features == _MOST_FEATURES and not light:
        return None

    narrow = max(features, value_features) <= _PANEL

    def memory(tile_q: int, consumers: int) -> int:
        """Return the bytes of shared memory that a team has for its stages."""
        teams = consumers * 64 // tile_q
        return (SHARED - RESERVED) // teams - 2 * tile_q * features - _TEAM_BARRIERS

    def keys(tile_q: int, consumers: int = 2) -> list[int]:
        rows = max(1, tile_q // bm)
        return [
            k
            for k in _KEYS[value_features]
            if (k % bk == 0 or bk % k == 0)
            and rows * max(1, k // bk) <= 32
            and memory(tile_q, consumers) >= 2 * k * of_key
            and (consumers == 2 or k <= 64)  # three have fewer registers each
        ]

    sizes = [n for n in (64, 128) if keys(n)]
    if not sizes:
        return None
    # A tile of 128 queries reads keys once for all of them, one of 64 has fewer keys in vain.
    tile_q = fields.pick("tile_q", 128 if bm >= 128 or 64 not in sizes else 64, sizes)
    many = tile_q == 64 and narrow and bool(keys(64, 3))
    consumers = fields.pick("consumers", 3 if many and light else 2, (2, 3) if many else (2,))
    # Of wide keys more stages are worth more than large ones.
    large = light and bk >= 128 and narrow and consumers == 2
    tile_k = fields.pick("tile_k", 128 if large else 64, keys(tile_q, consumers))
    teams, left = consumers * 64 // tile_q, memory(tile_q, consumers)
    # With room for the next tile's queries, too, nothing waits where one tile ends.
    query_bytes = 2 * tile_q * features
    room = [n for n in (2, 1) if left - (n - 1) * query_bytes >= 2 * tile_k * of_key]
    query_stages = fields.pick("query_stages", room[0], room)
    most = min((left - (query_stages - 1) * query_bytes) // (tile_k * of_key), MOST_STAGES)
    stages = fields.pick("stages", most, range(2, most + 1))
    split_kv = fields.pick("split_kv", 1, (1, 0))
    return AttentionTile(
        tile_q=tile_q,
        threads=128 * (consumers + 1),
        shared_memory=teams * (query_stages * query_bytes + stages * tile_k * of_key) + 1024,
        defines={
            **score_defines(f),
            "CONSUMERS": consumers,
            "TILE_Q": tile_q,
            "TILE_K": tile_k,
            "FEATURES": features,
            "VALUE_FEATURES": value_features,
            "STAGES": stages,
            "QUERY_STAGES": query_stages,
        },
        split_kv=bool(split_kv),
    )


def launches(p: Attention, tile: AttentionTile) -> tuple[Launch, ...]:
    """Return the launches."""
    teams = tile.defines["CONSUMERS"] * 64 // tile.tile_q
    schedule = schedule_of(p, tile, SOURCES[0], teams * multiprocessors())
    splits = splits_of(p, tile, schedule)
    bk, tile_k = p.pattern.blocksize[1], tile.defines["TILE_K"]
    keys = min(bk, tile_k)
    maps = b"".join(
        rows_map(a, rows) for a, rows in ((p.query, tile.tile_q), (p.key, keys), (p.value, keys))
    )
    matrices = b"".join(numbers(a, p.batch) for a in (p.query, p.key, p.value))
    attend = Launch(
        kernel(SOURCES[0], ARCHS, INDEX=schedule.index, **tile.defines, **splits.defines),
        (min(ceil_div(schedule.items, teams), multiprocessors()),),
        (tile.threads,),
        (
            maps,
            matrices + schedule.matrices,
            *views(p),
            *heads_arguments(p),
            *schedule.arguments,
            *splits.arguments,
        ),
        tile.shared_memory,
    )
    return (*schedule.setup, attend, *splits.merge)
