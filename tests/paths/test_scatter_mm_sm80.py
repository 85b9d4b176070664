"""Scattered products on tensor cores from 8.0 on: blocks of 16 and more, in vectors."""

import pytest

from scatter_path import ScatterPath, facts
from sparsegpu.engines.cuda.paths import scatter_mm_sm80
from sparsegpu.engines.cuda.paths._fields import ConfigError, Fields


class TestPath(ScatterPath):
    NAME, SOURCE = "mma", "scatter_mm_sm80"
    CASES = [
        ("float16", (64, 64), 64, 1),
        ("bfloat16", (16, 16), 16, 3),
        ("bfloat16", (20, 24), 40, 1),  # tiles of more than rows and columns
        ("float16", (16, 16), 24, 2),  # columns off the tile
        ("bfloat16", (144, 16), 72, 2),  # several tiles a block
        ("int8", (64, 128), 64, 1),
        ("int8", (20, 48), 40, 2),
        ("int8", (16, 16), 23, 2),
    ]
    OUTPUTS = [("float16", "float32"), ("bfloat16", "float32"), ("bfloat16", "float16")]
    OUTPUTS += [("int8", out) for out in ("int32", "int8", "float32", "bfloat16")]
    FIELDS = [{}, {"tile_m": 16, "tile_n": 32, "stages": 2}, {"tile_m": 32, "stages": 3}]
    TILES = {"TILE_M": 64, "TILE_N": 64, "GROUP_SIZE": 2}


@pytest.mark.parametrize("blocksize", [(15, 16), (16, 8), (16, 20)])
def test_what_it_does_not_take(blocksize):
    for dtype in ("float16", "int8"):
        assert scatter_mm_sm80.tile(facts(dtype, blocksize), Fields()) is None


def test_rows_at_odd_addresses_and_wrong_fields():
    assert scatter_mm_sm80.tile(facts("float16", (32, 32), vectors=False), Fields()) is None
    assert scatter_mm_sm80.pays(facts("float16", (64, 64)))
    for wrong in ({"tile_m": 128}, {"tile_n": 16}, {"stages": 5}):
        fields = Fields({"path": "mma", **wrong}, "scatter_mm")
        with pytest.raises(ConfigError, match=f"scatter_mm.*'{next(iter(wrong))}'"):
            scatter_mm_sm80.tile(facts("float16", (64, 64)), fields)


@pytest.mark.parametrize(("rows", "columns", "tile"), [(16, 8, (16, 32)), (65, 64, (64, 64))])
def test_the_smallest_tile_that_holds_a_product(rows, columns, tile):
    chosen = scatter_mm_sm80.tile(facts("bfloat16", (rows, 16), columns), Fields())
    assert (chosen.tile_m, chosen.tile_n) == tile
    assert chosen.threads == 32 * max(tile[0] // 32, 1) * 2
