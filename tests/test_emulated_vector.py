"""The kernel of BSR @ a vector on the host (tools/emulator)."""

from __future__ import annotations

import numpy as np
import pytest

import sparsegpu
from sparsegpu.testing import dense_from_blocks, random_blocks, random_values
from tools.emulator.operations import emulated_few_columns

#: dtype, block size, density, fields: rows of some blocks, of many, of an odd number.
CASES = [
    ("float64", (3, 3), 0.2, {}),
    ("float64", (3, 3), 0.9, {"unroll": 5}),
    ("float64", (5, 5), 0.5, {}),
    ("float32", (3, 3), 0.5, {"stream": 1}),
    ("complex128", (2, 3), 0.5, {}),
    ("float64", (4, 4), 0.5, {}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_products(directory, rng, case):
    """Unsorted and repeated blocks, empty rows, and an update; integers, so that sums are exact."""
    dtype, blocksize, density, fields = case
    shape = 37 * blocksize[0], 61 * blocksize[1]
    how = {"dtype": dtype, "small_integers": True}
    blocks = random_blocks(
        rng, shape, blocksize, density=density, duplicates=True, shuffled=True, **how
    )
    A, dense = sparsegpu.bsr_array(blocks, shape=shape), dense_from_blocks(*blocks, shape)
    x, y = (random_values(rng, (n, 1), **how) for n in shape[::-1])
    config = {"path": "vector", **fields}
    with emulated_few_columns(directory) as launched:
        out = sparsegpu.bsr_matmul(A, x, config=config)
        assert launched == {"bsr_addmm_vector": 1}
        updated = sparsegpu.bsr_addmm(y, A, x, beta=2, config=config)
    np.testing.assert_array_equal(out, dense @ x)
    np.testing.assert_array_equal(updated, dense @ x + 2 * y)
