"""Every matrix of a batch has rows of its own: no operation may take those of the first for all."""

import numpy as np
import pytest

import sparsegpu as sg
from addmm_cases import small
from covering import covered
from operator_cases import check
from semi_structured_cases import Blocks
from sparsegpu.testing import dense_from_blocks, random_blocks

# Blocks in each row of two matrices, and their columns, unsorted.
COUNTS = [[3, 0, 1], [0, 2, 2]]
COLUMNS = [[2, 0, 3, 1], [3, 1, 0, 2]]
SHAPE, BLOCKSIZE = (6, 12), (2, 3)


def make(engine, rng, dtype="float64", *, duplicates=False):
    """Return a batch of two, and its dense matrices; twice block (0, 2) and (2, 2) if asked."""
    indices = np.array([[2, 0, 2, 1], [3, 1, 2, 2]] if duplicates else COLUMNS, np.int32)
    indptr = np.array([[0, *np.cumsum(c)] for c in COUNTS], np.int32)
    data = small(rng, (2, 4, *BLOCKSIZE), dtype)
    data[data == 0] = 1
    data = abs(data) if duplicates else data  # nothing cancels that a block stores
    parts = data, indices, indptr
    bsr = engine.bsr(parts, SHAPE)
    dense = dense_from_blocks(*parts, SHAPE).astype(data.dtype)
    return bsr, dense


def transposed(a):
    return a.swapaxes(-1, -2)


IN_PLACE = ("sum_duplicates", "sort_indices", "eliminate_zeros")

# What a bsr_array can do, and NumPy's word for it.
SAME = {
    "toarray": (lambda a: a, lambda a: a),
    "T": (lambda a: a.T, transposed),
    "abs": (abs, abs),
    "tobsr": (lambda a: a.tobsr((1, 3)), lambda a: a),
    "+": (lambda a: a + a.T.T, lambda a: 2 * a),
    ">": (lambda a: a > 1, lambda a: a > 1),
    "sum of rows": (lambda a: a.sum(-1), lambda a: a.sum(-1)),
    "sum of columns": (lambda a: a.sum(-2), lambda a: a.sum(-2)),
    "max of rows": (lambda a: a.max(-1), lambda a: a.max(-1)),
    "min of columns": (lambda a: a.min(-2), lambda a: a.min(-2)),
    "max": (lambda a: a.max((-2, -1)), lambda a: a.max((-2, -1))),
    "diagonal": (lambda a: a.diagonal(1), lambda a: np.diagonal(a, 1, -2, -1)),
}


@covered(duplicates=[False, True], name=SAME)
def test_operators(engine, rng, name, duplicates):
    bsr, dense = make(engine, rng, duplicates=duplicates)
    ours, theirs = SAME[name]
    expected = theirs(dense)
    with sg.use_engine(engine.name):
        result = ours(bsr)
    check(engine, result, expected)


@covered(method=IN_PLACE, duplicates=[False, True])
def test_in_place(engine, rng, method, duplicates):
    bsr, dense = make(engine, rng, duplicates=duplicates)
    if method == "eliminate_zeros":  # one block of each, of different rows
        bsr.data[0, 1] = bsr.data[1, 3] = 0
        with sg.use_engine(engine.name):
            dense = engine.host(bsr.toarray())
    with sg.use_engine(engine.name):
        getattr(bsr, method)()
    assert bsr.nnzb == 4 - (method == "eliminate_zeros") - (duplicates and method[:3] == "sum")
    check(engine, bsr, dense)


def test_operators_with_dense(engine, rng):
    bsr, dense = make(engine, rng)
    x = small(rng, (2, *SHAPE), "float64")
    with sg.use_engine(engine.name):
        product, total = bsr.multiply(engine.array(x)), bsr - engine.array(x)
        built = sg.bsr_array(engine.array(dense), blocksize=BLOCKSIZE)
    check(engine, product, dense * x)
    check(engine, total, dense - x)
    check(engine, built, dense)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_products(engine, rng, dtype):
    bsr, dense = make(engine, rng, dtype)
    out_dtype = "int32" if dtype == "int8" else dtype
    right, left = small(rng, (2, 12, 5), dtype), small(rng, (2, 5, 6), dtype)
    wide = dense.astype(np.float64)
    scales = {"left_alpha": small(rng, (2, 6)), "right_alpha": small(rng, (2, 5))}
    bias = small(rng, (2, 6, 1), out_dtype)
    with engine.runs("bsr_addmm"):
        for n in (1, 5):
            out = bsr @ engine.array(np.ascontiguousarray(right[..., :n]))
            np.testing.assert_array_equal(engine.host(out), wide @ right[..., :n])
        out = engine.array(left) @ bsr
        np.testing.assert_array_equal(engine.host(out), left.astype(np.float64) @ wide)
        out = sg.bsr_addmm(
            engine.array(bias), bsr, engine.array(right), out_dtype="float32",
            **{name: engine.array(scale) for name, scale in scales.items()}
        )  # fmt: skip
    scale = scales["left_alpha"][..., None] * scales["right_alpha"][:, None]
    np.testing.assert_array_equal(engine.host(out), bias + scale * (wide @ right))


