"""Attention's gradients in full precision: blocks, widths, heads, scores, what is not attended."""

from attention_path import facts
from gradient_path import GradientPath
from sparsegpu.engines.cuda.paths import bsr_attention_backward_fma
from sparsegpu.engines.cuda.paths._fields import Fields


class TestPath(GradientPath):
    NAME, SOURCE = "fma", "bsr_attention_backward_fma"
    DTYPES = ("float32",)
    SHAPES = [
        ((64, 64), (3, 4), (64, 64)),
        ((128, 128), (2, 3), (128, 64)),
        ((16, 16), (9, 11), (64, 128)),
        ((20, 12), (7, 6), (36, 76)),
        ((9, 33), (7, 3), (32, 4)),
        ((256, 64), (1, 5), (32, 96)),
    ]
    FIELDS = [{"tile_other": 16, "blocks": 2}, {"tile_other": 64}]


def test_what_it_does_not_take():
    tile = bsr_attention_backward_fma.tile
    assert tile(facts("float32", (7, 64), (64, 64)), Fields()) is None
    assert tile(facts("float32", (64, 64), (132, 64)), Fields()) is None
    assert tile(facts("float32", (64, 64), (18, 64)), Fields()) is None
    small = facts("float32", (64, 64), (128, 128), shared_memory=99 * 1024)
    assert tile(small, Fields()).defines["TILE_OTHER"] == 16
