"""Operations whose host time is measured, on operands so small that the whole result is checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

import sparsegpu as sg

from ..testing import (
    ATTENTION_TOLERANCE,
    accuracy_bound,
    assert_close,
    softmax_backward_bound,
    softmax_bound,
    to_host,
)
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
    exact : callable
        Returns the exact result as a dense array, and its bound.
    """

    exact: Callable[[], Exact]

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
    tall = (random_array(xp, (rows, n), matrix.dtype, seed + rows) for rows in (m, k))
    call, exact, *dense = OPERATIONS[case.operation](matrix, *tall)
    return OperationWorkload(case, call, matrix.data, (matrix.data, *dense), exact)


def _toarray(matrix: sg.bsr_array, *_: Any) -> Arrays:
    return matrix.toarray, lambda: (_on_host(matrix), 0)


def _transpose(matrix: sg.bsr_array, *_: Any) -> Arrays:
    return (lambda: matrix.T), lambda: (_on_host(matrix).T, 0)


def _from_dense(matrix: sg.bsr_array, *_: Any) -> Arrays:
    dense = matrix.toarray()
    convert = partial(sg.bsr_array, dense, blocksize=matrix.blocksize)
    return convert, lambda: (_on_host(matrix), 0), dense


def _softmax(matrix: sg.bsr_array, *_: Any) -> Arrays:
    def exact() -> Exact:
        values = np.where(_stored(matrix), _on_host(matrix), -np.inf)
        return _exact_softmax(values, matrix.dtype)

    return partial(sg.bsr_softmax, matrix), exact


def _softmax_backward(matrix: sg.bsr_array, *_: Any) -> Arrays:
    grad = matrix.with_data(matrix.data[::-1].copy())

    def exact() -> Exact:
        stored = _stored(matrix)
        g, y = (np.where(stored, to_host(a.toarray()), 0) for a in (grad, matrix))
        gradient, bound = softmax_backward_bound(g.astype(matrix.dtype), y.astype(matrix.dtype))
        return np.where(stored, gradient, 0), bound

    return partial(sg.bsr_softmax_backward, grad, matrix), exact, grad.data


def _attention(matrix: sg.bsr_array, query: Any, key: Any) -> Arrays:
    """Attention with the pattern as its mask, and the keys as values."""
    mask = matrix.with_data(matrix.data == matrix.data)

    def exact() -> Exact:
        q, k = (to_host(a).astype(np.float64) for a in (query, key))
        scores = np.where(_stored(matrix), q @ k.T * q.shape[-1] ** -0.5, -np.inf)
        out = (_exact_softmax(scores, np.dtype(np.float64))[0] @ k)[None]
        return out, ATTENTION_TOLERANCE[key.dtype.name] * (1 + np.abs(out))

    operands = (query[None], key[None], key[None])
    return partial(sg.scaled_dot_product_attention, *operands, mask), exact, *operands


def _scatter_mm(matrix: sg.bsr_array, _: Any, other: Any) -> Arrays:
    indices = sg.bsr_scatter_mm_indices_data(matrix, other)
    call = partial(sg.scatter_mm, matrix.data, other, indices)
    return call, lambda: accuracy_bound(matrix.toarray(), other), other


def _bsr_scatter_mm(matrix: sg.bsr_array, _: Any, other: Any) -> Arrays:
    indices = sg.bsr_scatter_mm_indices_data(matrix, other)
    call = partial(sg.bsr_scatter_mm, matrix, other, indices)
    return call, lambda: accuracy_bound(matrix.toarray(), other), other


#: Each takes a matrix and random values (M, N) and (K, N). It returns the call, what computes the
#: exact result, and the dense operands.
OPERATIONS: dict[str, Callable[..., Arrays]] = {
    "toarray": _toarray,
    "transpose": _transpose,
    "bsr_array": _from_dense,
    "bsr_softmax": _softmax,
    "bsr_softmax_backward": _softmax_backward,
    "scaled_dot_product_attention": _attention,
    "scatter_mm": _scatter_mm,
    "bsr_scatter_mm": _bsr_scatter_mm,
}


def _on_host(matrix: sg.bsr_array) -> np.ndarray:
    return to_host(matrix.toarray()).astype(np.float64)


def _stored(matrix: sg.bsr_array) -> np.ndarray:
    """Return which elements of a matrix are stored."""
    return to_host(matrix.with_data(matrix.data == matrix.data).toarray())


def _exact_softmax(values: np.ndarray, dtype: np.dtype) -> Exact:
    """Return the softmax of rows in which what is not stored is -inf; 0 in empty rows."""
    largest = values.max(axis=-1, keepdims=True)
    powers = np.exp(values - np.where(np.isfinite(largest), largest, 0))
    exact = powers / np.maximum(powers.sum(axis=-1, keepdims=True), np.finfo(np.float64).tiny)
    return exact, np.where(np.isfinite(values), softmax_bound(values.astype(dtype), exact), 0)
