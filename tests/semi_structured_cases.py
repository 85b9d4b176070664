"""Operands of the 2:4 products' tests."""

import ml_dtypes
import numpy as np

import sparsegpu as sg
from sparsegpu.testing import random_24

BF16, FP8 = np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn)
HALF, SINGLE, INT8 = (np.dtype(t) for t in (np.float16, np.float32, np.int8))
KERNEL = "semi_structured_addmm"


def operand(engine, rng, shape, dtype, **keywords):
    """A 2:4 operand on the engine's side, and its dense values."""
    dense = random_24(rng, shape, dtype, **keywords)
    with engine.runs("semi_structured_compress"):
        return sg.to_semi_structured(engine.array(dense)), dense


def exact_product(a, b):
    return np.matmul(a.astype(np.float64), b.astype(np.float64))
