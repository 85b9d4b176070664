"""Both orientations of a pruned matrix, and its bitmask, against loops and step by step."""

import numpy as np
import pytest

import sparsegpu as sg
from covering import covered
from prune_cases import (
    ALGORITHMS,
    DOUBLE,
    DTYPES,
    assert_same,
    awkward,
    bitmask_by_loop,
    prune_tile_by_loop,
)
from semi_structured_cases import BF16, FP8, HALF, INT8, SINGLE
from sparsegpu.testing import random_values

TILE_DTYPES = [HALF, BF16, INT8, FP8]


# -- the bitmask --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*DTYPES, FP8], ids=str)
def test_bitmask(engine, rng, dtype):
    dense = awkward(rng, (24, 40), dtype)
    with engine.runs("semi_structured_bitmask"):
        mask = sg.compressed_swizzled_bitmask(engine.array(dense))
        mask_t = sg.compressed_swizzled_bitmask(engine.array(dense).T)
    assert mask.dtype == np.uint8
    np.testing.assert_array_equal(engine.host(mask), bitmask_by_loop(dense))
    np.testing.assert_array_equal(engine.host(mask_t), bitmask_by_loop(dense.T))


def test_bitmask_worked_by_hand(engine):
    corners = np.zeros((8, 8), np.float16)
    corners[:2, :2] = 1  # 1100 / 1100: 3 + 3 * 16
    corners[3, 5] = np.nan  # top right, rows 2-3, odd row, column 1
    corners[4, 3] = -0.0
    corners[6, 7] = 1  # bottom right, rows 2-3, even row, column 3
    with engine.runs("semi_structured_bitmask"):
        mask = sg.compressed_swizzled_bitmask(engine.array(corners))
    assert engine.host(mask).tolist() == [[[51, 0, 0, 32, 0, 0, 0, 8]]]


@pytest.mark.parametrize("dtype", [*DTYPES, FP8], ids=str)
def test_apply_a_mask_to_a_dense_matrix(engine, rng, dtype):
    kept = rng.random((16, 24)) < 0.5
    dense = random_values(rng, (32, 24), dtype)[::2]
    if dtype.kind != "i":
        dense[~kept] = np.nan
    mask = engine.array(bitmask_by_loop(kept))
    wide = engine.array(np.repeat(dense, 2, axis=0))
    with engine.runs("prune_tile"):
        out = sg.semi_structured_apply_dense(wide[::2], mask)
    assert_same(engine, out, np.where(kept, dense, np.zeros((), dtype)))


# -- both orientations --------------------------------------------------------------------------


@covered(dtype=TILE_DTYPES, algorithm=ALGORITHMS)
def test_tile_is_what_the_steps_give(engine, rng, dtype, algorithm):
    dense = awkward(rng, (64, 128), dtype)
    with engine.runs("semi_structured_tile"):
        *halves, mask = sg.semi_structured_tile(engine.array(dense), algorithm)
    pruned = prune_tile_by_loop(dense, algorithm)
    expected = [
        *sg.semi_structured_from_dense(pruned),
        *sg.semi_structured_from_dense(np.ascontiguousarray(pruned.T)),
        bitmask_by_loop(pruned),
    ]
    for got, wanted in zip([*halves, mask], expected, strict=True):
        assert_same(engine, got, wanted)


def test_tile_of_a_strided_matrix_that_is_no_multiple_of_64(engine, rng):
    dense = random_values(rng, (96, 64), "bfloat16")
    with engine.runs("semi_structured_tile"):
        got = sg.semi_structured_tile(engine.array(dense).T[:, ::-1])
    expected = sg.semi_structured_tile(np.ascontiguousarray(dense.T[:, ::-1]))
    for one, other in zip(got, expected, strict=True):
        assert_same(engine, one, other)


def test_tile_in_the_vendor_layout(engine, rng):
    dense = engine.array(random_values(rng, (128, 256), "float16"))
    with engine.runs("semi_structured_tile"):
        packed, meta, packed_t, meta_t, mask = sg.semi_structured_tile(dense)
        buffer, none, buffer_t, none_t, mask_too = sg.semi_structured_tile(
            dense, layout="cusparselt"
        )
        expected = sg.to_cusparselt_layout(packed, meta), sg.to_cusparselt_layout(packed_t, meta_t)
    assert none is None and none_t is None
    for one, other in zip((buffer, buffer_t, mask_too), (*expected, mask), strict=True):
        assert_same(engine, one, engine.host(other))


