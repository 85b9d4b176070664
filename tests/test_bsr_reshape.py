"""Other shapes of a `bsr_array`, and sizes that blocks do not divide, held against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp

import sparsegpu as sg
from covering import covered
from operator_cases import check, make
from sparsegpu import bsr_array

# -- reshape --------------------------------------------------------------------------------------


OF_BATCHES = [(6, 12, 20), (2, 3, 12, 20), (1, 6, 12, -1), (-1, 20), (3, -1, 20), (2, 18, 2, 20)]


@covered(
    batch=[(6,), (2, 3), (1, 6)],
    shape=OF_BATCHES,
    dtype=["float64", "bfloat16", "int8", "complex64", "bool"],
)
def test_rows_of_batches(engine, rng, batch, shape, dtype):
    # All blocks: parts of others may store different numbers of them.
    keywords = dict(batch=batch, dtype=dtype, blocksize=(2, 4), density=1.0)
    a, dense = make(engine, rng, **keywords)
    with engine.runs(None):
        got = a.reshape(*shape)
    assert got.blocksize == (2, 4) and got.nnzb * np.prod(got.shape[:-2]) == a.nnzb * 6
    check(engine, got, dense.reshape(shape))
    check(engine, a.reshape(shape), dense.reshape(shape))


@covered(batch=[(), (2,), (2, 3)], duplicates=[False, True])
def test_batches_of_rows(engine, rng, batch, duplicates):
    """And the batch alone, of any pattern."""
    a, dense = make(engine, rng, batch=batch, dtype="float64", duplicates=duplicates)
    for shape in ((-1, 20), (1, *batch, 12, 20), (*batch, 1, 12, 20), (-1, 12, 20)):
        check(engine, a.reshape(shape), dense.reshape(shape))


@covered(dtype=["float64", "float16", "bool"], batch=[(), (2,)])
def test_other_columns(engine, dtype, batch):
    dense = np.ones((*batch, 12, 20), dtype)
    if dtype != "bool":
        dense *= np.arange(1, 21).astype(dtype)
    a = bsr_array(engine.array(dense), blocksize=(3, 4))
    for shape in ((*batch, 6, 40), (*batch, 60, 4), (*batch, 2, 30, 4)):
        check(engine, a.reshape(shape), dense.reshape(shape))


def test_values_are_shared_where_blocks_stay(engine, rng):
    a, _ = make(engine, rng, batch=(2, 3), dtype="float32")
    flat = a.reshape(6, 12, 20)
    a.data[...] = 0
    assert not flat.data.any() and a.reshape(6, 12, 20, copy=True).data.flags.owndata
    assert (a.reshape(2, 3, 12, 20)).same_pattern(a)
    none = sg.bsr_array((0, 4), blocksize=(2, 2))
    assert none.reshape(2, 0, 4).shape == (2, 0, 4) and none.reshape(4, 0).nnzb == 0


def test_reshape_like_scipy(engine, rng):
    a, _ = make(engine, rng, dtype="float64")
    host = a.get()
    for shape in ((6, 40), (24, 10), (240, 1), (4, 60)):
        if shape[0] % 3 or shape[1] % 4:
            with pytest.raises(ValueError, match=r"^reshape: argument 'shape': expected multiples"):
                a.reshape(shape)
        else:
            check(engine, a.reshape(shape), host.to_scipy().reshape(shape).toarray())


@pytest.mark.parametrize(
    ("shape", "error", "match"),
    [
        ((7, 20), ValueError, "a shape of 240 elements"),
        ((-1, 7), ValueError, "a shape of 240 elements"),
        ((-1, -1), ValueError, "one that may be -1"),
        ((240,), ValueError, r"\(\*batch, M, K\)"),
        ((12.0, 20), TypeError, "integers"),
        ((2, 3, 8, 5), ValueError, "multiples of"),
    ],
)
def test_bad_shapes(rng, shape, error, match):
    a = sg.random_bsr((12, 20), (3, 4), 0.5, rng=rng)
    with pytest.raises(error, match=f"^reshape: argument 'shape': expected .*{match}"):
        a.reshape(shape)
    with pytest.raises(ValueError, match=r"^reshape: argument 'order': expected one of 'C', 'F'"):
        a.reshape((12, 20), order="A")
    for array, wanted in ((a, (2, 6, 20)), (sg.random_bsr((2, 12, 20), (3, 4), 0.5), (24, 20))):
        with pytest.raises(ValueError, match=r"^reshape: argument 'order': expected 'C' for a b"):
            array.reshape(wanted, order="F")


@pytest.mark.parametrize("shape", [(12, 20), (6, 40), (60, -1), (3, 80)])
def test_elements_column_by_column(engine, rng, shape):
    a, dense = make(engine, rng, dtype="float32")
    check(engine, a.reshape(shape, order="F"), dense.reshape(shape, order="F"))


def test_matrices_of_a_batch_store_equally_many():
    a = bsr_array(np.diag([1.0, 1, 0, 0]), blocksize=(2, 2))
    with pytest.raises(ValueError, match=r"^reshape: .*same number of stored blocks.*0 and 1"):
        a.reshape(2, 2, 4)


# -- pad=True -------------------------------------------------------------------------------------


def larger(dense, shape):
    """Return a matrix with rows and columns of zeros behind its own."""
    added = [(0, n - m) for n, m in zip(shape, dense.shape[-2:])]
    return np.pad(dense, [(0, 0)] * (dense.ndim - 2) + added)


@covered(dtype=["float64", "float16", "int8", "bool"], batch=[(), (2,)])
def test_padded_dense(engine, rng, dtype, batch):
    dense = rng.integers(1, 4, (*batch, 5, 7)).astype(dtype)
    a = bsr_array(engine.array(dense), blocksize=(2, 4), pad=True)
    check(engine, a, larger(dense, (6, 8)))
    if dtype != "bool":
        pruned = sg.prune_blocks(engine.array(dense), (2, 4), 1.0, pad=True)
        check(engine, pruned, larger(dense, (6, 8)))
    b = bsr_array(engine.array(dense), blocksize=(5, 7)).tobsr((2, 4), pad=True)
    check(engine, b, larger(dense, (6, 8)))
    check(engine, bsr_array(b, blocksize=(4, 3), pad=True), larger(dense, (8, 9)))
    fits = bsr_array(engine.array(dense), blocksize=(5, 1), pad=True)
    assert fits.shape == dense.shape


@pytest.mark.parametrize("format", ["csr", "coo", "csc", "bsr"])
def test_padded_sparse_arrays_of_scipy(rng, format):
    theirs = sp.random_array((5, 7), density=0.5, rng=rng).asformat(format)
    a = bsr_array(theirs, blocksize=(2, 4), pad=True)
    a.check_format()
    np.testing.assert_array_equal(a.toarray(), larger(theirs.toarray(), (6, 8)))
    assert bsr_array(theirs, pad=True).shape == (5, 7)


def test_padded_elements_and_parts(engine):
    one, none = engine.array(np.ones(1)), engine.array(np.zeros(1, np.int64))
    a = bsr_array((one, (none, none)), shape=(5, 7), blocksize=(2, 4), pad=True)
    assert a.shape == (6, 8) and a.nnzb == 1
    block = engine.array(np.ones((1, 2, 4)))
    b = bsr_array((block, (none, none)), shape=(5, 7), pad=True)
    c = bsr_array((block, none, engine.array(np.array([0, 1, 1, 1]))), shape=(5, 7), pad=True)
    assert b.shape == c.shape == (6, 8) and b.same_pattern(c)
    assert bsr_array((5, 7), blocksize=(2, 4), pad=True).shape == (6, 8)


@pytest.mark.parametrize("k", [0, 2, -3, 9])
def test_padded_diagonals(engine, k):
    made = {"dtype": "float32", "blocksize": (2, 4), "pad": True, "xp": engine.xp}
    check(engine, sg.eye(5, 7, k=k, **made), larger(np.eye(5, 7, k, "float32"), (6, 8)))
    if k == 0:
        check(engine, sg.identity(5, **made), larger(np.eye(5, dtype="float32"), (6, 8)))
    if k < 7:
        values = np.arange(1.0, 1 + np.eye(5, 7, k).sum())
        a = sg.diags(engine.array(values), k, (5, 7), blocksize=(2, 4), pad=True)
        check(engine, a, larger(sp.diags_array(values, offsets=k, shape=(5, 7)).toarray(), (6, 8)))


def test_padded_diagonals_of_blocks_and_without_a_shape(engine, rng):
    blocks = rng.standard_normal((3, 2, 4))
    a = sg.diags(engine.array(blocks), shape=(5, 11), pad=True)
    check(engine, a, scipy.linalg.block_diag(*blocks))
    b = sg.diags(engine.array(np.ones(5)), blocksize=(2, 4), pad=True)
    check(engine, b, larger(np.eye(5), (6, 8)))


@pytest.mark.parametrize("batch", [(), (2,), (2, 0)])
def test_padded_random_blocks(engine, batch):
    a = sg.random_bsr((*batch, 5, 7), (2, 4), 1, rng=0, pad=True, xp=engine.xp)
    dense = engine.host(a.toarray())
    assert a.shape == (*batch, 6, 8) and a.nnzb == 6
    check(engine, a, larger(dense[..., :5, :7], (6, 8)))
    assert (dense[..., :5, :7] != 0).all()
    whole = sg.random_bsr((*batch, 6, 8), (2, 4), 0.5, rng=0, xp=engine.xp)
    same = sg.random_bsr((*batch, 6, 8), (2, 4), 0.5, rng=0, pad=True, xp=engine.xp)
    np.testing.assert_array_equal(*map(engine.host, (whole.toarray(), same.toarray())))


def test_padded_blocks_of_places(engine, rng):
    blocks = rng.standard_normal((3, 2, 4))
    parts = [engine.array(x) for x in (np.array([0, 2, 0]), np.array([1, 0, 1]), blocks)]
    a = sg.from_blocks(*parts, (5, 5), pad=True)
    dense = np.zeros((6, 8))
    dense[:2, 4:], dense[4:, :4] = blocks[0] + blocks[2], blocks[1]
    check(engine, a, dense)
    said = r"^from_blocks: argument 'shape': .*or pad=True.*\(5, 5\)"
    with pytest.raises(ValueError, match=said):
        sg.from_blocks(*parts, (5, 5))


@pytest.mark.parametrize(
    ("name", "make_one"),
    [
        ("eye", lambda **more: sg.eye(5, blocksize=(2, 4), **more)),
        ("identity", lambda **more: sg.identity(5, blocksize=(2, 4), **more)),
        ("diags", lambda **more: sg.diags([1.0], 0, (5, 5), blocksize=(2, 4), **more)),
        ("random_bsr", lambda **more: sg.random_bsr((5, 5), (2, 4), 0.5, **more)),
        ("prune_blocks", lambda **more: sg.prune_blocks(np.eye(5), (2, 4), 0.5, **more)),
    ],
)
def test_what_can_pad_says_so(name, make_one):
    said = r"divides the shape \(5, 5\) \(or pad=True\), got \(2, 4\)"
    with pytest.raises(ValueError, match=f"^{name}: argument 'blocksize': expected .*{said}"):
        make_one()
    assert make_one(pad=True).shape == (6, 8)


def test_without_pad_the_message_names_it():
    said = r"divides the shape \(5, 7\) \(or pad=True, of bsr_array and tobsr\), got \(2, 4\)"
    with pytest.raises(ValueError, match=f"^bsr_array: argument 'blocksize': expected .*{said}"):
        bsr_array(np.ones((5, 7)), blocksize=(2, 4))


# -- zeros inside blocks --------------------------------------------------------------------------


@covered(name=["tocsr", "tocsc", "tocoo"], dtype=["float64", "complex64"], duplicates=[False, True])
def test_formats_without_zeros(engine, rng, name, dtype, duplicates):
    a, dense = make(engine, rng, dtype=dtype, duplicates=duplicates)
    theirs = getattr(a, name)(eliminate_zeros=True)
    assert theirs.nnz == np.count_nonzero(dense)
    np.testing.assert_array_equal(engine.host(theirs.toarray()), dense)
    assert getattr(a, name)().nnz == a.nnz
    none = a.with_data(a.data * 0)
    assert getattr(none, name)(eliminate_zeros=True).nnz == 0


def test_blocks_that_cancel_are_eliminated(engine):
    blocks = engine.array(np.array([1.0, -1.0, 2.0]).reshape(3, 1, 1))
    indices, indptr = engine.array(np.array([0, 0, 1])), engine.array(np.array([0, 3]))
    a = bsr_array((blocks, indices, indptr), shape=(1, 2))
    assert a.tocsr(eliminate_zeros=True).nnz == a.tocoo(eliminate_zeros=True).nnz == 1
