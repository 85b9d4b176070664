"""What the BSR products do with an accumulator: scalars, alphas, input, activation, dtypes."""

import numpy as np
import pytest

import sparsegpu
from addmm_cases import Operand, small
from covering import covered
from sparsegpu import bsr_addmm, bsr_matmul, int_bsr_addmm
from sparsegpu._epilogue import ACTIVATIONS
from sparsegpu.testing import assert_within_bound, random_values

# -- epilogue -----------------------------------------------------------------------------------


@covered(activation=ACTIVATIONS[1:], dtype=["float32", "float64", "2:4"])
def test_activations_of_every_argument(engine, dtype, activation):
    """A product with the identity: nothing is summed, so that the bound is an activation's own."""
    x = np.linspace(-12, 12, 64 * 80).reshape(64, 80)
    x = x.astype("float16" if dtype == "2:4" else dtype)
    eye = np.eye(64, dtype=x.dtype)
    if dtype == "2:4":
        sparse = sparsegpu.to_semi_structured(engine.array(eye))
        with engine.runs("semi_structured_addmm"):
            out = sparsegpu.semi_structured_matmul(
                sparse, engine.array(x), activation=activation, out_dtype="float32"
            )
    else:
        bsr = sparsegpu.bsr_array(engine.array(eye), blocksize=(16, 16))
        with engine.runs("bsr_addmm"):
            out = bsr_matmul(bsr, engine.array(x), activation=activation)
    assert_within_bound(out, eye, x, activation=activation, terms=1)


@covered(name=["alpha", "beta"], dtype=["float16", "float32", "complex64"])
def test_scalars_beyond_the_accumulator_are_infinite(engine, rng, dtype, name):
    a = Operand(engine, rng, (8, 8), (4, 4), dtype, small_integers=True)
    x = engine.array(random_values(rng, (8, 3), dtype, small_integers=True))
    bias = engine.array(np.ones((8, 3), dtype))
    with engine.runs("bsr_addmm"):
        out = bsr_addmm(bias, a.bsr, x, **{name: 1e300})
    assert not np.isfinite(engine.host(out)).all()
    out = engine.array(np.ones((8, 3), dtype))
    with engine.runs(None), pytest.raises(ValueError, match=f"'{name}': expected a number that"):
        bsr_addmm(bias, a.bsr, x, out=out, **{name: 10**400})
    assert (engine.host(out) == 1).all()


@pytest.mark.parametrize("shape", [(), (1,), (20,), (1, 20), (48, 1), (48, 20), (1, 48, 20)])
def test_input_broadcasts(engine, rng, shape):
    a = Operand(engine, rng, (48, 48), (4, 6), batch=(2,))
    x, bias = small(rng, (2, 48, 20)), small(rng, shape)
    with engine.runs("bsr_addmm"):
        out = bsr_addmm(engine.array(np.asarray(bias)), a.bsr, engine.array(x), beta=3, alpha=-2)
    expected = 3 * np.asarray(bias, np.float64) - 2 * (a.dense @ x)
    np.testing.assert_array_equal(engine.host(out), expected)


@pytest.mark.parametrize("blocksize", [(16, 16), (4, 6)])
def test_alpha_zero_computes_no_product(engine, rng, blocksize):
    a = Operand(engine, rng, (48, 48), blocksize)
    bsr = a.bsr.with_data(engine.array(np.full_like(a.data, np.nan)))
    x = engine.array(np.full((48, 20), np.nan, np.float32))
    bias = small(rng, (1, 20))
    with engine.runs("bsr_addmm"):
        out = bsr_addmm(engine.array(bias), bsr, x, alpha=0, beta=-2, activation="relu")
        nothing = bsr_addmm(None, bsr, x, alpha=0)
    expected = np.broadcast_to(np.maximum(-2 * bias, 0), (48, 20))
    np.testing.assert_array_equal(engine.host(out), expected)
    assert (engine.host(nothing) == 0).all()


