"""The cases of sparse times sparse."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .bars import Bar
from .case import Case
from .peer import DENSE, SPGEMM
from .spgemm import OPERATION

_8192 = (8192, 8192, 8192)
_STENCIL = 46**3 * 3  # 27 points on a cube, three unknowns each
_TILED = 40_000
#: By which share of the rate of a product with a dense matrix of as many columns.
_OF_DENSE = 0.5


def products() -> Iterable[Case]:
    """Sparse times sparse: the same patterns again, on other paths, and their first product."""
    square = Case("spgemm", (64, 64), 0.1, _8192, operation=OPERATION, bars=(Bar("ms", 0.15),))
    yield from _with(square, ("simt",), (Bar("ms", 1.0),))
    for block in (16, 32, 128):
        yield from _with(replace(square, block=(block, block), bars=()), ())
    single = replace(square, block=(32, 32), dtype="float32", bars=())
    yield from _beside_dense(single)
    yield replace(single, measure="first call", peers_of=single.name)
    yield from _beside_dense(replace(single, block=(16, 16), dtype="float64"))
    yield replace(single, dtype="int8")
    # At a density of 0.1 cuSPARSE would multiply 5.5e9 pairs of elements, which takes seconds.
    thin = replace(single, density=0.01, peers=(SPGEMM,), goals=(Bar("peer time", 1.0, SPGEMM),))
    yield from _with(thin, ())
    stencil = replace(
        square,
        block=(3, 3),
        density=27 * 3 / _STENCIL,
        size=(_STENCIL,) * 3,
        dtype="float64",
        pattern="stencil",
        peers=(SPGEMM,),
    )
    repeated = (Bar("ms", 8.0), Bar("peer time", 0.2, SPGEMM))
    first = (Bar("ms", 40.0), Bar("peer time", 0.5, SPGEMM))
    yield from _with(replace(stencil, bars=repeated), ("small", "simt"), first)
    for block in (4, 8):
        few = 10 * block / _TILED
        small = replace(stencil, block=(block, block), density=few, size=(_TILED,) * 3, bars=())
        yield from _with(replace(small, pattern="strata"), ("small",))


def _beside_dense(case: Case) -> Iterable[Case]:
    """Yield a product with a dense matrix, and the sparse product that should reach half its rate.

    The dense product of both matrices is the peer: the result stores nearly all blocks.
    """
    dense = replace(case, operation="bsr")
    yield dense
    yield replace(case, peers=(DENSE,), goals=(Bar("case rate", _OF_DENSE, dense.name),))


def _with(case: Case, paths: Iterable[str], first: tuple[Bar, ...] = ()) -> Iterable[Case]:
    """Yield a case, the same on some paths, and the first product of its patterns."""
    yield case
    for path in paths:
        yield replace(case, path=path, peers=(), peers_of=case.name, bars=(), goals=())
    first_call = replace(case, measure="first call", peers=(), peers_of=case.name)
    yield replace(first_call, bars=first, goals=())
