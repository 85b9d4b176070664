"""Elementwise products with what broadcasts, and quotients by dense arrays, as with SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import sparsegpu as sg
from operator_cases import check, make

#: Shapes and block sizes of two operands that broadcast, the first of them ours.
BROADCAST = [
    ((12, 20), (3, 4), (1, 20), (1, 4)),
    ((12, 20), (3, 4), (1, 20), (1, 2)),  # other blocks
    ((12, 20), (3, 4), (12, 1), (3, 1)),
    ((12, 20), (3, 4), (12, 1), (2, 1)),
    ((12, 20), (3, 4), (1, 1), (1, 1)),
    ((1, 20), (1, 4), (12, 20), (3, 4)),
    ((12, 1), (3, 1), (12, 20), (6, 2)),
    ((1, 1), (1, 1), (12, 20), (3, 4)),
    ((12, 1), (3, 1), (1, 20), (1, 5)),
    ((1, 20), (1, 5), (12, 1), (4, 1)),
    ((1, 20), (1, 4), (1, 1), (1, 1)),
]


@pytest.mark.parametrize("shape, blocksize, other_shape, other_blocksize", BROADCAST)
@pytest.mark.parametrize("batch, other_batch", [((), ()), ((2,), ()), ((3, 1), (2,))])
def test_one_row_or_column(
    engine, rng, shape, blocksize, other_shape, other_blocksize, batch, other_batch
):
    density = 0.5
    if batch:  # the matrices of a batch have to store equally many blocks
        density, lengths = 1.0, zip(shape, other_shape, blocksize, other_blocksize)
        other_blocksize = tuple(ours if n == m else theirs for n, m, ours, theirs in lengths)
    a, dense = make(engine, rng, shape, blocksize, batch=batch, dtype="float32", density=density)
    b, other = make(
        engine, rng, other_shape, other_blocksize,
        batch=other_batch, dtype="float32", density=density, duplicates=not other_batch,
    )  # fmt: skip
    check(engine, a.multiply(b), dense * other)
    check(engine, a * b, dense * other)


@pytest.mark.parametrize("shape, blocksize, other_shape, other_blocksize", BROADCAST)
@pytest.mark.parametrize("container", ["csr_array", "bsr_array", "coo_matrix"])
def test_one_row_or_column_of_scipy(rng, shape, blocksize, other_shape, other_blocksize, container):
    a = sg.random_bsr(shape, blocksize, 0.6, rng=rng, dtype="float64")
    other = np.rint(rng.standard_normal(other_shape) * 2)
    theirs = sp.csr_array(a.to_scipy()).multiply(sp.csr_array(other))
    ours = a.multiply(getattr(sp, container)(other))
    assert isinstance(ours, sg.bsr_array) and ours.dtype == theirs.dtype
    ours.check_format()
    np.testing.assert_array_equal(ours.toarray(), theirs.toarray())


def test_only_what_both_store_is_stored(engine, rng):
    """As of equal shapes: where the row stores nothing, an infinity is not multiplied by zero."""
    a = sg.bsr_array(engine.array(np.full((4, 6), np.inf)), blocksize=(2, 2))
    row = sg.bsr_array(engine.array(np.array([[0, 0, 1.0, 1, 0, 0]])), blocksize=(1, 2))
    product = a.multiply(row)
    assert product.nnzb == 2 and product.blocksize == (2, 2)
    check(engine, product, np.tile([0, 0, np.inf, np.inf, 0, 0], (4, 1)))
    empty = sg.bsr_array(engine.array(np.zeros((1, 6))), blocksize=(1, 2))
    assert a.multiply(empty).nnzb == 0 and empty.multiply(a).nnzb == 0
    column = sg.bsr_array(engine.array(np.ones((4, 1))), blocksize=(2, 1))
    assert column.multiply(empty).shape == (4, 6) and column.multiply(empty).nnzb == 0


@pytest.mark.parametrize("dtypes", [("float32", "float64"), ("int8", "int8"), ("bool", "float32")])
def test_dtypes_of_broadcast_products(engine, rng, dtypes):
    a, dense = make(engine, rng, dtype=dtypes[0])
    b, other = make(engine, rng, (1, 20), (1, 2), dtype=dtypes[1])
    check(engine, a.multiply(b), dense * other)
    check(engine, b.multiply(a), dense * other)


def test_of_no_rows():
    a = sg.bsr_array((0, 20), blocksize=(3, 4), dtype="float32")
    row = sg.bsr_array(np.ones((1, 20), np.float32), blocksize=(1, 4))
    for product in (a.multiply(row), row.multiply(a)):
        assert product.shape == (0, 20) and product.nnzb == 0


@pytest.mark.parametrize("of_scipy", [False, True])
@pytest.mark.parametrize("shape", [(4, 20), (12, 5), (20, 12), (2, 1)])
def test_shapes_that_do_not_broadcast(rng, shape, of_scipy):
    a = sg.random_bsr((12, 20), (3, 4), 0.5, rng=rng)
    b = sg.bsr_array(np.ones(shape, np.float32), blocksize=(1, 1))
    match = r"^multiply: argument 'other': expected a shape that broadcasts with \(12, 20\), got"
    with pytest.raises(ValueError, match=match):
        a.multiply(b.to_scipy() if of_scipy else b)


def test_with_24_blocks_and_masks(rng):
    a = sg.random_bsr((64, 64), (32, 32), 0.7, rng=rng, dtype="float32")
    b = sg.random_bsr((64, 64), (32, 32), 0.7, rng=rng, dtype="float32").semi_structured(prune=True)
    np.testing.assert_array_equal(a.multiply(b).toarray(), a.toarray() * b.toarray())
    mask = sg.causal(64, 32, compact=True)
    np.testing.assert_array_equal(a.multiply(mask).toarray(), a.toarray() * mask.toarray())


# -- quotients ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(12, 20), (12, 1), (20,), (1, 1), (2, 12, 20)])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int8", "complex64"])
def test_division_by_a_dense_array(engine, rng, dtype, shape):
    a, dense = make(engine, rng, dtype=dtype, duplicates=len(shape) < 3)
    divisor = rng.integers(1, 5, shape).astype(dtype)
    check(engine, a / engine.array(divisor), dense / divisor)


def test_rows_divided_by_their_sums(rng):
    a = abs(sg.random_bsr((12, 20), (3, 4), 1.0, rng=rng, dtype="float64"))
    np.testing.assert_allclose((a / a.sum(axis=1)[:, None]).sum(axis=1), np.ones(12), rtol=1e-14)


def test_only_what_is_stored_is_divided(engine):
    a = sg.bsr_array(engine.array(np.diag([1.0, 2, 0, 0])), blocksize=(2, 2))
    zero = engine.array(np.zeros((4, 4)))
    with np.errstate(all="ignore"):
        result = a / zero
    nan, inf = np.nan, np.inf
    assert result.nnzb == 1
    check(engine, result, [[inf, nan, 0, 0], [nan, inf, 0, 0], [0] * 4, [0] * 4], dtype=float)


def test_division_is_refused_otherwise(rng):
    a = sg.random_bsr((12, 20), (3, 4), 0.5, rng=rng)
    for other in (a, a.to_scipy()):
        with pytest.raises(NotImplementedError, match=r"^bsr_array /: division by a sparse array"):
            a / other
    with pytest.raises(ValueError, match=r"^bsr_array /: argument 'other': expected shapes that b"):
        a / np.ones((3, 20), np.float32)
    with pytest.raises(TypeError, match=r"^bsr_array /: argument 'other'"):
        a / "2"
