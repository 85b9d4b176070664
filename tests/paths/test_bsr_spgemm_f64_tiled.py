"""Sparse times sparse of float64 on tensor cores: any block size, in tiles of up to 64 x 64."""

import pytest

from sparsegpu.engines.cuda.paths import bsr_spgemm_f64_tiled
from sparsegpu.engines.cuda.paths._fields import ConfigError, Fields
from spgemm_path import SpgemmPath, facts


class TestPath(SpgemmPath):
    NAME, SOURCE = "mma_f64_tiled", "bsr_spgemm_f64_tiled"
    CASES = [
        ("float64", sides)
        for sides in [(64, 64, 64), (16, 16, 16), (32, 32, 32), (9, 7, 13), (80, 18, 40), (3, 2, 1)]
    ]
    OUTPUTS = [("float64", "float64")]
    FIELDS = [{}, {"tile_m": 32, "tile_n": 64, "stages": 2}, {"tile_m": 64, "tile_n": 16}]


def test_rows_that_are_no_whole_vectors_are_copied_by_element():
    for sides, vectors, left, right in [
        ((16, 3, 16), True, "rows", "vectors"),
        ((16, 16, 17), True, "vectors", "rows"),
        ((16, 16, 16), False, "rows", "rows"),
    ]:
        chosen = bsr_spgemm_f64_tiled.tile(facts("float64", sides, vectors=vectors), Fields())
        assert (chosen.defines["LEFT"], chosen.defines["RIGHT"]) == (left, right)


def test_a_wrong_field_is_refused():
    with pytest.raises(ConfigError, match="'stages'"):
        bsr_spgemm_f64_tiled.tile(
            facts("float64", (32, 32, 32)),
            Fields({"path": "mma_f64_tiled", "stages": 9}, "bsr_spgemm"),
        )
