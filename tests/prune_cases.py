"""Operands of the pruning tests, and the rules as loops."""

import numpy as np

from semi_structured_cases import BF16, FP8, HALF, INT8, SINGLE, bits
from sparsegpu.testing import random_values

DOUBLE = np.dtype(np.float64)
DTYPES = [HALF, BF16, SINGLE, DOUBLE, INT8]
ALGORITHMS = ["largest_abs_values_greedy", "largest_values_greedy", "", "causal1122"]


def awkward(rng, shape, dtype):
    """Values with many ties, zeros of both signs, extremes and NaN."""
    values = random_values(rng, shape, dtype, small_integers=bool(rng.integers(2)))
    if dtype.kind == "i":
        values[rng.random(shape) < 0.1] = -128
        values[rng.random(shape) < 0.1] = 127
    else:
        values[rng.random(shape) < 0.1] = np.nan
        values[rng.random(shape) < 0.1] = -0.0
        if dtype != FP8:
            values[rng.random(shape) < 0.05] = -np.inf
    return values


def visit(keys):
    """Indices by descending key: the lower index on ties, NaN last."""
    return sorted(range(len(keys)), key=lambda i: (np.isnan(keys[i]), -keys[i], i))


def prune_24_by_loop(dense, group, importance=None):
    out = dense.copy()
    keys = np.abs(dense.astype(np.float64)) if importance is None else importance
    for r in range(dense.shape[0]):
        for start in range(0, dense.shape[1] // group * group, group):
            order = visit([float(x) for x in keys[r, start : start + group]])
            for i in order[group // 2 :]:
                out[r, start + i] = 0
    return out


def prune_tile_by_loop(dense, algorithm):
    out = dense.copy()
    limits = (1, 1, 2, 2) if algorithm == "causal1122" else (2, 2, 2, 2)
    for r in range(0, dense.shape[0] // 4 * 4, 4):
        for c in range(0, dense.shape[1] // 4 * 4, 4):
            values = [float(x) for x in dense[r : r + 4, c : c + 4].ravel()]
            if algorithm == "largest_abs_values_greedy":
                values = [abs(v) for v in values]
            rows, columns = [0] * 4, [0] * 4
            for place in visit(values):
                i, j = divmod(place, 4)
                if rows[i] < limits[i] and columns[j] < 2:
                    rows[i] += 1
                    columns[j] += 1
                else:
                    out[r + i, c + j] = 0
    return out


def bitmask_by_loop(matrix):
    m, k = matrix.shape
    out = np.zeros((m // 8, k // 8, 8), np.uint8)
    for r in range(m):
        for c in range(k):
            if matrix[r, c] != 0:
                byte = (r % 8 // 4) * 4 + (c % 8 // 4) * 2 + r % 4 // 2
                out[r // 8, c // 8, byte] |= 1 << (4 * (r % 2) + c % 4)
    return out


def assert_same(engine, got, expected):
    got = engine.host(got)
    assert got.shape == expected.shape and got.itemsize == expected.itemsize
    np.testing.assert_array_equal(bits(got), bits(expected))


def views(engine, rng):
    """Arrays of any strides and dimensions, on the engine's device and on the host."""
    dense = random_values(rng, (3, 10, 24), "float32")
    device = engine.array(dense)
    yield device[:, ::2, 1:], dense[:, ::2, 1:]
    yield device[0].T, dense[0].T
    yield device[0, 0, ::-1], dense[0, 0, ::-1]
