"""The BSR product of 16-bit floats, int8 and TF32 on tensor cores from 8.0 on, of any block."""

from itertools import product

import numpy as np
import pytest

from addmm_cases import LAYOUTS, laid_out
from covering import covered
from path_contract import BsrPath, FromTheRight, UnalignedBlocks, assert_exact, wide
from sparsegpu.engines.cuda.runtime.config import bsr_addmm_config
from sparsegpu.engines.cuda.runtime.fields import ConfigError
from sparsegpu.testing import random_values

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


def choice_of(dtype, blocksize, n, **keywords):
    keywords = {"dense": "rows", "data_aligned": True, **keywords}
    return bsr_addmm_config(np.dtype(dtype), blocksize, n, **keywords)


@covered(
    dtype=["float16", "int8", "float32"],
    dense=["rows", "columns", "bytes", "strided"],
    transposed=[False, True],
)
def test_tiles_fit_the_smallest_gpu(dtype, dense, transposed):
    how = {"dense": dense, "transposed": transposed, "allow_tf32": True}
    for bm in (8, 16, 24, 32, 48, 64, 100, 128, 256):
        for n in (8, 32, 33, 64, 65, 4096):
            config = choice_of(dtype, (bm, 48), n, **how)
            d = config.defines
            assert config.source == "bsr_addmm_sm80"
            assert config.threads == 32 * d["WARPS_M"] * d["WARPS_N"]
            assert config.tile_m % (16 * d["WARPS_M"]) == config.tile_n % (16 * d["WARPS_N"]) == 0
            assert config.shared_memory <= 99 * 1024


def test_a_tile_has_a_thread_for_each_term_of_a_slice():
    def threads(dtype, warps_n):
        config = PATH | {"tile_m": 16, "tile_n": 32, "warps_n": warps_n}
        how = {"dense": "strided", "data_aligned": False, "config": config}
        return choice_of(dtype, (16, 64), 32, **how).threads

    assert threads("float16", 1) == 32
    assert threads("int8", 2) == 64
    with pytest.raises(ConfigError, match="warps_n"):
        threads("int8", 1)


def test_choice_of_path():
    assert choice_of("float16", (16, 16), 64).source == "bsr_addmm_sm80"
    assert choice_of("float16", (4, 4), 64).source == "bsr_addmm_simt"
    assert choice_of("float16", (16, 16), 1).source == "bsr_addmm_simt"
    assert choice_of("float32", (16, 16), 64, allow_tf32=True).source == "bsr_addmm_sm80"
    assert choice_of("float16", (16, 16), 64, config={"path": "simt"}).source == "bsr_addmm_simt"
    with pytest.raises(ValueError, match=r"config\['path'\].*'simt' for complex64"):
        choice_of("complex64", (16, 16), 64, config=PATH)
    with pytest.raises(ValueError, match=r"config\['path'\].*one of 'simt', 'fma', .*'wgmma'"):
        choice_of("float16", (16, 16), 64, config={"path": "fast"})


def test_more_tiles_than_a_grid_has_room_for():
    def source(block_rows, **keywords):
        how = {"dense": "columns", "block_rows": block_rows, **keywords}
        config = choice_of("int8", (20, 16), 40, **how)
        assert config.tile_m >= 20 and config.tile_n >= 40  # a block row is one tile
        return config.source

    assert source(2**31 - 1) == source(2**31 - 1, config=PATH) == "bsr_addmm_sm80"
    assert source(2**31) == source(2**31, config={"path": "simt"}) == "bsr_addmm_simt"
    with pytest.raises(ConfigError, match=r"config\['path'\].*more tiles than a grid has room"):
        source(2**31, config=PATH)
