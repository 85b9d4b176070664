"""The kernels of BSR @ dense for every architecture on the host (tools/emulator)."""

from __future__ import annotations

import numpy as np
import pytest

import sparsegpu
from emulated_layouts import BROADCAST, ELSEWHERE
from sparsegpu.testing import random_blocks, random_values
from tools.emulator.operations import emulated_addmm

SOURCES = {
    "mma": "bsr_addmm_sm80",
    "groups": "bsr_addmm_groups",
    "skinny": "bsr_addmm_skinny",
    "fma": "bsr_addmm_f32",
    "mma_f64": "bsr_addmm_f64",
    "simt": "bsr_addmm_simt",
    "vector": "bsr_addmm_vector",
}
#: Few, as each may take seconds to build: path, dtype, block, columns.
CASES = [
    ("mma", "float16", (16, 16), 24),
    ("mma", "int8", (16, 32), 24),
    ("mma", "float32", (8, 8), 1),
    ("groups", "bfloat16", (16, 16), 80),
    ("groups", "float16", (20, 12), 80),
    ("skinny", "float16", (16, 16), 24),
    ("skinny", "bfloat16", (8, 8), 1),
    ("fma", "float32", (16, 16), 24),
    ("mma_f64", "float64", (5, 7), 9),
    ("simt", "complex64", (3, 5), 5),
    ("vector", "float32", (4, 4), 8),
    ("vector", "float64", (3, 3), 1),
]


class Product:
    """A product of two matrices, with an update, of integers: its results are exact."""

    def __init__(self, path, dtype, blocksize, columns):
        rng, (m, k) = np.random.default_rng(1), (5 * blocksize[0], 6 * blocksize[1])
        how = {"dtype": dtype, "small_integers": True}
        blocks = random_blocks(rng, (m, k), blocksize, density=0.5, batch=(2,), **how)
        self.bsr = sparsegpu.bsr_array(blocks, shape=(m, k))
        self.operands = {
            "input": random_values(rng, (2, m, columns), **how),
            "data": self.bsr.data,
            "dense": random_values(rng, (2, k, columns), **how),
        }
        self.dtype = "int32" if dtype == "int8" else dtype
        self.more = {"config": {"path": path}, "allow_tf32": path == "mma"}

    def compute(self, out=None, **operands):
        arrays = self.operands | operands
        a = self.bsr.with_data(arrays["data"])
        return sparsegpu.bsr_addmm(
            arrays["input"], a, arrays["dense"], beta=2, out=out, **self.more
        )

    def check(self, directory, out=None, **operands):
        """Return what was launched for operands, None where the path does not serve them."""
        try:
            with emulated_addmm(directory) as launched:
                found = self.compute(out, **operands)
        except ValueError as error:
            assert "these operands or this device are not for" in str(error)
            return None
        with sparsegpu.use_engine("reference"):
            np.testing.assert_array_equal(found, self.compute(**operands))
        return launched


@pytest.mark.parametrize("case", CASES, ids=str)
def test_operands_that_lie_anywhere(directory, case):
    """Strides of 0 and negative ones, rows off the vectors; the others are in order."""
    product = Product(*case)
    served = [product.check(directory)]
    for layout in (*BROADCAST.values(), *ELSEWHERE.values()):
        served += [product.check(directory, **{n: layout(a)}) for n, a in product.operands.items()]
    for layout in ELSEWHERE.values():
        out = layout(np.zeros(product.compute().shape, product.dtype))
        served.append(product.check(directory, out))
    assert all(SOURCES[case[0]] in launched for launched in served if launched is not None)
    assert served.count(None) <= len(served) // 4
