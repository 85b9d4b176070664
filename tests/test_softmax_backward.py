"""Gradient of the softmax of stored rows, against finite differences and a float64 formula."""

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
    softmax_backward_bound,
)

DTYPES = ["float16", "bfloat16", "float32", "float64"]


def drawn_pair(rng, shape, blocksize, dtype="float32", **how):
    """Return (gradient, a softmax's values) over one pattern, as (data, indices, indptr) each."""
    data, indices, indptr = random_blocks(rng, shape, blocksize, dtype=dtype, **how)
    weights = np.exp(data.astype(np.float64)) / 8
    grad = random_values(rng, data.shape, dtype)
    return (grad, indices, indptr), (weights.astype(data.dtype), indices, indptr)


def expected(grad, softmax, shape):
    """Return the dense gradient of one matrix and its bound, over what its rows store."""
    data, indices, indptr = softmax
    _, bm, bk = data.shape
    stored = np.zeros((shape[0] // bm, shape[1] // bk), bool)
    for i in range(len(stored)):
        stored[i, indices[indptr[i] : indptr[i + 1]]] = True
    stored = stored.repeat(bm, 0).repeat(bk, 1)
    g, y = (dense_from_blocks(*parts, shape).astype(data.dtype) for parts in (grad, softmax))
    exact, bound = np.zeros(shape), np.zeros(shape)
    for r in range(shape[0]):  # the number of products is that of the row
        columns = stored[r]
        exact[r, columns], bound[r, columns] = softmax_backward_bound(g[r, columns], y[r, columns])
    return exact, bound


def compare(engine, result, grad, softmax, shape) -> None:
    batch = grad[0].shape[:-3]
    exact, bound = np.zeros((*batch, *shape)), np.zeros((*batch, *shape))
    for b in np.ndindex(batch):
        exact[b], bound[b] = expected([x[b] for x in grad], [x[b] for x in softmax], shape)
    assert_close(engine.host(result.toarray()), exact, bound)


def check(engine, grad, softmax, shape) -> None:
    y = engine.bsr(softmax, shape)
    g = engine.bsr(grad, shape)
    with engine.runs("bsr_softmax_backward" if grad[0].size else None):
        result = sparsegpu.bsr_softmax_backward(g, y)
    assert result.dtype == grad[0].dtype and result.has_canonical_format
    compare(engine, result, grad, softmax, shape)


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
@pytest.mark.parametrize(
    "blocksize", [(1, 1), (1, 5), (3, 1), (2, 2), (4, 4), (8, 24), (16, 16), (33, 40), (2, 130)]
)
def test_formula(engine, rng, dtype, blocksize):
    """Unsorted blocks, empty rows."""
    shape = (5 * blocksize[0], 7 * blocksize[1])
    check(engine, *drawn_pair(rng, shape, blocksize, dtype, density=0.4), shape)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape, blocksize", [((4, 3000), (2, 50)), ((2, 1500), (1, 1)), ((9, 1200), (3, 2))]
)
def test_long_rows(engine, rng, dtype, shape, blocksize):
    """Longer than the registers of a warp or of a thread block hold."""
    check(engine, *drawn_pair(rng, shape, blocksize, dtype, density=0.9), shape)


def test_rows_longer_than_2_to_the_17(engine, rng):
    shape = (2, 2**17 + 256)
    check(engine, *drawn_pair(rng, shape, (1, 256), density=1.0), shape)


def test_one_long_row_among_short_ones(engine, rng):
    indices = np.concatenate([np.arange(600), [3], [5]]).astype(np.int32)
    indptr = np.array([0, 600, 601, 601, 602], np.int32)
    grad, y = (random_values(rng, (602, 2, 2), "float32") for _ in range(2))
    check(engine, (grad, indices, indptr), (y, indices, indptr), (8, 1200))


@pytest.mark.parametrize("batch", [(2,), (2, 3)])
def test_batches(engine, rng, batch):
    shape = (12, 20)
    check(engine, *drawn_pair(rng, shape, (3, 4), batch=batch, shuffled=False), shape)


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
    pair = ((engine.host(a.data), *canonical) for a in (grad, softmax))
    compare(engine, result, *pair, shape)


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


@pytest.mark.parametrize("out_dtype", ["float16", "bfloat16", "float32"])
def test_out(engine, rng, out_dtype):
    """``out`` of another dtype and with holes in memory."""
    shape = (12, 20)
    grad, softmax = drawn_pair(rng, shape, (3, 4), density=0.5, shuffled=False)
    y = engine.bsr(softmax, shape)
    spread = engine.xp.zeros((y.nnzb, 6, 8), dtype_of(out_dtype))
    out = y.with_data(spread[:, ::2, ::2])
    with engine.runs("bsr_softmax_backward"):
        assert sparsegpu.bsr_softmax_backward(engine.bsr(grad, shape), y, out=out) is out
    compare(engine, out, grad, softmax, shape)
    assert (engine.host(spread)[:, 1::2] == 0).all()
    assert (engine.host(spread)[:, :, 1::2] == 0).all()


@pytest.mark.parametrize("blocksize", [(3, 4), (1, 256), (16, 16)])
def test_out_may_be_the_gradient_itself(engine, rng, blocksize):
    shape = (2 * blocksize[0], 5 * blocksize[1])
    grad, softmax = drawn_pair(rng, shape, blocksize, density=0.8, shuffled=False)
    y = engine.bsr(softmax, shape)
    g = y.with_data(engine.array(grad[0].copy()))
    with engine.runs("bsr_softmax_backward"):
        assert sparsegpu.bsr_softmax_backward(g, y, out=g) is g
    compare(engine, g, grad, softmax, shape)


@pytest.mark.parametrize("of", ["grad", "softmax"])
def test_values_of_any_strides(engine, rng, of):
    shape = (12, 20)
    grad, softmax = drawn_pair(rng, shape, (3, 4), density=0.5, shuffled=False)
    operands = {"grad": engine.bsr(grad, shape), "softmax": engine.bsr(softmax, shape)}
    values = engine.host(operands[of].data).transpose(2, 1, 0)
    turned = engine.array(np.ascontiguousarray(values)).transpose(2, 1, 0)
    operands[of] = operands[of].with_data(turned)
    with engine.runs("bsr_softmax_backward"):
        result = sparsegpu.bsr_softmax_backward(**operands)
    compare(engine, result, grad, softmax, shape)


def test_the_same_bits_again(engine, rng):
    shape = (32, 64 * 40)
    grad, softmax = drawn_pair(rng, shape, (16, 40), density=0.7)
    g, y = engine.bsr(grad, shape), engine.bsr(softmax, shape)
    first, second = (sparsegpu.bsr_softmax_backward(g, y) for _ in range(2))
    assert (engine.host(first.data) == engine.host(second.data)).all()


@pytest.mark.parametrize("shape, blocksize", [((0, 4), (2, 2)), ((4, 0), (2, 2)), ((4, 4), (2, 2))])
def test_nothing_stored(engine, shape, blocksize):
    a = sparsegpu.bsr_array(engine.xp.zeros(shape, np.float32), blocksize=blocksize)
    with engine.runs(None):
        result = sparsegpu.bsr_softmax_backward(a, a)
    assert result.nnzb == 0 and result.shape == shape


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
    check(engine, *drawn_pair(rng, shape, blocksize, dtype, density=density), shape)


def test_errors(engine, rng):
    a = sparsegpu.bsr_array(engine.array(np.eye(4, dtype="float32")), blocksize=(2, 2))
    other = sparsegpu.bsr_array(engine.array(np.eye(4, dtype="float32")[::-1]), blocksize=(2, 2))
    memory = engine.xp.zeros(a.data.size + 3, np.float32)
    first, second = (a.with_data(memory[i : i - 3 or None].reshape(a.data.shape)) for i in (0, 3))
    backward = sparsegpu.bsr_softmax_backward
    dense = a.toarray()
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
