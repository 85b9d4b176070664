"""Attention's launches where a kernel can split the keys of groups that have many more than others.

A tile computes all keys of a group of queries, and all others would wait for a group that has many
times their keys (global tokens). So its keys are split as split-K does (`_split_k`): each split
leaves its part in workspace, and ``bsr_attention_reduce.cu`` merges these in a fixed order.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...._math import ceil_div
from .._kernel_source import Defines
from .._score_args import kept_scale
from ..runtime.device import multiprocessors
from ..runtime.launch import MAX_GRID, NULL, Launch, kernel
from ..runtime.structs import kernel_struct
from ..runtime.submission import workspace
from ._attention import Attention
from ._attention_tiles import AttentionTile, Schedule, heads_arguments, schedule_of, views

_MERGE = "bsr_attention_reduce"
_OF_MERGE = ("OUT", "BM", "TILE_Q", "VALUE_FEATURES")  # its -D names
_MERGING_WARPS, _LANES = 4, 32  # of a thread block
_PART_HEADER = 2  # numbers before a part's sums (common/attention_parts.cuh)
_RESIDENT = 2  # thread blocks of a multiprocessor, about


class Splits(NamedTuple):
    """What a kernel is told of the splits of a schedule.

    Attributes
    ----------
    defines : dict
        ``-DSPLIT_KV``; empty for a kernel that cannot split.
    arguments : tuple
        Its last arguments, ``parts`` and ``splits``; empty likewise.
    merge : tuple of Launch
        Merges the parts; empty where no group is split.
    """

    defines: dict[str, int]
    arguments: tuple[Any, ...]
    merge: tuple[Launch, ...]


def splits_of(p: Attention, tile: AttentionTile, schedule: Schedule) -> Splits:
    """Return the splits of a schedule."""
    if tile.split_kv is None:
        return Splits({}, (), ())
    _, cut, count = schedule.cut
    if not count:
        return Splits({"SPLIT_KV": 0}, (NULL, np.int64(0)), ())
    heads, bm, tile_q = prod(p.batch), p.pattern.blocksize[0], tile.tile_q
    group_rows = bm * max(1, tile_q // bm)
    row_bytes = (tile.defines["VALUE_FEATURES"] + _PART_HEADER) * 4
    parts = workspace(heads * count * ceil_div(group_rows, tile_q) * tile_q * row_bytes)
    arguments = parts, np.int64(count)
    out, lse, *_ = views(p)
    merge = Launch(
        kernel(_MERGE, **{name: tile.defines[name] for name in _OF_MERGE}),
        (ceil_div(heads * len(cut) * group_rows, _MERGING_WARPS),),
        (_LANES * _MERGING_WARPS,),
        (
            out,
            lse,
            *heads_arguments(p),
            cut,
            kernel_struct(_MERGE, "SplitsProblem")(
                heads=heads,
                groups=len(cut),
                queries=p.query.shape[-2],
                value_features=p.value.shape[-1],
            ),
            np.float32(kept_scale(p.score)),
            *arguments,
        ),
    )
    return Splits({"SPLIT_KV": 1}, arguments, (merge,))


def tile_launches(
    p: Attention, tile: AttentionTile, source: str, launched: Callable[..., Defines] = dict
) -> tuple[Launch, ...] | None:
    """Return the launches of a kernel that takes a tile a thread block; ``launched`` as of a path.

    None where the tiles are too many for a grid.
    """
    schedule = schedule_of(p, tile, source, _RESIDENT * multiprocessors())
    if schedule.items > MAX_GRID:
        return None
    splits = splits_of(p, tile, schedule)
    attend = Launch(
        kernel(source, **launched({**tile.defines, "INDEX": schedule.index, **splits.defines})),
        (schedule.items,),
        (tile.threads,),
        (
            *views(p),
            schedule.matrices,
            *heads_arguments(p),
            *schedule.arguments,
            *splits.arguments,
        ),
        tile.shared_memory,
    )
    return (*schedule.setup, attend, *splits.merge)
