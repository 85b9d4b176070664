"""Attention of float64 on tensor cores: blocks, widths, scores, and what is not attended."""

import pytest

from attention_cases import attention, check_far_weights
from attention_path import SHAPES, AttentionPath, facts
from sparsegpu.engines.cuda.paths import bsr_attention_f64, bsr_attention_fma
from sparsegpu.engines.cuda.paths._fields import ConfigError, Fields


class TestPath(AttentionPath):
    NAME, SOURCE, MODULE = "mma_f64", "bsr_attention_f64", bsr_attention_f64
    DTYPES = OUTPUTS = ("float64",)
    SHAPES = [
        *SHAPES,
        ((8, 8), (17, 9), (64, 64)),
        ((20, 12), (7, 6), (42, 74)),
        ((9, 33), (7, 3), (256, 8)),
    ]
    SCALE = 0.25  # a score's rounding grows with it
    FIELDS = [{"tile_q": 32}, {"tile_q": 128, "tile_k": 16}, {"blocks": 2}]


def test_weights_from_0_to_underflow(engine):
    def attend(query, key, value, mask, scale):
        operands = (engine.array(a) for a in (query, key, value))
        mask = mask.to_device() if engine.on_gpu else mask
        with engine.runs("bsr_attention_f64"):
            out = attention(*operands, mask, scale=scale, config={"path": "mma_f64"})
        return engine.host(out)

    check_far_weights(attend)


@pytest.mark.parametrize("capability", [(8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)])
def test_where_it_is_the_default(capability):
    """Where tensor cores have the units for it."""
    given = facts("float64", (64, 64), (64, 64), capability=capability)
    assert bsr_attention_f64.pays(given) == (capability[1] == 0 and capability != (12, 0))
    assert bsr_attention_fma.pays(given)
    assert bsr_attention_f64.worth_measuring(given)


def test_what_it_does_not_take():
    tile = bsr_attention_f64.tile
    assert tile(facts("float64", (7, 64), (64, 64)), Fields()) is None
    assert tile(facts("float64", (64, 64), (64, 130)), Fields()) is None
    assert tile(facts("float64", (64, 64), (63, 64)), Fields()) is None
    assert tile(facts("float64", (64, 64), (258, 64)), Fields()) is None
    assert tile(facts("float64", (8, 8), (256, 128)), Fields()) is not None
    small = facts("float64", (64, 64), (128, 128), shared_memory=99 * 1024)
    assert tile(small, Fields()).tile_q == 32
    with pytest.raises(ConfigError, match="'tile_q'"):
        tile(small, Fields({"path": "mma_f64", "tile_q": 64}))
    small = facts("float64", (64, 64), (256, 128), shared_memory=99 * 1024)
    assert tile(small, Fields()) is None
