"""Construction of `bsr_array` in all its forms, and its checks."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import sparsegpu
from covering import covered
from foreign_arrays import OfAnotherLibrary
from sparsegpu import bsr_array, testing
from sparsegpu._arrays import CONTAINER_DTYPES, bfloat16


def sparse_dense(rng, shape, blocksize, dtype="float64", density=0.4, batch=()):
    """Return a dense matrix whose nonzeros stand in blocks, and elsewhere zeros of both signs."""
    (m, k), (bm, bk) = shape, blocksize
    keep = np.zeros((*batch, m // bm * (k // bk)), dtype=bool)
    keep[..., : round(density * keep.shape[-1])] = True
    keep = rng.permuted(keep, axis=-1).reshape(*batch, m // bm, k // bk)
    mask = keep.repeat(bm, axis=-2).repeat(bk, axis=-1)
    values = testing.random_values(rng, (*batch, m, k), dtype)
    values = np.where(values == 0, np.ones((), values.dtype), values)
    return np.where(mask, values, np.zeros((), values.dtype))


# -- dense ------------------------------------------------------------------------------------


@covered(dtype=CONTAINER_DTYPES, batch=[(), (3,), (2, 2)])
def test_from_dense_keeps_blocks_with_nonzeros(engine, rng, dtype, batch):
    dense = sparse_dense(rng, (12, 20), (3, 4), dtype, batch=batch)
    if dtype.kind == "f":
        dense = np.where(dense == 0, -dense, dense)  # -0.0
    with engine.runs("bsr_block_mask", "bsr_gather", "bsr_scatter"):
        a = bsr_array(engine.array(dense), blocksize=(3, 4))
        back = a.toarray()
    assert a.dtype == dtype and a.shape == dense.shape and a.nnzb == 8
    assert a.has_canonical_format
    np.testing.assert_array_equal(engine.host(back), dense)


def test_from_dense_like_scipy(engine, rng):
    dense = sparse_dense(rng, (12, 20), (3, 4))
    expected = sp.csr_array(dense).tobsr((3, 4))
    with engine.runs("bsr_block_mask", "bsr_gather"):
        a = bsr_array(engine.array(dense), blocksize=(3, 4))
    for field in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(engine.host(getattr(a, field)), getattr(expected, field))
    assert a.indices.dtype == a.indptr.dtype == np.int32
    assert (a.shape, a.nnz, a.ndim, a.blocksize) == (expected.shape, expected.nnz, 2, (3, 4))
    assert (a.nnzb, a.size, a.density) == (8, 96, 96 / 240)


def test_nan_is_stored_and_minus_zero_is_not(engine):
    dense = np.array([[np.nan, -0.0], [0.0, 0.0]])
    with engine.runs("bsr_block_mask", "bsr_gather"):
        a = bsr_array(engine.array(dense), blocksize=(1, 1))
    assert a.nnzb == 1 and np.isnan(engine.host(a.data)[0, 0, 0])


@pytest.mark.parametrize("view", [lambda x: x.T, lambda x: x[::2], lambda x: x[:, ::-1]])
def test_from_dense_of_any_strides(engine, rng, view):
    dense = view(engine.array(sparse_dense(rng, (24, 12), (2, 2), density=0.2)))
    with engine.runs("bsr_block_mask", "bsr_gather", "bsr_scatter"):
        a = bsr_array(dense, blocksize=(2, 2))
        back = a.toarray()
    np.testing.assert_array_equal(engine.host(back), engine.host(dense))


def test_from_nested_lists():
    a = bsr_array([[1.0, 0.0], [0.0, 2.0]], blocksize=(1, 1))
    assert a.nnzb == 2 and a.dtype == np.float64
    b = bsr_array([[1, 0], [0, 2]], blocksize=(1, 1), dtype="float32")
    assert b.dtype == np.float32
    with pytest.raises(TypeError, match=r"bsr_array: argument 'arg': .*int64; say which .* dtype="):
        bsr_array([[1, 0], [0, 2]], blocksize=(1, 1))


def test_from_dlpack():
    a = bsr_array(OfAnotherLibrary(np.eye(4)), blocksize=(2, 2))
    np.testing.assert_array_equal(a.toarray(), np.eye(4))


@pytest.mark.parametrize("shape", [(0, 6), (6, 0), (0, 0), (2, 0, 6), (0, 4, 6)], ids=str)
def test_zero_sizes(engine, shape):
    with engine.runs(None):
        a = bsr_array(engine.xp.zeros(shape), blocksize=(2, 3))
        assert a.toarray().shape == shape and a.T.toarray().shape == (*shape[:-2], *shape[:-3:-1])
        assert (a.nnzb, a.density, a.has_canonical_format) == (0, 0.0, True)


def test_all_zero_matrix(engine):
    with engine.runs("bsr_block_mask", "bsr_scatter"):
        a = bsr_array(engine.xp.zeros((4, 6)), blocksize=(2, 3))
        assert not engine.host(a.toarray()).any()
    assert a.nnzb == 0 and a.data.shape == (0, 2, 3)


def test_batch_with_different_counts_is_refused():
    dense = np.zeros((2, 4, 4))
    dense[0, 0, 0] = 1
    with pytest.raises(ValueError, match=r"bsr_array: argument 'arg': .* between 0 and 1"):
        bsr_array(dense, blocksize=(2, 2))


# -- (data, indices, indptr) --------------------------------------------------------------------


def assert_sums(dense, data, indices, indptr, shape):
    """Assert that a dense matrix holds the sums of the float64 blocks that meet, within c n u S."""
    exact, size, terms = (
        testing.dense_from_blocks(values, indices, indptr, shape)
        for values in (data, np.abs(data), np.ones_like(data))
    )
    testing.assert_close(dense, exact, 2 * np.maximum(terms - 1, 0) * 2.0**-53 * size)


@covered(duplicates=[False, True], batch=[(), (3,), (2, 2)])
def test_from_parts(engine, rng, batch, duplicates):
    parts = testing.random_blocks(
        rng, (12, 20), (3, 4), batch=batch, dtype="float64", duplicates=duplicates, density=0.6
    )
    with engine.runs("bsr_scatter"):
        a = bsr_array(tuple(engine.array(p) for p in parts), shape=(12, 20))
        dense = a.toarray()
    assert a.shape == (*batch, 12, 20)
    assert_sums(dense, *parts, (12, 20))


def test_indices_are_copied_in_and_data_is_not(engine, rng):
    data, indices, indptr = (
        engine.array(p) for p in testing.random_blocks(rng, (8, 8), (2, 2), dtype="float64")
    )
    with engine.runs(None):
        a = bsr_array((data, indices, indptr), shape=(8, 8))
        b = bsr_array((data, indices, indptr), shape=(8, 8), copy=True)
        c = bsr_array((data, indices, indptr), shape=(8, 8), dtype="float32")
    assert a.data is data and b.data is not data and c.data is not data
    before = engine.host(a.indices).copy()
    indices[...] = 0
    np.testing.assert_array_equal(engine.host(a.indices), before)
    data[...] = 7
    assert (engine.host(a.data) == 7).all() and not (engine.host(b.data) == 7).any()
    if engine.xp is np:
        with pytest.raises(ValueError, match="read-only"):
            a.indices[0] = 1


def test_shape_is_inferred_like_scipy():
    parts = (np.ones((2, 2, 3)), [0, 2], [0, 1, 2])
    assert bsr_array(parts).shape == sp.bsr_array(parts).shape == (4, 9)
    assert bsr_array((np.ones((0, 2, 3)), [], [0, 0])).shape == (2, 0)


def test_index_dtype_is_the_smallest_that_reaches():
    data, indices = np.ones((1, 1, 1)), np.zeros(1, dtype=np.int64)
    small = bsr_array((data, indices, np.array([0, 1])), shape=(1, 2**31 - 1))
    large = bsr_array((data, indices + 2**31, np.array([0, 1])), shape=(1, 2**31 + 1))
    assert small.indices.dtype == np.int32 and large.indices.dtype == np.int64
    assert large.indptr.dtype == np.int64 and large.indices[0] == 2**31


GOOD = {
    "data": np.ones((2, 2, 2)),
    "indices": np.array([0, 1], np.int32),
    "indptr": np.array([0, 1, 2], np.int32),
}


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"indices": np.array([0, 2])}, ValueError, r"'indices': .* 0\.\.1, got 2"),
        ({"indices": np.array([0, -1])}, ValueError, r"'indices': .* 0\.\.1, got -1"),
        ({"indices": np.array([0.0, 1.0])}, TypeError, "'indices': expected an integer dtype"),
        ({"indptr": np.array([0, 2, 1])}, ValueError, "'indptr': .* nnzb = 2, got 1"),
        ({"indptr": np.array([0, 3, 2])}, ValueError, "'indptr': expected non-decreasing"),
        ({"indptr": np.array([1, 1, 2])}, ValueError, "'indptr': .* first element of 0, got 1"),
        ({"indptr": np.array([0, 2])}, ValueError, r"'indptr': expected shape \(3,\), got \(2,\)"),
        ({"indptr": np.zeros((2, 3), int)}, ValueError, "'indptr'"),
        ({"data": np.ones((2, 2))}, ValueError, r"'data': .* over indices of shape \(2,\)"),
        ({"data": np.ones((3, 2, 2))}, ValueError, r"'data': expected shape \(2, 2, 2\)"),
        ({"data": np.ones((2, 0, 2))}, ValueError, "'blocksize': expected both in 1..256"),
        ({"data": np.ones((2, 1, 257))}, ValueError, "'blocksize': expected both in 1..256"),
        ({"data": np.ones((2, 2, 2), np.uint8)}, TypeError, "'arg': .* got uint8"),
        ({"shape": (5, 4)}, ValueError, r"'shape': expected multiples of the blocksize \(2, 2\)"),
        ({"shape": (4,)}, ValueError, r"'shape': expected \(\*batch, M, K\)"),
        ({"shape": (3, 4, 4)}, ValueError, r"'shape': expected the batch shape \(\)"),
        ({"shape": "ab"}, TypeError, "'shape': expected a tuple of integers"),
        ({"blocksize": (1, 2)}, ValueError, r"'blocksize': expected \(2, 2\)"),
        ({"blocksize": 2}, TypeError, "'blocksize': expected a pair of integers"),
        ({"dtype": "uint16"}, TypeError, "'dtype': .* got uint16"),
    ],
)
def test_bad_parts(changes, error, match):
    given = {**GOOD, "shape": (4, 4), **changes}
    parts = tuple(given.pop(name) for name in ("data", "indices", "indptr"))
    with pytest.raises(error, match=f"bsr_array: argument {match}"):
        bsr_array(parts, **given)


def test_check_false_trusts_the_caller():
    a = bsr_array((GOOD["data"], np.array([0, 9]), GOOD["indptr"]), shape=(4, 4), check=False)
    a.check_format(full_check=False)
    with pytest.raises(ValueError, match=r"check_format: argument 'indices': .* 0\.\.1, got 9"):
        a.check_format()
    with pytest.raises(ValueError, match="indices"):
        a.check_format(full_check=True)


def test_bad_dense():
    with pytest.raises(ValueError, match=r"'blocksize': .* for a dense array"):
        bsr_array(np.eye(4))
    with pytest.raises(ValueError, match=r"'blocksize': .* divides the shape \(4, 4\)"):
        bsr_array(np.eye(4), blocksize=(3, 2))
    with pytest.raises(ValueError, match="'arg': expected a dense array"):
        bsr_array(np.ones(4), blocksize=(1, 1))
    with pytest.raises(ValueError, match=r"'shape': expected \(4, 4\)"):
        bsr_array(np.eye(4), shape=(4, 5), blocksize=(2, 2))
    with pytest.raises(TypeError, match="'arg': expected a NumPy or CuPy array, got set"):
        bsr_array({1}, blocksize=(1, 1))


# -- sparse arrays ------------------------------------------------------------------------------


@covered(fmt=["bsr", "coo", "csc", "csr", "dia", "dok", "lil"], kind=["array", "matrix"])
def test_from_scipy(rng, fmt, kind):
    dense = sparse_dense(rng, (12, 20), (3, 4), density=0.3)
    source = getattr(sp, f"csr_{kind}")(dense).asformat(fmt)
    a = bsr_array(source, blocksize=(3, 4))
    expected = sp.csr_array(dense).tobsr((3, 4))
    np.testing.assert_array_equal(a.data, expected.data)
    np.testing.assert_array_equal(a.indices, expected.indices)
    np.testing.assert_array_equal(a.indptr, expected.indptr)


@settings(max_examples=25, deadline=None)
@given(
    st.tuples(st.integers(0, 6), st.integers(0, 6)),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.floats(0, 1),
    st.integers(0, 2**32),
)
def test_from_scipy_of_any_shape(blocks, blocksize, density, seed):
    rng = np.random.default_rng(seed)
    shape = blocks[0] * blocksize[0], blocks[1] * blocksize[1]
    source = sp.random_array(shape, density=density, rng=rng)
    a = bsr_array(source, blocksize=blocksize)
    expected = source.tocsr().tobsr(blocksize)
    expected.sort_indices()
    np.testing.assert_array_equal(a.data, expected.data)
    np.testing.assert_array_equal(a.indices, expected.indices)
    np.testing.assert_array_equal(a.indptr, expected.indptr)


def test_scipy_bsr_keeps_its_blocks_unsorted_and_shares_its_data(rng):
    data, indices, indptr = testing.random_blocks(
        rng, (12, 12), (3, 3), duplicates=True, density=0.7, dtype="float64"
    )
    source = sp.bsr_array((data, indices, indptr), shape=(12, 12))
    a = bsr_array(source)
    np.testing.assert_array_equal(a.indices, source.indices)
    assert a.blocksize == (3, 3) and np.shares_memory(a.data, source.data)
    assert not a.has_canonical_format
    assert_sums(a.toarray(), data, indices, indptr, (12, 12))
    b = bsr_array(source, blocksize=(2, 6))
    assert_sums(b.toarray(), data, indices, indptr, (12, 12))


def test_repeated_elements_are_summed():
    source = sp.coo_array((np.array([1.0, 2, 4]), ([0, 0, 3], [1, 1, 2])), shape=(4, 4))
    a = bsr_array(source, blocksize=(2, 2))
    np.testing.assert_array_equal(a.toarray(), source.toarray())
    assert a.nnzb == 2


@pytest.mark.parametrize("dtype", ["float64", "int8", "bool"])
@pytest.mark.parametrize("fmt", ["csr", "csc"])
def test_what_is_stored_behind_the_last_row_is_no_element(rng, fmt, dtype):
    dense = sparse_dense(rng, (12, 20), (3, 4), density=0.3).astype(dtype)
    source = getattr(sp, f"{fmt}_array")(dense)
    source.data = np.concatenate([source.data, np.ones(5, dtype)])
    source.indices = np.concatenate([source.indices, np.zeros(5, source.indices.dtype)])
    stored = source.data.size
    for keywords in ({}, {"blocksize": (3, 4)}, {"blocksize": (5, 8), "pad": True}):
        a = bsr_array(source, **keywords).toarray()
        np.testing.assert_array_equal(a[:12, :20], dense)
        assert not a[12:].any() and not a[:, 20:].any()
    assert source.data.size == stored


def test_coordinates_as_zip_gives_them():
    rows, columns, values = zip((0, 1, 1.5), (1, 0, 2.5))
    for elements in (values, list(values), np.array(values)):
        a = bsr_array((elements, (rows, columns)))
        assert a.toarray().tolist() == [[0, 1.5], [2.5, 0]]
    batch = ((1, 2), (3, 4)), ((5, 6), (7, 8))
    assert bsr_array(batch, blocksize=(1, 1), dtype="int8").toarray().tolist() == [
        [[1, 2], [3, 4]],
        [[5, 6], [7, 8]],
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6])
def test_blocksize_is_estimated_like_scipy(rng, size):
    dense = sparse_dense(rng, (48, 48), (size, size), density=0.1)
    source = sp.csr_array(dense)
    assert bsr_array(source).blocksize == source.tobsr().blocksize
    assert bsr_array(sp.csr_array((48, 48))).blocksize == (1, 1)


@pytest.mark.parametrize("dtype", ["float64", "int8"])
def test_columns_far_more_than_elements(dtype):
    """No memory goes with the number of columns."""
    k = 2**40
    places = np.array([0, 3, 3]), np.array([k - 1, 0, k - 2])
    elements = np.array([1, 2, 3], dtype), places
    a = bsr_array(elements, shape=(4, k), blocksize=(2, 2))
    assert a.nnzb == 3
    b = bsr_array(sp.csr_array(elements, shape=(4, k)), blocksize=(1, 4)).tobsr((2, 2))
    c = bsr_array(sp.csr_array(elements, shape=(4, k)))
    d = a.reshape(8, k // 2).reshape(4, k)
    for same in (b, c, d):
        assert (same.sum(), int((a != same).sum())) == (6, 0)


def test_elements_beyond_any_shape():
    for places in (([2**40], [2**40]), ([2**63 - 1], [0]), (np.array([2**64 - 1], "u8"), [0])):
        for dtype in ("float64", "int8"):
            with pytest.raises(ValueError, match=r"^bsr_array: argument 'row': .*2\*\*63 - "):
                bsr_array((np.ones(1, dtype), tuple(map(np.asarray, places))), blocksize=(1, 1))


def test_scipy_dtypes():
    source = sp.eye_array(4, dtype=np.int64, format="csr")
    with pytest.raises(TypeError, match=r"'arg': .* got int64; say which"):
        bsr_array(source, blocksize=(2, 2))
    assert bsr_array(source, blocksize=(2, 2), dtype="bfloat16").dtype == bfloat16


@pytest.mark.parametrize("fmt", ["csr", "csc", "coo", "dia"])
def test_from_cupyx(cuda_engine, rng, fmt):
    import cupyx.scipy.sparse as cusp

    dense = sparse_dense(rng, (12, 20), (3, 4), density=0.3)
    source = getattr(cusp, f"{fmt}_matrix")(sp.csr_matrix(dense).asformat(fmt))
    with cuda_engine.runs(None):
        a = bsr_array(source, blocksize=(3, 4))
        guess = bsr_array(source)
    expected = sp.csr_array(dense).tobsr((3, 4))
    np.testing.assert_array_equal(a.data.get(), expected.data)
    np.testing.assert_array_equal(a.indices.get(), expected.indices)
    assert guess.blocksize == sp.csr_array(dense).tobsr().blocksize


# -- another bsr_array, a shape ---------------------------------------------------------------


@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
def test_other_blocksize(engine, rng, batch):
    dense = sparse_dense(rng, (12, 24), (3, 4), batch=batch)
    with engine.runs("bsr_block_mask", "bsr_gather", "bsr_scatter"):
        a = bsr_array(engine.array(dense), blocksize=(3, 4))
        smaller = bsr_array(a, blocksize=(1, 2))
        back = smaller.toarray()
    assert smaller.blocksize == (1, 2) and smaller.has_canonical_format
    np.testing.assert_array_equal(engine.host(back), dense)
    if not batch:
        larger = bsr_array(a.get() if engine.on_gpu else a, blocksize=(6, 8))
        np.testing.assert_array_equal(larger.toarray(), dense)


def test_empty_from_a_shape():
    a = bsr_array((4, 6), blocksize=(2, 3), dtype="int8")
    assert a.nnzb == 0 and a.dtype == np.int8 and a.toarray().shape == (4, 6)


def test_ml_dtypes_names():
    assert bsr_array(np.eye(2), blocksize=(1, 1), dtype=ml_dtypes.bfloat16).dtype == bfloat16


def test_default_engine_is_named_in_use_engine():
    with (
        pytest.raises(ValueError, match="use_engine: argument 'name'"),
        sparsegpu.use_engine("gpu"),
    ):
        pass
