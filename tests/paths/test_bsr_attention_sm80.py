"""Attention on tensor cores from 8.0 on: blocks, widths, scores, and what is not attended."""

import numpy as np
import pytest

from attention_path import SHAPES, AttentionPath, SplitKv, facts
from sparsegpu.engines.cuda.paths import bsr_attention_sm80
from sparsegpu.engines.cuda.paths._fields import ConfigError, Fields


class TestPath(AttentionPath, SplitKv):
    NAME, SOURCE, MODULE = "mma", "bsr_attention_sm80", bsr_attention_sm80
    SHAPES = [
        *SHAPES,
        ((8, 8), (17, 9), (64, 64)),
        ((20, 12), (7, 6), (40, 72)),
        ((9, 33), (7, 3), (256, 8)),
    ]
    FIELDS = [{"tile_q": 128, "tile_k": 32}, {"tile_k": 16, "blocks": 3}]


def test_what_it_does_not_take():
    tile = bsr_attention_sm80.tile
    assert tile(facts("float16", (7, 64), (64, 64)), Fields()) is None
    assert tile(facts("float16", (64, 64), (264, 64)), Fields()) is None
    assert tile(facts("float16", (64, 64), (20, 64)), Fields()) is None
    config = {"path": "mma", "tile_k": 64}
    small = facts("float16", (64, 64), (256, 256), shared_memory=99 * 1024)
    with pytest.raises(ConfigError, match="'tile_k'"):
        tile(small, Fields(config))


@pytest.mark.parametrize(("width", "split", "keys"), [(192, 1, 32), (200, 0, 32), (200, 1, 16)])
def test_splits_of_many_columns_have_few_keys_a_tile(width, split, keys):
    chosen = bsr_attention_sm80.tile(facts("float16", (64, 64), (256, width)), Fields()).defines
    of_launch = {**chosen, "SPLIT_KV": split}
    assert bsr_attention_sm80.launched(of_launch) == of_launch | {"TILE_K": keys}


@pytest.mark.parametrize(("mask", "keys"), [("bool", 32), ("float32", 16)])
def test_dropout_beside_a_mask_that_is_added_leaves_fewer_registers(mask, keys):
    more = {"folded": mask == "bool", "mask_dtype": np.dtype(mask), "dropout": True}
    f = facts("float16", (64, 64), (256, 256), **more)
    assert bsr_attention_sm80.tile(f, Fields()).defines["TILE_K"] == keys
