"""Overflow, underflow and NaN are results: no engine warns of them, or raises by numpy.seterr."""

from __future__ import annotations

import numpy as np
import pytest

import sparsegpu
from sparsegpu._arrays import dtype_of

#: About the least and the largest number of each dtype.
SCALES = {
    "float16": (6e-8, 6e4),
    "bfloat16": (1e-38, 3e38),
    "float32": (1e-38, 3e38),
    "float64": (1e-308, 1e308),
}
#: The last query attends to nothing, and nothing to the last key.
MASK = np.array([[1, 1, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]], bool)


def products(a, x):
    """Everything that is computed of a square block-sparse array and a dense one."""
    sparsegpu.bsr_addmm(x, a, x, alpha=1e-30, beta=1e30, activation="silu")
    sparsegpu.dense_bsr_matmul(x, a, activation="gelu")
    sparsegpu.sampled_addmm(a, x, x)
    sparsegpu.bsr_scatter_mm(a, x)
    sparsegpu.bsr_spgemm(a, a)
    a.toarray()
    a.copy().sum_duplicates()
    softmax = sparsegpu.bsr_softmax(a)
    sparsegpu.bsr_softmax_backward(softmax, softmax)


@pytest.mark.parametrize("value", ["tiny", "huge", np.inf, np.nan])
@pytest.mark.parametrize("dtype", SCALES)
def test_products(engine, dtype, value):
    value = dict(zip(("tiny", "huge"), SCALES[dtype])).get(value, value)
    blocks = np.full((3, 2, 2), value).astype(dtype_of(dtype))
    triple = blocks, np.array([1, 0, 0]), np.array([0, 1, 3])  # a block is repeated
    a, x = engine.bsr(triple, (4, 4)), engine.array(np.full((4, 4), blocks[0, 0, 0]))
    with engine.runs("bsr"), np.errstate(all="raise"):
        products(a, x)


@pytest.mark.parametrize("value", [1.0, 200.0, np.inf, np.nan])
@pytest.mark.parametrize("dtype", SCALES)
def test_attention_and_its_gradients(engine, rng, dtype, value):
    mask = sparsegpu.bsr_array(engine.array(MASK), blocksize=(2, 2))
    operands = rng.standard_normal((4, 1, 4, 8)) * 30
    operands[:, :, 3] = value
    grad, q, k, v = (engine.array(x) for x in operands.astype(dtype_of(dtype)))
    wide = "float64" if dtype == "float64" else "float32"
    sinks = engine.array(np.full(1, -300, wide))
    with engine.runs("bsr"), np.errstate(all="raise"):
        for more in ({}, {"sinks": sinks, "softcap": 1e-3}, {"dropout_p": 1.0, "seed": 1}):
            out, lse = sparsegpu.scaled_dot_product_attention(
                q, k, v, mask, return_lse=True, **more
            )
            sparsegpu.scaled_dot_product_attention_backward(
                grad, q, k, v, mask, out, lse, mask_gradient=True, **more
            )
