"""float32 BSR @ dense at IEEE precision, by multiply-adds; and the tiles of full precision."""

import pytest

from addmm_cases import LAYOUTS
from covering import covered
from path_contract import BsrPath, FromTheRight, UnalignedBlocks
from sparsegpu.engines.cuda.paths import bsr_addmm_f32, bsr_addmm_f64
from tile_cases import facts_of, tile_of

SIZES = [(16, 16), (32, 32), (64, 16), (128, 24), (40, 20), (23, 23), (48, 36), (9, 50)]


class TestPath(BsrPath, FromTheRight, UnalignedBlocks):
    NAME, SOURCE = "fma", "bsr_addmm_f32"
    CASES = [("float32", size) for size in SIZES]
    LAYOUTS, COLUMNS = [*LAYOUTS, "skewed"], [260, 37, 65, 96]
    REFUSED = [("float64", (16, 16), 64, {}), ("float32", (16, 16), 64, {"allow_tf32": True})]


@covered(dtype=["float32", "float64"], n=[8, 64, 65, 4096], transposed=[False, True])
def test_tiles_fit_the_smallest_gpu(dtype, n, transposed):
    path = bsr_addmm_f32 if dtype == "float32" else bsr_addmm_f64
    for bm in (*range(8, 70), 96, 100, 128, 250, 256):
        for bk in (1, 5, 8, 16, 20, 23, 24, 32, 40, 48, 64, 100, 256):
            tile = tile_of(path, dtype, (bm, bk), n, transposed=transposed)
            d = tile.defines
            assert tile.shared_memory <= 99 * 1024 and d["STAGES"] >= 2
            parts = -(-bm // tile.tile_m)
            assert tile.tile_m * parts - bm < max(16, bm)
            assert tile.tile_n % (16 * d["WARPS_N"]) == 0
            assert d["TILE_K"] % (4 if dtype == "float32" else 2) == 0
            if dtype == "float32":
                lanes_m = tile.tile_m // d["WARPS_M"] // d["THREAD_M"]
                assert lanes_m * d["THREAD_M"] * d["WARPS_M"] == tile.tile_m
                assert 32 % lanes_m == 0 and tile.tile_n // d["WARPS_N"] % (128 // lanes_m) == 0
            else:
                assert tile.tile_m % (8 * d["WARPS_M"]) == 0


@pytest.mark.parametrize(
    ("path", "dtype"), [(bsr_addmm_f32, "float32"), (bsr_addmm_f64, "float64")]
)
def test_when_it_is_chosen(path, dtype):
    assert path.pays(facts_of(dtype, (32, 32), 64))
    assert path.pays(facts_of(dtype, (32, 32), 7))
    assert path.pays(facts_of(dtype, (2, 3), 64))
    assert not path.pays(facts_of(dtype, (2, 3), 16))
    assert tile_of(path, dtype, (32, 32), 64).defines["DENSE"] == "vectors"
    assert tile_of(path, dtype, (32, 32), 63).defines["DENSE"] == "rows"
    assert tile_of(path, dtype, (32, 32), 63, dense_by_column=True).defines["DENSE"] == "columns"
    unaligned = tile_of(path, dtype, (32, 32), 64, data_alignment=4)
    assert unaligned.defines["DATA"] == "rows"
