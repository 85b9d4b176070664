"""Attention on Hopper through wgmma (``bsr_attention_sm90.cu``): bfloat16 and float16.

Blocks of multiples of 16 rows and columns that divide a stage of keys or are its multiples; up to
256 columns of query, key and value. Other paths take operands that tensor maps cannot describe and,
for want of registers, values of more than 192 columns with dropout, a mask that is added, slopes or
a softcap.
"""

from __future__ import annotations

import math

from ...._math import ceil_div
from .._kernel_source import Defines
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
from ._sm90 import MOST_STAGES, SHARED
from ._split_kv import splits_of

NAME = "wgmma"
SOURCES = ("bsr_attention_sm90",)
DTYPES, ARCHS = HALVES, HOPPER
TENSOR_CORES = True
BY_ADDRESS = {**INDICES, "SPLIT_KV": (0, 1)}
TOGETHER = ("CONSUMERS", "BK", "SPLIT_KV", "INDEX")

facts, examples = Attention.facts, _attention.examples
pays = worth_measuring = always

_PANEL = 64  # columns of a box
_MOST_FEATURES = 256
# Keys of a stage by the columns of value: sums and scores share the registers.
_KEYS = {64: (64, 128), 128: (64, 128), 192: (32, 64), 256: (32,)}
# From how many columns of a block on a stage has 128 keys, where it may: by whether both widths are
# one panel, and whether a score has a softcap or dropout. What a stage costs besides its keys is
# paid half as often for twice as many, as long as registers hold what their scores need.
_LARGE_STAGES = {
    # narrow, costly
    (True, False): 64,
    (True, True): 128,
    (False, False): 128,
    (False, True): math.inf,
}
# Bytes of a team's shared memory besides its tiles (TeamMemory), at most: for each tile of queries,
# for each stage of keys, and for each block of the mask that a stage has.
_QUERY_STATIC, _STAGE_STATIC, _STATE_STATIC = 80, 32, 12
_ALIGNMENT = 1024  # of the stages


def serves(p: Attention) -> bool:
    """Return whether tensor maps describe query, key and value."""
    return _attention_tiles.serves(p) and all(described(a) for a in (p.query, p.key, p.value))


