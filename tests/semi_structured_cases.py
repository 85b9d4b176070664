"""Operands of the 2:4 tests, whole and in blocks, and what they are held against."""

import ml_dtypes
import numpy as np

import sparsegpu as sg
from addmm_cases import laid_out
from sparsegpu.testing import dense_from_blocks, random_24, random_blocks, random_values

BF16, FP8 = np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn)
HALF, SINGLE, INT8 = (np.dtype(t) for t in (np.float16, np.float32, np.int8))
KERNEL = "semi_structured_addmm"


def operand(engine, rng, shape, dtype, **keywords):
    """A 2:4 operand on the engine's side, and its dense values."""
    dense = random_24(rng, shape, dtype, **keywords)
    with engine.runs("semi_structured_compress"):
        return sg.to_semi_structured(engine.array(dense)), dense


class Blocks:
    """A `bsr_array` of 2:4 blocks on the engine's side, and its dense values."""

    def __init__(self, engine, rng, blocksize, dtype, counts=(3, 4), **keywords):
        shape = (blocksize[0] * counts[0], blocksize[1] * counts[1])
        integers = keywords.pop("small_integers", False)
        keywords = {"density": 0.5} | keywords
        data, indices, indptr = random_blocks(rng, shape, blocksize, dtype=dtype, **keywords)
        rows = int(np.prod(data.shape[:-1]))
        data = random_24(rng, (rows, blocksize[1]), dtype, small_integers=integers)
        batch = keywords.get("batch", ())
        data = data.reshape(*batch, indices.shape[-1], *blocksize)
        self.dense = dense_from_blocks(data, indices, indptr, shape)
        parts = (engine.array(part) for part in (data, indices, indptr))
        self.bsr = sg.bsr_array(tuple(parts), shape=(*batch, *shape))
        self.sparse = self.bsr.semi_structured()


def check_e4m3(engine, rng, shape, layout, *kernels):
    """Multiply float8 values, whose sums are exact in float32."""
    m, k, n = shape
    a, x = (random_values(rng, size, "float32", small_integers=True) for size in ((m, k), (k, n)))
    a.reshape(-1, 4)[:, 1::2] = 0
    sparse = sg.to_semi_structured(a.astype(FP8))
    sparse = sparse.to_device() if engine.on_gpu else sparse
    dense = laid_out(engine, x.astype(FP8).view(np.uint8), layout)
    how = {"dense_dtype": "float8_e4m3fn", "out_dtype": np.float32}
    with engine.runs(*kernels):
        out = sg.scaled_mm(sparse, dense, 1.0, 1.0, **how)
    np.testing.assert_array_equal(engine.host(out), a @ x)


def exact_product(a, b):
    return np.matmul(a.astype(np.float64), b.astype(np.float64))


def sum_dtype(dtype):
    """Return the dtype in which small integers' sums are exact."""
    return np.int32 if dtype == INT8 else np.float32


def bits(array):
    """An array's bit patterns: equal means equal to the last bit, NaN and -0.0 too."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def place(r, c, m, bits):
    """Where an element of metadata goes: the layout's formula, step by step."""
    g, w = (32, 4) if bits == 16 else (16, 2)
    row = r // g * g + (r % 8) * w + (r % g) // 8
    column = c
    if row % 2 == 0 and column % 2 == 1:
        row, column = row + 1, column - 1
    elif row % 2 == 1 and column % 2 == 0:
        row, column = row - 1, column + 1
    return (column // 2) * m * 2 + row * 2 + column % 2
