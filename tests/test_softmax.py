"""Softmax of stored rows in every engine, against a float64 formula on the dense matrix."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegpu
from covering import covered
from properties import drawn
from sparsegpu._arrays import dtype_of
from sparsegpu.testing import (
    assert_close,
    dense_from_blocks,
    random_blocks,
    random_values,
    softmax_bound,
)

DTYPES = ["float16", "bfloat16", "float32", "float64"]


def softmax_by_rows(data, indices, indptr, shape) -> tuple[np.ndarray, np.ndarray]:
    """Dense float64 result of one matrix, and its bound: by rows, over their stored columns."""
    _, bm, bk = data.shape
    stored = np.zeros((shape[0] // bm, shape[1] // bk), bool)
    for i in range(len(stored)):
        stored[i, indices[indptr[i] : indptr[i + 1]]] = True
    x = dense_from_blocks(data, indices, indptr, shape)
    result, bound = np.zeros(shape), np.zeros(shape)
    for r in range(shape[0]):
        columns = np.repeat(stored[r // bm], bk)
        if columns.any():
            with np.errstate(invalid="ignore"):
                e = np.exp((x[r, columns] - x[r, columns].max()).astype(np.float64))
                result[r, columns] = e / e.sum()
                row = x[r, columns].astype(data.dtype)
                bound[r, columns] = softmax_bound(row, result[r, columns])
    return result, bound


def check(engine, parts, shape):
    """Compare the softmax of a matrix with the formula."""
    a = engine.bsr(parts, shape)
    with engine.runs("bsr_softmax" if parts[0].size else None):
        result = sparsegpu.bsr_softmax(a)
    assert result.dtype == parts[0].dtype and result.has_canonical_format
    compare(engine, result, *parts, shape)


def compare(engine, result, data, indices, indptr, shape) -> None:
    dense = engine.host(result.toarray())
    batch = data.shape[:-3]
    exact, bound = np.zeros((*batch, *shape)), np.zeros((*batch, *shape))
    for b in np.ndindex(batch):
        exact[b], bound[b] = softmax_by_rows(data[b], indices[b], indptr[b], shape)
    assert_close(dense, exact, bound)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "blocksize", [(1, 1), (1, 5), (3, 1), (2, 2), (4, 4), (8, 24), (16, 16), (33, 40), (2, 130)]
)
def test_formula(engine, rng, dtype, blocksize):
    """Unsorted blocks, empty rows."""
    shape = (5 * blocksize[0], 7 * blocksize[1])
    parts = random_blocks(rng, shape, blocksize, dtype=dtype, density=0.4)
    check(engine, parts, shape)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape, blocksize", [((4, 3000), (2, 50)), ((2, 1500), (1, 1)), ((9, 1200), (3, 2))]
)
def test_long_rows(engine, rng, dtype, shape, blocksize):
    """Longer than the registers of a warp or of a thread block hold."""
    parts = random_blocks(rng, shape, blocksize, dtype=dtype, density=0.9)
    check(engine, parts, shape)


def test_rows_longer_than_2_to_the_17(engine, rng):
    shape = (2, 2**17 + 256)
    parts = random_blocks(rng, shape, (1, 256), density=1.0)
    check(engine, parts, shape)


def test_one_long_row_among_short_ones(engine, rng):
    indices = np.concatenate([np.arange(600), [3], [5]]).astype(np.int32)
    indptr = np.array([0, 600, 601, 601, 602], np.int32)
    data = random_values(rng, (602, 2, 2), "float32")
    check(engine, (data, indices, indptr), (8, 1200))


@pytest.mark.parametrize("dtype", DTYPES)
def test_duplicates_are_summed_first(engine, rng, dtype):
    shape = (12, 20)
    parts = random_blocks(
        rng, shape, (3, 4), dtype=dtype, density=0.8, duplicates=True, small_integers=True
    )
    check(engine, parts, shape)


@pytest.mark.parametrize("batch", [(2,), (2, 3)])
def test_batches(engine, rng, batch):
    shape = (12, 20)
    parts = random_blocks(rng, shape, (3, 4), density=0.5, batch=batch, shuffled=False)
    check(engine, parts, shape)


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


@pytest.mark.parametrize("out_dtype", ["float16", "bfloat16", "float32"])
def test_out(engine, rng, out_dtype):
    """``out`` of another dtype and with holes in memory."""
    shape = (12, 20)
    parts = random_blocks(rng, shape, (3, 4), dtype="float32", density=0.5, shuffled=False)
    a = engine.bsr(parts, shape)
    spread = engine.xp.zeros((a.nnzb, 6, 8), dtype_of(out_dtype))
    out = a.with_data(spread[:, ::2, ::2])
    with engine.runs("bsr_softmax"):
        assert sparsegpu.bsr_softmax(a, out=out) is out
    compare(engine, out, *parts, shape)
    assert (engine.host(spread)[:, 1::2] == 0).all()
    assert (engine.host(spread)[:, :, 1::2] == 0).all()


@pytest.mark.parametrize("blocksize", [(3, 4), (1, 256)])
def test_out_may_be_the_array_itself(engine, rng, blocksize):
    shape = (2 * blocksize[0], 5 * blocksize[1])
    parts = random_blocks(rng, shape, blocksize, density=0.8, shuffled=False)
    a = engine.bsr((parts[0].copy(), *parts[1:]), shape)
    with engine.runs("bsr_softmax"):
        assert sparsegpu.bsr_softmax(a, out=a) is a
    compare(engine, a, *parts, shape)


def test_values_of_any_strides(engine, rng):
    shape = (12, 20)
    data, indices, indptr = random_blocks(rng, shape, (3, 4), density=0.5, shuffled=False)
    turned = engine.array(np.ascontiguousarray(data.transpose(2, 1, 0))).transpose(2, 1, 0)
    a = engine.bsr((data, indices, indptr), shape).with_data(turned)
    with engine.runs("bsr_softmax"):
        result = sparsegpu.bsr_softmax(a)
    compare(engine, result, data, indices, indptr, shape)


def test_a_sorted_pattern_is_kept(engine, rng):
    a = engine.bsr(random_blocks(rng, (8, 12), (2, 3), shuffled=False), (8, 12))
    with engine.runs("bsr_softmax"):
        assert sparsegpu.bsr_softmax(a).pattern is a.pattern


def test_the_same_bits_again(engine, rng):
    shape = (32, 64 * 40)
    a = engine.bsr(random_blocks(rng, shape, (16, 40), density=0.7), shape)
    with engine.runs("bsr_softmax"):
        first, second = sparsegpu.bsr_softmax(a), sparsegpu.bsr_softmax(a)
    assert (engine.host(first.data) == engine.host(second.data)).all()


@pytest.mark.parametrize("shape, blocksize", [((0, 4), (2, 2)), ((4, 0), (2, 2)), ((4, 4), (2, 2))])
def test_nothing_stored(engine, shape, blocksize):
    a = sparsegpu.bsr_array(engine.xp.zeros(shape, np.float32), blocksize=blocksize)
    with engine.runs(None):
        result = sparsegpu.bsr_softmax(a)
    assert result.nnzb == 0
    assert result.shape == shape


@drawn(25)
@given(
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from(DTYPES),
    blocksize=st.tuples(st.integers(1, 40), st.integers(1, 70)),
    blocks=st.tuples(st.integers(1, 4), st.integers(1, 9)),
    density=st.sampled_from([0.1, 0.5, 1.0]),
)
def test_any_shape(engine, seed, dtype, blocksize, blocks, density):
    rng = np.random.default_rng(seed)
    shape = (blocks[0] * blocksize[0], blocks[1] * blocksize[1])
    parts = random_blocks(rng, shape, blocksize, dtype=dtype, density=density)
    check(engine, parts, shape)


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
    with engine.runs(None):
        with pytest.raises(TypeError, match="bsr_softmax: argument 'bsr': expected a bsr_array"):
            sparsegpu.bsr_softmax(engine.array(np.ones((4, 4))))
        for dtype in ("bool", "int8", "int32", "complex64"):
            with pytest.raises(TypeError, match="argument 'bsr': expected one of the dtypes float"):
                sparsegpu.bsr_softmax(a.astype(dtype))
        with pytest.raises(ValueError, match="'out': expected memory apart from 'bsr', or bsr"):
            sparsegpu.bsr_softmax(first, out=second)
        with pytest.raises(ValueError, match="argument 'out': expected the pattern of the result"):
            sparsegpu.bsr_softmax(a, out=other)
        with pytest.raises(ValueError, match=r"nnzb=2\) of other blocks$"):
            sparsegpu.bsr_softmax(upper, out=lower)
        with pytest.raises(ValueError, match=r"not sorted or with repeated blocks \(sum_dupl"):
            sparsegpu.bsr_softmax(unsorted, out=unsorted)
    assert (engine.host(other.data) == 1).all()
