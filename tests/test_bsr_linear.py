"""`bsr_linear`: x @ weight.T + bias, held against the dense product by the accuracy rule."""

from __future__ import annotations

import numpy as np
import pytest

import sparsegpu as sg
from covering import covered
from sparsegpu._arrays import dtype_of
from sparsegpu.testing import assert_within_bound, random_24, random_values


def weight_of(engine, rng, dtype, *, blocksize=(8, 16), shape=(96, 64)):
    """Return a weight with unsorted and repeated blocks, whose sums are exact, and its matrix."""
    parts = sg.testing.random_blocks(
        rng, shape, blocksize, density=0.4, dtype=dtype, duplicates=True, small_integers=True
    )
    dense = sg.testing.dense_from_blocks(*parts, shape)
    return engine.bsr(parts, shape), dense.astype(parts[0].dtype)


@covered(
    shape=[(64,), (1, 64), (5, 64), (2, 3, 64), (2, 0, 64)],
    dtype=["float64", "float32", "float16", "bfloat16", "int8", "complex64"],
    order="CF",
)
def test_linear(engine, rng, shape, dtype, order):
    weight, w = weight_of(engine, rng, dtype)
    x = random_values(rng, shape, dtype)
    of_bias = np.int32 if dtype == "int8" else dtype
    bias = random_values(rng, (96,), of_bias, small_integers=True)
    given = engine.xp.array(engine.array(x), order=order)
    with engine.runs("bsr_addmm" if x.size else None):
        out = sg.bsr_linear(given, weight, engine.array(bias))
        plain = sg.bsr_linear(given, weight)
    assert out.shape == (*shape[:-1], 96) and out.flags.c_contiguous
    rows, wide = x.reshape(-1, 64), dtype_of(dtype)
    out, plain = (engine.host(a).reshape(-1, 96) for a in (out, plain))
    assert out.dtype == (np.int32 if wide == np.int8 else wide)
    # Repeated blocks: more terms than columns.
    assert_within_bound(out, rows, w.T, input=bias, beta=1, terms=256)
    assert_within_bound(plain, rows, w.T, terms=256)


def test_epilogue(engine, rng):
    weight, w = weight_of(engine, rng, "float32")
    x = random_values(rng, (5, 64), "float32")
    bias, left, right = (random_values(rng, (n,), "float32") for n in (96, 5, 96))
    with engine.runs("bsr_addmm"):
        out = sg.bsr_linear(
            engine.array(x), weight, engine.array(bias), alpha=0.5, beta=-2,
            left_alpha=engine.array(left), right_alpha=engine.array(right), activation="silu",
        )  # fmt: skip
    assert_within_bound(
        engine.host(out), x, w.T, input=bias, alpha=0.5, beta=-2, left_alpha=left,
        right_alpha=right, activation="silu", terms=256,
    )  # fmt: skip


def test_into_out(engine, rng):
    weight, w = weight_of(engine, rng, "float16")
    x = random_values(rng, (2, 5, 64), "float16")
    out = engine.xp.empty((2, 5, 96), np.float32)
    with engine.runs("bsr_addmm"):
        assert sg.bsr_linear(engine.array(x), weight, out=out) is out
    assert_within_bound(engine.host(out), x, np.broadcast_to(w.T, (2, 64, 96)), terms=256)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8"])
def test_weights_of_24_blocks(engine, rng, dtype):
    w = random_24(rng, (64, 128), dtype_of(dtype))
    weight = sg.bsr_array(engine.array(w), blocksize=(32, 64)).semi_structured()
    x = random_values(rng, (2, 3, 128), dtype)
    with engine.runs("bsr_semi_structured_addmm"):
        out = sg.bsr_linear(engine.array(x), weight)
    assert_within_bound(engine.host(out).reshape(6, 64), x.reshape(6, 128), w.T)


def test_long_rows_of_int8(engine):
    """Sums of more than 131,071 products are exact, here too."""
    k, block = 262_144, 256
    data = engine.array(np.full((k // block, 1, block), -128, np.int8))
    weight = sg.bsr_array(
        (data, engine.array(np.arange(k // block)), engine.array(np.array([0, k // block])))
    )
    x = engine.array(np.full((2, k), -128, np.int8))
    out = sg.bsr_linear(x, weight, out_dtype="float32")
    assert engine.host(out).tolist() == [[2.0**32]] * 2
    assert engine.host(sg.bsr_linear(x, weight)).tolist() == [[2**31 - 1]] * 2


A = sg.bsr_array(np.eye(4), blocksize=(2, 2))
X = np.ones((3, 4))


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: sg.bsr_linear(X, np.eye(4)), TypeError, "'weight': expected a bsr_array"),
        (lambda: sg.bsr_linear(X[:, :2], A), ValueError, r"'x': expected .*4.*got \(3, 2\)"),
        (lambda: sg.bsr_linear(X, A, np.ones(3)), ValueError, r"'bias': expected shape \(4,\)"),
        (lambda: sg.bsr_linear(X, A, np.ones(4, "f4")), TypeError, "'bias': expected dtype"),
        (lambda: sg.bsr_linear(X.astype("f4"), A), TypeError, "'x': expected dtype float64"),
        (lambda: sg.bsr_linear(A, A), ValueError, r"'x': expected a dense array"),
        (lambda: sg.bsr_linear(X, sg.random_bsr((2, 4, 4), (2, 2), 1)), ValueError, "'weight'"),
        (lambda: sg.bsr_linear(1.0, A), ValueError, "'x': expected at least one dimension"),
    ],
)  # fmt: skip
def test_errors(call, error, match):
    with pytest.raises(error, match=f"^bsr_linear: argument {match}"):
        call()
