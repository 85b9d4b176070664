"""2:4 compression against a loop written from the rules, bit for bit."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegpu as sg
from covering import covered
from properties import drawn
from semi_structured_cases import bits, place
from sparsegpu.testing import random_24, random_values

BF16, FP8 = np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn)
DTYPES = [np.dtype(np.float16), BF16, np.dtype(np.float32), np.dtype(np.int8), FP8]
DTYPE_IDS = [d.name for d in DTYPES]
#: rows, columns, codes in an element, bits of an element
RULES = {1: (16, 64, 8, 32), 2: (32, 32, 4, 16), 4: (32, 16, 4, 16)}

#: nonzero flags of a group -> kept positions, all sixteen by hand
KEPT = {
    "0000": (2, 3), "0001": (2, 3), "0010": (2, 3), "0011": (2, 3),
    "0100": (1, 2), "0101": (1, 3), "0110": (1, 2), "0111": (1, 3),
    "1000": (0, 2), "1001": (0, 3), "1010": (0, 2), "1011": (0, 3),
    "1100": (0, 1), "1101": (0, 1), "1110": (0, 1), "1111": (0, 1),
}  # fmt: skip


def compress_by_loop(dense):
    """The rules, element by element: packed and reordered metadata."""
    m, k = dense.shape
    _, _, codes_per_element, element_bits = RULES[dense.itemsize]
    group = 2 if dense.dtype == np.float32 else 4
    columns = k // (group * codes_per_element)
    packed = np.empty((m, k // 2), dense.dtype)
    flat = [0] * (m * columns)
    for r in range(m):
        codes = []
        for n in range(k // group):
            values = dense[r, n * group : (n + 1) * group]
            flags = "".join("1" if v != 0 else "0" for v in values)
            if group == 4:
                i, j = KEPT[flags]
                codes.append(i | j << 2)
                packed[r, 2 * n : 2 * n + 2] = values[i], values[j]
            else:
                codes.append(0b0100 if flags[0] == "1" else 0b1110)
                packed[r, n] = values[0 if flags[0] == "1" else 1]
        for c in range(columns):
            mine = codes[c * codes_per_element : (c + 1) * codes_per_element]
            flat[place(r, c, m, element_bits)] = sum(code << 4 * n for n, code in enumerate(mine))
    meta = np.array(flat, dtype=f"u{element_bits // 8}").view(f"i{element_bits // 8}")
    return packed, meta.reshape(m, columns)


def check_against_loop(engine, dense, *, strict):
    with engine.runs("semi_structured_compress" if dense.size else None):
        packed, meta = sg.semi_structured_from_dense(engine.array(dense), strict=strict)
    expected_packed, expected_meta = compress_by_loop(dense)
    assert meta.dtype == expected_meta.dtype and packed.shape == expected_packed.shape
    np.testing.assert_array_equal(bits(engine.host(packed)), bits(expected_packed))
    np.testing.assert_array_equal(engine.host(meta), expected_meta)
    return packed, meta


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != np.float32], ids=str)
def test_all_sixteen_groups_worked_by_hand(engine, dtype):
    rows, _, codes, element_bits = RULES[dtype.itemsize]
    values = np.array([1, 2, 3, 4], dtype=dtype)
    row = np.concatenate([np.where(np.array(list(f)) == "1", values, 0 * values) for f in KEPT])
    dense = np.tile(row, (rows, 1))
    with engine.runs("semi_structured_compress"):
        packed, meta = sg.semi_structured_from_dense(engine.array(dense), strict=False)
        meta = sg.restore_meta(meta)
    expected = [values[p] if f[p] == "1" else 0 for f, pair in KEPT.items() for p in pair]
    got = engine.host(packed).view(dtype)
    np.testing.assert_array_equal(got[0].astype(np.float32), np.array(expected, np.float32))
    words = engine.host(meta).view(f"u{element_bits // 8}")[0]
    unpacked = [int(w) >> 4 * n & 15 for w in words for n in range(codes)]
    assert unpacked == [i | j << 2 for i, j in KEPT.values()]


def test_float32_pairs_worked_by_hand(engine):
    pairs = [(0, 0), (5, 0), (0, 7), (-0.0, 9), (np.nan, 0), (0, 0), (np.inf, -0.0), (0, -0.0)]
    dense = np.tile(np.array(pairs, np.float32).ravel(), (32, 1))
    with engine.runs("semi_structured_compress"):
        packed, meta = sg.semi_structured_from_dense(engine.array(dense))
        meta = sg.restore_meta(meta)
    np.testing.assert_array_equal(engine.host(packed)[3], [0, 5, 7, 9, np.nan, 0, np.inf, 0])
    # codes from the low bits up: second first second second | first second first second
    assert [hex(w) for w in engine.host(meta).view(np.uint16)[3]] == ["0xee4e", "0xe4e4"]


@covered(dtype=DTYPES, times=[(1, 1), (3, 2), (2, 5), (0, 2), (2, 0)])
def test_round_trip_of_24_data(engine, rng, dtype, times):
    rows, columns, *_ = RULES[dtype.itemsize]
    dense = random_24(rng, (rows * times[0], columns * times[1]), dtype)
    packed, meta = check_against_loop(engine, dense, strict=True)
    with engine.runs("semi_structured_expand" if dense.size else None):
        back = sg.semi_structured_to_dense(packed, meta)
    assert back.shape == dense.shape and back.dtype == packed.dtype
    host = engine.host(back).view(dtype)
    np.testing.assert_array_equal(host.astype(np.float32), dense.astype(np.float32))


def signs_of_zeros_kept(dense):
    """The matrix of which groups keep what the rules say, bit for bit, and elsewhere 0.0."""
    group = 2 if dense.dtype == np.float32 else 4
    expected = np.zeros_like(dense)
    for r, c in np.ndindex(dense.shape[0], dense.shape[1] // group):
        values = dense[r, c * group : (c + 1) * group]
        flags = "".join("1" if v != 0 else "0" for v in values)
        for i in KEPT[flags] if group == 4 else (0 if flags[0] == "1" else 1,):
            expected[r, c * group + i] = values[i]
    return expected


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != np.int8], ids=str)
@pytest.mark.parametrize("by", ["functions", "array", "blocks"])
def test_signs_of_zeros(engine, rng, dtype, by):
    """A -0.0 that is stored, also where a group has nothing else to keep, comes back as -0.0."""
    dense = rng.choice(np.array([-0.0, -0.0, 0.0, 1.0, -2.0]), (64, 64)).astype(dtype)
    expected, operand = signs_of_zeros_kept(dense), engine.array(dense)
    if by == "functions":
        back = sg.semi_structured_to_dense(*sg.semi_structured_from_dense(operand, strict=False))
    elif by == "array":
        tagged = {"dtype": dtype} if dtype == FP8 else {}
        array = sg.SemiStructuredArray.from_dense(operand, strict=False, **tagged)
        assert (bits(engine.host(array.T.todense())) == bits(expected.T)).all()
        back = array.todense()
    elif dtype == FP8:
        return  # no dtype of a bsr_array
    else:
        back = sg.bsr_array(operand, blocksize=(32, 32)).semi_structured(strict=False).toarray()
    np.testing.assert_array_equal(bits(engine.host(back)), bits(expected))


@drawn(25)
@given(
    dtype=st.sampled_from(DTYPES),
    times=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    density=st.sampled_from([0.1, 0.5, 1.0]),
    seed=st.integers(0, 999),
)
def test_the_rule_for_any_data(engine, dtype, times, density, seed):
    rng = np.random.default_rng(seed)
    rows, columns, *_ = RULES[dtype.itemsize]
    shape = rows * times[0], columns * times[1]
    dense = random_values(rng, shape, dtype)
    dense = np.where(rng.random(shape) < density, dense, np.array(-0.0).astype(dtype))
    if dtype.kind != "i":
        dense[rng.random(shape) < 0.05] = np.nan
    check_against_loop(engine, dense, strict=False)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_strict_names_the_first_offending_group(engine, rng, dtype):
    rows, columns, *_ = RULES[dtype.itemsize]
    dense = random_24(rng, (2 * rows, 2 * columns), dtype)
    group = 2 if dtype == np.float32 else 4
    for row, column in ((rows + 3, columns + 2 * group), (rows + 3, columns), (rows + 9, 0)):
        dense[row, column : column + group] = 1
    with (
        engine.runs("semi_structured_compress"),
        pytest.raises(ValueError, match=rf"'dense'.*row {rows + 3}, column {columns}$"),
    ):
        sg.semi_structured_from_dense(engine.array(dense))
    check_against_loop(engine, dense, strict=False)


def test_nan_counts_and_negative_zero_does_not(engine):
    dense = np.zeros((32, 32), np.float16)
    dense[:, :] = -0.0
    dense[5, 4:6] = np.nan, np.inf
    check_against_loop(engine, dense, strict=True)
    dense[5, 7] = -np.inf
    with (
        engine.runs("semi_structured_compress"),
        pytest.raises(ValueError, match=r"row 5, column 4"),
    ):
        sg.semi_structured_from_dense(engine.array(dense))


def test_a_large_matrix_across_many_blocks(engine, rng):
    dense = random_24(rng, (160, 224), np.float16)
    with engine.runs("semi_structured_compress"):
        packed, meta = sg.semi_structured_from_dense(engine.array(dense))
        back = sg.semi_structured_to_dense(packed, meta)
    np.testing.assert_array_equal(engine.host(back), dense)


@pytest.mark.parametrize(
    ("shape", "dtype", "match"),
    [
        ((16, 32), np.float16, "rows a multiple of 32 and columns a multiple of 32.*float16"),
        ((32, 48), BF16, "columns a multiple of 32.*pad=True.*got shape"),
        ((32, 24), np.float32, "columns a multiple of 16"),
        ((16, 32), np.int8, "rows a multiple of 16 and columns a multiple of 64"),
        ((8, 64), np.int8, "rows a multiple of 16"),
        ((2, 32, 32), np.float16, "two dimensions"),
    ],
)
def test_shapes_that_do_not_fit(engine, shape, dtype, match):
    dense = engine.xp.zeros(shape, dtype=dtype)
    with (
        engine.runs(None),
        pytest.raises(ValueError, match=f"semi_structured_from_dense.*'dense'.*{match}"),
    ):
        sg.semi_structured_from_dense(dense)


def test_dtypes_and_strides_that_do_not_fit(engine):
    xp = engine.xp
    with engine.runs(None), pytest.raises(TypeError, match=r"'dense'.*float8_e4m3fn, got float64"):
        sg.semi_structured_from_dense(xp.zeros((32, 32)))
    with engine.runs(None), pytest.raises(ValueError, match=r"'dense'.*C-contiguous"):
        sg.semi_structured_from_dense(xp.zeros((64, 32), dtype=np.float16).T)
    packed = xp.zeros((32, 16), dtype=np.float16)
    for meta, error, match in (
        (xp.zeros((32, 2), dtype=np.int32), TypeError, "'meta'.*int16"),
        (xp.zeros((32, 4), dtype=np.int16), ValueError, r"'meta'.*shape \(32, 2\)"),
    ):
        with engine.runs(None), pytest.raises(error, match=f"semi_structured_to_dense.*{match}"):
            sg.semi_structured_to_dense(packed, meta)
    with engine.runs(None), pytest.raises(ValueError, match=r"'packed'.*multiple of 32"):
        sg.semi_structured_to_dense(packed[:16], xp.zeros((16, 2), dtype=np.int16))


def test_uint8_has_no_meaning_on_the_host():
    with pytest.raises(TypeError, match=r"uint8"):
        sg.semi_structured_from_dense(np.zeros((32, 64), np.uint8))


# -- the vendor's buffer ------------------------------------------------------------------------


def vendor_place(r, group, m, k, generation):
    """Nibble number of a group's code behind the packed values, from the stated formulas."""
    c = 4 * group
    if generation == 8:
        rr, half = r % 32, c % 32 // 16
        inside = (rr % 8) * 8 + (rr // 16) * 4 + half * 2 + (rr // 8) % 2
        tile = (c // 64) * (512 * (m // 128)) + (r // 128) * 512
        tile += (c % 64 // 32) * 256 + (r % 128 // 32) * 64
        return 4 * (tile + inside) + group % 4
    g = c % 32 // 4
    byte = (r // 64) * 8 * k + (c // 32) * 256 + (r % 64 // 16) * 64 + (r % 8) * 8
    return 2 * (byte + 2 * (g % 4) + g // 4) + r % 16 // 8


@covered(
    dtype=[np.dtype(np.float16), BF16],
    generation=[8, 9],
    shape=[(128, 64), (256, 128), (128, 192)],
)
def test_the_vendor_layout(engine, rng, dtype, generation, shape):
    m, k = shape
    dense = random_24(rng, shape, dtype)
    capability = (generation, 0)
    with engine.runs("semi_structured_compress"):
        packed, meta = sg.semi_structured_from_dense(engine.array(dense))
        buffer = sg.to_cusparselt_layout(packed, meta, capability=capability)
        again = sg.from_cusparselt_layout(buffer, shape, capability=capability)
    flat = engine.host(buffer)
    assert flat.dtype == dtype and flat.shape == (9 * m * k // 16,)
    np.testing.assert_array_equal(bits(flat[: m * k // 2]), bits(engine.host(packed)).ravel())
    for part, original in zip(again, (packed, meta), strict=True):
        assert part.dtype == original.dtype
        np.testing.assert_array_equal(bits(engine.host(part)), bits(engine.host(original)))
    stored = bits(flat[m * k // 2 :]).view(np.uint8)
    for r in range(0, m, 7):
        for group in range(k // 4):
            flags = "".join("1" if v != 0 else "0" for v in dense[r, 4 * group : 4 * group + 4])
            i, j = KEPT[flags]
            nibble = vendor_place(r, group, m, k, generation)
            assert stored[nibble // 2] >> 4 * (nibble % 2) & 15 == i | j << 2, (r, group)


def test_what_the_vendor_layout_does_not_take(engine):
    xp = engine.xp
    packed, meta = xp.zeros((32, 32), dtype=np.float16), xp.zeros((32, 4), dtype=np.int16)
    with engine.runs(None), pytest.raises(ValueError, match=r"rows a multiple of 128.*8.x"):
        sg.to_cusparselt_layout(packed, meta, capability=(8, 0))
    with engine.runs(None), pytest.raises(ValueError, match=r"capability\[0\].*8, 9"):
        sg.to_cusparselt_layout(packed, meta, capability=(7, 0))
    with engine.runs(None), pytest.raises(TypeError, match=r"'capability': expected a pair"):
        sg.to_cusparselt_layout(packed, meta, capability={})
    bytes_, words = xp.zeros((64, 32), dtype=np.int8), xp.zeros((64, 2), dtype=np.int32)
    with engine.runs(None), pytest.raises(NotImplementedError, match=r"int8.*float16 and bfloat16"):
        sg.to_cusparselt_layout(bytes_, words)
    with engine.runs(None), pytest.raises(ValueError, match=r"4608 elements, got 100"):
        sg.from_cusparselt_layout(xp.zeros(100, dtype=np.float16), (128, 64), capability=(8, 0))
