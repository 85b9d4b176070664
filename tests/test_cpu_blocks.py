"""Loops of the CPU engine that move and pair blocks, in sizes at which they are used."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsegpu
from covering import covered
from cpu_cases import agree
from sparsegpu.testing import dense_from_blocks, random_blocks, random_values

DTYPES = ["float16", "bfloat16", "float32", "float64", "int8", "int32", "complex64", "complex128"]


def many(rng, blocksize, dtype, batch=(), **keywords):
    """Return an array of blocks that NumPy's indexing is too slow for, and its dense matrix."""
    shape = blocksize[0] * 60, blocksize[1] * 80
    triple = random_blocks(
        rng, shape, blocksize, batch=batch, dtype=dtype, small_integers=True, **keywords
    )
    return sparsegpu.bsr_array(triple, shape=shape), dense_from_blocks(*triple, shape)


@covered(dtype=[*DTYPES, "bool"], blocksize=[(3, 3), (2, 5), (16, 16)], batch=[(), (2, 1)])
def test_transposed_and_dense(dtype, blocksize, batch, rng):
    held = "float32" if dtype in ("bool", "int32") else dtype
    A, dense = many(rng, blocksize, held, batch)
    A, dense = A.astype(dtype), dense.astype(dtype)
    np.testing.assert_array_equal(A.toarray(), dense)
    np.testing.assert_array_equal(A.T.toarray(), dense.swapaxes(-1, -2))
    np.testing.assert_array_equal(A.toarray(order="F"), dense)
    wide = np.ones((*dense.shape[:-1], 2 * dense.shape[-1]), dense.dtype)
    assert A.toarray(out=wide[..., ::2]) is not None
    np.testing.assert_array_equal(wide[..., ::2], dense)
    np.testing.assert_array_equal(wide[..., 1::2], np.ones_like(dense))
    swapped = A.with_data(A.data.swapaxes(-1, -2).copy().swapaxes(-1, -2))
    np.testing.assert_array_equal(swapped.toarray(), dense)
    np.testing.assert_array_equal(swapped.T.toarray(), dense.swapaxes(-1, -2))


def test_repeated_blocks_are_summed_in_a_dense_matrix(rng):
    A, dense = many(rng, (3, 3), "float32", duplicates=True)
    np.testing.assert_array_equal(A.toarray(), dense)


@covered(
    dtype=[d for d in DTYPES if d != "int32"],
    blocksize=[(1, 1), (3, 3), (2, 5), (7, 4), (16, 16), (40, 24)],
    batch=[(), (2,)],
    n=[1, 2, 30],
)
def test_from_the_left_equals_the_reference(dtype, blocksize, batch, n, rng):
    A, _ = many(rng, blocksize, dtype, batch, density=0.05, duplicates=True)
    x = random_values(rng, (n, A.shape[-2]), dtype, small_integers=True)
    agree(sparsegpu.dense_bsr_matmul, x, A)
    strided = A.with_data(A.data[..., ::-1])
    agree(sparsegpu.dense_bsr_matmul, x, strided, alpha=2)
    if n == 1:
        agree(sparsegpu.dense_bsr_matmul, x[0], A)


@covered(
    dtype=[d for d in DTYPES if d != "int32"],
    blocksize=[(1, 1), (3, 3), (4, 4), (2, 5), (7, 4), (6, 1), (8, 8)],
    n=[1, 2, 3, 4, 7, 8, 20, 70],
    batch=[(), (2,)],
)
def test_few_columns_equal_the_reference(dtype, blocksize, n, batch, rng):
    A, _ = many(rng, blocksize, dtype, batch, density=0.05, duplicates=True)
    x = random_values(rng, (A.shape[-1], n), dtype, small_integers=True)
    agree(sparsegpu.bsr_matmul, A, x)
    agree(sparsegpu.bsr_matmul, A, np.asfortranarray(x), alpha=2)
    agree(sparsegpu.dense_bsr_matmul, x.T, A.T)
    repeated = np.broadcast_to(x[:1], x.shape)
    agree(sparsegpu.bsr_matmul, A, repeated)
    out = np.ones((*A.shape[:-1], 2 * n), A.dtype if dtype != "int8" else np.int32)
    agree(lambda: sparsegpu.bsr_matmul(A, x, out=out[..., :n]).copy())
    assert (out[..., n:] == 1).all()


