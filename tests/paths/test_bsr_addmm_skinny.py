"""16-bit BSR @ few columns on tensor cores: slices of block rows, their terms dealt to warps."""

from covering import covered
from path_contract import BsrPath
from sparsegpu.engines.cuda.paths import bsr_addmm_skinny
from tile_cases import tile_of

SIZES = [(16, 16), (24, 8), (64, 64), (40, 128)]


class TestPath(BsrPath):
    NAME, SOURCE = "skinny", "bsr_addmm_skinny"

    CASES = [*(("float16", size) for size in SIZES), ("bfloat16", (8, 16)), ("bfloat16", (64, 64))]
    LAYOUTS, COLUMNS = ["aligned", "columns"], [8, 17, 128, 40]
    REFUSED = [("float16", (4, 8), 8, {}), ("float16", (16, 4), 8, {}), ("float32", (8, 8), 17, {})]


@covered(layout=["rows", "columns"], columns=[1, 16, 17, 64, 65, 128])
def test_tile_fits_shared_memory(layout, columns):
    for shared_memory in (99 * 1024, 163 * 1024, 227 * 1024):
        for bm in (8, 16, 24, 64, 128, 256):
            for m in (256, 4096, 10**6):
                how = {"m": m, "layout": layout, "shared_memory": shared_memory}
                tile = tile_of(bsr_addmm_skinny, "float16", (bm, 64), columns, **how)
                assert tile.shared_memory <= shared_memory
                assert tile.tile_m < 2 * max(bm, 16) and tile.tile_n >= min(columns, 128)
