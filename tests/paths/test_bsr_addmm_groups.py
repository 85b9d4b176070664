"""The 16-bit product whose row groups share tiles of dense, on tensor cores from 8.0 on."""

from dataclasses import replace

import numpy as np
import pytest

import sparsegpu
from covering import covered
from path_contract import BsrPath, FromTheRight, ManyTiles, UnalignedBlocks
from sparsegpu.engines.cuda.paths import bsr_addmm_groups
from sparsegpu.engines.cuda.paths._facts import Facts
from sparsegpu.testing import random_values
from tile_cases import tile_of

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


@covered(blocksize=[*WHOLE, *ODD, (256, 256)], layout=["rows", "columns"], n=[72, 104, 4096])
def test_tile_fits_the_smallest_gpu(blocksize, layout, n):
    bm, bk = blocksize
    room = 99 * 1024
    tile = tile_of(bsr_addmm_groups, "float16", blocksize, n, layout=layout, shared_memory=room)
    d = tile.defines
    assert tile.shared_memory <= room and d["STAGES"] >= 2
    assert tile.parts * d["SLICE_ROWS"] >= bm and tile.group * d["SLICE_ROWS"] <= 128
    assert d["STEP_K"] % 8 == d["SLICE_ROWS"] % 8 == 0
    assert d["STEPS"] == 1 or d["STEP_K"] >= bk
    assert d["STEPS"] * tile.group <= 64
    assert d["WARPS_M"] == 1 or (tile.group == 1 and d["SLICE_ROWS"] % (8 * d["WARPS_M"]) == 0)
    assert tile.tile_n % (16 * d["WARPS_N"]) == 0
    # The results of a warp's rows pass through the stages.
    rows = min(32, tile.group * d["SLICE_ROWS"] // d["WARPS_M"])
    assert d["WARPS_M"] * rows * (tile.tile_n + 4 * d["WARPS_N"]) * 4 <= tile.shared_memory


@covered(room=[99, 163, 227], blocksize=[(16, 16), (64, 64), (128, 128), (200, 100)])
def test_tile_leaves_room_for_its_neighbours(blocksize, room):
    """As many thread blocks as registers are shared out to find shared memory, too."""
    tile = tile_of(bsr_addmm_groups, "float16", blocksize, 4096, shared_memory=room * 1024)
    assert tile.defines["RESIDENT"] * (tile.shared_memory + 1024) <= (room + 1) * 1024


@pytest.mark.parametrize(
    ("blocksize", "resident"), [((64, 64), 3), ((48, 64), 3), ((40, 64), 4), ((64, 40), 4)]
)
def test_high_slices_without_branches_have_the_registers_of_three_thread_blocks(
    blocksize, resident
):
    tile = tile_of(bsr_addmm_groups, "float16", blocksize, 128)
    assert tile.defines["RESIDENT"] == resident


@pytest.mark.parametrize(
    ("bk", "row_blocks", "pays"), [(8, 100, True), (5, 100, False), (1, 9, False), (1, 8, True)]
)
def test_blocks_of_few_columns_are_for_short_rows(bk, row_blocks, pays):
    f = Facts(dtype=np.dtype("float16"), shape=(4096,) * 3, row_blocks=row_blocks)
    assert bsr_addmm_groups.pays(replace(f, blocksize=(bk, bk))) == pays
