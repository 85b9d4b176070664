"""BSR @ dense by way of a dense matrix and cuBLAS."""

import pytest

import sparsegpu
from path_contract import Bsr, OnDevice, Patterns, Products


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
