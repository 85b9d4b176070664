"""Work on the 2:4 format as problems of the race, checked on slabs against the reference engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

import sparsegpu as sg

from .._arrays import dtype_of
from ..testing import to_host
from .case import Case
from .problem import random_values

_SLAB = 64  # rows or columns; whole stripes of the metadata and whole cells of the bitmask
_CELL = 8

Arrays = tuple[Any, ...]


class Format(NamedTuple):
    """A piece of work.

    Attributes
    ----------
    operands : callable
        What it reads, made from a random matrix.
    work : callable
    results : tuple of {"dense", "packed", "meta", "packed_t", "meta_t", "bitmask"}
        What it returns.
    """

    operands: Callable[[Any], Arrays]
    work: Callable[..., Any]
    results: tuple[str, ...]


def _compressed(dense: Any) -> Arrays:
    return sg.semi_structured_from_dense(sg.prune_24(dense), strict=False)


def _masked(dense: Any) -> Arrays:
    return dense, sg.semi_structured_tile(dense)[-1]


def _compress(strict: bool) -> Format:
    return Format(
        lambda dense: (sg.prune_24(dense),),
        lambda pruned: sg.semi_structured_from_dense(pruned, strict=strict),
        ("packed", "meta"),
    )


_HALVES = ("packed", "meta", "packed_t", "meta_t")
FORMATS = {
    "compress": _compress(strict=False),
    "strict compress": _compress(strict=True),
    "expand": Format(_compressed, sg.semi_structured_to_dense, ("dense",)),
    "prune_24": Format(lambda dense: (dense,), sg.prune_24, ("dense",)),
    "prune_tile": Format(lambda dense: (dense,), sg.prune_tile, ("dense",)),
    "tile": Format(lambda dense: (dense,), sg.semi_structured_tile, (*_HALVES, "bitmask")),
    "apply": Format(_masked, sg.semi_structured_apply, _HALVES),
    "apply_dense": Format(_masked, sg.semi_structured_apply_dense, ("dense",)),
}


@dataclass(eq=False)
class FormatProblem:
    """A piece of work on a random matrix.

    Attributes
    ----------
    case : Case
    dense : array (M, K)
        What the operands are made from.
    operands : tuple of array
    """

    case: Case
    dense: Any
    operands: Arrays

    def call(self) -> Any:
        """Do the work."""
        return FORMATS[self.case.operation].work(*self.operands)

    def results(self) -> Arrays:
        """Do the work and return its arrays."""
        answer = self.call()
        return answer if isinstance(answer, tuple) else (answer,)

    @property
    def stored(self) -> int:
        """Number of elements that are kept."""
        return int(self.dense.size) // 2

    @property
    def stored_bytes(self) -> int:
        """Bytes of the kept values."""
        return self.stored * int(self.dense.itemsize)

    @property
    def flops(self) -> int:
        """One look at each element."""
        return int(self.dense.size)

    @property
    def bytes(self) -> int:
        """Bytes that must be moved: operands and results once."""
        return sum(int(array.nbytes) for array in (*self.operands, *self.results()))

    def same_bits(self) -> bool:
        """Do the work twice and compare the bits."""
        first, again = (tuple(_bits(a) for a in self.results()) for _ in range(2))
        return all(bool((a == b).all()) for a, b in zip(first, again, strict=True))

    def error(self) -> float:
        """Hold slabs of the results to the reference engine's: 0, as all bits must agree.

        Raises
        ------
        AssertionError
            Some do not.
        """
        names = FORMATS[self.case.operation].results
        found = dict(zip(names, self.results(), strict=True))
        for by_rows in (True, False):
            mine = [name for name in names if name.endswith("_t") != by_rows]
            for start in _slabs(self.dense.shape[0 if by_rows else 1]) if mine else ():
                expected = self._expected(start, by_rows)
                for name in mine:
                    got = _bits(to_host(_part(name, found[name], start)))
                    wanted = _bits(_part(name, expected[name], 0))
                    if not np.array_equal(got, wanted):
                        line = "row" if by_rows else "column"
                        raise AssertionError(f"{name} differs in the slab from {line} {start} on")
        return 0.0

    def _expected(self, start: int, by_rows: bool) -> dict[str, Any]:
        """Return what the reference engine makes of some rows, or columns, alone."""
        slab = slice(start, start + _SLAB)
        part = to_host(self.dense[slab] if by_rows else self.dense[:, slab])
        form = FORMATS[self.case.operation]
        with sg.use_engine("reference"):
            answer = form.work(*form.operands(np.ascontiguousarray(part)))
        return dict(
            zip(form.results, answer if isinstance(answer, tuple) else (answer,), strict=True)
        )


def make_format_problem(case: Case, xp: ModuleType, seed: int = 0) -> FormatProblem:
    """Draw a case's matrix in the given array library."""
    m, k, _ = case.shape
    dense = random_values(xp, (m, k), dtype_of(case.dtype), seed)
    return FormatProblem(case, dense, FORMATS[case.operation].operands(dense))


def _slabs(size: int) -> list[int]:
    """Return where slabs begin: the first, one in the middle, the last."""
    whole = size // _SLAB
    return sorted({0, whole // 2 * _SLAB, (whole - 1) * _SLAB})


def _part(name: str, array: Any, start: int) -> Any:
    """Return what a result has of a slab."""
    if name.startswith("meta"):
        array = sg.restore_meta(array)
    lines = 1 if name != "bitmask" else _CELL
    return array[start // lines : (start + _SLAB) // lines]


def _bits(array: Any) -> Any:
    """Return an array's elements as whole numbers, which are equal as their bits are."""
    return array.view(np.dtype(f"u{array.itemsize}"))
