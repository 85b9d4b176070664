"""Where a 2:4 metadata element goes: worked examples from the layout's formulas."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegpu as sg
from properties import drawn
from semi_structured_cases import place


def test_16_bit_places_worked_by_hand(engine):
    # (r, c) -> row R, swap, flat place; m = 64
    by_hand = {
        (0, 0): 0,  # R = 0
        (0, 1): 2,  # R = 0, top right: to (1, 0)
        (8, 0): 1,  # R = 1, bottom left: to (0, 1)
        (8, 1): 3,  # R = 1 stays
        (1, 0): 8,  # R = 4
        (16, 0): 4,  # R = 2
        (24, 1): 7,  # R = 3 stays
        (31, 1): 63,  # R = 28 + 3
        (32, 0): 64,  # the second group of rows
        (41, 0): 73,  # R = 32 + 4 + 1 = 37 -> (36, 1)
        (0, 2): 128,  # the second pair of columns
        (9, 3): 139,  # R = 5 stays
    }
    offsets = sg.meta_reorder_offsets(64, 4, np.int16, xp=engine.xp)
    offsets = engine.host(offsets).reshape(64, 4)
    assert {rc: int(offsets[rc]) for rc in by_hand} == by_hand


def test_32_bit_places_worked_by_hand(engine):
    by_hand = {
        (0, 0): 0,
        (0, 1): 2,
        (8, 0): 1,  # R = 1 -> (0, 1)
        (1, 0): 4,  # R = 2
        (9, 1): 7,  # R = 3 stays
        (16, 0): 32,
        (25, 0): 37,  # R = 16 + 2 + 1 = 19 -> (18, 1)
        (7, 2): 92,  # R = 14, second pair of columns: 64 + 28
    }
    offsets = sg.meta_reorder_offsets(32, 4, "int32", xp=engine.xp)
    offsets = engine.host(offsets).reshape(32, 4)
    assert {rc: int(offsets[rc]) for rc in by_hand} == by_hand


@drawn(25)
@given(groups=st.integers(0, 4), pairs=st.integers(0, 4), bits=st.sampled_from([16, 32]))
def test_places_are_those_of_the_formula_and_a_permutation(engine, groups, pairs, bits):
    m, columns = groups * (32 if bits == 16 else 16), 2 * pairs
    offsets = sg.meta_reorder_offsets(m, columns, f"int{bits}", xp=engine.xp)
    assert isinstance(offsets, engine.xp.ndarray) and offsets.dtype == np.int64
    expected = [place(r, c, m, bits) for r in range(m) for c in range(columns)]
    np.testing.assert_array_equal(engine.host(offsets), np.array(expected, dtype=np.int64))
    assert sorted(expected) == list(range(m * columns))


@drawn(25)
@given(
    groups=st.integers(0, 4),
    pairs=st.integers(0, 4),
    bits=st.sampled_from([16, 32]),
    seed=st.integers(0, 99),
)
def test_reorder_follows_the_places_and_restore_undoes_it(engine, groups, pairs, bits, seed):
    m, columns = groups * (32 if bits == 16 else 16), 2 * pairs
    rng = np.random.default_rng(seed)
    info = np.iinfo(f"int{bits}")
    meta = rng.integers(info.min, info.max, (m, columns), endpoint=True, dtype=info.dtype)
    device = engine.array(meta)
    with engine.runs("semi_structured_reorder" if meta.size else None):
        reordered = sg.reorder_meta(device)
        restored = sg.restore_meta(reordered)
    expected = np.empty(meta.size, dtype=meta.dtype)
    for r in range(m):
        for c in range(columns):
            expected[place(r, c, m, bits)] = meta[r, c]
    assert reordered.shape == meta.shape and reordered.dtype == meta.dtype
    np.testing.assert_array_equal(engine.host(reordered).ravel(), expected)
    np.testing.assert_array_equal(engine.host(restored), meta)


def test_strided_metadata(engine, rng):
    wide = rng.integers(-5, 5, (64, 8)).astype(np.int16)
    view = engine.array(wide)[::2, 1:5]
    with engine.runs("semi_structured_reorder"):
        got = sg.restore_meta(sg.reorder_meta(view))
    np.testing.assert_array_equal(engine.host(got), wide[::2, 1:5])


@pytest.mark.parametrize(
    ("shape", "dtype", "error", "match", "offsets"),
    [
        (
            (48, 2),
            np.int16,
            ValueError,
            "multiple of 32.*multiple of 2.*int16",
            "'m'.*32.*int16",
        ),
        ((8, 2), np.int32, ValueError, "multiple of 16.*int32", None),
        ((32, 3), np.int16, ValueError, "multiple of 2", "'meta_ncols'.*multiple of 2, got 3"),
        ((32, 2), np.uint8, TypeError, "int16 or int32.*uint8", "'meta_dtype'"),
        ((32,), np.int16, ValueError, "two dimensions", None),
    ],
)
def test_what_is_no_metadata(engine, shape, dtype, error, match, offsets):
    meta = engine.xp.zeros(shape, dtype=dtype)
    for function in (sg.reorder_meta, sg.restore_meta):
        with engine.runs(None), pytest.raises(error, match=f"{function.__name__}.*'meta'.*{match}"):
            function(meta)
    if len(shape) == 2:
        with pytest.raises(error, match=f"meta_reorder_offsets.*{offsets or match}"):
            sg.meta_reorder_offsets(*shape, dtype)
