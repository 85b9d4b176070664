"""`quantize_int8`: held against NumPy by its definition, and by products with what it returns."""

from __future__ import annotations

import numpy as np
import pytest

import sparsegpu as sg
from covering import covered
from operator_cases import make
from sparsegpu._arrays import dtype_of
from sparsegpu.testing import random_24, random_values


def by_definition(dense, axis):
    wide = dense.astype(np.float64 if dense.dtype == np.float64 else np.float32)
    scales = (np.abs(wide).max(axis=axis, initial=0) / 127).astype(np.float32)
    scales = np.where(scales > 0, scales, np.float32(1))
    divisors = scales if axis is None else np.expand_dims(scales, axis)
    return np.clip(np.rint(wide / divisors), -127, 127).astype(np.int8), scales


@covered(
    dtype=["float16", "bfloat16", "float32", "float64"],
    axis=[None, -1, -2, 0, 1],
    shape=[(5, 7), (2, 4, 6), (0, 3), (1, 1)],
)
def test_dense(engine, rng, dtype, axis, shape):
    if len(shape) == 3 and axis in {0, 1}:
        axis += 1
    dense = random_values(rng, shape, dtype)
    dense[..., :1, :] = 0
    values, scales = sg.quantize_int8(engine.array(dense), axis)
    expected = by_definition(dense, axis)
    assert values.dtype == np.int8 and scales.dtype == np.float32
    np.testing.assert_array_equal(engine.host(values), expected[0])
    np.testing.assert_array_equal(engine.host(scales), expected[1])
    strided = engine.xp.asarray(engine.array(np.ascontiguousarray(dense.swapaxes(-1, -2))))
    again, _ = sg.quantize_int8(strided.swapaxes(-1, -2), axis)
    np.testing.assert_array_equal(engine.host(again), expected[0])


@covered(dtype=["float16", "float32", "float64"], axis=[None, -1, 0], duplicates=[False, True])
def test_blocks(engine, rng, dtype, axis, duplicates):
    a, dense = make(engine, rng, dtype=dtype, duplicates=duplicates)
    values, scales = sg.quantize_int8(a, axis)
    expected = by_definition(dense, axis)
    assert isinstance(values, sg.bsr_array) and values.dtype == np.int8
    np.testing.assert_array_equal(engine.host(values.toarray()), expected[0])
    np.testing.assert_array_equal(engine.host(scales), expected[1])
    assert duplicates or values.pattern is a.pattern or not a.has_canonical_format


def test_products_come_close(engine, rng):
    """Half a step of each operand, times the other."""
    w, x = random_values(rng, (32, 64), "float32"), random_values(rng, (64, 8), "float32")
    a = sg.bsr_array(engine.array(w), blocksize=(8, 8))
    values, scales = sg.quantize_int8(a, -1)
    others, columns = sg.quantize_int8(engine.array(x), -2)
    out = sg.int_bsr_addmm(
        None, values, others, left_alpha=scales, right_alpha=columns, out_dtype="float32"
    )
    left, right = engine.host(scales)[:, None], engine.host(columns)[None]
    step = np.abs(w) @ np.ones((64, 8)) * right + left * (np.ones((32, 64)) @ np.abs(x))
    assert (np.abs(engine.host(out) - w @ x) <= step).all()
    half = random_24(rng, (32, 64), dtype_of("float16"))
    values, scales = sg.quantize_int8(engine.array(half), -1)
    out = sg.scaled_mm(sg.to_semi_structured(values), others, scales, columns, out_dtype="float32")
    exact = engine.host(values).astype(int) @ engine.host(others).astype(int)
    left = engine.host(scales)[:, None].astype(float)
    np.testing.assert_allclose(engine.host(out), left * exact * right, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: sg.quantize_int8(np.ones((2, 2), int)), TypeError, "'W': .*float16, .*int64"),
        (lambda: sg.quantize_int8(np.ones(3)), ValueError, r"'W': .*shape \(\*batch, M, K\)"),
        (lambda: sg.quantize_int8(np.array([[np.nan, 1]])), ValueError, "'W': expected finite"),
        (lambda: sg.quantize_int8(np.array([[-np.inf, 1]])), ValueError, "'W': expected finite"),
        (lambda: sg.quantize_int8(np.array([[1e300, 1]])), ValueError, "'W': expected finite"),
        (lambda: sg.quantize_int8(np.ones((2, 2)), 2), ValueError, "'axis': expected None, 0, 1"),
        (lambda: sg.quantize_int8(np.ones((2, 2)), 0.5), TypeError, "'axis': expected an integer"),
        (lambda: sg.quantize_int8(sg.random_bsr((2, 4, 4), (2, 2), 1)), ValueError, "'W': .*batch"),
    ],
)  # fmt: skip
def test_errors(call, error, match):
    with pytest.raises(error, match=f"^quantize_int8: argument {match}"):
        call()


def test_what_is_too_small_for_a_scale_is_zero():
    values, scales = sg.quantize_int8(np.array([[1e-300, -1e-300], [1.0, 0.0]]), 1)
    assert values.tolist() == [[0, 0], [127, 0]] and scales[0] == 1
