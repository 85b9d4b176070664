"""BSR @ dense by way of a dense matrix and cuBLAS."""

import numpy as np
import pytest

import sparsegpu
from path_contract import Bsr, OnDevice, Patterns, Products
from sparsegpu.engines.cuda.paths import bsr_addmm_dense
from sparsegpu.engines.cuda.paths._facts import Facts


class TestPath(Bsr, Products, Patterns, OnDevice):
    NAME, SOURCE = "dense", "bsr_scatter"
    CASES = [("float16", (24, 16)), ("bfloat16", (24, 16)), ("float16", (3, 5))]
    LAYOUTS, COLUMNS = ["rows"], [16, 40]
    REFUSED = [
        ("float32", (24, 16), 40, {}),
        ("float16", (24, 16), 40, {"activation": "relu"}),
        ("float16", (24, 16), 40, {"out_dtype": "float32"}),
    ]

    # Zeros are multiplied, too: a NaN of dense shows in all rows, as the docstring says.
    test_what_the_pattern_lacks_is_not_read = None

    def sums(self, dtype):
        return dtype

    def operand(self, engine, rng, case, counts=(5, 7), **keywords):
        """Without repeated blocks, whose sums would be rounded."""
        return super().operand(engine, rng, case, counts, **{**keywords, "duplicates": False})


@pytest.mark.parametrize(("size", "rows", "density", "pays"), [
    (8192, 16, 0.25, False), (8192, 16, 0.5, True), (4096, 16, 0.5, False), (4096, 16, 0.6, True),
    (4096, 32, 0.5, False), (8192, 32, 0.5, False), (8192, 32, 0.75, True),
    (8192, 64, 0.75, False), (8192, 64, 0.9, True), (8192, 128, 0.9, False),
])  # fmt: skip
def test_the_density_that_pays_depends_on_block_and_size(size, rows, density, pays):
    """As the paths of these products were measured on an H200."""
    facts = Facts(
        dtype=np.dtype("float16"), shape=(size,) * 3, blocksize=(rows, rows), density=density
    )
    assert bsr_addmm_dense.pays(facts) == pays


@pytest.mark.parametrize("largest", [(8192, 4096, 4096), (4096, 8192, 4096), (4096, 4096, 8192)])
def test_one_large_side_is_a_large_product(largest):
    facts = Facts(dtype=np.dtype("float16"), shape=largest, blocksize=(16, 16), density=0.5)
    assert bsr_addmm_dense.pays(facts)


@pytest.mark.gpu
def test_where_nearly_all_blocks_are_stored(hopper):
    """The break-even densities are those of compute capability 9.0; never with repeated blocks."""
    xp = hopper.xp
    full = sparsegpu.bsr_array(xp.ones((2048, 2048), "float16"), blocksize=(16, 16))
    x = xp.ones((2048, 2048), "float16")
    with hopper.runs("bsr_scatter"):
        assert (full @ x == 2048).all()
    indices = xp.zeros_like(full.indices)
    twice = sparsegpu.bsr_array((full.data, indices, full.indptr), shape=full.shape)
    with hopper.runs("bsr_addmm_sm90"):
        assert (twice @ x == 2048).all()
