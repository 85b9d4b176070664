"""16-bit BSR @ few columns on tensor cores: slices of block rows, their terms dealt to warps."""

from covering import covered
from path_contract import BsrPath
from sparsegpu.engines.cuda.runtime.skinny_tile import skinny_tile

SIZES = [(16, 16), (24, 8), (64, 64), (40, 128)]


class TestPath(BsrPath):
    NAME, SOURCE = "skinny", "bsr_addmm_skinny"

    CASES = [*(("float16", size) for size in SIZES), ("bfloat16", (8, 16)), ("bfloat16", (64, 64))]
    LAYOUTS, COLUMNS = ["aligned", "columns"], [8, 17, 128, 40]
    REFUSED = [("float16", (4, 8), 8, {}), ("float16", (16, 4), 8, {}), ("float32", (8, 8), 17, {})]


@covered(dense=["rows", "columns"], columns=[1, 16, 17, 64, 65, 128])
def test_skinny_tile_fits_shared_memory(dense, columns):
    for shared_memory in (99 * 1024, 163 * 1024, 227 * 1024):
        for bm in (8, 16, 24, 64, 128, 256):
            for rows in (16, 4096, 10**6):
                tile = skinny_tile((bm, 64), rows, columns, dense, 132, shared_memory)
                assert tile.shared_memory(dense) <= shared_memory
                assert tile.tile_m < 2 * max(bm, 16) and tile.tile_n >= min(columns, 128)
