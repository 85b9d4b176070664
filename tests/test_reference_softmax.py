"""The definition of softmax, held against a loop over rows in float64; and its validation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparsegpu
from sparsegpu._arrays import dtype_of
from sparsegpu.testing import assert_close, random_blocks, random_values, softmax_bound


@pytest.fixture(autouse=True)
def _reference():
    with sparsegpu.use_engine("reference"):
        yield


def make(rng, shape=(8, 12), blocksize=(2, 3), **keywords):
    return sparsegpu.bsr_array(random_blocks(rng, shape, blocksize, **keywords), shape=shape)


def rows_of(bsr):
    """Yield ``{column: value}`` of every row: duplicates summed in float64, rounded as stored."""
    bm, bk = bsr.blocksize
    for b in np.ndindex(bsr.indices.shape[:-1]):
        for row in range(bsr.shape[-2]):
            stored = {}
            for p in range(bsr.indptr[b][row // bm], bsr.indptr[b][row // bm + 1]):
                for c in range(bk):
                    column = bsr.indices[b][p] * bk + c
                    value = float(bsr.data[b][p][row % bm, c])
                    stored[column] = stored.get(column, 0.0) + value
            yield {j: float(bsr.dtype.type(x)) for j, x in stored.items()}


def check(bsr, result):
    assert result.has_canonical_format
    for stored, got in zip(rows_of(bsr), rows_of(result)):
        assert stored.keys() == got.keys()
        if not stored:
            continue
        top = max(stored.values())
        total = math.fsum(math.exp(x - top) for x in stored.values())
        exact = np.array([math.exp(x - top) / total for x in stored.values()])
        values = np.array([got[j] for j in stored]).astype(result.dtype)
        row = np.array(list(stored.values())).astype(bsr.dtype)
        assert_close(values, exact, softmax_bound(row, exact))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("blocksize", [(2, 3), (1, 1), (8, 12), (4, 1)])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_formula(rng, dtype, blocksize, batch):
    bsr = make(rng, blocksize=blocksize, dtype=dtype, batch=batch, density=0.5)
    check(bsr, sparsegpu.bsr_softmax(bsr))


def test_sorted_pattern_is_kept(rng):
    bsr = make(rng, shuffled=False)
    assert sparsegpu.bsr_softmax(bsr).pattern is bsr.pattern


def test_duplicates_are_summed_first(rng):
    bsr = make(rng, density=2, duplicates=True, dtype="float64")
    result = sparsegpu.bsr_softmax(bsr)
    assert result.nnzb < bsr.nnzb
    check(bsr, result)


def test_extremes():
    inf = np.inf
    rows = np.array([[-inf] * 2, [-inf, 3], [1e38, -1e38], [inf, 0], [np.nan, 0], [88, 89]], "f4")
    bsr = sparsegpu.bsr_array((rows.reshape(6, 1, 2), np.zeros(6, int), np.arange(7)), shape=(6, 2))
    got = sparsegpu.bsr_softmax(bsr).data[:, 0]
    assert np.isnan(got[0]).all()
    assert got[1].tolist() == [0, 1]
    assert got[2].tolist() == [1, 0]
    assert np.isnan(got[3, 0])
    assert np.isnan(got[4]).all()
    exact = np.array([1, math.e]) / (1 + math.e)
    assert_close(got[5], exact, softmax_bound(rows[5], exact))


def test_long_rows():
    bsr = sparsegpu.bsr_array(np.ones((1, 200_000), np.float32), blocksize=(1, 200))
    exact = np.full((1, 200_000), 1 / 200_000)
    assert_close(sparsegpu.bsr_softmax(bsr).data.reshape(exact.shape), exact, 4 * 2.0**-24 * exact)


@pytest.mark.parametrize("shape", [(0, 6), (8, 0), (0, 0), (8, 6)])
def test_nothing_stored(shape):
    bsr = sparsegpu.bsr_array(np.zeros(shape, np.float32), blocksize=(2, 3))
    result = sparsegpu.bsr_softmax(bsr)
    assert result.nnzb == 0
    assert result.shape == shape


def test_out(rng):
    bsr = make(rng, shuffled=False, dtype="bfloat16")
    expected = sparsegpu.bsr_softmax(bsr)
    wide = bsr.with_data(np.zeros(bsr.data.shape, np.float32))
    assert sparsegpu.bsr_softmax(bsr, out=wide) is wide
    np.testing.assert_array_equal(wide.data.astype(dtype_of("bfloat16")), expected.data)
    assert sparsegpu.bsr_softmax(bsr, out=bsr) is bsr
    np.testing.assert_array_equal(bsr.data, expected.data)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    blocks=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    blocksize=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    density=st.floats(0, 2),
    seed=st.integers(0, 2**20),
)
def test_any_shape(blocks, blocksize, density, seed):
    rng = np.random.default_rng(seed)
    shape = blocks[0] * blocksize[0], blocks[1] * blocksize[1]
    bsr = make(rng, shape, blocksize, density=density, duplicates=True, dtype="float64")
    with sparsegpu.use_engine("reference"):
        check(bsr, sparsegpu.bsr_softmax(bsr))


@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "complex64"])
def test_dtype_errors(rng, dtype):
    bsr = sparsegpu.bsr_array(np.eye(4).astype(dtype), blocksize=(2, 2))
    with pytest.raises(TypeError, match="bsr_softmax: argument 'bsr': expected one of the dtypes"):
        sparsegpu.bsr_softmax(bsr)


def test_errors(rng):
    bsr = make(rng, shuffled=False)
    with pytest.raises(TypeError, match="bsr_softmax: argument 'bsr': expected a bsr_array, got"):
        sparsegpu.bsr_softmax(bsr.toarray())
    other = sparsegpu.bsr_array(random_values(rng, (8, 12), "float32"), blocksize=(2, 3))
    before = other.data.copy()
    with pytest.raises(ValueError, match="bsr_softmax: argument 'out': expected the pattern of"):
        sparsegpu.bsr_softmax(bsr, out=other)
    np.testing.assert_array_equal(other.data, before)
    memory = np.zeros(bsr.data.size + 6, np.float32)
    first, second = (memory[i : i + bsr.data.size].reshape(bsr.data.shape) for i in (0, 6))
    with pytest.raises(ValueError, match="'out': expected memory apart from 'input', or input"):
        sparsegpu.bsr_softmax(bsr.with_data(first), out=bsr.with_data(second))
