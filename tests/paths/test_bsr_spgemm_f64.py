"""Sparse times sparse of small float64 blocks on tensor cores: several blocks in one product."""

from sparsegpu.engines.cuda.paths import bsr_spgemm_f64
from sparsegpu.engines.cuda.paths._fields import Fields
from spgemm_path import SpgemmPath, facts


class TestPath(SpgemmPath):
    NAME, SOURCE = "mma_f64", "bsr_spgemm_f64"
    CASES = [
        ("float64", sides)
        for sides in [(3, 3, 3), (4, 4, 4), (8, 8, 8), (1, 1, 1), (2, 5, 3), (6, 1, 7), (5, 2, 1)]
    ]
    OUTPUTS = [("float64", "float64")]


def test_what_it_does_not_take():
    assert bsr_spgemm_f64.tile(facts("float64", (9, 2, 2)), Fields()) is None
    assert bsr_spgemm_f64.pays(facts("float64", (3, 3, 3)))
    assert not bsr_spgemm_f64.pays(facts("float64", (2, 2, 1)))
