"""What becomes of an int32 accumulator where numbers are at their largest, or none at all."""

import numpy as np
import pytest

import sparsegpu as sg

LARGEST, LEAST = np.iinfo(np.int32).max, np.iinfo(np.int32).min


def product(engine, value, **keywords):
    a = sg.bsr_array(engine.array(np.full((2, 2), value, np.int8)), blocksize=(2, 2))
    x = engine.array(np.ones((2, 1), np.int8))
    with engine.runs("bsr_addmm"):
        out = sg.bsr_addmm(keywords.pop("input", None), a, x, **keywords)
    return engine.host(out).ravel().tolist()


@pytest.mark.parametrize("alpha", [2**30, 2**31, 2**40, 2**70, 1e300, float("inf")])
def test_large_integer_scalars_saturate(engine, alpha):
    assert product(engine, 3, alpha=alpha) == [LARGEST] * 2
    assert product(engine, -3, alpha=alpha) == [LEAST] * 2


@pytest.mark.parametrize("beta", [2**30, 2**40, 2**70])
def test_large_beta_saturates(engine, beta):
    input = engine.array(np.array([[LARGEST], [LEAST]], np.int32))
    assert product(engine, 1, input=input, beta=beta) == [LARGEST, LEAST]


@pytest.mark.parametrize("out_dtype", ["int32", "int8"])
def test_nan_is_zero_in_integers(engine, out_dtype):
    scale = engine.array(np.array([np.nan, 2], np.float32))
    assert product(engine, 3, left_alpha=scale, out_dtype=out_dtype) == [0, 12]


def test_integers_are_exact_beyond_float32(engine):
    # 2**24 + 1 has no float32.
    input = engine.array(np.full((2, 1), 2**24, np.int32))
    assert product(engine, 1, input=input, alpha=-1, beta=1) == [2**24 - 2] * 2
    assert product(engine, 1, input=input - 1, alpha=1, beta=1) == [2**24 + 1] * 2
