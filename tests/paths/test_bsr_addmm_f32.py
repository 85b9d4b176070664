"""float32 BSR @ dense at IEEE precision, by multiply-adds; and the tiles of full precision."""

import numpy as np
import pytest

from addmm_cases import LAYOUTS
from covering import covered
from path_contract import BsrPath, FromTheRight, UnalignedBlocks
from sparsegpu.engines.cuda.runtime.config import bsr_addmm_config
from sparsegpu.engines.cuda.runtime.float_tile import float_tile

SIZES = [(16, 16), (32, 32), (64, 16), (128, 24), (40, 20), (23, 23), (48, 36), (9, 50)]


class TestPath(BsrPath, FromTheRight, UnalignedBlocks):
    NAME, SOURCE = "fma", "bsr_addmm_f32"
    CASES = [("float32", size) for size in SIZES]
    LAYOUTS, COLUMNS = [*LAYOUTS, "skewed"], [260, 37, 65, 96]
    REFUSED = [("float64", (16, 16), 64, {}), ("float32", (16, 16), 64, {"allow_tf32": True})]


@covered(itemsize=[4, 8], n=[8, 64, 65, 4096])
def test_tiles_fit_the_smallest_gpu(itemsize, n):
    for bm in (*range(8, 70), 96, 100, 128, 250, 256):
        for bk in (1, 5, 8, 16, 20, 23, 24, 32, 40, 48, 64, 100, 256):
            tile = float_tile(itemsize, bm, bk, n)
            assert tile.shared_memory <= 99 * 1024 and tile.stages >= 2
            parts = -(-bm // tile.tile_m)
            assert tile.tile_m * parts - bm < max(16, bm)
            assert tile.tile_n % (16 * tile.warps_n) == 0
            assert tile.tile_k % (16 // itemsize) == 0
            if itemsize == 4:
                lanes_m = tile.tile_m // tile.warps_m // tile.thread_m
                assert lanes_m * tile.thread_m * tile.warps_m == tile.tile_m
                assert 32 % lanes_m == 0 and tile.tile_n // tile.warps_n % (32 // lanes_m * 4) == 0
            else:
                assert tile.tile_m % (8 * tile.warps_m) == 0


@pytest.mark.parametrize(
    ("dtype", "source", "wrong"),
    [("float32", "bsr_addmm_f32", "mma"), ("float64", "bsr_addmm_f64", "fma")],
)
def test_choice_of_kernel(dtype, source, wrong):
    def choice(blocksize, n, **keywords):
        keywords = {"dense": "rows", "data_aligned": True, **keywords}
        return bsr_addmm_config(np.dtype(dtype), blocksize, n, **keywords)

    assert choice((32, 32), 64).source == source
    assert choice((2, 3), 64).source == choice((32, 32), 7).source == "bsr_addmm_simt"
    assert choice((32, 32), 64, config={"path": "simt"}).source == "bsr_addmm_simt"
    assert choice((32, 32), 63).defines["DENSE"] == "rows"
    assert choice((32, 32), 63, by_column=True).defines["DENSE"] == "columns"
    with pytest.raises(ValueError, match=rf"config\['path'\].*' or 'simt' for {dtype}"):
        choice((32, 32), 64, config={"path": wrong})
