"""Sparse times sparse of small blocks, a thread for each element."""

from sparsegpu.engines.cuda.paths import bsr_spgemm_small
from sparsegpu.engines.cuda.paths._fields import Fields
from spgemm_path import SpgemmPath, facts


class TestPath(SpgemmPath):
    NAME, SOURCE = "small", "bsr_spgemm_small"
    CASES = [
        ("float64", (3, 3, 3)),
        ("float32", (1, 1, 1)),
        ("float16", (8, 8, 8)),
        ("bfloat16", (2, 7, 5)),
        ("int8", (4, 4, 4)),
        ("complex64", (6, 1, 3)),
        ("complex128", (2, 2, 2)),
    ]
    OUTPUTS = [
        ("float64", "float64"),
        ("float32", "float32"),
        ("float16", "float32"),
        ("bfloat16", "float32"),
        ("int8", "int32"),
        ("int8", "int8"),
        ("complex128", "complex128"),
    ]


def test_what_it_does_not_take():
    assert bsr_spgemm_small.tile(facts("float32", (9, 2, 2)), Fields()) is None
    assert bsr_spgemm_small.pays(facts("float32", (8, 8, 8)))
    assert not bsr_spgemm_small.pays(facts("float32", (8, 9, 8)))
    assert bsr_spgemm_small.pays(facts("float64", (3, 3, 3)))
