"""Peak device memory of every operation: its result, and the workspace that its case states."""

from itertools import product
from math import prod

import numpy as np
import pytest
import scipy.sparse

import memory_cases_24  # noqa: F401  (adds its cases)
import memory_cases_paths  # noqa: F401  (adds its cases)
from memory_cases import CASES
from sparsegpu.testing import random_values


@pytest.mark.gpu
@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_peak_is_result_and_workspace(cuda_engine, rng, make):
    kernels, call, workspace = make(cuda_engine.xp, rng)
    first = call()
    result = cuda_engine.nbytes(*(first if isinstance(first, tuple) else (first,)))
    with cuda_engine.runs(*kernels, peak_bytes=result + workspace):
        call()


def stencil(rng, sides):
    """Return 3 x 3 blocks for the 27 points around each point of a box, in order."""
    numbers, rows, columns = np.arange(prod(sides)).reshape(sides), [], []
    for shift in product((-1, 0, 1), repeat=3):
        there = [(n, s) for n, s in zip(sides, shift)]
        rows.append(numbers[tuple(slice(max(-s, 0), n - max(s, 0)) for n, s in there)].ravel())
        columns.append(numbers[tuple(slice(max(s, 0), n - max(-s, 0)) for n, s in there)].ravel())
    row, column = np.concatenate(rows), np.concatenate(columns)
    order = np.lexsort((column, row))
    indptr = np.searchsorted(row[order], np.arange(prod(sides) + 1)).astype(np.int32)
    data = random_values(rng, (row.size, 3, 3), "float64", small_integers=True)
    return data, column[order].astype(np.int32), indptr


def test_the_square_of_a_stencil(engine, rng):
    """The first product takes at most 1 GB beside its result, later ones nothing."""
    sides = (40, 50, 50) if engine.on_gpu else (4, 5, 6)
    triple, shape = stencil(rng, sides), (3 * prod(sides),) * 2
    a = engine.bsr(triple, shape)
    # Two points are at most two apart along each axis.
    count = prod(5 * n - 6 for n in sides)
    whole = count * (9 * 8 + 4) + 4 * (prod(sides) + 1)
    with engine.runs("bsr_spgemm", peak_bytes=whole + 10**9):
        first = a @ a
    with engine.runs("bsr_spgemm", peak_bytes=engine.nbytes(first.data)):
        again = a @ a
    assert first.nnzb == count and (first.data == again.data).all()
    exact, starts = scipy.sparse.bsr_array(triple, shape=shape).tocsr(), engine.host(first.indptr)
    for i in (0, prod(sides) // 2, prod(sides) - 1):
        here = slice(int(starts[i]), int(starts[i + 1]))
        row = np.zeros((3, shape[1] // 3, 3))
        row[:, engine.host(first.indices[here])] = engine.host(first.data[here]).swapaxes(0, 1)
        expected = (exact[3 * i : 3 * i + 3] @ exact).toarray()
        np.testing.assert_array_equal(row.reshape(expected.shape), expected)
