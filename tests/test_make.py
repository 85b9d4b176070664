"""Patterns to make: random ones, pruned ones, masks for attention."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparsegpu
from covering import covered
from sparsegpu import banded, bigbird, bsr_array, causal, prune_blocks, random_bsr, sliding_window
from sparsegpu._arrays import CONTAINER_DTYPES, dtype_of


@pytest.mark.parametrize("dtype", CONTAINER_DTYPES, ids=str)
def test_random_bsr(engine, dtype):
    a = random_bsr((16, 24), (4, 2), 0.3, dtype=dtype, rng=3, xp=engine.xp)
    b = random_bsr((16, 24), (4, 2), 0.3, dtype=dtype, rng=3)
    assert type(a) is bsr_array and isinstance(a.data, engine.xp.ndarray)
    assert (a.dtype, a.shape, a.blocksize, a.nnzb) == (dtype, (16, 24), (4, 2), round(0.3 * 48))
    a.check_format()
    assert a.has_canonical_format
    for field in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(engine.host(getattr(a, field)), getattr(b, field))
    data = b.data.astype(complex).real
    assert dtype.kind == "b" or (data.min() < 0 < data.max())


def test_random_bsr_batches_and_generators():
    rng = np.random.default_rng(1)
    a, b = (random_bsr((2, 3, 8, 8), (2, 2), 0.5, rng=rng) for _ in range(2))
    assert a.shape == (2, 3, 8, 8) and a.nnzb == 8 and not a.same_pattern(b)
    a.check_format()
    assert len({a.indices[i, j].tobytes() for i in range(2) for j in range(3)}) > 1
    assert random_bsr((8, 8), (2, 2), 0).nnzb == 0 and random_bsr((8, 8), (2, 2), 1).nnzb == 16
    assert random_bsr((0, 8), (2, 2), 0.5).shape == (0, 8)
    assert random_bsr((8, 8), (2, 2), 0.5).dtype == np.float64


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (
            ((8, 8), (3, 2), 0.5),
            r"'blocksize': expected a block size that divides the shape \(8, 8\)",
        ),
        (((8, 8), (2, 2), 1.5), r"'density': expected a number in 0\.\.1, got 1.5"),
        (((8, 8), (2, 2), float("nan")), r"'density'"),
        (((8,), (2, 2), 0.5), r"'shape': expected \(\*batch, M, K\)"),
        (((8, -8), (2, 2), 0.5), r"'shape'"),
    ],
)
def test_random_bsr_errors(arguments, match):
    with pytest.raises(ValueError, match=f"random_bsr: argument {match}"):
        random_bsr(*arguments)


@pytest.mark.parametrize(("rng", "error"), [("a", TypeError), (-1, ValueError), (0.5, TypeError)])
def test_what_is_no_seed(rng, error):
    for name, call in (
        ("random_bsr", lambda: random_bsr((4, 4), (2, 2), 0.5, rng=rng)),
        ("bigbird", lambda: bigbird(8, 2, rng=rng)),
    ):
        with pytest.raises(error, match=rf"^{name}: argument 'rng': .* seed, got {rng!r}$"):
            call()


# -- pruning ------------------------------------------------------------------------------------


@covered(
    norm=[1, 2, np.inf],
    batch=[(), (2,)],
    dtype=["float32", "bfloat16", "float64", "int8", "complex64"],
)
def test_prune_blocks(engine, rng, norm, batch, dtype):
    dense = sparsegpu.testing.random_values(rng, (*batch, 12, 20), dtype)
    with engine.runs("bsr_gather", "bsr_scatter"):
        a = prune_blocks(engine.array(dense), (3, 4), 0.4, norm)
        kept = engine.host(a.toarray())
    assert a.nnzb == 8 and a.dtype == dense.dtype and a.has_canonical_format
    wide = dense.astype(complex if dense.dtype.kind == "c" else float)
    blocks = wide.reshape(*batch, 4, 3, 5, 4).swapaxes(-3, -2).reshape(*batch, 20, 12)
    norms = np.linalg.norm(blocks, norm, axis=-1)
    for b in np.ndindex(batch):
        best = np.sort(np.argsort(-norms[b], kind="stable")[:8])
        expected = np.zeros_like(blocks[b])
        expected[best] = blocks[b][best]
        expected = expected.reshape(4, 5, 3, 4).swapaxes(1, 2).reshape(12, 20)
        np.testing.assert_array_equal(kept[b], expected.astype(dense.dtype))


def test_complex_squares_tie_exactly(engine):
    """A magnitude of 1 + 1j, squared again, is more than 2."""
    dense = np.array([[1 + 1j, 1 + 1j, 2, 0], [1 + 1j, 1 + 1j, 0, 2]], np.complex64)
    for order in ([0, 1, 2, 3], [2, 3, 0, 1]):
        with engine.runs("bsr_gather"):
            a = prune_blocks(engine.array(dense[:, order]), (2, 2), 0.5)
        assert engine.host(a.indices).tolist() == [0]


def test_prune_blocks_ties_keep_the_lower_index_and_nan_goes_last(engine):
    dense = np.kron(np.array([[1, -1, 2], [np.nan, 1, 1.0]]), np.ones((2, 2)))
    with engine.runs("bsr_gather"):
        a = prune_blocks(engine.array(dense), (2, 2), 0.5)
        b = prune_blocks(engine.array(dense), (2, 2), 1)
    assert engine.host(a.indices).tolist() == [0, 1, 2] and b.nnzb == 6
    with engine.runs("bsr_gather"):
        c = prune_blocks(engine.array(dense), (2, 2), 5 / 6)
    assert engine.host(c.indices).tolist() == [0, 1, 2, 1, 2]


@pytest.mark.parametrize("norm", [1, 2, np.inf])
@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [
        ("bfloat16", [1e38, 2e38, 3e38, 1e-37, 2e-37]),
        ("complex64", [1e38, 2e38, 3e38, 1e-37, 2e-37]),
        ("float32", [1e38, 2e38, 3e38, 1e-37, 2e-37]),
        ("float16", [6e4, 6.2e4, 6.4e4, 6e-8, 1.2e-7]),
        ("float64", [1e307, 2e307, 3e307, 5e-324, 1e-323]),
        ("complex128", [1e307, 2e307, 3e307, 5e-324, 1e-323]),
    ],
)
def test_prune_blocks_at_the_ends_of_the_range(engine, norm, dtype, sizes):
    """Squares of the values, and sums of them, may be no numbers of their dtype."""
    dense = np.kron(np.array([sizes]), np.array([[1, -1], [1, 1]])).astype(dtype_of(dtype))
    order = [2, 1, 0, 4, 3]
    with engine.runs("bsr_gather"):
        for count in range(1, 6):
            kept = prune_blocks(engine.array(dense), (2, 2), count / 5, norm)
            assert engine.host(kept.indices).tolist() == sorted(order[:count])


def test_prune_blocks_errors():
    for arguments, match in (
        ((np.eye(4), (3, 2), 0.5), r"'blocksize'"),
        ((np.eye(4), (2, 2), -1), r"'density'"),
        ((np.eye(4), (2, 2), 0.5, 3), r"'norm': expected one of 1, 2, inf, got 3"),
        ((np.ones(4), (2, 2), 0.5), r"'dense': expected shape \(\*batch, M, K\)"),
    ):
        with pytest.raises(ValueError, match=f"prune_blocks: argument {match}"):
            prune_blocks(*arguments)
    with pytest.raises(TypeError, match="prune_blocks: argument 'dense': expected numbers"):
        prune_blocks(np.eye(4) > 0, (2, 2), 0.5)
    assert prune_blocks(np.ones((0, 4)), (2, 2), 0.5).nnzb == 0
    assert prune_blocks(np.ones((2, 0, 4)), (2, 2), 0.5).shape == (2, 0, 4)


# -- masks --------------------------------------------------------------------------------------


def assert_mask(engine, mask, expected):
    """The mask has these elements, and stores just the blocks that hold one."""
    assert mask.dtype == bool and isinstance(mask.data, engine.xp.ndarray)
    assert mask.has_canonical_format and mask.shape == expected.shape
    mask.check_format()
    with engine.runs("bsr_scatter" if expected.size else None):
        np.testing.assert_array_equal(engine.host(mask.toarray()), expected)
    assert engine.host(mask.data).any(axis=(1, 2)).all()


SIZES = [(8, 1), (12, 4), ((12, 20), (3, 4)), ((20, 12), (4, 3)), ((0, 4), 2), ((4, 0), 2)]


def grid(length):
    rows, columns = length if isinstance(length, tuple) else (length, length)
    return np.arange(columns) - np.arange(rows)[:, None]


@pytest.mark.parametrize(("length", "blocksize"), SIZES, ids=str)
def test_bands(engine, length, blocksize):
    offset, xp = grid(length), engine.xp
    assert_mask(engine, causal(length, blocksize, xp=xp), offset <= 0)
    for w in (0, 1, 5, 50):
        assert_mask(engine, sliding_window(length, blocksize, w, xp=xp), abs(offset) <= w)
        one_sided = sliding_window(length, blocksize, w, causal=True, xp=xp)
        assert_mask(engine, one_sided, (offset <= 0) & (offset >= -w))
        assert_mask(engine, banded(length, blocksize, w, xp=xp), abs(offset) <= w)
        assert_mask(engine, banded(length, blocksize, w, 2, xp=xp), (offset >= -w) & (offset <= 2))
    assert_mask(engine, banded(length, blocksize, None, xp=xp), offset == offset)
    assert_mask(engine, banded(length, blocksize, None, 0, xp=xp), offset <= 0)


@settings(max_examples=25, deadline=None)
@given(
    st.tuples(st.integers(0, 8), st.integers(0, 8)),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.integers(0, 12),
    st.integers(0, 12),
)
def test_bands_of_any_shape(blocks, blocksize, lower, upper):
    from conftest import Engine

    length = blocks[0] * blocksize[0], blocks[1] * blocksize[1]
    offset = grid(length)
    mask = banded(length, blocksize, lower, upper)
    assert_mask(Engine("reference"), mask, (offset >= -lower) & (offset <= upper))


def test_bigbird(engine):
    mask = bigbird(64, 4, window=1, global_blocks=2, random_blocks=3, rng=5, xp=engine.xp)
    host = bigbird(64, 4, window=1, global_blocks=2, random_blocks=3, rng=5)
    assert mask.dtype == bool and mask.has_canonical_format and engine.host(mask.data).all()
    np.testing.assert_array_equal(engine.host(mask.indices), host.indices)
    blocks = host.toarray()[::4, ::4]
    offset = grid(16)
    fixed = abs(offset) <= 1
    fixed[:2] = fixed[:, :2] = True
    assert (blocks >= fixed).all()
    assert ((blocks & ~fixed).sum(axis=1)[2:] == 3).all()
    assert bigbird((0, 4), 2).nnzb == 0 and bigbird((4, 0), 2).nnzb == 0
    full = bigbird(8, 2, random_blocks=9)
    assert full.nnzb == 16


def test_mask_errors():
    for call, match in (
        (lambda: causal(10, 4), r"causal: argument 'length': expected multiples of .*\(4, 4\)"),
        (lambda: causal(10, 0), "causal: argument 'blocksize'"),
        (lambda: sliding_window(8, 4, -1), "sliding_window: argument 'window': .* got -1"),
        (lambda: banded(8, 4, -1), "banded: argument 'lower'"),
        (lambda: bigbird(8, 4, random_blocks=-1), "bigbird: argument 'random_blocks'"),
    ):
        with pytest.raises(ValueError, match=match):
            call()
    with pytest.raises(TypeError, match="causal: argument 'length': expected an integer"):
        causal("long", 4)
    with pytest.raises(TypeError, match="banded: argument 'upper': expected an integer"):
        banded(8, 4, 1, 0.5)


def test_masks_go_into_attention(engine, rng):
    q, k, v = (rng.standard_normal((2, 3, 16, 8)) for _ in range(3))
    mask = sliding_window(16, 4, 3, causal=True, xp=engine.xp)
    with engine.runs("bsr_attention_simt"):
        out = sparsegpu.scaled_dot_product_attention(*(engine.array(x) for x in (q, k, v)), mask)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(8)
    offset = grid(16)
    scores[..., (offset > 0) | (offset < -3)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ v
    sparsegpu.testing.assert_attention_close(out, expected)
