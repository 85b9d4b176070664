"""The 16-bit product whose row groups share tiles of dense, on tensor cores from 8.0 on."""

import numpy as np

import sparsegpu
from covering import covered
from path_contract import BsrPath, FromTheRight, ManyTiles, UnalignedBlocks
from sparsegpu.engines.cuda.runtime.group_tile import group_tile
from sparsegpu.testing import random_values

WHOLE = [(16, 16), (8, 8), (32, 32), (32, 64), (64, 64), (128, 128), (24, 40), (16, 128), (256, 64)]
ODD = [(3, 3), (6, 6), (5, 13), (23, 23), (33, 20), (1, 9), (130, 70), (200, 100)]


class TestPath(BsrPath, FromTheRight, ManyTiles, UnalignedBlocks):
    NAME, SOURCE = "groups", "bsr_addmm_groups"
    CASES = [*(("bfloat16", size) for size in WHOLE), *(("float16", size) for size in ODD)]
    RIGHT = [("float16", size) for size in [(16, 16), (6, 6), (23, 23), (64, 32), (128, 128)]]
    LAYOUTS = ["rows", "columns", "strided", "backwards", "skewed"]
    COLUMNS = [264, 72]
    MANY = [("float16", size) for size in [(16, 16), (8, 8), (23, 23), (64, 64), (128, 128)]]
    REFUSED = [("float16", (16, 16), 68, {}), ("float32", (16, 16), 72, {})]

    def test_padded_blocks_are_made_anew_at_every_call(self, engine, rng):
        sparse, a = self.operand(engine, rng, ("float16", (6, 6)), small_integers=True)
        x = engine.array(random_values(rng, (a.shape[1], 72), "float16", small_integers=True))
        once = engine.host(self.multiply(engine, sparse, x))
        sparse.data[...] = 2 * sparse.data
        with sparsegpu.use_engine(engine.name):
            twice = engine.host(sparsegpu.bsr_matmul(sparse, x, **self.keywords()))
        np.testing.assert_array_equal(twice, 2 * once)


@covered(blocksize=[*WHOLE, *ODD, (256, 256)], by_row=[True, False], n=[72, 104, 4096])
def test_tile_fits_the_smallest_gpu(blocksize, by_row, n):
    bm, bk = blocksize
    tile = group_tile(blocksize, n, by_row)
    assert tile.strip_bytes <= tile.shared_memory <= 99 * 1024 and tile.stages >= 2
    assert tile.parts * tile.slice_m >= bm and tile.group * tile.slice_m <= 128
    assert tile.step_k % 8 == tile.slice_m % 8 == 0
    assert tile.steps == 1 or tile.step_k >= bk
    assert tile.steps * tile.group <= 64
    assert tile.warps_m == 1 or (tile.group == 1 and tile.slice_m % (8 * tile.warps_m) == 0)
    assert tile.tile_n % (16 * tile.warps_n) == 0


@covered(room=[99, 163, 227], blocksize=[(16, 16), (64, 64), (128, 128), (200, 100)])
def test_tile_leaves_room_for_its_neighbours(blocksize, room):
    """As many thread blocks as registers are shared out to find shared memory, too."""
    tile = group_tile(blocksize, 4096, True, room * 1024)
    assert tile.resident * (tile.shared_memory + 1024) <= (room + 1) * 1024
