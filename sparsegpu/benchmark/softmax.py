"""Softmax of large matrices and its gradient, checked on some block rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

import sparsegpu as sg

from ..testing import assert_close, softmax_backward_bound, softmax_bound, to_host
from ..tuning.operands import random_array
from .case import Case
from .check import fraction_used, stripes
from .workload import Arrays, Workload, make_matrix

_BLOCK_ROWS = 8  # that are compared


@dataclass(eq=False)
class SoftmaxWorkload(Workload):
    """Work along the rows of block-sparse matrices of one pattern.

    Attributes
    ----------
    matrices : tuple of bsr_array
        The operands.
    out : bsr_array
    exact : callable
        Of what a row stores in each operand; returns the exact result and its bound.
    """

    matrices: tuple[sg.bsr_array, ...]
    out: sg.bsr_array
    exact: Callable[..., tuple[np.ndarray, np.ndarray]]

    def results(self) -> Arrays:
        self.out.data.fill(np.nan)
        self.call()
        return (self.out.data,)

    def error(self) -> float:
        self.results()
        pattern, worst = self.out.pattern, 0.0
        indptr, bm = to_host(pattern.indptr), pattern.blocksize[0]
        for i in stripes(len(indptr) - 1, np.random.default_rng(0), _BLOCK_ROWS):
            stored = slice(int(indptr[i]), int(indptr[i + 1]))
            if stored.start == stored.stop:
                continue
            rows, *operands = (
                to_host(a.data[stored]).transpose(1, 0, 2).reshape(bm, -1)
                for a in (self.out, *self.matrices)
            )
            exact, bound = self.exact(*operands)
            assert_close(rows, exact, bound)
            worst = max(worst, fraction_used(rows, exact, bound))
        return worst


def _softmax(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    wide = x.astype(np.float64)
    powers = np.exp(wide - wide.max(axis=-1, keepdims=True))
    exact = powers / powers.sum(axis=-1, keepdims=True)
    return exact, softmax_bound(x, exact)


#: The work, how many operands it has, and what it is checked by.
SOFTMAX: dict[str, tuple[Callable[..., Any], int, Callable[..., Any]]] = {
    "softmax": (sg.bsr_softmax, 1, _softmax),
    "softmax gradient": (sg.bsr_softmax_backward, 2, softmax_backward_bound),
}


def make_softmax(case: Case, xp: ModuleType, seed: int = 0) -> SoftmaxWorkload:
    """Draw the operands of a case in the given array library."""
    work, count, exact = SOFTMAX[case.operation]
    first = make_matrix(case, xp, seed)
    matrices = [first]
    for i in range(1, count):
        data = random_array(xp, first.data.shape, first.dtype, seed + i)
        matrices.append(first.with_data(data))
    out = first.with_data(xp.empty_like(first.data))
    operands = tuple(a.data for a in matrices)
    call = partial(work, *matrices, out=out)
    return SoftmaxWorkload(case, call, first.data, operands, tuple(matrices), out, exact)
