"""The kernel of BSR @ a vector on the host (tools/emulator)."""

from __future__ import annotations

import numpy as np
import pytest

import sparsegpu
from sparsegpu.testing import dense_from_blocks, random_blocks, random_values
from tools.emulator.operations import emulated_addmm

#: dtype, block size, columns, density, fields: rows of some blocks, of many, of an odd number.
CASES = [
    ("float64", (3, 3), 1, 0.2, {}),
    ("float64", (3, 3), 1, 0.9, {"unroll": 5}),
    ("float64", (5, 5), 1, 0.5, {}),
    ("float32", (3, 3), 1, 0.5, {"stream": 1}),
    ("complex128", (2, 3), 1, 0.5, {}),
    ("float64", (4, 4), 1, 0.5, {}),
]

#: The same with several columns: a lane takes a block, some rows' vectors of it, or elements.
SEVERAL = [
    ("float32", (2, 2), 4, 0.5, {}),
    ("float32", (2, 2), 8, 0.9, {}),
    ("float32", (3, 2), 4, 0.5, {"stream": 0}),
    ("float32", (4, 4), 8, 0.2, {}),
    ("float32", (6, 4), 2, 0.5, {"unroll": 1}),
    ("float32", (2, 6), 4, 0.5, {}),
    ("float32", (4, 4), 3, 0.5, {}),
    ("float64", (2, 2), 8, 0.5, {}),
    ("float64", (4, 4), 8, 0.5, {}),
    ("complex64", (2, 4), 2, 0.5, {}),
    ("int8", (4, 4), 4, 0.5, {}),
]


@pytest.mark.parametrize("offset", [0, 1, 2])
@pytest.mark.parametrize("case", SEVERAL, ids=str)
def test_values_anywhere(directory, rng, case, offset):
    """Blocks begin where no vector does: shorter vectors are loaded, or single elements."""
    products(directory, rng, case, offset)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_products(directory, rng, case):
    products(directory, rng, case, 0)


def products(directory, rng, case, offset):
    """Unsorted and repeated blocks, empty rows, and an update; integers, so that sums are exact."""
    dtype, blocksize, columns, density, fields = case
    shape = 37 * blocksize[0], 61 * blocksize[1]
    how = {"dtype": dtype, "small_integers": True}
    blocks = random_blocks(
        rng, shape, blocksize, density=density, duplicates=True, shuffled=True, **how
    )
    data, *indices = blocks
    moved = np.empty(data.size + offset, data.dtype)[offset:].reshape(data.shape)
    moved[...] = data
    A = sparsegpu.bsr_array((moved, *indices), shape=shape)
    dense = dense_from_blocks(*blocks, shape)
    x, y = (random_values(rng, (n, columns), **how) for n in shape[::-1])
    config = {"path": "vector", **fields}
    with emulated_addmm(directory) as launched:
        out = sparsegpu.bsr_matmul(A, x, config=config)
        assert launched == {"bsr_addmm_vector": 1}
        updated = sparsegpu.bsr_addmm(y, A, x, beta=2, config=config)
    np.testing.assert_array_equal(out, dense @ x)
    np.testing.assert_array_equal(updated, dense @ x + 2 * y)
