"""Attention on tensor cores of Hopper: blocks, widths, scores, and what is not attended."""

import pytest

from attention_path import SHAPES, AttentionPath, SplitKv, facts
from sparsegpu.engines.cuda.paths import bsr_attention_sm90
from sparsegpu.engines.cuda.paths._fields import ConfigError, Fields


class TestPath(AttentionPath, SplitKv):
    NAME, SOURCE, MODULE = "wgmma", "bsr_attention_sm90", bsr_attention_sm90
    SHAPES = [
        *SHAPES,
        ((16, 128), (9, 3), (128, 128)),
        ((128, 16), (2, 9), (64, 64)),
        ((64, 64), (3, 4), (192, 192)),
        ((32, 32), (3, 9), (256, 256)),
    ]
    FIELDS = [{"tile_q": 128, "stages": 2}, {"consumers": 2, "tile_k": 128}]


def test_what_it_does_not_take():
    tile = bsr_attention_sm90.tile
    assert tile(facts("float16", (8, 64), (64, 64)), Fields()) is None
    assert tile(facts("float16", (64, 48), (64, 64)), Fields()) is None
    assert tile(facts("float16", (64, 64), (264, 64)), Fields()) is None
    assert tile(facts("float16", (64, 64), (256, 256), folded=False), Fields()) is None
    assert tile(facts("float16", (64, 64), (64, 64), capability=(10, 0)), Fields()) is None
    with pytest.raises(ConfigError, match="'stages'"):
        tile(facts("float16", (64, 64), (64, 64)), Fields({"path": "wgmma", "stages": 99}))


@pytest.mark.parametrize(
    ("widths", "score", "keys"),
    [
        ((64, 64), "slopes", (64, 128, 128, 128)),
        ((64, 64), "softcap", (64, 64, 128, 128)),
        ((64, 64), "dropout", (64, 64, 128, 128)),
        ((64, 128), "slopes", (64, 64, 128, 128)),
        ((128, 64), "softcap", (64, 64, 64, 64)),
        ((128, 128), "dropout", (64, 64, 64, 64)),
        ((64, 192), "slopes", (64, 64, 64, 64)),
    ],
)
def test_keys_of_a_stage_by_columns_of_a_block(widths, score, keys):
    for bk, expected in zip((32, 64, 128, 256), keys, strict=True):
        f = facts("float16", (128, bk), widths, folded=False, **{score: True})
        assert bsr_attention_sm90.tile(f, Fields()).defines["TILE_K"] == expected


@pytest.mark.parametrize(
    ("bk", "index", "split", "consumers"),
    [
        (128, "s32", 0, 4),
        (128, "s32", 1, 3),
        (128, "s64", 0, 3),
        (64, "s32", 1, 4),
        (64, "s64", 1, 4),
    ],
)
def test_splits_of_sliced_blocks_have_a_team_fewer(bk, index, split, consumers):
    chosen = bsr_attention_sm90.tile(facts("float16", (64, bk), (64, 64)), Fields()).defines
    of_launch = {**chosen, "INDEX": index, "SPLIT_KV": split}
    expected = of_launch | {"CONSUMERS": consumers}
    assert chosen["CONSUMERS"] == 4
    assert bsr_attention_sm90.launched(of_launch) == expected
