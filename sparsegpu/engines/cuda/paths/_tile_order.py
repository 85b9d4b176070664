"""The order in which tiles of attention are computed (``cuda_src/common/query_tile.cuh``)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ...._math import ceil_div
from ....pattern import Pattern
from ..runtime.device import l2_bytes, multiprocessors
from ..runtime.launch import MAX_GRID

_ROUNDS = 2  # at least, in which the tiles of heads that take turns are dealt out
_UNEVEN = 1.05  # the longest work of a team over the average from which on heads take turns
_LONG = 0.25  # density from which on tiles of a head read the same keys at about the same time
_SIMULATED = 1 << 17  # tiles, at most


def tile_order(
    heads: int, tiles: int, read: int, pattern: Pattern, dealt: int = 0
) -> dict[str, int]:
    """Return the fields of an ``AttentionProblem`` that say in which order its tiles are computed.

    Parameters
    ----------
    heads, tiles : int
        All heads, and the tiles of one, the longest first.
    read : int
        Bytes that the tiles of all heads read again and again.
    pattern : Pattern
        What the tiles walk.
    dealt : int
        Teams to which tiles are dealt out; 0: each tile has a thread block of its own, and the
        device takes these in their order.

    Notes
    -----
    Tiles that are dealt out are those of one head after the other, unless teams would have very
    different shares of them. Where rows are short, that keeps more of the keys in L2: on an H200,
    at density 0.1, heads that take turns are up to 4% slower with blocks of 64x64. Where rows are
    long, turns are 3% faster (causal, 32 heads of 8192).
    """
    rows, columns = pattern.block_shape
    long = _LONG * rows * columns <= pattern.nnzb < rows * columns
    if dealt and not long and unevenness(heads, tiles, dealt) <= _UNEVEN:
        return {"heads": heads, "together": heads, "in_turn": 0}
    fitting = heads * l2_bytes() // (3 * max(read, 1))
    enough = ceil_div(_ROUNDS * (dealt or multiprocessors()), tiles)
    return {"heads": heads, "together": heads_together(heads, tiles, fitting, enough), "in_turn": 1}


def heads_together(heads: int, tiles: int, fitting: int, enough: int) -> int:
    """Return how many heads take turns: as many as fit L2, or enough; half or twice to be equal.

    Examples
    --------
    >>> heads_together(64, 64, 20, 9), heads_together(32, 64, 5, 5), heads_together(61, 64, 20, 9)
    (16, 8, 20)
    """
    most = min(heads, MAX_GRID // tiles)
    wanted = min(max(fitting, enough), most)
    if heads % wanted == 0:
        return wanted
    near = range(max(enough, ceil_div(wanted, 2)), min(2 * wanted, most) + 1)
    equal = [n for n in near if heads % n == 0]
    return max((n for n in equal if n <= wanted), default=min(equal, default=wanted))


@lru_cache(maxsize=256)
def unevenness(heads: int, tiles: int, teams: int) -> float:
    """Return the longest work of a team over the average, of heads one after the other.

    Of tiles whose lengths fall evenly down to 0, as those of a causal mask, dealt out as
    ``cuda_src/common/attention_teams.cuh`` does it.

    Examples
    --------
    >>> round(unevenness(32, 64, 132), 3), round(unevenness(8, 64, 132), 2)
    (1.031, 1.79)
    """
    if heads * tiles > _SIMULATED:
        return 1.0
    places = np.arange(heads * tiles)
    rounds, seats = np.divmod(places, teams)
    team = np.where(rounds % 2 == 1, teams - 1 - seats, seats)
    work = np.bincount(team, weights=tiles - places % tiles, minlength=teams)
    return float(work.max() / work.mean())
