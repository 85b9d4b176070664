"""2:4 pruning against loops written from the rules."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sparsegpu as sg
from sparsegpu.testing import random_values
from test_compress import bits

BF16, FP8 = np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn)
HALF, SINGLE, DOUBLE, INT8 = (np.dtype(t) for t in (np.float16, np.float32, np.float64, np.int8))
DTYPES = [HALF, BF16, SINGLE, DOUBLE, INT8]
TILE_DTYPES = [HALF, BF16, INT8, FP8]
ALGORITHMS = ["largest_abs_values_greedy", "largest_values_greedy", "", "causal1122"]

FEW = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def awkward(rng, shape, dtype):
    """Values with many ties, zeros of both signs, extremes and NaN."""
    values = random_values(rng, shape, dtype, small_integers=bool(rng.integers(2)))
    if dtype.kind == "i":
        values[rng.random(shape) < 0.1] = -128
        values[rng.random(shape) < 0.1] = 127
    else:
        values[rng.random(shape) < 0.1] = np.nan
        values[rng.random(shape) < 0.1] = -0.0
        if dtype != FP8:
            values[rng.random(shape) < 0.05] = -np.inf
    return values


def visit(keys):
    """Indices by descending key: the lower index on ties, NaN last."""
    return sorted(range(len(keys)), key=lambda i: (np.isnan(keys[i]), -keys[i], i))


def prune_24_by_loop(dense, group, importance=None):
    out = dense.copy()
    keys = np.abs(dense.astype(np.float64)) if importance is None else importance
    for r in range(dense.shape[0]):
        for start in range(0, dense.shape[1] // group * group, group):
            order = visit([float(x) for x in keys[r, start : start + group]])
            for i in order[group // 2 :]:
                out[r, start + i] = 0
    return out


def prune_tile_by_loop(dense, algorithm):
    out = dense.copy()
    limits = (1, 1, 2, 2) if algorithm == "causal1122" else (2, 2, 2, 2)
    for r in range(0, dense.shape[0] // 4 * 4, 4):
        for c in range(0, dense.shape[1] // 4 * 4, 4):
            values = [float(x) for x in dense[r : r + 4, c : c + 4].ravel()]
            if algorithm == "largest_abs_values_greedy":
                values = [abs(v) for v in values]
            rows, columns = [0] * 4, [0] * 4
            for place in visit(values):
                i, j = divmod(place, 4)
                if rows[i] < limits[i] and columns[j] < 2:
                    rows[i] += 1
                    columns[j] += 1
                else:
                    out[r + i, c + j] = 0
    return out


def bitmask_by_loop(matrix):
    m, k = matrix.shape
    out = np.zeros((m // 8, k // 8, 8), np.uint8)
    for r in range(m):
        for c in range(k):
            if matrix[r, c] != 0:
                byte = (r % 8 // 4) * 4 + (c % 8 // 4) * 2 + r % 4 // 2
                out[r // 8, c // 8, byte] |= 1 << (4 * (r % 2) + c % 4)
    return out


def assert_same(engine, got, expected):
    got = engine.host(got)
    assert got.shape == expected.shape and got.itemsize == expected.itemsize
    np.testing.assert_array_equal(bits(got), bits(expected))


# -- by rows ------------------------------------------------------------------------------------


@FEW
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
    dense = random_values(rng, (3, 10, 24), "float32")
    device = engine.array(dense)
    for view, host in (
        (device[:, ::2, 1:], dense[:, ::2, 1:]),
        (device[0].T, dense[0].T),
        (device[0, 0, ::-1], dense[0, 0, ::-1]),
    ):
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


@FEW
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


@pytest.mark.parametrize("dtype", TILE_DTYPES, ids=str)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
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
