"""Sampled products on tensor cores from 8.0 on: gathered blocks, layouts, tiles."""

import pytest

from covering import covered
from sampled_path import SampledPath, facts
from sparsegpu.engines.cuda.paths import bsr_sampled_addmm_sm80
from sparsegpu.engines.cuda.paths._fields import ConfigError, Fields


class TestPath(SampledPath):
    NAME, SOURCE, MODULE = "mma", "bsr_sampled_addmm_sm80", bsr_sampled_addmm_sm80
    CASES = [
        ("float16", (16, 16)),
        ("bfloat16", (64, 64)),
        ("float16", (128, 128)),
        ("bfloat16", (20, 12)),
        ("float16", (160, 200)),
        ("int8", (32, 16)),
        ("float32", (8, 24)),
        ("bfloat16", (8, 8)),
    ]
    FIELDS = [
        {"tile_m": 32, "tile_n": 64, "stages": 2},
        {"tile_m": 16, "tile_n": 128, "warps_n": 8},
        {"tile_m": 64, "tile_n": 128, "warps_m": 4, "warps_n": 2, "stages": 3},
        {"split_k": 2},
    ]
    REFUSED = [
        ("float64", (16, 16), False),
        ("float32", (16, 16), False),
        ("float16", (7, 64), True),
        ("float16", (64, 7), True),
    ]


@covered(dtype=["float16", "int8", "float32"], mat1=["along", "across"], mat2=["across", "strided"])
def test_tiles_fit_the_smallest_gpu(dtype, mat1, mat2):
    for bm in (8, 16, 24, 32, 48, 64, 100, 128, 256):
        for bn in (8, 16, 20, 32, 48, 64, 96, 128, 200, 256):
            f = facts(dtype, (bm, bn), mat1=mat1, mat2=mat2, allow_tf32=True)
            tile = bsr_sampled_addmm_sm80.tile(f, Fields())
            d = tile.defines
            assert tile.threads == 32 * d["WARPS_M"] * d["WARPS_N"] <= 256
            assert tile.tile_m % (16 * d["WARPS_M"]) == tile.tile_n % (16 * d["WARPS_N"]) == 0
            assert tile.shared_memory <= 99 * 1024
            assert tile.tile_n >= min(bn, 64)
            # what runs across k is read in whole vectors of a block
            assert d["MAT1"] == "along" or (dtype == "float16" and bm % 8 == 0)
            assert d["MAT2"] == "along" or (dtype == "float16" and bn % 8 == 0)


@pytest.mark.parametrize(
    ("blocksize", "tile"),
    [((16, 16), (16, 256)), ((64, 64), (64, 256)), ((128, 128), (128, 128)), ((64, 48), (64, 256))],
)
def test_blocks_side_by_side_fill_a_tile(blocksize, tile):
    chosen = bsr_sampled_addmm_sm80.tile(facts("bfloat16", blocksize), Fields())
    assert (chosen.tile_m, chosen.tile_n) == tile


@pytest.mark.parametrize(
    ("rows", "row_blocks", "k", "split"),
    [
        (8192, 16.0, 8192, 1),
        (4096, 4.0, 8192, 1),
        (1024, 4.0, 8192, 4),
        (512, 2.0, 8192, 16),
        (512, 2.0, 512, 4),
        (512, 2.0, 64, 1),
        (64, 1.0, 0, 1),
    ],
)
def test_k_is_split_where_few_tiles_would_run(rows, row_blocks, k, split):
    f = facts("bfloat16", (128, 128), shape=(rows, k, 4096), row_blocks=row_blocks)
    fields = Fields()
    tile = bsr_sampled_addmm_sm80.tile(f, fields)
    assert tile.splits == split == fields.chosen["split_k"]
    tiles = rows // 128 * row_blocks
    assert split == 1 or tiles * split <= 132
    assert max(fields.allowed["split_k"]) <= max(k // 32, 1)


def test_it_is_the_default():
    assert bsr_sampled_addmm_sm80.pays(facts("bfloat16", (64, 64)))
    assert bsr_sampled_addmm_sm80.worth_measuring(facts("bfloat16", (64, 64)))


def test_a_tile_has_not_more_sums_than_registers_hold():
    config = {"path": "mma", "tile_m": 128, "tile_n": 256}
    with pytest.raises(ConfigError, match=r"sampled_addmm.*'tile_n'"):
        fields = Fields(config, "sampled_addmm")
        bsr_sampled_addmm_sm80.tile(facts("bfloat16", (128, 128)), fields)
