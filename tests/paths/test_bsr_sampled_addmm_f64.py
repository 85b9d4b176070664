"""float64 sampled products on tensor cores; `test_bsr_sampled_addmm_f32` has what the two share."""

import pytest

from sampled_path import SampledPath, facts
from sparsegpu.engines.cuda.paths import bsr_sampled_addmm_f64
from sparsegpu.engines.cuda.paths._fields import Fields


class TestPath(SampledPath):
    NAME, SOURCE, MODULE = "mma_f64", "bsr_sampled_addmm_f64", bsr_sampled_addmm_f64
    CASES = [
        ("float64", size)
        for size in [(16, 16), (8, 8), (24, 32), (64, 64), (128, 128), (20, 11), (160, 200), (1, 1)]
    ]
    FIELDS = [
        {"tile_m": 64, "tile_n": 64, "stages": 3},
        {"tile_m": 8, "tile_n": 128},
        {"split_k": 2},
    ]
    REFUSED = [("float32", (16, 16), False), ("complex64", (16, 16), False)]


@pytest.mark.parametrize(
    ("blocksize", "row_blocks", "tile"),
    [((128, 128), 6.4, (64, 128)), ((16, 16), 51.2, (16, 128)), ((8, 8), 3.0, (8, 64))],
)
def test_blocks_side_by_side_fill_a_tile(blocksize, row_blocks, tile):
    f = facts("float64", blocksize, row_blocks=row_blocks)
    chosen = bsr_sampled_addmm_f64.tile(f, Fields())
    assert (chosen.tile_m, chosen.tile_n) == tile
