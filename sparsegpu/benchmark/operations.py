"""Operations whose host time is measured, on operands so small that the whole result is checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

import sparsegpu as sg

from ..testing import ATTENTION_TOLERANCE, accuracy_bound, assert_close, softmax_bound, to_host
from ..tuning.operands import random_array
from .case import Case
from .check import fraction_used
from .workload import Arrays, Workload, make_matrix

#: The exact result, and the bound of its error before it is rounded.
Exact = tuple[np.ndarray, Any]


@dataclass(eq=False)
class OperationWorkload(Workload):
    """An operation on a block-sparse matrix.

    Attributes
    ----------
    sparse : bsr_array
    operands : tuple of array
        The dense ones.
    exact : callable
        Returns the exact result as a dense array, and its bound.
    """

    sparse: sg.bsr_array
    operands: Arrays
    exact: Callable[[], Exact]

    @property
    def stored(self) -> int:
        return int(self.sparse.data.size)

    @property
    def stored_bytes(self) -> int:
        return int(self.sparse.data.nbytes)

    @property
    def bytes(self) -> int:
        arrays = (self.sparse.data, *self.operands, *self.results())
        return sum(int(array.nbytes) for array in arrays)

    def results(self) -> Arrays:
        """Do the work and return its result, of a block-sparse one the stored blocks."""
        answer = self.call()
        return (answer.data if isinstance(answer, sg.bsr_array) else answer,)

    def error(self) -> float:
        answer = self.call()
        dense = answer.toarray() if isinstance(answer, sg.bsr_array) else answer
        out, (exact, bound) = to_host(dense), self.exact()
        assert_close(out, exact, bound)
        return fraction_used(out, exact, np.broadcast_to(bound, exact.shape))


def make_operation(case: Case, xp: ModuleType, seed: int = 0) -> OperationWorkload:
    """Draw the operands of a case in the given array library."""
    matrix = make_matrix(case, xp, seed)
    m, k, n = case.shape
    shapes = OPERATIONS[case.operation][1](m, k, n)
    dense = tuple(
        random_array(xp, shape, matrix.dtype, seed + 1 + i) for i, shape in enumerate(shapes)
    )
    call, exact = OPERATIONS[case.operation][0](matrix, *dense)
    return OperationWorkload(case, call, matrix, dense, exact)


Made = tuple[Callable[[], Any], Callable[[], Exact]]


def _toarray(matrix: sg.bsr_array) -> Made:
    return matrix.toarray, lambda: (_host_values(matrix), 0)


def _from_dense(matrix: sg.bsr_array) -> Made:
    call = partial(sg.bsr_array, matrix.toarray(), blocksize=matrix.blocksize)
    return call, lambda: (_host_values(matrix), 0)


def _softmax(matrix: sg.bsr_array) -> Made:
    def exact() -> Exact:
        return _exact_softmax(
            np.where(_stored(matrix), _host_values(matrix), -np.inf), matrix.dtype
        )

    return partial(sg.bsr_softmax, matrix), exact


def _attention(matrix: sg.bsr_array, query: Any, key: Any, value: Any) -> Made:
    mask = matrix.with_data(matrix.data == matrix.data)  # every stored position may be attended to

    def exact() -> Exact:
        q, k, v = (to_host(a)[0].astype(np.float64) for a in (query, key, value))
        scores = np.where(_stored(matrix), q @ k.T * q.shape[-1] ** -0.5, -np.inf)
        out = _exact_softmax(scores, np.dtype(np.float64))[0] @ v
        return out[None], ATTENTION_TOLERANCE[value.dtype.name] * (1 + np.abs(out[None]))

    return partial(sg.scaled_dot_product_attention, query, key, value, mask), exact


def _sampled_addmm(matrix: sg.bsr_array, mat1: Any, mat2: Any) -> Made:
    def exact() -> Exact:
        product, bound = accuracy_bound(mat1, mat2)
        stored = _stored(matrix)
        return np.where(stored, product, 0), np.where(stored, bound, 0)

    return partial(sg.sampled_addmm, matrix, mat1, mat2, beta=0), exact


def _scatter_mm(matrix: sg.bsr_array, other: Any) -> Made:
    indices = sg.bsr_scatter_mm_indices_data(matrix, other)
    return partial(sg.scatter_mm, matrix.data, other, indices), partial(
        _exact_product, matrix, other
    )


def _bsr_scatter_mm(matrix: sg.bsr_array, other: Any) -> Made:
    return partial(sg.bsr_scatter_mm, matrix, other), partial(_exact_product, matrix, other)


Shapes = tuple[tuple[int, ...], ...]
#: Of each operation what makes its call, and the shapes of its dense operands by M, K and N.
OPERATIONS: dict[str, tuple[Callable[..., Made], Callable[[int, int, int], Shapes]]] = {
    "toarray": (_toarray, lambda m, k, n: ()),
    "bsr_array": (_from_dense, lambda m, k, n: ()),
    "bsr_softmax": (_softmax, lambda m, k, n: ()),
    "scaled_dot_product_attention": (_attention, lambda m, k, n: ((1, m, n), (1, k, n), (1, k, n))),
    "sampled_addmm": (_sampled_addmm, lambda m, k, n: ((m, n), (n, k))),
    "scatter_mm": (_scatter_mm, lambda m, k, n: ((k, n),)),
    "bsr_scatter_mm": (_bsr_scatter_mm, lambda m, k, n: ((k, n),)),
}


def _host_values(matrix: sg.bsr_array) -> np.ndarray:
    return to_host(matrix.toarray()).astype(np.float64)


def _stored(matrix: sg.bsr_array) -> np.ndarray:
    """Return which elements of a matrix are stored."""
    return to_host(matrix.with_data(matrix.data == matrix.data).toarray())


def _exact_product(matrix: sg.bsr_array, other: Any) -> Exact:
    return accuracy_bound(matrix.toarray(), other)


def _exact_softmax(values: np.ndarray, dtype: np.dtype) -> Exact:
    """Return the softmax of rows in which what is not stored is -inf; 0 in empty rows."""
    largest = values.max(axis=-1, keepdims=True)
    powers = np.exp(values - np.where(np.isfinite(largest), largest, 0))
    exact = powers / np.maximum(powers.sum(axis=-1, keepdims=True), np.finfo(np.float64).tiny)
    return exact, np.where(np.isfinite(values), softmax_bound(values.astype(dtype), exact), 0)
