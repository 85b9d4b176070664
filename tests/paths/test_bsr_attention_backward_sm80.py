"""Attention's gradients on tensor cores: blocks, widths, heads, scores, what is not attended."""

import pytest

from attention_path import facts
from gradient_path import GradientPath
from sparsegpu.engines.cuda.paths import bsr_attention_backward_sm80
from sparsegpu.engines.cuda.paths._fields import ConfigError, Fields


class TestPath(GradientPath):
    NAME, SOURCE = "mma", "bsr_attention_backward_sm80"
    SHAPES = [
        ((64, 64), (3, 4), (64, 64)),
        ((128, 128), (2, 3), (128, 64)),
        ((16, 16), (9, 11), (64, 128)),
        ((20, 12), (7, 6), (40, 72)),
        ((8, 8), (17, 9), (32, 32)),
        ((256, 64), (1, 5), (32, 96)),
    ]
    FIELDS = [{"tile_own": 128}, {"tile_other": 16}, {"tile_other": 64}]


class TestTf32(GradientPath):
    NAME, SOURCE = "mma", "bsr_attention_backward_sm80"
    DTYPES = ("tf32",)
    SHAPES = [
        ((64, 64), (3, 4), (64, 64)),
        ((128, 128), (2, 3), (64, 32)),
        ((20, 12), (7, 6), (36, 44)),
        ((8, 8), (17, 9), (32, 32)),
    ]
    FIELDS = [{"tile_own": 128, "tile_other": 32}, {"tile_other": 16}, {"tile_other": 64}]
    MASKED = ((16, 16), (9, 11), (64, 48))


def test_what_it_does_not_take():
    tile = bsr_attention_backward_sm80.tile
    assert tile(facts("float32", (64, 64), (64, 64)), Fields()) is None
    assert tile(facts("tf32", (64, 64), (72, 64)), Fields()) is None
    assert tile(facts("float16", (7, 64), (64, 64)), Fields()) is None
    assert tile(facts("float16", (64, 64), (136, 64)), Fields()) is None
    assert tile(facts("float16", (64, 64), (20, 64)), Fields()) is None
    small = facts("float16", (64, 64), (128, 128), shared_memory=64 * 1024)
    with pytest.raises(ConfigError, match="'tile_other'"):
        tile(small, Fields({"path": "mma", "tile_other": 64}))
