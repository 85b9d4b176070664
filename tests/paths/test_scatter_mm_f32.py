"""Scattered products of float32 by multiply-adds: any block size and strides."""

import pytest

from scatter_path import ScatterPath, facts
from sparsegpu.engines.cuda.paths import scatter_mm_f32
from sparsegpu.engines.cuda.paths._fields import ConfigError, Fields


class TestPath(ScatterPath):
    NAME, SOURCE = "fma", "scatter_mm_f32"
    CASES = [
        ("float32", (64, 64), 64, 1),
        ("float32", (16, 16), 16, 3),
        ("float32", (20, 24), 40, 1),  # tiles of more than rows and columns
        ("float32", (32, 18), 24, 2),  # slices that end with a block
        ("float32", (9, 7), 13, 2),  # by element
        ("float32", (144, 16), 136, 2),  # several tiles a block
    ]
    OUTPUTS = [("float32", out) for out in ("float32", "bfloat16", "float16")]
    FIELDS = [{}, {"tile_m": 16, "tile_n": 32, "stages": 2}, {"tile_m": 32, "tile_n": 128}]
    TILES = {"TILE_M": 64, "TILE_N": 64, "GROUP_SIZE": 2}


def test_small_products_are_left_to_others():
    assert scatter_mm_f32.pays(facts("float32", (8, 1), 8))
    assert not scatter_mm_f32.pays(facts("float32", (64, 64), 7))
    assert not scatter_mm_f32.pays(facts("float32", (7, 64), 64))


@pytest.mark.parametrize(
    ("blocksize", "columns", "tile"),
    [((16, 16), 16, (16, 16)), ((17, 4), 33, (32, 64)), ((128, 128), 128, (64, 128))],
)
def test_the_smallest_tile_that_holds_a_product(blocksize, columns, tile):
    chosen = scatter_mm_f32.tile(facts("float32", blocksize, columns), Fields())
    assert (chosen.tile_m, chosen.tile_n) == tile


@pytest.mark.parametrize("wrong", [{"tile_m": 128}, {"tile_n": 256}, {"stages": 5}])
def test_a_wrong_field_is_refused(wrong):
    fields = Fields({"path": "fma", **wrong}, "scatter_mm")
    with pytest.raises(ConfigError, match=f"scatter_mm.*'{next(iter(wrong))}'"):
        scatter_mm_f32.tile(facts("float32", (64, 64)), fields)
