"""The BSR product of every dtype, block and layout, without tensor cores."""

from addmm_cases import LAYOUTS
from path_contract import BsrPath, FromTheRight, UnalignedBlocks
from sparsegpu.engines.cuda.paths._simt_tile import simt_tile


class TestPath(BsrPath, FromTheRight, UnalignedBlocks):
    NAME, SOURCE = "simt", "bsr_addmm_simt"
    CASES = [
        ("float16", (11, 13)),
        ("bfloat16", (24, 8)),
        ("int8", (130, 64)),
        ("float32", (3, 5)),
        ("float64", (16, 16)),
        ("complex64", (4, 4)),
        ("complex128", (1, 7)),
    ]
    LAYOUTS, COLUMNS = LAYOUTS, [5, 136, 40]
    REFUSED = [("float32", (3, 5), 8, {"config": {"path": "fast"}})]


def test_tiles_are_whole():
    for rows in (1, 2, 4, 5, 16, 17, 64, 256):
        for columns in (1, 2, 16, 17, 64, 4096):
            tile = simt_tile(rows, columns)
            assert tile.threads % 32 == 0 and tile.threads <= 1024
            assert tile.lanes in {1, 2, 4, 8, 16, 32} and tile.tile_k >= tile.lanes
            assert 16 * tile.tile_k * (tile.tile_m + tile.tile_n + 3) <= 48 * 1024  # complex128
