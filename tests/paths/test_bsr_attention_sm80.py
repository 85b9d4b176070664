"""Attention on tensor cores from 8.0 on: blocks, widths, scores, and what is not attended."""

import numpy as np
import pytest

import sparsegpu
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


class TestTf32(AttentionPath, SplitKv):
    NAME, SOURCE, MODULE = "mma", "bsr_attention_sm80", bsr_attention_sm80
    DTYPES = ("tf32",)
    SHAPES = [
        *SHAPES,
        ((8, 8), (17, 9), (64, 64)),
        ((20, 12), (7, 6), (36, 76)),
        ((9, 33), (7, 3), (128, 256)),
    ]
    FIELDS = [{"tile_q": 128}, {"tile_k": 16, "blocks": 2}, {"tile_k": 64}]
    OUTPUTS = ("bfloat16", "float16", "float32")


def test_operands_are_rounded_to_tf32(engine, rng):
    """Rounded, not cut off: products by 1 of numbers half-way between two of TF32."""
    key = np.zeros((1, 64, 32), np.float32)
    query = key.copy()
    value = np.full((1, 64, 32), 1 + 2.0**-11, np.float32)
    whole = np.ones((1, 64, 64), bool), np.zeros(1, np.int32), np.array([0, 1], np.int32)
    q, k, v = (engine.array(a) for a in (query, key, value))
    with engine.runs("bsr_attention_sm80"):
        out = sparsegpu.scaled_dot_product_attention(
            q, k, v, engine.bsr(whole), allow_tf32=True, config={"path": "mma"}
        )
    assert (engine.host(out) == (1 + 2.0**-10 if engine.on_gpu else value[0, 0, 0])).all()


def test_what_it_does_not_take():
    tile = bsr_attention_sm80.tile
    assert tile(facts("float32", (64, 64), (64, 64)), Fields()) is None
    assert tile(facts("tf32", (64, 64), (136, 64)), Fields()) is None
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