@pytest.mark.parametrize("dtype", TILE_DTYPES, ids=str)
def test_apply_is_what_the_steps_give(engine, rng, dtype):
    kept = prune_tile_by_loop(rng.random((64, 128)), ALGORITHMS[0]) != 0
    dense = random_values(rng, (128, 64), dtype).T
    if dtype.kind != "i":
        dense = np.where(kept, dense, np.array(np.nan).astype(dtype))
    mask = engine.array(bitmask_by_loop(kept))
    with engine.runs("semi_structured_tile"):
        got = sg.semi_structured_apply(engine.array(np.ascontiguousarray(dense.T)).T, mask)
    masked = np.where(kept, dense, np.zeros((), dtype))
    expected = [
        *sg.semi_structured_from_dense(np.ascontiguousarray(masked)),
        *sg.semi_structured_from_dense(np.ascontiguousarray(masked.T)),
    ]
    for one, other in zip(got, expected, strict=True):
        assert_same(engine, one, other)


def test_apply_a_mask_that_keeps_too_much(engine, rng):
    dense = np.zeros((32, 32), np.float16)
    dense[5, 8:10] = 1  # the mask keeps more than the values need
    everything = engine.xp.full((4, 4, 8), 255, dtype=np.uint8)
    with engine.runs("semi_structured_tile"):
        packed, _, _, _ = sg.semi_structured_apply(engine.array(dense), everything)
    assert_same(engine, packed, sg.semi_structured_from_dense(dense)[0])
    dense[5, 11] = 1
    with (
        engine.runs("semi_structured_tile", "prune_tile", "semi_structured_compress"),
        pytest.raises(ValueError, match=r"semi_structured_apply: .*'dense'.*row 5, column 8"),
    ):
        sg.semi_structured_apply(engine.array(dense), everything)
    dense[5, 11] = 0
    dense[[4, 6], 8] = 1
    with (
        engine.runs("semi_structured_tile", "prune_tile", "semi_structured_compress"),
        pytest.raises(ValueError, match=r"'dense\.T'.*row 8, column 4"),
    ):
        sg.semi_structured_apply(engine.array(dense), everything)
    with engine.runs("semi_structured_tile"):
        _, _, packed_t, meta_t = sg.semi_structured_apply(
            engine.array(dense), everything, strict=False
        )
    expected = sg.semi_structured_from_dense(np.ascontiguousarray(dense.T), strict=False)
    assert_same(engine, packed_t, expected[0])
    assert_same(engine, meta_t, expected[1])


def test_apply_to_float32_follows_the_pairs(engine, rng):
    dense = np.zeros((32, 32), np.float32)
    np.fill_diagonal(dense, rng.standard_normal(32))
    mask = engine.array(bitmask_by_loop(dense))
    with engine.runs("semi_structured_compress"):
        packed, _, _, meta_t = sg.semi_structured_apply(engine.array(dense), mask)
    assert_same(engine, packed, sg.semi_structured_from_dense(dense)[0])
    assert_same(engine, meta_t, sg.semi_structured_from_dense(dense)[1])


@pytest.mark.parametrize(
    ("shape", "dtype", "error", "match"),
    [
        ((32, 32), SINGLE, TypeError, "keeps two of four.*float32"),
        ((32, 32), DOUBLE, TypeError, "float64"),
        ((32, 48), HALF, ValueError, "rows a multiple of 32 and columns a multiple of 32"),
        ((32, 64), INT8, ValueError, "rows a multiple of 64 and columns a multiple of 64.*both"),
    ],
)
def test_what_tile_refuses(engine, shape, dtype, error, match):
    dense = engine.xp.zeros(shape, dtype=dtype)
    with engine.runs(None), pytest.raises(error, match=f"semi_structured_tile.*'dense'.*{match}"):
        sg.semi_structured_tile(dense)
    with engine.runs(None), pytest.raises(ValueError, match=r"'layout'.*'cutlass', 'cusparselt'"):
        sg.semi_structured_tile(engine.xp.zeros((32, 32), dtype=HALF), layout="other")


def test_masks_that_do_not_fit(engine):
    xp = engine.xp
    dense = xp.zeros((32, 32), dtype=HALF)
    for mask, error, match in (
        (xp.zeros((4, 4), dtype=np.uint8), ValueError, r"'bitmask'.*\(4, 4, 8\).*got \(4, 4\)"),
        (xp.zeros((4, 4, 8), dtype=np.int8), TypeError, "'bitmask'.*uint8.*int8"),
    ):
        for function in (sg.semi_structured_apply, sg.semi_structured_apply_dense):
            with engine.runs(None), pytest.raises(error, match=f"{function.__name__}.*{match}"):
                function(dense, mask)
    with engine.runs(None), pytest.raises(ValueError, match=r"'pruned'.*multiple of 8"):
        sg.compressed_swizzled_bitmask(dense[:, :12])


def test_the_vendors_layout_names_the_callers_argument():
    for error, dense in (
        (ValueError, np.ones((64, 64), np.float16)),
        (NotImplementedError, np.ones((128, 128), np.int8)),
    ):
        with pytest.raises(error, match=r"semi_structured_tile: .*'dense'"):
            sg.semi_structured_tile(dense, layout="cusparselt")
