"""Attention in full precision: blocks, widths, scores, and what is not attended."""

from attention_path import SHAPES, AttentionPath, facts
from sparsegpu.engines.cuda.paths import bsr_attention_fma
from sparsegpu.engines.cuda.paths._fields import Fields


class TestPath(AttentionPath):
    NAME, SOURCE, MODULE = "fma", "bsr_attention_fma", bsr_attention_fma
    DTYPES = ("float32", "float64")
    SHAPES = [
        *SHAPES,
        ((8, 8), (17, 9), (64, 64)),
        ((20, 12), (7, 6), (44, 76)),
        ((9, 33), (7, 3), (256, 8)),
    ]
    FIELDS = [{"tile_k": 32}]

    def test_scores_of_float64(self, engine, rng):
        heads = rng.standard_normal((2, 4)) / 8
        keywords = {"softcap": 2.5, "slopes": heads, "sinks": heads, "dropout_p": 0.3, "seed": 7}
        self.check(engine, rng, *self.SHAPES[0], case={"dtype": "float64"}, **keywords)


def test_what_it_does_not_take():
    tile = bsr_attention_fma.tile
    assert tile(facts("float32", (7, 64), (64, 64)), Fields()) is None
    assert tile(facts("float32", (64, 64), (64, 132)), Fields()) is None
    assert tile(facts("float32", (64, 64), (18, 64)), Fields()) is None
    assert tile(facts("float64", (64, 64), (18, 64)), Fields()) is not None
    small = facts("float64", (64, 64), (256, 128), shared_memory=99 * 1024)
    assert tile(small, Fields()) is None
