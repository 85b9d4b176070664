"""The BSR product of 16-bit floats, int8 and TF32 on tensor cores from 8.0 on, of any block."""

from itertools import product

import pytest

from addmm_cases import LAYOUTS, laid_out
from covering import covered
from path_contract import BsrPath, FromTheRight, UnalignedBlocks, assert_exact, wide
from sparsegpu.engines.cuda.paths import bsr_addmm_sm80
from sparsegpu.engines.cuda.paths._fields import ConfigError
from sparsegpu.testing import random_values
from tile_cases import facts_of, tile_of

PATH = {"path": "mma"}
DTYPES = ["float16", "bfloat16", "int8", "float32"]


class TestPath(BsrPath, FromTheRight, UnalignedBlocks):
    NAME, SOURCE = PATH["path"], "bsr_addmm_sm80"
    CASES = [*product(DTYPES, [(16, 16), (11, 13), (24, 8), (130, 64)])]
    LAYOUTS, COLUMNS = [*LAYOUTS, "skewed"], [5, 136, 40]
    KEYWORDS = {"allow_tf32": True}
    REFUSED = [("complex64", (16, 16), 64, {}), ("float32", (16, 16), 64, {"allow_tf32": False})]

    @pytest.mark.parametrize("by", LAYOUTS)
    @pytest.mark.parametrize(("dtype", "bk"), [("int8", 32), ("float32", 16), ("float16", 32)])
    def test_what_would_be_put_together_of_elements_is_copied(self, engine, rng, dtype, bk, by):
        """Where a block column has two blocks or more; here it has three."""
        how = {"small_integers": True, "density": 1.0, "duplicates": False}
        sparse, a = self.operand(engine, rng, (dtype, (32, bk)), (3, 4), **how)
        x = random_values(rng, (4 * bk, 48), dtype, small_integers=True)
        kept = by == "columns" or (by == "rows" and dtype != "int8")
        copied = () if kept else ("dense_lines",)
        out = self.multiply(engine, sparse, laid_out(engine, x, by), copied)
        assert_exact(engine, out, wide(a) @ wide(x))


@covered(
    dtype=["float16", "int8", "float32"],
    layout=["rows", "columns", "bytes", "strided"],
    transposed=[False, True],
)
def test_tiles_fit_the_smallest_gpu(dtype, layout, transposed):
    how = {"layout": layout, "transposed": transposed, "allow_tf32": True}
    for bm in (8, 16, 24, 32, 48, 64, 100, 128, 256):
        for n in (8, 32, 33, 64, 65, 4096):
            tile = tile_of(bsr_addmm_sm80, dtype, (bm, 48), n, **how)
            d = tile.defines
            assert tile.threads == 32 * d["WARPS_M"] * d["WARPS_N"]
            assert tile.tile_m % (16 * d["WARPS_M"]) == tile.tile_n % (16 * d["WARPS_N"]) == 0
            assert tile.shared_memory <= 99 * 1024


def test_a_tile_has_a_thread_for_each_term_of_a_slice():
    def threads(dtype, warps_n):
        config = PATH | {"tile_m": 16, "tile_n": 32, "warps_n": warps_n}
        how = {"layout": "strided", "data_alignment": 1, "config": config}
        return tile_of(bsr_addmm_sm80, dtype, (16, 64), 32, **how).threads

    assert threads("float16", 1) == 32
    assert threads("int8", 2) == 64
    with pytest.raises(ConfigError, match="warps_n"):
        threads("int8", 1)


def test_when_it_is_chosen():
    assert bsr_addmm_sm80.pays(facts_of("float16", (16, 16), 64))
    assert bsr_addmm_sm80.pays(facts_of("float16", (16, 16), 1, layout="strided"))
    by_element = {"layout": "strided", "data_alignment": 2}
    assert bsr_addmm_sm80.pays(facts_of("float16", (17, 16), 3, **by_element))
    assert not bsr_addmm_sm80.pays(facts_of("float16", (16, 16), 3, **by_element))
    assert not bsr_addmm_sm80.pays(facts_of("float32", (16, 16), 3, allow_tf32=True))
    assert tile_of(bsr_addmm_sm80, "float32", (16, 16), 64) is None
    assert tile_of(bsr_addmm_sm80, "float32", (16, 16), 64, allow_tf32=True)


@pytest.mark.parametrize(
    ("blocksize", "how", "dense"),
    [
        ((32, 32), {"layout": "rows"}, "bytes"),
        ((32, 32), {"layout": "rows", "column_blocks": 2}, "columns"),
        ((32, 32), {"layout": "rows", "column_blocks": 1.9}, "bytes"),
        ((32, 24), {"layout": "rows", "column_blocks": 2}, "bytes"),
        ((32, 24), {"layout": "columns"}, "strided"),
        ((32, 32), {"layout": "columns"}, "columns"),
    ],
)
def test_how_int8_is_read(blocksize, how, dense):
    """A copy to columns is worth it where a block column has two blocks."""
    assert tile_of(bsr_addmm_sm80, "int8", blocksize, 64, **how).defines["DENSE"] == dense