def test_sparse_products(engine, rng):
    """With a full matrix, so that all results store the same number of blocks."""
    bsr, dense = make(engine, rng)
    full = small(rng, (2, 4, 6), "float64")
    full[full == 0] = 1
    left = sg.bsr_array(engine.array(full), blocksize=(2, 2))
    with engine.runs("bsr_spgemm"):
        product = left @ bsr
    check(engine, product, full @ dense)
    tall = np.concatenate([full, full], axis=-1).swapaxes(-1, -2)
    with engine.runs("bsr_spgemm"):
        other = bsr @ sg.bsr_array(engine.array(tall), blocksize=(3, 2))
    check(engine, other, dense @ tall)


def test_sampled_products_and_softmax(engine, rng):
    bsr, dense = make(engine, rng, "float32")
    a, b = small(rng, (2, 6, 7)), small(rng, (2, 7, 12))
    with engine.runs("bsr_sampled_addmm"):
        sampled = sg.sampled_addmm(bsr, engine.array(a), engine.array(b), beta=2, alpha=-1)
    check(engine, sampled, np.where(dense != 0, 2 * dense - a @ b, 0).astype(np.float32))
    with engine.runs("bsr_softmax"):
        weights = engine.host(sg.bsr_softmax(bsr).toarray())
    assert ((weights != 0) == (dense != 0)).all()
    stored = (dense != 0).any(axis=-1)
    for b, r in np.argwhere(stored):
        row = dense[b, r][dense[b, r] != 0].astype(np.float64)
        exact = np.exp(row) / np.exp(row).sum()
        got = weights[b, r][dense[b, r] != 0]
        assert (np.abs(got - exact) <= sg.testing.softmax_bound(np.float32(row), exact) * 2).all()


def test_a_pattern_is_repeated_for_any_batch(engine, rng):
    _, dense = make(engine, rng)
    single = sg.bsr_array(engine.array(dense[0]), blocksize=BLOCKSIZE)
    for batch in ((2,), (3,), (2, 3), (1,)):
        x = small(rng, (*batch, *SHAPE), "float64")
        with sg.use_engine(engine.name):
            product = single.multiply(engine.array(x))
        assert product.indices.shape == (*batch, 4)
        check(engine, product, dense[0] * x)


def test_attention(engine, rng):
    """Values are unit vectors: the result names the keys that a query attended to."""
    bsr, dense = make(engine, rng, "float32")
    mask = bsr.with_data(bsr.data != 0)
    q = engine.array(np.zeros((1, 2, 6, 4), np.float32))
    k = engine.array(np.zeros((1, 2, 12, 4), np.float32))
    v = np.broadcast_to(np.eye(12, dtype=np.float32), (1, 2, 12, 12)).copy()
    with engine.runs("bsr_attention_simt"):
        out = engine.host(sg.scaled_dot_product_attention(q, k, engine.array(v), mask))
    assert ((out[0] != 0) == (dense != 0)).all()


def test_blocks_of_two_of_four(engine, rng):
    columns, counts = np.array(COLUMNS, np.int32), np.array(COUNTS)
    a = Blocks(engine, rng, (32, 32), np.dtype(np.float16), batch=(2,), small_integers=True)
    data = engine.host(a.bsr.data)[:, :4]
    indptr = np.concatenate([np.zeros((2, 1), int), counts.cumsum(-1)], axis=-1)
    bsr = engine.bsr((data, columns, indptr), (96, 128))
    x = small(rng, (2, 128, 8), "float16")
    with engine.runs("semi_structured_compress"):
        sparse = bsr.semi_structured()
    with engine.runs("bsr_semi_structured"):
        out = sg.bsr_matmul(sparse, engine.array(x), out_dtype="float32")
    dense = dense_from_blocks(data, columns, indptr, (96, 128))
    np.testing.assert_array_equal(engine.host(out), dense @ x.astype(np.float64))


def test_random_patterns(engine, rng):
    """The same of what the other tests draw, in both directions."""
    parts = random_blocks(
        rng, (24, 40), (4, 8), batch=(3,), density=0.3, dtype="float32", small_integers=True
    )
    assert len({tuple(p) for p in parts[2]}) == 3
    bsr = engine.bsr(parts, (24, 40))
    dense = dense_from_blocks(*parts, (24, 40))
    x, y = small(rng, (3, 40, 7)), small(rng, (3, 7, 24))
    with engine.runs("bsr_addmm"):
        np.testing.assert_array_equal(engine.host(bsr @ engine.array(x)), dense @ x)
        np.testing.assert_array_equal(engine.host(engine.array(y) @ bsr), y @ dense)
