"""Sparse times sparse on tensor cores from 8.0 on: blocks of 16 and more, in vectors."""

import pytest

from sparsegpu.engines.cuda.paths import bsr_spgemm_sm80
from sparsegpu.engines.cuda.paths._fields import ConfigError, Fields
from spgemm_path import SpgemmPath, facts


class TestPath(SpgemmPath):
    NAME, SOURCE = "mma", "bsr_spgemm_sm80"
    CASES = [
        (dtype, sides)
        for sides in [(64, 64, 64), (16, 16, 16), (24, 40, 72), (128, 32, 128), (17, 16, 32)]
        for dtype in ("float16", "bfloat16")
    ] + [("int8", sides) for sides in [(64, 64, 64), (16, 16, 16), (24, 80, 72), (17, 16, 32)]]
    OUTPUTS = [
        *(("float16", "float32"), ("bfloat16", "float32"), ("bfloat16", "float16")),
        *(("int8", out) for out in ("int32", "int8", "float32", "bfloat16")),
    ]
    FIELDS = [{}, {"tile_m": 32, "tile_n": 128, "stages": 2}, {"tile_m": 16, "stages": 4}]


@pytest.mark.parametrize("sides", [(8, 16, 16), (16, 20, 16), (16, 16, 20), (16, 8, 16)])
def test_what_it_does_not_take(sides):
    for dtype in ("float16", "int8"):
        assert bsr_spgemm_sm80.tile(facts(dtype, sides), Fields()) is None


def test_a_left_blocks_rows_are_whole_vectors():
    assert bsr_spgemm_sm80.tile(facts("float16", (16, 24, 16)), Fields())
    assert bsr_spgemm_sm80.tile(facts("int8", (16, 24, 16)), Fields()) is None


def test_blocks_at_odd_addresses_and_wrong_fields():
    square = facts("float16", (32, 32, 32), vectors=False)
    assert bsr_spgemm_sm80.tile(square, Fields()) is None
    assert bsr_spgemm_sm80.pays(facts("float16", (64, 64, 64)))
    with pytest.raises(ConfigError, match="'stages'"):
        bsr_spgemm_sm80.tile(
            facts("float16", (32, 32, 32)), Fields({"path": "mma", "stages": 9}, "bsr_spgemm")
        )
