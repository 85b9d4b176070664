"""Conversions and pruning of 2:4, compared with the reference engine on slabs of the matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

import sparsegpu as sg

from .._arrays import dtype_of
from ..testing import to_host
from ..tuning.operands import random_array
from .case import Case
from .workload import Arrays, Workload, bits_of

_SLAB = 64  # rows or columns: whole tiles of the metadata and of the bitmask
_CELL = 8  # rows and columns of an element of the bitmask


class Format(NamedTuple):
    """A function of the format.

    Attributes
    ----------
    operands : callable
        Makes its operands from a random matrix.
    work : callable
    results : tuple of {"dense", "packed", "meta", "packed_t", "meta_t", "bitmask"}
        What it returns.
    """

    operands: Callable[[Any], Arrays]
    work: Callable[..., Any]
    results: tuple[str, ...]


def compressed(dense: Any) -> Arrays:
    """Return a matrix as 2:4 pruning leaves it: packed values and metadata."""
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
    "expand": Format(compressed, sg.semi_structured_to_dense, ("dense",)),
    "prune_24": Format(lambda dense: (dense,), sg.prune_24, ("dense",)),
    "prune_tile": Format(lambda dense: (dense,), sg.prune_tile, ("dense",)),
    "tile": Format(lambda dense: (dense,), sg.semi_structured_tile, (*_HALVES, "bitmask")),
    "apply": Format(_masked, sg.semi_structured_apply, _HALVES),
    "apply_dense": Format(_masked, sg.semi_structured_apply_dense, ("dense",)),
}


@dataclass(eq=False)
class FormatWorkload(Workload):
    """Work on a random matrix.

    Attributes
    ----------
    dense : array (M, K)
        The matrix from which the operands are made.
    """

    dense: Any

    def error(self) -> float:
        """Compare slabs of the results with the reference engine's; 0, as all bits must agree."""
        names = FORMATS[self.case.operation].results
        found = dict(zip(names, self.results(), strict=True))
        for by_rows in (True, False):
            mine = [name for name in names if name.endswith("_t") != by_rows]
            for start in _slabs(self.dense.shape[0 if by_rows else 1]) if mine else ():
                expected = self._expected(start, by_rows)
                for name in mine:
                    got = bits_of(to_host(_part(name, found[name], start)))
                    wanted = bits_of(_part(name, expected[name], 0))
                    if not np.array_equal(got, wanted):
                        line = "row" if by_rows else "column"
                        raise AssertionError(f"{name} differs in the slab from {line} {start} on")
        return 0.0

    def _expected(self, start: int, by_rows: bool) -> dict[str, Any]:
        """Return the reference engine's results for a slab of rows or columns."""
        slab = slice(start, start + _SLAB)
        part = to_host(self.dense[slab] if by_rows else self.dense[:, slab])
        form = FORMATS[self.case.operation]
        with sg.use_engine("reference"):
            answer = form.work(*form.operands(np.ascontiguousarray(part)))
        return dict(
            zip(form.results, answer if isinstance(answer, tuple) else (answer,), strict=True)
        )


def make_format(case: Case, xp: ModuleType, seed: int = 0) -> FormatWorkload:
    """Draw the matrix of a case in the given array library."""
    m, k, _ = case.shape
    dense = random_array(xp, (m, k), dtype_of(case.dtype), seed)
    operation = FORMATS[case.operation]
    operands = operation.operands(dense)
    kept = dense[: m // 2]  # as many values as are kept
    return FormatWorkload(case, partial(operation.work, *operands), kept, operands, dense)


def _slabs(size: int) -> list[int]:
    """Return the starts of the first slab, of one in the middle and of the last."""
    whole = size // _SLAB
    return sorted({0, whole // 2 * _SLAB, (whole - 1) * _SLAB})


def _part(name: str, array: Any, start: int) -> Any:
    """Return the part of a result that a slab determines."""
    if name.startswith("meta"):
        array = sg.restore_meta(array)
    lines = 1 if name != "bitmask" else _CELL
    return array[start // lines : (start + _SLAB) // lines]
