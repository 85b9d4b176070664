"""Attention of every dtype and block size without tensor cores: its tiles."""

import numpy as np

from attention_cases import Case
from attention_path import facts
from sparsegpu.engines.cuda.paths import bsr_attention_simt
from sparsegpu.engines.cuda.paths._fields import Fields


def test_path(engine, rng):
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        Case(rng, dtype=dtype).check(engine, config={"path": "simt"})


def test_a_tile_has_lanes_for_all_rows_and_columns():
    for bm in (1, 7, 8, 64, 300):
        for width in (1, 64, 65, 256, 300):
            for dtype in ("float16", "float64"):
                tile = bsr_attention_simt.tile(facts(dtype, (bm, 4), (8, width)), Fields())
                assert 1 <= tile.warps <= 4 and tile.rows * (tile.warps - 1) < bm
                assert tile.columns in {2, 4, 8} and tile.defines["OUT"] == tile.defines["T"]
                assert np.dtype(dtype).itemsize < 8 or tile.columns <= 4
