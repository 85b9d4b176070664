"""Attention of every dtype and block size without tensor cores."""

import numpy as np

from attention_path import AttentionPath, facts
from sparsegpu.engines.cuda.paths import bsr_attention_simt
from sparsegpu.engines.cuda.paths._fields import Fields


class TestPath(AttentionPath):
    NAME, SOURCE, MODULE = "simt", "bsr_attention_simt", bsr_attention_simt
    DTYPES = ("float16", "bfloat16", "float32", "float64")
    SHAPES = [
        ((16, 16), (9, 11), (64, 128)),
        ((5, 7), (9, 6), (33, 65)),
        ((64, 48), (2, 3), (40, 72)),
        ((130, 3), (1, 21), (8, 5)),
    ]

    test_fields = None  # it has none
    test_tiles_fit = None  # it takes no dynamic shared memory


def test_a_tile_has_lanes_for_all_rows_and_columns():
    for bm in (1, 7, 8, 64, 300):
        for width in (1, 64, 65, 256, 300):
            for dtype in ("float16", "float64"):
                tile = bsr_attention_simt.tile(facts(dtype, (bm, 4), (8, width)), Fields())
                assert 1 <= tile.warps <= 4 and tile.rows * (tile.warps - 1) < bm
                assert tile.columns in {2, 4, 8} and tile.defines["OUT"] == tile.defines["T"]
                assert np.dtype(dtype).itemsize < 8 or tile.columns <= 4
