"""Gradient of the softmax of stored rows, against finite differences and a float64 formula."""

from __future__ import annotations

import numpy as np
import pytest

import sparsegpu
from covering import covered
from softmax_contract import DTYPES, RowContract, stored_elements
from sparsegpu._arrays import dtype_of
from sparsegpu.testing import (
    dense_from_blocks,
    random_blocks,
    random_values,
    softmax_backward_bound,
)


class TestRows(RowContract):
    function = staticmethod(sparsegpu.bsr_softmax_backward)

    @staticmethod
    def draw(rng, shape, blocksize, dtype="float32", **how):
        """Return a gradient and a softmax's values over one pattern."""
        data, indices, indptr = random_blocks(rng, shape, blocksize, dtype=dtype, **how)
        weights = np.exp(data.astype(np.float64)) / 8
        grad = random_values(rng, data.shape, dtype)
        return (grad, indices, indptr), (weights.astype(data.dtype), indices, indptr)

    @staticmethod
    def expected(grad, softmax, shape):
        data, indices, indptr = softmax
        g, y = (dense_from_blocks(*parts, shape).astype(data.dtype) for parts in (grad, softmax))
        exact, bound = np.zeros(shape), np.zeros(shape)
        stored = stored_elements(indices, indptr, data.shape[1:], shape)
        for r, columns in enumerate(stored):  # the number of products is that of the row
            exact[r, columns], bound[r, columns] = softmax_backward_bound(
                g[r, columns], y[r, columns]
            )
        return exact, bound


