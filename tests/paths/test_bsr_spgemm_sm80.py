"""Sparse times sparse on tensor cores from 8.0 on: of 16-bit floats and int8."""

import pytest

from sparsegpu.engines.cuda.paths import bsr_spgemm_sm80
from sparsegpu.engines.cuda.paths._fields import ConfigError, Fields
from spgemm_path import SpgemmPath, facts


class TestPath(SpgemmPath):
    NAME, SOURCE = "mma", "bsr_spgemm_sm80"
    SIDES = [(64, 64, 64), (16, 16, 16), (24, 40, 72), (128, 32, 128), (17, 16, 32), (19, 9, 37)]
    CASES = [(dtype, sides) for sides in SIDES for dtype in ("float16", "bfloat16")]
    CASES += [("int8", sides) for sides in [*SIDES[:2], (24, 80, 72), (17, 9, 33)]]
    OUTPUTS = [
        *(("float16", "float32"), ("bfloat16", "float32"), ("bfloat16", "float16")),
        *(("int8", out) for out in ("int32", "int8", "float32", "bfloat16")),
    ]
    FIELDS = [{}, {"tile_m": 32, "tile_n": 128, "stages": 2}, {"tile_m": 16, "stages": 4}]


def test_blocks_that_are_copied_by_element():
    for dtype, sides, vectors, expected in [
        ("float16", (16, 24, 16), True, 1),
        ("float16", (16, 20, 16), True, 0),
        ("float16", (16, 16, 20), True, 0),
        ("float16", (16, 16, 16), False, 0),
        ("int8", (16, 24, 16), True, 0),
        ("int8", (16, 48, 24), True, 1),
    ]:
        chosen = bsr_spgemm_sm80.tile(facts(dtype, sides, vectors=vectors), Fields())
        assert chosen.defines["DATA_VECTORS"] == expected


def test_small_blocks_and_wrong_fields():
    assert bsr_spgemm_sm80.pays(facts("float16", (9, 8, 8)))
    assert not bsr_spgemm_sm80.pays(facts("float16", (64, 64, 7)))
    assert bsr_spgemm_sm80.pays(facts("float16", (16, 17, 16)))
    assert not bsr_spgemm_sm80.pays(facts("float16", (16, 15, 16)))
    with pytest.raises(ConfigError, match="'stages'"):
        bsr_spgemm_sm80.tile(
            facts("float16", (32, 32, 32)), Fields({"path": "mma", "stages": 9}, "bsr_spgemm")
        )
