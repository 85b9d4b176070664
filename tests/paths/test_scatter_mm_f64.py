"""Scattered products of float64 on tensor cores: any block size and strides."""

import pytest

from scatter_path import ScatterPath, facts
from sparsegpu.engines.cuda.paths import scatter_mm_f64
from sparsegpu.engines.cuda.paths._fields import ConfigError, Fields


class TestPath(ScatterPath):
    NAME, SOURCE = "mma_f64", "scatter_mm_f64"
    CASES = [
        ("float64", (64, 64), 64, 1),
        ("float64", (16, 16), 16, 3),
        ("float64", (20, 24), 40, 1),  # tiles of more than rows and columns
        ("float64", (32, 18), 24, 2),  # slices that end with a block
        ("float64", (9, 7), 13, 2),  # by element
        ("float64", (144, 16), 72, 2),  # several tiles a block
    ]
    OUTPUTS = [("float64", "float64")]
    FIELDS = [{}, {"tile_m": 16, "tile_n": 32, "stages": 3}, {"tile_m": 32, "tile_n": 64}]
    TILES = {"TILE_M": 64, "TILE_N": 64, "GROUP_SIZE": 2}


def test_small_products_are_left_to_others():
    assert scatter_mm_f64.pays(facts("float64", (8, 1), 8))
    assert not scatter_mm_f64.pays(facts("float64", (64, 64), 7))


@pytest.mark.parametrize("wrong", [{"tile_m": 128}, {"tile_n": 128}, {"stages": 5}])
def test_a_wrong_field_is_refused(wrong):
    fields = Fields({"path": "mma_f64", **wrong}, "scatter_mm")
    with pytest.raises(ConfigError, match=f"scatter_mm.*'{next(iter(wrong))}'"):
        scatter_mm_f64.tile(facts("float64", (64, 64)), fields)
