"""Conversions of `bsr_array`: dense, SciPy and cupyx, transposes, dtypes, the order of blocks."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from covering import covered
from sparsegpu import bsr_array, testing
from sparsegpu._arrays import CONTAINER_DTYPES, bfloat16


def make(engine, rng, shape=(12, 20), blocksize=(3, 4), **keywords):
    """Return a bsr_array with unsorted blocks, and its dense matrix in a wide dtype."""
    keywords.setdefault("density", 0.5)
    parts = testing.random_blocks(rng, shape, blocksize, small_integers=True, **keywords)
    a = bsr_array(tuple(engine.array(p) for p in parts), shape=shape)
    return a, testing.dense_from_blocks(*parts, shape)


# -- dense and transposed ---------------------------------------------------------------------


@covered(dtype=CONTAINER_DTYPES, batch=[(), (2, 3)])
def test_toarray_and_transpose_are_exact(engine, rng, dtype, batch):
    a, dense = make(engine, rng, dtype=dtype, batch=batch, duplicates=True)
    with engine.runs("bsr_scatter", "bsr_transpose_blocks"):
        forward, back = a.toarray(), a.T.toarray()
        t = a.transpose()
    assert t.shape == (*batch, 20, 12) and t.blocksize == (4, 3) and t.has_sorted_indices
    np.testing.assert_array_equal(engine.host(forward), dense.astype(dtype))
    np.testing.assert_array_equal(engine.host(back), dense.swapaxes(-1, -2).astype(dtype))
    assert a.T.pattern is t.pattern and a.mT.pattern is t.pattern


@settings(max_examples=25, deadline=None)
@given(
    st.tuples(st.integers(0, 5), st.integers(0, 5)),
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
    st.lists(st.integers(0, 3), max_size=2),
    st.integers(0, 2**32),
)
def test_round_trips_of_any_shape(blocks, blocksize, batch, seed):
    rng = np.random.default_rng(seed)
    shape = blocks[0] * blocksize[0], blocks[1] * blocksize[1]
    parts = testing.random_blocks(rng, shape, blocksize, batch=tuple(batch), dtype="float64")
    a = bsr_array(parts, shape=shape)
    dense = a.toarray()
    np.testing.assert_array_equal(dense, testing.dense_from_blocks(*parts, shape).astype(float))
    np.testing.assert_array_equal(a.T.T.toarray(), dense)
    b = a.copy()
    b.sort_indices()
    np.testing.assert_array_equal(b.toarray(), dense)
    if not batch:
        np.testing.assert_array_equal(a.tocsr().toarray(), dense)
        np.testing.assert_array_equal(a.tocoo().toarray(), dense)
        np.testing.assert_array_equal(a[: shape[0]].toarray(), dense)
        np.testing.assert_array_equal(a.diagonal(), np.diagonal(dense))


def test_toarray_out_and_order(engine, rng):
    a, dense = make(engine, rng, dtype="float32")
    xp = engine.xp
    with engine.runs("bsr_scatter"):
        f = a.toarray(order="F")
        out = xp.full((12, 40), 9, xp.float32)[:, ::2]
        assert a.todense(out=out) is out
    assert f.flags.f_contiguous
    np.testing.assert_array_equal(engine.host(f), dense)
    np.testing.assert_array_equal(engine.host(out), dense)
    with pytest.raises(ValueError, match=r"toarray: argument 'out': expected shape \(12, 20\)"):
        a.toarray(out=xp.zeros((20, 12), xp.float32))
    with pytest.raises(TypeError, match="toarray: argument 'out': expected dtype float32"):
        a.toarray(out=xp.zeros((12, 20)))
    with pytest.raises(
        TypeError, match=r"toarray: argument 'out': expected an array to .*, got list"
    ):
        a.toarray(out=[])
    one = a.with_data(a.data).tobsr((12, 20))
    with pytest.raises(
        ValueError, match=r"toarray: argument 'out': expected memory apart from 'self'"
    ):
        one.toarray(out=one.data[0, ::-1])
    with pytest.raises(ValueError, match="'order'"):
        a.toarray(order="K")
    with pytest.raises(ValueError, match="transpose: argument 'axes'"):
        a.transpose((0, 1))


# -- SciPy and cupyx ----------------------------------------------------------------------------


@covered(duplicates=[False, True], dtype=["float32", "float64", "complex64", "complex128", "bool"])
def test_tocsr_and_tocoo_like_scipy(engine, rng, dtype, duplicates):
    a, _ = make(engine, rng, dtype=dtype, duplicates=duplicates)
    expected = a.to_scipy()
    assert isinstance(expected, sp.bsr_array) and expected.blocksize == (3, 4)
    with engine.runs(None):
        csr, coo = a.tocsr(), a.asformat("coo")
    if not engine.on_gpu:
        assert isinstance(csr, sp.csr_array) and isinstance(coo, sp.coo_array)
    reference = expected.tocsr()
    for field in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(
            engine.host(getattr(csr, field)), getattr(reference, field), err_msg=field
        )
    reference = expected.tocoo()
    for field in ("data", "row", "col"):
        np.testing.assert_array_equal(engine.host(getattr(coo, field)), getattr(reference, field))


@covered(dtype=["float32", "complex128"], duplicates=[False, True])
def test_by_columns(engine, rng, dtype, duplicates):
    a, dense = make(engine, rng, dtype=dtype, duplicates=duplicates)
    with engine.runs(None):
        csc = a.asformat("csc")
    assert csc.format == "csc" and csc.nnz == a.nnz
    np.testing.assert_array_equal(engine.host(csc.toarray()), dense)


@pytest.mark.parametrize("name", ["array", "dense"])
def test_as_a_dense_array(engine, rng, name):
    a, dense = make(engine, rng, dtype="float32")
    np.testing.assert_array_equal(engine.host(a.asformat(name)), dense)
    with pytest.raises(ValueError, match=r"^asformat: argument 'format': .*'array', 'dense', got"):
        a.asformat("dok")


@pytest.mark.parametrize("name", ["has_sorted_indices", "has_canonical_format"])
def test_what_is_computed_is_not_set(engine, rng, name):
    a, _ = make(engine, rng, dtype="float32")
    before = getattr(a, name)
    with pytest.raises(AttributeError, match=rf"^bsr_array\.{name}: .* computed .*sort_indices"):
        setattr(a, name, not before)
    assert getattr(a, name) == before


def test_to_scipy_owns_its_arrays(rng):
    data, indices, indptr = testing.random_blocks(rng, (8, 8), (2, 2), dtype="float64", density=0.6)
    a = bsr_array((data, indices, indptr), shape=(8, 8))
    before = a.toarray()
    theirs = a.to_scipy()
    theirs.sort_indices()
    theirs.data[...] = 0
    np.testing.assert_array_equal(a.toarray(), before)
    assert np.shares_memory(a.to_scipy(copy=False).data, a.data)


def test_formats(rng):
    a = bsr_array(np.eye(4), blocksize=(2, 2))
    assert (
        a.asformat("bsr") is a and a.asformat(None) is a and a.asformat("bsr", copy=True) is not a
    )
    assert a.asformat("csr").format == "csr"
    assert isinstance(a.asformat("dense"), np.ndarray)
    with pytest.raises(ValueError, match="asformat: argument 'format'"):
        a.asformat("dia")
    assert a.tobsr().data is a.data and a.tobsr((1, 1)).nnzb == 4


@pytest.mark.parametrize("duplicates", [False, True])
def test_csr_by_index_arithmetic_as_scipys(rng, duplicates):
    """What CuPy arrays go through; on the host SciPy does it."""
    engine = SimpleNamespace(array=np.asarray)
    a, _ = make(engine, rng, dtype="float64", duplicates=duplicates)
    place, column, starts = a._csr_parts()
    data = np.empty(a.data.size)
    data[place] = a.data.ravel()
    theirs = a.to_scipy().tocsr()
    for one, other in ((data, theirs.data), (column, theirs.indices), (starts, theirs.indptr)):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", ["tocsr", "tocsc", "tocoo", "to_scipy", "spy", "aslinearoperator"])
def test_what_needs_one_matrix(name):
    a = bsr_array(np.ones((2, 4, 4)), blocksize=(2, 2))
    with pytest.raises(ValueError, match=rf"{name}: argument '\w+': expected one matrix .*batch"):
        getattr(a, name)()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_scipy_cannot_hold(engine, dtype):
    a = bsr_array(engine.array(np.eye(4)), blocksize=(2, 2), dtype=dtype)
    for name in ("tocsr", "tocsc", "tocoo", "to_scipy"):
        with pytest.raises(TypeError, match=rf"{name}: argument 'dtype': .*astype\('float32'\)"):
            getattr(a, name)()


def test_get_and_to_device(cuda_engine, rng):
    a, dense = make(cuda_engine, rng, dtype="bfloat16")
    host = a.get()
    assert isinstance(host.data, np.ndarray) and host.dtype == bfloat16
    np.testing.assert_array_equal(host.toarray(), dense)
    back = host.to_device()
    assert back.same_pattern(a) and back.to_device() is back and back.to_device(0) is back
    with cuda_engine.runs(None):
        np.testing.assert_array_equal(np.asarray(back.nnzb), a.nnzb)


# -- dtypes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [(), (2, 2)], ids=str)
def test_sort_indices(engine, rng, batch):
    a, dense = make(engine, rng, dtype="float32", duplicates=True, batch=batch, density=0.8)
    b = a.astype("float16")
    pattern = a.pattern
    with engine.runs("bsr_scatter"):
        a.sort_indices()
        out = a.toarray()
    assert a.has_sorted_indices and not a.has_canonical_format and a.nnzb == pattern.nnzb
    np.testing.assert_array_equal(engine.host(out), dense)
    assert b.pattern is pattern and a.pattern is not pattern  # a shared one is not altered


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool"])
def test_sum_duplicates(engine, rng, dtype):
    a, dense = make(engine, rng, dtype=dtype, duplicates=True, density=0.9)
    shared = a.copy()
    with engine.runs("bsr_scatter", "bsr_sum_blocks"):
        assert not a.has_canonical_format
        a.sum_duplicates()
        out = a.toarray()
        assert a.has_canonical_format and a.has_sorted_indices
    assert a.nnzb < shared.nnzb and a.data.shape[0] == a.nnzb
    np.testing.assert_array_equal(engine.host(out), dense.astype(dtype))
    pattern = a.pattern
    a.sum_duplicates()
    a.sort_indices()
    assert a.pattern is pattern


def test_sum_duplicates_rounds_once(engine):
    # In steps of bfloat16, 1 + 2**-8 rounds to 1 twice.
    data = np.array([1, 2.0**-8, 2.0**-8]).astype(bfloat16).reshape(3, 1, 1)
    parts = (data, np.zeros(3, np.int32), np.array([0, 3]))
    a = bsr_array(tuple(engine.array(p) for p in parts), shape=(1, 1))
    with engine.runs("bsr_sum_blocks"):
        a.sum_duplicates()
    assert float(engine.host(a.data)[0, 0, 0]) == 1 + 2.0**-7


def test_batches_that_lose_different_numbers_of_blocks():
    indices = np.array([[0, 0], [0, 1]])
    a = bsr_array((np.ones((2, 2, 1, 1)), indices, np.array([[0, 2], [0, 2]])), shape=(1, 2))
    with pytest.raises(ValueError, match=r"sum_duplicates: argument 'self': .* between 1 and 2"):
        a.sum_duplicates()
    a.data[0, 0] = 0
    with pytest.raises(ValueError, match=r"eliminate_zeros: argument 'self': .* between 1 and 2"):
        a.eliminate_zeros()
    assert a.nnzb == 2


@pytest.mark.parametrize("batch", [(), (3,)], ids=str)
def test_eliminate_zeros(engine, rng, batch):
    parts = testing.random_blocks(
        rng, (12, 20), (3, 4), dtype="float32", batch=batch, density=0.8, duplicates=True
    )
    data = parts[0].reshape(-1, parts[0].shape[-3], 3, 4)
    for b in range(len(data)):
        data[b, rng.choice(data.shape[1], 5, replace=False)] = -0.0 if b else 0.0
    data[:, :, 0, 0][data[:, :, 1, 1] != 0] = np.nan
    a = bsr_array(tuple(engine.array(p) for p in parts), shape=(12, 20))
    before, pattern = engine.host(a.toarray()), a.pattern
    with engine.runs("bsr_scatter"):
        a.eliminate_zeros()
        out = a.toarray()
    assert a.nnzb == pattern.nnzb - 5 and pattern.nnzb == parts[1].shape[-1]
    a.check_format()
    np.testing.assert_array_equal(engine.host(out), before)
    if not batch:
        theirs = sp.bsr_array(parts, shape=(12, 20))
        theirs.eliminate_zeros()
        np.testing.assert_array_equal(engine.host(a.indices), theirs.indices)
        np.testing.assert_array_equal(engine.host(a.indptr), theirs.indptr)
    pattern = a.pattern
    a.eliminate_zeros()
    assert a.pattern is pattern


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "complex64"])
def test_what_counts_as_a_zero_block(engine, dtype):
    """A block of NaN alone is stored, one of -0.0 alone is not."""
    blocks = np.zeros((4, 2, 2)).astype(dtype)
    blocks[0], blocks[1], blocks[3, 1, 0] = np.nan, -0.0, np.inf
    assert np.signbit(blocks[1].real.astype(float)).all()
    parts = blocks, np.arange(4), np.array([0, 2, 4])
    a = bsr_array(tuple(engine.array(p) for p in parts), shape=(4, 8))
    a.eliminate_zeros()
    assert engine.host(a.indices).tolist() == [0, 3] and engine.host(a.indptr).tolist() == [0, 1, 2]
    kept = engine.host(a.data)
    assert np.isnan(kept[0]).all() and np.isinf(kept[1, 1, 0])


@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
def test_sorting_keeps_the_order_of_repeated_blocks(engine, batch):
    indices = np.array([1, 0, 1, 0, 1, 1, 0, 0])
    parts = np.arange(8.0).reshape(8, 1, 1), indices, np.array([0, 5, 8])
    parts = tuple(np.broadcast_to(p, (*batch, *p.shape)).copy() for p in parts)
    a = bsr_array(tuple(engine.array(p) for p in parts), shape=(2, 2))
    a.sort_indices()
    expected = np.broadcast_to([1, 3, 0, 2, 4, 6, 7, 5], (*batch, 8))
    np.testing.assert_array_equal(engine.host(a.data)[..., 0, 0], expected)


def test_same_pattern(engine, rng):
    a, _ = make(engine, rng, dtype="float32")
    b = bsr_array((a.data * 2, a.indices, a.indptr), shape=a.shape)
    assert a.pattern is not b.pattern and a.same_pattern(b)
    c = bsr_array((a.data[1:], a.indices[1:], a.indptr), shape=a.shape, check=False)
    assert not a.same_pattern(c) and not a.same_pattern(a.T)
    with pytest.raises(TypeError, match="same_pattern: argument 'other'"):
        a.same_pattern(np.eye(4))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("blocks", [2, 400])  # few elements take another way on the CPU
@pytest.mark.parametrize("order", ["sorted", "unsorted", "repeated"])
def test_a_stored_negative_zero_stays(engine, rng, dtype, blocks, order):
    """What is not stored is 0.0; of repeated blocks, two -0.0 add up to -0.0."""
    columns = {"sorted": [0, 1], "unsorted": [1, 0], "repeated": [0, 0]}[order]
    dtype = bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    data = rng.choice(np.array([-0.0, 0.0, -0.0, 1.0]), (2 * blocks, 4, 4)).astype(dtype)
    indices, indptr = np.tile(columns, blocks), 2 * np.arange(blocks + 1)
    parts = tuple(engine.array(part) for part in (data, indices, indptr))
    a = bsr_array(parts, shape=(4 * blocks, 12))
    expected = np.zeros((blocks, 4, 3, 4), dtype)
    for b, pair in enumerate(data.reshape(blocks, 2, 4, 4)):
        for j in {0, 1}.intersection(columns):
            met = [block for block, column in zip(pair, columns) if column == j]
            expected[b, :, j] = met[0] if len(met) == 1 else met[0] + met[1]
    expected = expected.reshape(a.shape)
    for result in (a.toarray(), (a.sum_duplicates(), a.toarray())[1], a.T.toarray().T):
        result = engine.host(result)
        np.testing.assert_array_equal(result, expected)
        assert (np.signbit(_real(result)) == np.signbit(_real(expected))).all()


def _real(array):
    return array.real.astype(np.float64)
