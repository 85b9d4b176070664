"""Sampled products of every dtype and block size without tensor cores."""

from sampled_path import SampledPath, facts
from sparsegpu.engines.cuda.paths import bsr_sampled_addmm_simt
from sparsegpu.engines.cuda.paths._fields import Fields


class TestPath(SampledPath):
    NAME, SOURCE, MODULE = "simt", "bsr_sampled_addmm_simt", bsr_sampled_addmm_simt
    CASES = [
        ("float16", (16, 16)),
        ("bfloat16", (3, 70)),
        ("int8", (8, 8)),
        ("float64", (33, 5)),
        ("complex64", (4, 4)),
    ]
    FIELDS = [{"tile_m": 4, "tile_n": 16}, {"tile_m": 64, "tile_n": 1}]


def test_it_serves_everything():
    for dtype in ("float16", "float32", "float64", "int8", "complex128"):
        for blocksize in ((1, 1), (256, 3), (64, 64)):
            f = facts(dtype, blocksize)
            assert bsr_sampled_addmm_simt.pays(f)
            assert bsr_sampled_addmm_simt.tile(f, Fields()).threads % 32 == 0