@covered(
    dtype=[d for d in DTYPES if d != "int32"], sizes=[(1, 1, 1), (3, 3, 3), (4, 2, 5), (9, 9, 9)]
)
def test_sparse_products_equal_the_reference(dtype, sizes, rng):
    bm, bk, bn = sizes
    # Few enough products for sums that 16 bits hold.
    a, dense_a = many(rng, (bm, bk), dtype, density=0.01, duplicates=True)
    triple = random_blocks(
        rng, (80 * bk, 40 * bn), (bk, bn), dtype=dtype, density=0.05, small_integers=True
    )
    b, dense_b = (
        sparsegpu.bsr_array(triple, shape=(80 * bk, 40 * bn)),
        dense_from_blocks(*triple, (80 * bk, 40 * bn)),
    )
    wide = "complex128" if dtype.startswith("complex") else "float64"
    expected = dense_a.astype(wide) @ dense_b.astype(wide)
    C = sparsegpu.bsr_spgemm(a, b)
    np.testing.assert_array_equal(C.toarray(), expected.astype(C.dtype))
    with sparsegpu.use_engine("reference"):
        by_definition = sparsegpu.bsr_spgemm(a, b)
    assert C.same_pattern(by_definition)
    np.testing.assert_array_equal(C.data, by_definition.data)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("blocksize", [(1, 1), (2, 3), None])
def test_elements_in_any_order_and_repeated(dtype, blocksize, rng):
    row, column = rng.integers(0, 24, 400), rng.integers(0, 30, 400)
    values = random_values(rng, (400,), dtype, small_integers=True)
    expected = np.zeros((24, 30), dtype)
    np.add.at(expected, (row, column), values)
    starts = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=24))])
    order = np.argsort(row, kind="stable")
    csr = sp.csr_array((values[order], column[order], starts), shape=(24, 30))
    before = csr.copy()
    sources = [csr, sp.coo_array((values, (row, column)), shape=(24, 30)), csr.tocsc()]
    for source in sources:
        A = sparsegpu.bsr_array(source, blocksize=blocksize)
        assert A.has_canonical_format
        np.testing.assert_array_equal(A.toarray(), expected)
    A.data[...] = 0
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(csr, name), getattr(before, name))


@pytest.mark.parametrize("indptr", [[0, 3, 1, 4], [0, 1, 2, 9], [1, 2, 3, 4]])
@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array])
def test_rows_that_overlap_are_refused(indptr, kind):
    foreign = kind(np.eye(4)[:3] if kind is sp.csr_array else np.eye(4)[:, :3])
    foreign.indptr = np.array(indptr, np.int32)
    foreign.indices, foreign.data = np.arange(4, dtype=np.int32), np.ones(4)
    with pytest.raises(ValueError, match=r"bsr_array: argument 'arg'.* indptr"):
        sparsegpu.bsr_array(foreign, blocksize=(1, 1))


@pytest.mark.parametrize(("kind", "name"), [(sp.csr_array, "columns"), (sp.csc_array, "rows")])
def test_elements_beyond_the_matrix_are_refused(kind, name):
    foreign = kind(np.eye(4))
    foreign.indices = np.array([0, 1, 4, 3], np.int32)
    with pytest.raises(ValueError, match=rf"'arg': expected {name} in 0\.\.3, got 4"):
        sparsegpu.bsr_array(foreign, blocksize=(2, 2))


@covered(
    dtype=["float16", "float32", "complex128", "int8"],
    blocksize=[(1, 1), (2, 2), (4, 3), (12, 15)],
    duplicates=[False, True],
    order=["C", "F"],
)
def test_other_blocks(dtype, blocksize, duplicates, order, rng):
    A, _ = many(rng, (3, 3), dtype, duplicates=duplicates)
    A = A.with_data(np.asarray(A.data, order=order))
    A.data[::3] = 0
    B = A.tobsr(blocksize)
    B.check_format()
    assert B.blocksize == blocksize and B.has_canonical_format
    np.testing.assert_array_equal(B.toarray(), A.toarray())
    stored = A.toarray().reshape(180 // blocksize[0], blocksize[0], -1, blocksize[1])
    if not duplicates:  # which may add up to zeros
        assert B.nnzb == stored.any(axis=(1, 3)).sum()
    B.data[...] = 1
    assert not A.data[0].any()


def test_csr_and_coo_do_not_share_values(rng):
    A, dense = many(rng, (3, 3), "float64")
    for foreign in (A.tocsr(), A.tocoo(), A.tocsc()):
        foreign.data[...] = 0
    shared = A.tocsr()
    shared.indices[...] = 0
    np.testing.assert_array_equal(A.toarray(), dense)


@covered(dtype=["float32", "float64", "complex64"], blocksize=[(1, 1), (3, 3), (8, 16)])
def test_sums_over_two_patterns(dtype, blocksize, rng):
    a, dense_a = many(rng, blocksize, dtype, density=0.2)
    b, dense_b = many(rng, blocksize, dtype, density=0.1, duplicates=True)
    empty = sparsegpu.bsr_array(a.shape, blocksize=blocksize, dtype=dtype)
    for left, x in ((a, dense_a), (empty, 0 * dense_a)):
        for right, y in ((b, dense_b), (empty, 0 * dense_b)):
            total, difference = left + right, left - right
            assert total.has_canonical_format and total.same_pattern(difference)
            np.testing.assert_array_equal(total.toarray(), x + y)
            np.testing.assert_array_equal(difference.toarray(), x - y)
            with sparsegpu.use_engine("reference"):
                assert total.same_pattern(left + right)
