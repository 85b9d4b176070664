"""Sparse times sparse of float32 by multiply-adds: any block size, in tiles of up to 64 x 64."""

import pytest

from sparsegpu.engines.cuda.paths import bsr_spgemm_f32
from sparsegpu.engines.cuda.paths._fields import ConfigError, Fields
from spgemm_path import SpgemmPath, facts


class TestPath(SpgemmPath):
    NAME, SOURCE = "fma", "bsr_spgemm_f32"
    CASES = [
        ("float32", sides)
        for sides in [(64, 64, 64), (16, 16, 16), (32, 32, 32), (9, 7, 13), (80, 17, 40), (3, 2, 1)]
    ]
    OUTPUTS = [("float32", "float32"), ("float32", "bfloat16"), ("float32", "float16")]
    FIELDS = [{}, {"tile_m": 32, "tile_n": 64, "stages": 2}, {"tile_m": 64, "tile_n": 16}]


def test_small_blocks_are_left_to_others():
    assert bsr_spgemm_f32.pays(facts("float32", (8, 9, 8)))
    assert not bsr_spgemm_f32.pays(facts("float32", (9, 64, 7)))


def test_rows_that_are_no_whole_vectors_are_copied_by_element():
    for sides, vectors, expected in [
        ((16, 3, 16), True, "vectors"),
        ((16, 16, 18), True, "rows"),
        ((16, 16, 16), False, "rows"),
    ]:
        chosen = bsr_spgemm_f32.tile(facts("float32", sides, vectors=vectors), Fields())
        assert chosen.defines["RIGHT"] == expected


def test_a_wrong_field_is_refused():
    with pytest.raises(ConfigError, match="'tile_n'"):
        bsr_spgemm_f32.tile(
            facts("float32", (32, 32, 32)), Fields({"path": "fma", "tile_n": 128}, "bsr_spgemm")
        )
