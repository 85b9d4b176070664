"""Scattered products on tensor cores of Hopper: blocks of multiples of 64 rows and columns."""

import pytest

from scatter_path import ScatterPath, facts
from sparsegpu.engines.cuda.paths import scatter_mm_sm90
from sparsegpu.engines.cuda.paths._fields import ConfigError, Fields


class TestPath(ScatterPath):
    NAME, SOURCE = "wgmma", "scatter_mm_sm90"
    CASES = [
        ("float16", (64, 64), 64, 1),
        ("bfloat16", (64, 128), 72, 3),  # columns off the tile
        ("bfloat16", (192, 64), 200, 2),  # several tiles a block
    ]
    OUTPUTS = [("float16", "float32"), ("bfloat16", "float32"), ("bfloat16", "float16")]
    FIELDS = [{}, {"tile_n": 64, "teams": 2, "stages": 2}, {"tile_n": 256, "teams": 1}]
    TILES = {"TILE_M": 64, "TILE_N": 64, "GROUP_SIZE": 1}


@pytest.mark.parametrize("blocksize", [(32, 64), (64, 48), (96, 64)])
def test_what_it_does_not_take(blocksize):
    assert scatter_mm_sm90.tile(facts("float16", blocksize), Fields()) is None


def test_rows_at_odd_addresses_and_wrong_fields():
    assert scatter_mm_sm90.tile(facts("float16", (64, 64), vectors=False), Fields()) is None
    assert scatter_mm_sm90.pays(facts("float16", (64, 64)))
    for slower in ({"columns": 68}, {"terms": 128}):
        assert not scatter_mm_sm90.pays(facts("float16", (64, 64), **slower))
    for wrong in ({"tile_m": 128}, {"tile_n": 32}, {"stages": 5}, {"teams": 4}):
        fields = Fields({"path": "wgmma", **wrong}, "scatter_mm")
        with pytest.raises(ConfigError, match=f"scatter_mm.*'{next(iter(wrong))}'"):
            scatter_mm_sm90.tile(facts("float16", (64, 64)), fields)
