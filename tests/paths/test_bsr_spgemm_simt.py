"""Sparse times sparse without tensor cores: every dtype and block size."""

from spgemm_path import SpgemmPath


class TestPath(SpgemmPath):
    NAME, SOURCE = "simt", "bsr_spgemm_simt"
    CASES = [
        ("float32", (16, 24, 20)),
        ("float64", (3, 3, 3)),
        ("float16", (1, 7, 1)),
        ("bfloat16", (80, 9, 65)),
        ("int8", (5, 33, 17)),
        ("complex64", (8, 4, 2)),
        ("complex128", (2, 2, 18)),
    ]
    OUTPUTS = [
        ("float32", "float32"),
        ("float16", "float32"),
        ("bfloat16", "float32"),
        ("int8", "int32"),
        ("int8", "int8"),
        ("complex64", "complex64"),
    ]
    FIELDS = [{}, {"tile_m": 4, "tile_n": 16}]