@pytest.mark.parametrize("blocksize, batch", [((3, 4), ()), ((1, 5), (2,)), ((8, 1), (2, 2))])
def test_finite_differences(engine, rng, blocksize, batch):
    """Of a weighted sum of the softmax, by every stored element; unsorted, with empty rows."""
    shape = (4 * blocksize[0], 5 * blocksize[1])
    parts = random_blocks(rng, shape, blocksize, dtype="float64", density=0.5, batch=batch)
    x = engine.bsr(parts, shape)
    y = sparsegpu.bsr_softmax(x)
    weights = y.with_data(engine.array(rng.standard_normal(y.data.shape)))
    got = engine.host(sparsegpu.bsr_softmax_backward(weights, y).data).ravel()
    x.sum_duplicates()  # in the order of the result
    values, h = engine.host(x.data), 1e-6

    def loss(at, step):
        moved = values.copy()
        moved.ravel()[at] += step
        moved = sparsegpu.bsr_softmax(x.with_data(engine.array(moved)))
        return float((moved.data * weights.data).sum())

    for at in rng.choice(values.size, min(values.size, 40), replace=False):
        exact = (loss(at, h) - loss(at, -h)) / (2 * h)
        assert abs(got[at] - exact) < 1e-8


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_autograd(engine, rng, dtype):
    torch = pytest.importorskip("torch")
    shape, blocksize = (24, 40), (8, 5)
    parts = random_blocks(rng, shape, blocksize, dtype=dtype, density=0.6, shuffled=False)
    a = engine.bsr(parts, shape)
    stored = engine.host(a.with_data(a.data == a.data).toarray())
    y = sparsegpu.bsr_softmax(a)
    weights = random_values(rng, shape, dtype)
    grad = engine.host(y.with_data(y.data).toarray()) * 0 + weights * stored
    blocks = sparsegpu.bsr_array(engine.array(grad.astype(dtype)), blocksize=blocksize)
    x = torch.tensor(engine.host(a.toarray()), requires_grad=True)
    theirs = torch.softmax(x.masked_fill(torch.tensor(~stored), -torch.inf), dim=1)
    some = stored.any(axis=1)
    (theirs[some] * torch.tensor(weights)[some]).sum().backward()
    ours = engine.host(sparsegpu.bsr_softmax_backward(blocks, y).toarray())
    tolerance = 64 * np.finfo(dtype).eps
    np.testing.assert_allclose(ours[some], x.grad.numpy()[some], atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
def test_duplicates_are_summed_first(engine, rng, dtype):
    """Of both operands, which may store them in different orders."""
    shape = (12, 20)
    parts = random_blocks(
        rng, shape, (3, 4), dtype=dtype, density=0.8, duplicates=True, small_integers=True
    )
    softmax = engine.bsr(parts, shape)
    grad = softmax.with_data(softmax.data[::-1].copy())
    with engine.runs("bsr_softmax_backward"):
        result = sparsegpu.bsr_softmax_backward(grad, softmax)
    for a in (grad, softmax):
        a.sum_duplicates()
    canonical = engine.host(softmax.indices), engine.host(softmax.indptr)
    pair = [(engine.host(a.data), *canonical) for a in (grad, softmax)]
    TestRows.compare(engine, result, *pair, shape=shape)


@covered(dtype=DTYPES, blocksize=[(1, 4), (4, 2), (2, 40)])
def test_what_is_not_finite_stays_in_its_row(engine, dtype, blocksize):
    """Row 0: a NaN of the softmax; row 1: an infinite gradient; row 2: one where nothing is due."""
    bm, bk = blocksize
    shape = (3 * bm, 3 * bk)
    grad, y = np.ones(shape), np.full(shape, 0.25)
    y[0, 1], grad[bm, 2], grad[2 * bm, 0], y[2 * bm, 0] = np.nan, np.inf, np.inf, 0
    arrays = (engine.array(x.astype(dtype_of(dtype))) for x in (grad, y + 0.0))
    g, softmax = (sparsegpu.bsr_array(x, blocksize=blocksize) for x in arrays)
    with engine.runs("bsr_softmax_backward"):
        got = engine.host(sparsegpu.bsr_softmax_backward(g, softmax).toarray()).astype(np.float64)
    with np.errstate(invalid="ignore"):
        exact = y * (grad - (grad * y).sum(axis=1, keepdims=True))
    assert (np.isnan(got) == np.isnan(exact)).all()
    rest = np.isfinite(exact).all(axis=1)
    assert rest.sum() == 3 * (bm - 1) and (got[rest] == exact[rest]).all()


def test_errors(engine, rng):
    a = sparsegpu.bsr_array(engine.array(np.eye(4, dtype="float32")), blocksize=(2, 2))
    other = sparsegpu.bsr_array(engine.array(np.eye(4, dtype="float32")[::-1]), blocksize=(2, 2))
    memory = engine.xp.zeros(a.data.size + 3, np.float32)
    first, second = (a.with_data(memory[i : i - 3 or None].reshape(a.data.shape)) for i in (0, 3))
    backward = sparsegpu.bsr_softmax_backward
    dense = a.toarray()
    engine.look(a, other)
    with engine.runs(None):
        for name, pair in (("grad", (dense, a)), ("softmax", (a, dense))):
            with pytest.raises(TypeError, match=f"bsr_softmax_backward: argument '{name}': exp"):
                backward(*pair)
        for dtype in ("bool", "int8", "int32", "complex64"):
            with pytest.raises(TypeError, match="'softmax': expected one of the dtypes float"):
                backward(a.astype(dtype), a.astype(dtype))
        with pytest.raises(TypeError, match="argument 'grad': expected dtype float32 like"):
            backward(a.astype("float16"), a)
        with pytest.raises(ValueError, match="argument 'grad': expected the pattern of 'softmax'"):
            backward(other, a)
        with pytest.raises(ValueError, match="argument 'out': expected the pattern of the result"):
            backward(a, a, out=other)
        with pytest.raises(ValueError, match="'out': expected memory apart from 'softmax'"):
            backward(first, second, out=second)
        with pytest.raises(ValueError, match="memory apart from 'grad', or grad itself"):
            backward(first, a, out=second)
    assert (engine.host(other.toarray()) == np.eye(4)[::-1]).all()
