"""int8 sums of more products than int32 holds: exact, clipped or rounded once, never wrapped.

The oracle is NumPy's, in int64 and float64.
"""

import numpy as np
import pytest

import sparsegpu

MOST = 131_071  # products of which int32 holds the sum, whatever they are
K = 1 << 18


def full_row(engine, value=-128, k=K, blocksize=(2, 256)):
    """Return a matrix of one block row, all of it stored and of one value."""
    bm, bk = blocksize
    data = np.full((k // bk, bm, bk), value, np.int8)
    indices = np.arange(k // bk, dtype=np.int32)
    indptr = np.array([0, k // bk], np.int32)
    triple = tuple(engine.array(a) for a in (data, indices, indptr))
    return sparsegpu.bsr_array(triple, shape=(bm, k))


def test_full_row_is_clipped(engine):
    a, x = full_row(engine), engine.array(np.full((K, 3), -128, np.int8))
    with engine.runs("bsr_addmm"):
        out = a @ x
    assert out.dtype == np.int32
    np.testing.assert_array_equal(engine.host(out), np.full((2, 3), 2**31 - 1))


@pytest.mark.parametrize("out_dtype", ["float32", "float16", "bfloat16"])
def test_full_row_as_a_float(engine, out_dtype):
    a, x = full_row(engine), engine.array(np.full((K, 3), -128, np.int8))
    with engine.runs("bsr_addmm"):
        out = sparsegpu.bsr_matmul(a, x, out_dtype=out_dtype)
    expected = np.inf if out_dtype == "float16" else 4294967296.0
    np.testing.assert_array_equal(engine.host(out).astype(np.float64), np.full((2, 3), expected))
