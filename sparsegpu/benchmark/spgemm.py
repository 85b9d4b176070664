"""Sparse times sparse: two matrices of a case's shape and pattern, some rows of whose product are
checked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from statistics import median
from types import ModuleType
from typing import Any

import numpy as np

import sparsegpu as sg

from ..testing import accuracy_bound, assert_close, to_host
from ..tuning import timing
from .case import Case
from .check import fraction_used, stripes
from .workload import Workload, make_matrix

OPERATION = "bsr_spgemm"

_CHECKED = 12  # block rows
_FIRST_CALLS = 7


@dataclass(eq=False)
class SpgemmWorkload(Workload):
    """A product of two matrices.

    Attributes
    ----------
    left, right : bsr_array
    """

    left: sg.bsr_array
    right: sg.bsr_array

    @property
    def flops(self) -> int:
        """Of the blocks that meet."""
        lengths = np.diff(to_host(self.right.indptr).astype(np.int64))
        pairs = int(lengths[to_host(self.left.indices)].sum())
        return 2 * pairs * self.left.blocksize[0] * self.left.blocksize[1] ** 2

    def results(self) -> tuple[Any, ...]:
        """Multiply, and return the stored blocks."""
        return (self.call().data,)

    def error(self) -> float:
        """Compare some block rows with the exact ones: stored blocks, and their values."""
        result, worst = self.call(), 0.0
        parts = [
            [to_host(x) for x in (m.indptr, m.indices)] for m in (self.left, self.right, result)
        ]
        rows = stripes(result.pattern.block_shape[0], np.random.default_rng(0), _CHECKED)
        for row in map(int, rows):
            (first, last), met = _row(parts[0], row)
            begin, end = _row(parts[2], row)[0]
            of_right = [_row(parts[1], k) for k in met]
            columns = np.unique([column for _, found in of_right for column in found])
            if not np.array_equal(parts[2][1][begin:end], columns):
                raise AssertionError(f"block row {row} stores other blocks than meet there")
            if not len(columns):
                continue
            bm, bk = self.left.blocksize
            bn = self.right.blocksize[1]
            dense = np.zeros((len(met), bk, len(columns), bn), np.float64)
            for i, ((q0, q1), found) in enumerate(of_right):
                blocks = to_host(self.right.data[q0:q1]).astype(np.float64)
                dense[i][:, np.searchsorted(columns, found)] = blocks.swapaxes(0, 1)
            strip = to_host(self.left.data[first:last]).swapaxes(0, 1).reshape(bm, -1)
            exact, bound = accuracy_bound(
                strip.astype(np.float64), dense.reshape(len(met) * bk, -1), dtype=strip.dtype
            )
            out = to_host(result.data[begin:end]).swapaxes(0, 1).reshape(bm, -1)
            assert_close(out, exact, bound)
            worst = max(worst, fraction_used(out, exact, bound))
        return worst

    def first_ms(self) -> float:
        """Return the time of a product of two patterns that never met, in ms.

        Kernels are compiled and loaded before.
        """

        def spent() -> float:
            new = (
                sg.bsr_array((m.data, m.indices, m.indptr), shape=m.shape, check=False)
                for m in (self.left, self.right)
            )
            return timing.whole_us(partial(sg.bsr_spgemm, *new, **config_of(self.case))) / 1e3

        return median([spent() for _ in range(_FIRST_CALLS)][1:])


def _row(parts: list[np.ndarray], row: int) -> tuple[tuple[int, int], np.ndarray]:
    """Return where a block row starts and ends, and its block columns."""
    indptr, indices = parts
    first, last = int(indptr[row]), int(indptr[row + 1])
    return (first, last), indices[first:last]


def make_spgemm(case: Case, xp: ModuleType, seed: int = 0) -> SpgemmWorkload:
    """Draw the matrices of a case, both square."""
    left, right = (make_matrix(case, xp, seed + i) for i in range(2))
    call = partial(sg.bsr_spgemm, left, right, **config_of(case))
    return SpgemmWorkload(case, call, left.data, (left.data, right.data), left, right)


def config_of(case: Case) -> dict[str, Any]:
    """Return the keyword that chooses a case's path, if it has one."""
    return {"config": {"path": case.path}} if case.path else {}
