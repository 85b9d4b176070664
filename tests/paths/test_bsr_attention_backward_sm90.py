"""Attention's gradients on Hopper's tensor cores: blocks, widths, heads, scores, what is masked."""

import pytest

from attention_path import facts
from gradient_path import GradientPath
from sparsegpu.engines.cuda.paths import bsr_attention_backward_sm90
from sparsegpu.engines.cuda.paths._fields import ConfigError, Fields


class TestPath(GradientPath):
    NAME, SOURCE = "wgmma", "bsr_attention_backward_sm90"
    SHAPES = [
        ((64, 64), (3, 4), (64, 64)),
        ((128, 128), (2, 3), (128, 128)),
        ((128, 128), (3, 2), (128, 64)),
        ((16, 16), (9, 11), (64, 128)),
        ((256, 64), (1, 5), (32, 96)),
        ((64, 32), (3, 7), (40, 72)),
        ((16, 128), (9, 3), (128, 128)),
    ]
    FIELDS = [{"tile_own": 128}, {"tile_keys": 32, "tile_queries": 32}, {"stages": 2}]


def test_the_most_that_it_has():
    """A tile of the widest operands fits, with everything that a score may have."""
    for blocksize in ((64, 64), (128, 128), (16, 16), (256, 64)):
        for score in ({}, {"softcap": True, "slopes": True, "dropout": True}):
            made = facts("float16", blocksize, (128, 128), **score)
            tile = bsr_attention_backward_sm90.tile(made, Fields())
            assert tile.shared_memory <= 227 * 1024 - 4096
            assert min(tile.defines["KEY_STAGES"], tile.defines["QUERY_STAGES"]) >= 2


def test_what_it_does_not_take():
    tile = bsr_attention_backward_sm90.tile
    assert tile(facts("float16", (8, 64), (64, 64)), Fields()) is None
    assert tile(facts("float16", (64, 48), (64, 64)), Fields()) is None
    assert tile(facts("float16", (64, 64), (136, 64)), Fields()) is None
    assert tile(facts("float16", (64, 64), (20, 64)), Fields()) is None
    assert tile(facts("float16", (64, 64), (64, 64), capability=(10, 0)), Fields()) is None
    with pytest.raises(ConfigError, match="'stages'"):
        tile(facts("float16", (64, 64), (64, 64)), Fields({"path": "wgmma", "stages": 99}))