@pytest.mark.parametrize("dtype", ["float16", "int8", "complex64"])
def test_no_blocks(engine, rng, dtype):
    a = Operand(engine, rng, (48, 32), (16, 16), dtype, density=0)
    x, bias = small(rng, (32, 20), dtype), small(rng, (48, 1), dtype)
    with engine.runs("bsr_addmm"):
        out = bsr_addmm(engine.array(bias), a.bsr, engine.array(x), beta=2)
    np.testing.assert_array_equal(
        engine.host(out), np.broadcast_to(2 * bias.astype(a.dense.dtype), (48, 20))
    )


def test_complex_scalars(engine, rng):
    a = Operand(engine, rng, (12, 12), (3, 4), "complex128")
    x, bias = small(rng, (12, 5), "complex128"), small(rng, (12, 1), "complex128")
    with engine.runs("bsr_addmm"):
        out = bsr_addmm(engine.array(bias), a.bsr, engine.array(x), alpha=2j, beta=1 - 1j)
    np.testing.assert_array_equal(engine.host(out), (1 - 1j) * bias + 2j * (a.dense @ x))


# -- int8 ---------------------------------------------------------------------------------------


def int8_pair(engine, rng):
    a = Operand(engine, rng, (48, 96), (16, 32), "int8", small_integers=False, density=0.6)
    x = random_values(rng, (96, 20), "int8")
    return a, x, a.dense @ x.astype(np.int64)


@pytest.mark.parametrize("blocksize", [(8, 8), (24, 24), (48, 48), (16, 32), (4, 4), (5, 3)])
def test_int8_sums_are_exact_int32(engine, rng, blocksize):
    a = Operand(engine, rng, (240, 480), blocksize, "int8", small_integers=False, density=0.2)
    x = random_values(rng, (480, 24), "int8")
    with engine.runs("bsr_addmm"):
        out = int_bsr_addmm(None, a.bsr, engine.array(x))
    assert out.dtype == np.int32
    np.testing.assert_array_equal(engine.host(out), a.dense @ x.astype(np.int64))


def test_int8_results_round_to_even_and_saturate(engine, rng):
    a, x, product = int8_pair(engine, rng)
    for alpha in (1, 1 / 64, 2.0**-9):
        with engine.runs("bsr_addmm"):
            out = bsr_matmul(a.bsr, engine.array(x), alpha=alpha, out_dtype="int8")
        expected = np.clip(np.rint(product * alpha), -128, 127)
        np.testing.assert_array_equal(engine.host(out), expected)
    half = sparsegpu.bsr_array(engine.array(np.eye(16, dtype=np.int8)), blocksize=(8, 8))
    values = np.tile(np.arange(-8, 8, dtype=np.int8), (16, 1))
    with engine.runs("bsr_addmm"):
        out = bsr_matmul(half, engine.array(values), alpha=0.5, out_dtype="int8")
    np.testing.assert_array_equal(engine.host(out), np.rint(values / 2))


def test_int32_results(engine, rng):
    a, x, product = int8_pair(engine, rng)
    bias = rng.integers(-(2**31), 2**31, (48, 1)).astype(np.int32)
    with engine.runs("bsr_addmm"):
        exact = bsr_addmm(engine.array(bias), a.bsr, engine.array(x), alpha=3, beta=-1)
        clamped = bsr_matmul(a.bsr, engine.array(x), alpha=2.0**20)
        scaled = bsr_matmul(a.bsr, engine.array(x), alpha=0.5)
    expected = 3 * product - bias.astype(np.int64)
    np.testing.assert_array_equal(engine.host(exact), np.clip(expected, -(2**31), 2**31 - 1))
    np.testing.assert_array_equal(
        engine.host(clamped), np.clip(product * 2**20, -(2**31), 2**31 - 1)
    )
    np.testing.assert_array_equal(engine.host(scaled), np.rint(product * 0.5))