def tile(f: AttentionFacts, fields: Fields) -> AttentionTile | None:
    """Return the tile, or None for blocks and widths that it does not take.

    ``fields`` may say ``tile_q``, ``consumers`` (warpgroups; see `launched`), ``tile_k``,
    ``stages`` of keys and values, ``query_stages``, and ``split_kv``: split the keys of rows that
    have many more than others.

    Examples
    --------
    >>> import numpy as np
    >>> f16 = np.dtype("float16")
    >>> f = AttentionFacts(dtype=f16, out_dtype=f16, mask_dtype=np.dtype(bool),
    ...                    blocksize=(128, 128), features=128, value_features=128)
    >>> chosen = tile(f, Fields()).defines
    >>> chosen["TILE_Q"], chosen["TILE_K"], chosen["STAGES"]
    (128, 128, 3)
    """
    (bm, bk), widths = f.blocksize, (f.features, f.value_features)
    if bm % 16 or bk % 16 or max(widths) > _MOST_FEATURES or f.capability != (9, 0):
        return None
    features, value_features = (ceil_div(n, _PANEL) * _PANEL for n in widths)
    light, of_key = f.folded and not f.dropout, 2 * (features + value_features)
    if value_features == _MOST_FEATURES and not light:
        return None

    narrow = max(features, value_features) <= _PANEL

    def most_stages(tile_q: int, tile_k: int, consumers: int, query_stages: int) -> int:
        """Return how many stages of keys a team has room for."""
        states = max(1, tile_q // bm) * max(1, tile_k // bk)
        of_team = (SHARED - _ALIGNMENT) // (consumers * 64 // tile_q)
        of_queries = query_stages * 2 * tile_q * features + (query_stages + 2) * _QUERY_STATIC
        of_stage = tile_k * of_key + _STAGE_STATIC + _STATE_STATIC * states
        return min((of_team - of_queries) // of_stage, MOST_STAGES)

    def keys(tile_q: int, consumers: int = 2) -> list[int]:
        rows = max(1, tile_q // bm)
        return [
            k
            for k in _KEYS[value_features]
            if (k % bk == 0 or bk % k == 0)
            and rows * max(1, k // bk) <= 32
            and most_stages(tile_q, k, consumers, 1) >= 2
            and (consumers == 2 or k <= 64)  # more have fewer registers each
        ]

    sizes = [n for n in (64, 128) if keys(n)]
    if not sizes:
        return None
    # Where tiles are narrow, latencies are longer than products: many warpgroups hide each other's.
    # Four have registers for it where a stage is of one block, and a row is stored in few vectors,
    # without a sink.
    many = [2]
    if narrow and f.folded:
        plain = light and not f.sinks and f.out_dtype.itemsize == 2 and bm % 64 == bk % 64 == 0
        many += [n for n in (3, 4) if keys(64, n) and (n == 3 or plain)]
    # A tile of 128 queries reads keys once for all of them, one of 64 has fewer keys in vain, and
    # with more warpgroups of fewer registers each: dropout computes more than it reads.
    large = 128 if bm >= 128 or 64 not in sizes else 64
    hiding = 4 in many or (3 in many and f.dropout)
    tile_q = fields.pick("tile_q", 64 if hiding else large, sizes)
    choices = [n for n in many if n * 64 % tile_q == 0 and keys(tile_q, n)]
    consumers = fields.pick("consumers", choices[-1], choices)
    tiles_k = keys(tile_q, consumers)
    large_stages = bk >= _LARGE_STAGES[narrow, f.softcap or f.dropout]
    tile_k = fields.pick("tile_k", 128 if large_stages else 64, tiles_k)
    # Room for the next tile's queries is worth less than a third stage of keys: they come when the
    # last scores of this tile have been computed.
    most_of = {n: most_stages(tile_q, tile_k, consumers, n) for n in (2, 1)}
    room = [n for n in most_of if most_of[n] >= 2]
    query_stages = fields.pick("query_stages", room[0] if most_of[2] > 2 else 1, room)
    most = most_of[query_stages]
    stages = fields.pick("stages", most, range(2, most + 1))
    teams, query_bytes = consumers * 64 // tile_q, 2 * tile_q * features
    split_kv = fields.pick("split_kv", 1, (1, 0))
    return AttentionTile(
        tile_q=tile_q,
        threads=128 * (consumers + 1),
        shared_memory=teams * (query_stages * query_bytes + stages * tile_k * of_key) + _ALIGNMENT,
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


def launched(defines: Defines) -> Defines:
    """Return the ``-D`` names of a launch: with a team fewer where its registers do not suffice.

    Where a stage is a slice of a block, four warpgroups have none left for splits, nor for numbers
    of 64 bits. Only the schedule says whether a call has either.
    """
    narrow = defines["INDEX"] == "s32" and not defines["SPLIT_KV"]
    if narrow or defines["CONSUMERS"] < 4 or defines["BK"] <= defines["TILE_K"]:
        return defines
    return {**defines, "CONSUMERS": 4 - defines["TILE_Q"] // 64}


def _teams(defines: Defines) -> int:
    return defines["CONSUMERS"] * 64 // defines["TILE_Q"]


def launches(p: Attention, tile: AttentionTile) -> tuple[Launch, ...]:
    """Return the launches."""
    of_tile = _teams(tile.defines)
    schedule = schedule_of(p, tile, SOURCES[0], of_tile * multiprocessors(), dealt=True)
    splits = splits_of(p, tile, schedule)
    defines = launched({**tile.defines, "INDEX": schedule.index, **splits.defines})
    teams = _teams(defines)
    team_bytes = (tile.shared_memory - _ALIGNMENT) // of_tile
    bk, tile_k = p.pattern.blocksize[1], tile.defines["TILE_K"]
    keys = min(bk, tile_k)
    maps = b"".join(
        rows_map(a, rows) for a, rows in ((p.query, tile.tile_q), (p.key, keys), (p.value, keys))
    )
    matrices = b"".join(numbers(a, p.batch) for a in (p.query, p.key, p.value))
    attend = Launch(
        kernel(SOURCES[0], ARCHS, **defines),
        (min(ceil_div(schedule.items, teams), multiprocessors()),),
        (128 * (defines["CONSUMERS"] + 1),),
        (
            maps,
            matrices + schedule.matrices,
            *views(p),
            *heads_arguments(p),
            *schedule.arguments,
            *splits.arguments,
        ),
        teams * team_bytes + _ALIGNMENT,
    )
    return (*schedule.setup, attend, *splits.merge)
