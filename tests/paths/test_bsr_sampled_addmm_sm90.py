"""Sampled products on Hopper's tensor cores: gathered blocks, maps, tiles."""

import pytest

from covering import covered
from sampled_path import SampledPath, facts
from sparsegpu.engines.cuda.paths import bsr_sampled_addmm_sm90
from sparsegpu.engines.cuda.paths._examples import variants
from sparsegpu.engines.cuda.paths._fields import ConfigError, Fields


class TestPath(SampledPath):
    NAME, SOURCE, MODULE = "wgmma", "bsr_sampled_addmm_sm90", bsr_sampled_addmm_sm90
    CASES = [
        ("float16", (16, 16)),
        ("bfloat16", (64, 64)),
        ("float16", (128, 128)),
        ("bfloat16", (20, 40)),
        ("bfloat16", (32, 96)),
        ("float16", (160, 192)),
        ("int8", (32, 16)),
        ("float32", (8, 24)),
        ("bfloat16", (8, 8)),
    ]
    FIELDS = [
        {"tile_m": 128, "tile_n": 128, "stages": 2},
        {"tile_n": 384},
        {"even": 0},
        {"even": 1, "tile_n": 256},
        {"tile_n": 512},
        {"tile_m": 64, "tile_n": 128, "stages": 3},
        {"split_k": 2},
    ]
    REFUSED = [
        ("float64", (16, 16), False),
        ("float32", (16, 16), False),
        ("float16", (7, 64), True),
        ("float16", (64, 12), True),
    ]


@pytest.fixture(autouse=True)
def where(request):
    """Only on Hopper, of the GPUs."""
    if "cuda" in request.node.name:
        request.getfixturevalue("hopper")


@covered(dtype=["float16", "int8", "float32"], mat2=["along", "across", "strided"])
def test_tiles_fit(dtype, mat2):
    for bm in (8, 16, 48, 64, 100, 128, 256):
        for bn in (8, 16, 48, 64, 96, 128, 200, 256):
            f = facts(dtype, (bm, bn), mat2=mat2, allow_tf32=True)
            tile = bsr_sampled_addmm_sm90.tile(f, Fields())
            d = tile.defines
            assert tile.shared_memory + 1024 <= 227 * 1024 and 2 <= d["STAGES"] <= 8
            assert tile.tile_m == (128 if bm > 64 else 64)
            across = dtype == "float16" and mat2 == "across" and bn % 16 == 0
            assert d["MAT2"] == ("across" if across else "along")
            assert bn % d["UNIT_N"] == 0 == d["UNIT_N"] % 8 and d["UNIT_N"] <= 128
            assert not across or d["UNIT_N"] in (16, 32, 64)


def test_shares_are_even_where_the_matrices_stay_in_the_cache():
    small = facts("bfloat16", (128, 128), shape=(8192, 1024, 8192), row_blocks=6.4)
    large = facts("bfloat16", (128, 128), shape=(8192, 4096, 8192), row_blocks=6.4)
    full = facts("bfloat16", (128, 128), shape=(8192, 1024, 8192), row_blocks=32.0)
    chosen = [bsr_sampled_addmm_sm90.tile(f, Fields()) for f in (small, large, full)]
    assert [(t.defines["EVEN"], t.tile_n) for t in chosen] == [(1, 128), (0, 256), (1, 256)]


def test_where_it_is_not_taken():
    for dtype, least in (("float16", 32), ("bfloat16", 32), ("int8", 64), ("float32", 64)):
        assert bsr_sampled_addmm_sm90.pays(facts(dtype, (least, least)))
        for blocksize in ((least - 8, 128), (128, least - 8)):
            assert not bsr_sampled_addmm_sm90.pays(facts(dtype, blocksize))
    assert (
        bsr_sampled_addmm_sm90.tile(facts("float16", (64, 64), capability=(10, 0)), Fields())
        is None
    )
    fields = Fields({"path": "wgmma", "tile_m": 128, "tile_n": 512}, "sampled_addmm")
    with pytest.raises(ConfigError, match=r"sampled_addmm.*'tile_n'"):
        bsr_sampled_addmm_sm90.tile(facts("float16", (64, 64)), fields)


def test_products_are_not_serialized(compiler_log):
    """Nothing between two groups of products touches their sums, as the compiler sees it."""
    for defines in variants(bsr_sampled_addmm_sm90, ("bfloat16",))[:3]:
        log = compiler_log("bsr_sampled_addmm_sm90", "90a", dict(defines))
        if not log:
            pytest.skip("this NVRTC passes on nothing of what ptxas says")
        assert "registers" in log and "serialized" not in log
