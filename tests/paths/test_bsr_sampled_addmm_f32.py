"""float32 sampled products at IEEE precision, by multiply-adds; and tiles of full precision."""

import numpy as np
import pytest

from covering import covered
from sampled_path import SampledPath, facts
from sparsegpu.engines.cuda.paths import bsr_sampled_addmm_f32, bsr_sampled_addmm_f64
from sparsegpu.engines.cuda.paths._fields import ConfigError, Fields
from sparsegpu.engines.cuda.paths._full_precision import NARROW
from sparsegpu.engines.cuda.paths._sampled_full_precision import order as order_of
from tools.emulator.host import device_array


class TestPath(SampledPath):
    NAME, SOURCE, MODULE = "fma", "bsr_sampled_addmm_f32", bsr_sampled_addmm_f32
    ALLOW_TF32 = False
    CASES = [
        ("float32", size)
        for size in [(16, 16), (32, 32), (64, 64), (128, 128), (20, 12), (160, 200), (5, 7), (1, 1)]
    ]
    FIELDS = [
        {"tile_m": 128, "tile_n": 128, "stages": 4},
        {"tile_m": 24, "tile_n": 256},
        {"tile_m": 16, "tile_n": 64, "stages": 2},
        {"split_k": 2},
    ]
    REFUSED = [("float64", (16, 16), False), ("float16", (16, 16), False)]

    def test_allow_tf32(self, engine, rng):
        """What may be rounded need not be."""
        sparse, mat1, mat2 = self.operands(engine, rng, self.CASES[0], small_integers=False)
        a, b = engine.array(mat1), engine.array(mat2)
        one, other = (
            self.call(engine, sparse, a, b, beta=0, allow_tf32=allow).data
            for allow in (False, True)
        )
        np.testing.assert_array_equal(engine.host(one), engine.host(other))


@covered(dtype=["float32", "float64"], row_blocks=[0.5, 3.0, 40.0])
def test_tiles_fit_the_smallest_gpu(dtype, row_blocks):
    path = bsr_sampled_addmm_f32 if dtype == "float32" else bsr_sampled_addmm_f64
    for bm in (1, 4, 8, 16, 23, 24, 32, 48, 64, 100, 128, 256):
        for bn in (1, 3, 8, 16, 20, 32, 48, 64, 96, 128, 200, 256):
            tile = path.tile(facts(dtype, (bm, bn), row_blocks=row_blocks), Fields())
            d = tile.defines
            assert tile.threads == 32 * d["WARPS_M"] * d["WARPS_N"]
            assert tile.tile_m * -(-bm // tile.tile_m) - bm < max(16, bm)
            assert tile.shared_memory + 8 * tile.tile_n <= 99 * 1024
            assert tile.tile_n > NARROW or row_blocks * bn <= NARROW
            assert dtype == "float32" or "THREAD_M" not in d


def test_every_tile_is_of_whole_lanes():
    for tile_m, shapes in bsr_sampled_addmm_f32._TILES.items():
        for tile_n, s in shapes.items():
            lanes_m = tile_m // s.warps_m // s.thread_m
            assert lanes_m in (2, 4, 8) and lanes_m * s.warps_m * s.thread_m == tile_m
            assert tile_n % (4 * s.warps_n * 32 // lanes_m) == 0
            threads = 32 * s.warps_m * s.warps_n
            assert threads * s.resident * (tile_m * tile_n // threads + 24) <= 65536


@pytest.mark.parametrize(
    ("blocksize", "row_blocks", "tile"),
    [
        ((128, 128), 6.4, (64, 128)),
        ((64, 64), 12.8, (64, 128)),
        ((32, 32), 25.6, (32, 128)),
        ((16, 16), 51.2, (16, 128)),
        ((48, 48), 17.0, (48, 256)),
        ((100, 100), 8.0, (64, 128)),
        ((16, 16), 2.0, (16, 64)),
    ],
)
def test_blocks_side_by_side_fill_a_tile(blocksize, row_blocks, tile):
    f = facts("float32", blocksize, row_blocks=row_blocks)
    chosen = bsr_sampled_addmm_f32.tile(f, Fields())
    assert (chosen.tile_m, chosen.tile_n) == tile


def test_where_it_is_taken():
    assert bsr_sampled_addmm_f32.pays(facts("float32", (16, 16)))
    assert bsr_sampled_addmm_f32.pays(facts("float32", (4, 4), row_blocks=20.0))
    assert not bsr_sampled_addmm_f32.pays(facts("float32", (3, 64)))
    assert not bsr_sampled_addmm_f32.pays(facts("float32", (64, 4)))
    fields = Fields({"path": "fma", "tile_m": 128, "tile_n": 256}, "sampled_addmm")
    with pytest.raises(ConfigError, match=r"sampled_addmm.*'tile_n'"):
        bsr_sampled_addmm_f32.tile(facts("float32", (64, 64)), fields)


@pytest.mark.parametrize(
    ("columns", "first", "extent", "order"),
    [(64, 0, 32, "vectors"), (64, 0, 6, "rows"), (64, 1, 32, "rows"), (65, 0, 32, "rows")],
)
def test_vectors_are_copied_where_they_are_whole(columns, first, extent, order):
    matrix = device_array((40, columns), np.float32)[:, first:]
    assert order_of(matrix, extent) == order
    assert order_of(matrix.T, extent) == "columns"
