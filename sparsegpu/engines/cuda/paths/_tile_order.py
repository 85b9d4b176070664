"""The order in which tiles of attention are computed (``cuda_src/common/query_tile.cuh``)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ...._math import ceil_div
from ....pattern import Pattern
from ..runtime.device import l2_bytes, multiprocessors

_ROUNDS = 2  # at least, in which the tiles of heads that take turns are dealt out
_UNEVEN = 1.05  # the longest work of a team over the average from which on heads take turns
_LONG = 0.25  # density from which on tiles of a head read the same keys at about the same time
_SIMULATED = 1 << 14  # tiles, at most: more are always dealt out evenly enough


def band_of_heads(
    heads: int, tiles: int, read: int, pattern: Pattern, teams: int | None = None
) -> int:
    """Return how many heads take turns in the order of the tiles; 1: one head after the other.

    Parameters
    ----------
    heads, tiles : int
        All heads, and the tiles of one, the longest first.
    read : int
        Bytes that the tiles of all heads read again and again.
    pattern : Pattern
        What the tiles walk.
    teams : int, optional
        To which tiles are dealt out. None: each tile has a thread block of its own, and the device
        takes these in their order.

    Notes
    -----
    Tiles that are dealt out are those of one head after the other, unless teams would have very
    different shares of them. Where rows are short, that keeps more of the keys in L2: on an H200,
    at density 0.1, heads that take turns are up to 4% slower with blocks of 64x64. Where rows are
    long, turns are 3% faster (causal, 32 heads of 8192).
    """
    rows, columns = pattern.block_shape
    long = _LONG * rows * columns <= pattern.nnzb < rows * columns
    if teams is not None and not long and unevenness(heads, tiles, teams) <= _UNEVEN:
        return 1
    fitting = heads * l2_bytes() // (3 * max(read, 1))
    enough = ceil_div(_ROUNDS * (teams or multiprocessors()), tiles)
    return equal_bands(heads, fitting, max(enough, 2))


def equal_bands(heads: int, fitting: int, enough: int) -> int:
    """Return how many heads take turns: as many as fit L2, or enough; half or twice to be equal.

    Examples
    --------
    >>> equal_bands(64, 20, 9), equal_bands(32, 5, 5), equal_bands(61, 20, 9)
    (16, 8, 20)
    """
    wanted = min(max(fitting, enough), heads)
    if heads % wanted == 0:
        return wanted
    near = range(max(enough, ceil_div(wanted, 2)), min(2 * wanted, heads) + 1)
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
