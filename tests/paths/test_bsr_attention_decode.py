"""Attention of few queries: packed heads, pieces of long rows, and what every path promises."""

import pytest

from attention_cases import Case
from attention_path import AttentionPath, facts
from sparsegpu.engines.cuda.paths import bsr_attention_decode
from sparsegpu.engines.cuda.paths._fields import ConfigError, Fields


class TestPath(AttentionPath):
    NAME, SOURCE, MODULE = "decode", "bsr_attention_decode", bsr_attention_decode
    SHAPES = [
        ((4, 16), (9, 80), (64, 128)),
        ((16, 128), (2, 9), (128, 64)),
        ((1, 64), (5, 40), (64, 64)),
        ((3, 33), (7, 30), (40, 72)),
        ((8, 8), (3, 5), (256, 8)),
    ]
    BLOCKSIZE = (16, 64)
    FIELDS = [
        {"tile_k": 32, "stages": 2},
        {"stages": 3, "warps": 8, "piece_keys": 512},
        {"stages": 6, "warps": 4},
        {"tile_k": 64, "stages": 2, "warps": 2, "piece_keys": 1024},
    ]

    def test_heads_that_share_keys(self, engine, rng):
        """Of more heads than a tile holds, and of masks of their own."""
        for heads, mask_batch in (((20, 1), ()), ((6, 2), (2, 1)), ((4, 2), (2, 4))):
            case = {"heads": heads, "mask_batch": mask_batch}
            self.check(engine, rng, *self.SHAPES[2], case=case)

    def test_pieces(self, engine, rng):
        """Rows of many lengths, empty ones among them, are cut and merged."""
        for density in (0.02, 0.2, 1.0):
            fields = {"piece_keys": 512}
            self.check(
                engine, rng, (1, 16), (70, 200), (32, 40), fields=fields, case={"density": density}
            )

    def test_sinks_of_rows_without_keys(self, engine, rng):
        case = Case(rng, dtype="float16", lengths=(6, 64), blocksize=(2, 16), widths=(32, 32))
        case.mask[0][:] = False
        sinks = case.of_heads(rng)
        case.check(engine, kernel=self.SOURCE, config={"path": self.NAME}, sinks=sinks)


def test_what_it_does_not_take():
    tile = bsr_attention_decode.tile
    assert tile(facts("float16", (17, 64), (64, 64)), Fields()) is None
    assert tile(facts("float16", (1, 4), (64, 64)), Fields()) is None
    assert tile(facts("float16", (1, 64), (264, 64)), Fields()) is None
    small = facts("float16", (1, 64), (256, 256), shared_memory=99 * 1024)
    with pytest.raises(ConfigError, match="'tile_k'"):
        tile(small, Fields({"path": "decode", "tile_k": 64}))


@pytest.mark.parametrize(("bm", "group", "heads"), [(1, 4, 4), (1, 40, 16), (5, 8, 3), (16, 8, 1)])
def test_heads_of_a_tile(bm, group, heads):
    made = facts("bfloat16", (bm, 64), (128, 128), group=group)
    tile = bsr_attention_decode.tile(made, Fields())
    assert tile.heads == tile.defines["HEADS"] == heads


@pytest.mark.parametrize(
    ("row_blocks", "blocks"),
    [(128, 64), (63, 63), (64, 64), (94, 94), (95, 48), (1000.5, 63), (0.5, 63), (4.2, 63)],
)
def test_rows_of_the_usual_length_are_cut_into_equal_pieces(monkeypatch, row_blocks, blocks):
    """Of 8 heads and 64 rows of 8192 keys on 132 multiprocessors, pieces are of some 63 blocks."""
    monkeypatch.setattr(bsr_attention_decode, "multiprocessors", lambda: 132)
    assert bsr_attention_decode._piece_blocks(8 * 64 * 8192, 64, row_blocks) == blocks
