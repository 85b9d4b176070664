"""Softmax of stored rows in every engine, against a float64 formula on the dense matrix."""

from __future__ import annotations

import numpy as np
import pytest

import sparsegpu
from covering import covered
from softmax_contract import DTYPES, RowContract, stored_elements
from sparsegpu._arrays import dtype_of
from sparsegpu.testing import (
    assert_close,
    dense_from_blocks,
    random_blocks,
    softmax_bound,
)


class TestRows(RowContract):
    function = staticmethod(sparsegpu.bsr_softmax)

    @staticmethod
    def draw(rng, shape, blocksize, dtype="float32", **how):
        return (random_blocks(rng, shape, blocksize, dtype=dtype, **how),)

    @staticmethod
    def expected(parts, shape):
        data, indices, indptr = parts
        x = dense_from_blocks(data, indices, indptr, shape)
        stored = stored_elements(indices, indptr, data.shape[1:], shape)
        result, bound = np.zeros(shape), np.zeros(shape)
        for r, columns in enumerate(stored):
            if columns.any():
                with np.errstate(invalid="ignore"):
                    e = np.exp((x[r, columns] - x[r, columns].max()).astype(np.float64))
                    result[r, columns] = e / e.sum()
                    row = x[r, columns].astype(data.dtype)
                    bound[r, columns] = softmax_bound(row, result[r, columns])
        return result, bound


@pytest.mark.parametrize("dtype", DTYPES)
def test_duplicates_are_summed_first(engine, rng, dtype):
    shape = (12, 20)
    parts = random_blocks(
        rng, shape, (3, 4), dtype=dtype, density=0.8, duplicates=True, small_integers=True
    )
    TestRows.check(engine, parts, shape=shape)


@covered(dtype=DTYPES, blocksize=[(1, 4), (4, 2), (2, 40)])
def test_special_values_stay_in_their_row(engine, dtype, blocksize):
    """Row 0: a NaN; row 1: only -inf; row 2: +inf; row 3: a -inf among others."""
    bm, bk = blocksize
    x = np.ones((4, 3 * bk))
    x[0, 1], x[1], x[2, 2], x[3, 0] = np.nan, -np.inf, np.inf, -np.inf
    dense = np.ones((4 * bm, 3 * bk))
    dense[::bm] = x
    a = sparsegpu.bsr_array(engine.array(dense.astype(dtype_of(dtype))), blocksize=blocksize)
    with engine.runs("bsr_softmax"):
        result = sparsegpu.bsr_softmax(a)
    got = engine.host(result.toarray()).astype(np.float64)
    assert np.isnan(got[: 3 * bm : bm]).all()
    n = 3 * bk
    exact = np.full((4 * bm, n), 1 / n)
    exact[3 * bm] = np.r_[0, np.full(n - 1, 1 / (n - 1))]
    rest = sorted(set(range(4 * bm)) - {0, bm, 2 * bm})
    x = dense[rest].astype(dtype_of(dtype))
    assert_close(got[rest].astype(x.dtype), exact[rest], softmax_bound(x, exact[rest]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_large_values_do_not_overflow(engine, dtype):
    dense = np.array([[60000, 60000, -60000, 1], [-60000, -60000, -60000, -60000]])
    a = sparsegpu.bsr_array(engine.array(dense.astype(dtype_of(dtype))), blocksize=(2, 2))
    with engine.runs("bsr_softmax"):
        result = sparsegpu.bsr_softmax(a)
    assert engine.host(result.toarray()).tolist() == [[0.5, 0.5, 0, 0], [0.25] * 4]


def test_a_sorted_pattern_is_kept(engine, rng):
    a = engine.bsr(random_blocks(rng, (8, 12), (2, 3), shuffled=False), (8, 12))
    with engine.runs("bsr_softmax"):
        assert sparsegpu.bsr_softmax(a).pattern is a.pattern


def test_errors(engine, rng):
    shape = (4, 4)
    parts = random_blocks(rng, shape, (2, 2), density=0.5)
    a = engine.bsr(parts, shape)
    other = sparsegpu.bsr_array(engine.array(np.ones(shape, np.float32)), blocksize=(2, 2))
    upper, unsorted, lower = (
        engine.bsr((np.ones((2, 2, 2), np.float32), np.array(columns), np.array(ends)), shape)
        for columns, ends in (([0, 1], [0, 2, 2]), ([1, 0], [0, 2, 2]), ([0, 1], [0, 0, 2]))
    )
    memory = engine.xp.zeros(a.data.size + 3, np.float32)
    first, second = (a.with_data(memory[i : i - 3 or None].reshape(a.data.shape)) for i in (0, 3))
    others = [a.astype(dtype) for dtype in ("bool", "int8", "int32", "complex64")]
    engine.look(a, upper, unsorted)
    with engine.runs(None):
        with pytest.raises(TypeError, match="bsr_softmax: argument 'bsr': expected a bsr_array"):
            sparsegpu.bsr_softmax(engine.array(np.ones((4, 4))))
        for of_another_dtype in others:
            with pytest.raises(TypeError, match="argument 'bsr': expected one of the dtypes float"):
                sparsegpu.bsr_softmax(of_another_dtype)
        with pytest.raises(ValueError, match="'out': expected memory apart from 'bsr', or bsr"):
            sparsegpu.bsr_softmax(first, out=second)
        with pytest.raises(ValueError, match="argument 'out': expected the pattern of the result"):
            sparsegpu.bsr_softmax(a, out=other)
        with pytest.raises(ValueError, match=r"nnzb=2\) of other blocks$"):
            sparsegpu.bsr_softmax(upper, out=lower)
        with pytest.raises(ValueError, match=r"not sorted or with repeated blocks \(sum_dupl"):
            sparsegpu.bsr_softmax(unsorted, out=unsorted)
    assert (engine.host(other.data) == 1).all()
