"""2:4 pruning against loops written from the rules."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegpu as sg
from properties import drawn
from prune_cases import (
    ALGORITHMS,
    DTYPES,
    assert_same,
    awkward,
    prune_24_by_loop,
    prune_tile_by_loop,
    views,
)
from semi_structured_cases import FP8, HALF, SINGLE, bits
from sparsegpu.testing import random_values

# -- by rows ------------------------------------------------------------------------------------


@drawn(25)
@given(
    dtype=st.sampled_from(DTYPES),
    shape=st.tuples(st.integers(1, 9), st.integers(1, 19)),
    keep=st.sampled_from(["2:4", "1:2"]),
    seed=st.integers(0, 999),
)
def test_rows_keep_the_largest(engine, dtype, shape, keep, seed):
    dense = awkward(np.random.default_rng(seed), shape, dtype)
    with engine.runs("prune_24"):
        out = sg.prune_24(engine.array(dense), keep=keep)
    assert_same(engine, out, prune_24_by_loop(dense, 2 if keep == "1:2" else 4))


@pytest.mark.parametrize("wide", [np.float16, np.float32, np.float64])
def test_rows_keep_the_most_important(engine, rng, wide):
    dense = random_values(rng, (8, 21), "float16")
    importance = rng.integers(-2, 3, (8, 21)).astype(wide)
    importance[rng.random((8, 21)) < 0.1] = np.nan
    with engine.runs("prune_24"):
        out = sg.prune_24(engine.array(dense), criterion=engine.array(importance))
    assert_same(engine, out, prune_24_by_loop(dense, 4, importance))


def test_importances_that_differ_in_float64_only(engine):
    dense = np.ones((1, 4), np.float32)
    importance = np.array([[1, 1 + 1e-12, 1 + 3e-12, 1 + 2e-12]])
    with engine.runs("prune_24"):
        out = sg.prune_24(engine.array(dense), criterion=engine.array(importance))
    np.testing.assert_array_equal(engine.host(out), [[0, 0, 1, 1]])


def test_fp8_rows_on_the_host(rng):
    dense = awkward(rng, (8, 24), FP8)
    np.testing.assert_array_equal(bits(sg.prune_24(dense)), bits(prune_24_by_loop(dense, 4)))


def test_rows_of_any_strides_and_dimensions(engine, rng):
    for view, host in views(engine, rng):
        with engine.runs("prune_24"):
            out = sg.prune_24(view)
        expected = prune_24_by_loop(host.reshape(-1, host.shape[-1]), 4).reshape(host.shape)
        assert_same(engine, out, expected)
        assert out.flags.c_contiguous


@pytest.mark.parametrize("shape", [(0, 8), (8, 0), (0,)])
def test_nothing_to_prune(engine, shape):
    empty = engine.xp.zeros(shape, dtype=np.float16)
    with engine.runs(None):
        assert sg.prune_24(empty).shape == shape
        if len(shape) == 2:
            assert sg.prune_tile(empty).shape == shape
            assert sg.compressed_swizzled_bitmask(empty).shape == (*(n // 8 for n in shape), 8)


def test_pruned_rows_compress(engine, rng):
    for dtype, keep in ((HALF, "2:4"), (SINGLE, "1:2")):
        dense = engine.array(random_values(rng, (32, 64), dtype))
        with engine.runs("prune_24"):
            packed, _ = sg.semi_structured_from_dense(sg.prune_24(dense, keep=keep))
        assert packed.shape == (32, 32)


@pytest.mark.parametrize(
    ("keywords", "error", "match"),
    [
        ({"keep": "4:8"}, ValueError, "'keep'.*'2:4', '1:2'.*'4:8'"),
        ({"criterion": "entropy"}, ValueError, "'criterion'.*'magnitude'.*'entropy'"),
        ({"criterion": np.ones((2, 4))}, ValueError, r"'criterion'.*\(2, 8\).*\(2, 4\)"),
        ({"criterion": np.ones((2, 8), np.int64)}, TypeError, "'criterion'.*float64, got int64"),
    ],
)
def test_what_prune_24_refuses(engine, keywords, error, match):
    if isinstance(keywords.get("criterion"), np.ndarray):
        keywords = {"criterion": engine.array(keywords["criterion"])}
    dense = engine.xp.ones((2, 8), dtype=np.float16)
    with engine.runs(None), pytest.raises(error, match=f"prune_24.*{match}"):
        sg.prune_24(dense, **keywords)
    with engine.runs(None), pytest.raises(TypeError, match=r"prune_24.*'dense'.*complex64"):
        sg.prune_24(dense.astype(np.complex64))


# -- by tiles -----------------------------------------------------------------------------------


@drawn(25)
@given(
    dtype=st.sampled_from(DTYPES),
    shape=st.tuples(st.integers(1, 14), st.integers(1, 14)),
    algorithm=st.sampled_from(ALGORITHMS),
    seed=st.integers(0, 999),
)
def test_tiles_keep_by_visit(engine, dtype, shape, algorithm, seed):
    dense = awkward(np.random.default_rng(seed), shape, dtype)
    with engine.runs("prune_tile"):
        out = sg.prune_tile(engine.array(dense), algorithm)
    assert_same(engine, out, prune_tile_by_loop(dense, algorithm))


def test_a_tile_worked_by_hand(engine):
    dense = np.float32([[9, 8, 7, 0], [6, 5, 4, 0], [3, 2, 1, 0], [-9, 0, 0, 0]])
    by_value = [[9, 8, 0, 0], [6, 5, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    # by absolute value: 9, -9 (column 0 is full), 8, [7: row 0 full], [6: column], 5, 4, ...
    by_size = [[9, 8, 0, 0], [0, 5, 4, 0], [0, 0, 1, 0], [-9, 0, 0, 0]]
    # rows 0 and 1 keep one: 9, 6 (column 0 full), then 2 and 1 in row 2, and row 3 keeps zeros
    causal = [[9, 0, 0, 0], [6, 0, 0, 0], [0, 2, 1, 0], [0, 0, 0, 0]]
    for algorithm, expected in (
        ("largest_values_greedy", by_value),
        ("", by_value),
        ("largest_abs_values_greedy", by_size),
        ("causal1122", causal),
    ):
        with engine.runs("prune_tile"):
            out = sg.prune_tile(engine.array(dense), algorithm)
        np.testing.assert_array_equal(engine.host(out), expected)


def test_tiles_of_any_strides(engine, rng):
    dense = random_values(rng, (21, 36), "float16")
    device = engine.array(dense)
    for view, host in ((device.T, dense.T), (device[::-1, 2::3], dense[::-1, 2::3])):
        with engine.runs("prune_tile"):
            out = sg.prune_tile(view)
        assert_same(engine, out, prune_tile_by_loop(host, ALGORITHMS[0]))


def test_an_unknown_algorithm_lists_the_known(engine):
    dense = engine.xp.zeros((32, 32), dtype=np.float16)
    for function in (sg.prune_tile, sg.semi_structured_tile):
        with (
            engine.runs(None),
            pytest.raises(
                ValueError,
                match=f"{function.__name__}.*'largest_abs_values_greedy', .*'causal1122'.*'best'",
            ),
        ):
            function(dense, "best")
