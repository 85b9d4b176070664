"""2:4 metadata with illegal codes is refused, named by row and group; any code is described."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegpu as sg
from covering import covered
from properties import drawn
from semi_structured_cases import BF16, FP8, HALF, INT8, SINGLE, Blocks, place
from sparsegpu.testing import random_24

DTYPES = [HALF, BF16, SINGLE, INT8, FP8]
#: Two positions of four in rising order, i | j << 2; float32: the halves (0, 1) or (2, 3).
LEGAL = {4: {0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110}, 2: {0b0100, 0b1110}}
#: rows, metadata columns of two pairs, codes in an element, its bits
SIZES = {1: (32, 4, 8, 32), 2: (64, 4, 4, 16), 4: (64, 4, 4, 16)}


def group_size(dtype):
    return 2 if dtype == SINGLE else 4


def stored(codes, bits):
    """Metadata in CUTLASS's order from codes (m, groups) by row, from the layout's formula."""
    m, groups = codes.shape
    per_element = bits // 4
    flat = [0] * (m * groups // per_element)
    for r in range(m):
        for g in range(groups):
            flat[place(r, g // per_element, m, bits)] |= int(codes[r, g]) << 4 * (g % per_element)
    return np.array(flat, f"u{bits // 8}").view(f"i{bits // 8}").reshape(m, groups // per_element)


def legal_codes(rng, dtype):
    m, columns, per_element, _ = SIZES[dtype.itemsize]
    return rng.choice(sorted(LEGAL[group_size(dtype)]), (m, columns * per_element))


def packed_for(engine, meta, dtype):
    """Kept values that metadata of this shape belongs to: 16 bytes an element."""
    m, columns = meta.shape[-2:]
    values = np.ones((*meta.shape[:-2], m, columns * 16 // dtype.itemsize), np.int8)
    return engine.array(values.astype(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("code", range(16))
def test_each_code_in_the_last_group(engine, rng, dtype, code):
    codes = legal_codes(rng, dtype)
    codes[-1, -1] = code
    meta = engine.array(stored(codes, SIZES[dtype.itemsize][3]))
    with engine.runs("semi_structured_reorder" if code not in LEGAL[group_size(dtype)] else None):
        if code in LEGAL[group_size(dtype)]:
            assert sg.check_meta(meta, dtype=dtype) is None
            return
        where = f"row {codes.shape[0] - 1}, group {codes.shape[1] - 1}"
        with pytest.raises(
            ValueError, match=rf"^check_meta: argument 'meta'.*{code:#06b} .*{where}$"
        ):
            sg.check_meta(meta, dtype=dtype)


@drawn(25)
@given(
    dtype=st.sampled_from(DTYPES),
    times=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    spoiled=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 15)), max_size=4),
    seed=st.integers(0, 999),
)
def test_the_first_illegal_group_by_rows(engine, dtype, times, spoiled, seed):
    rng = np.random.default_rng(seed)
    rows, columns, per_element, bits = SIZES[dtype.itemsize]
    legal = LEGAL[group_size(dtype)]
    shape = rows // 2 * times[0], columns // 2 * times[1] * per_element
    codes = rng.choice(sorted(legal), shape)
    for number, code in spoiled if codes.size else ():
        codes.flat[number % codes.size] = code
    wrong = [(r, g) for r in range(shape[0]) for g in range(shape[1]) if codes[r, g] not in legal]
    meta = engine.array(stored(codes, bits))
    with sg.use_engine(engine.name):
        if not wrong:
            sg.check_meta(meta, dtype=dtype)
            return
        row, group = wrong[0]
        with pytest.raises(ValueError, match=rf"row {row}, group {group}$"):
            sg.check_meta(meta, dtype=dtype)


@pytest.mark.parametrize("group", [4, 2])
def test_every_16_bit_word_of_the_cuda_engine(group):
    """Its arithmetic on whole words is the same in NumPy."""
    from sparsegpu.engines.cuda.compress import illegal_bits

    words = np.arange(2**16, dtype=np.uint16)
    found = illegal_bits(words.view(np.int16), group)
    pairs = words.astype(np.uint32) << 16 | words[::-1]
    wide = illegal_bits(pairs.view(np.int32), group)
    assert found.dtype == np.uint16 and wide.dtype == np.uint32
    np.testing.assert_array_equal(wide, found.astype(np.uint32) << 16 | found[::-1])
    for bit in range(0, 16, 4):
        legal = np.isin(words >> bit & 15, sorted(LEGAL[group]))
        np.testing.assert_array_equal(found >> bit & 15 == 0, legal)


@pytest.mark.parametrize("spoiled", [{}, {(1023, 511): 0}, {(900, 5): 9, (700, 310): 11}], ids=str)
def test_a_large_matrix_that_threads_share(engine, spoiled):
    m, columns = 1024, 128
    flat = np.full(m * columns, 0x4444, np.int16)
    for (row, group), code in spoiled.items():
        bit = 4 * (group % 4)
        flat[place(row, group // 4, m, 16)] ^= (4 ^ code) << bit
    meta = engine.array(flat.reshape(m, columns))
    with sg.use_engine(engine.name):
        if not spoiled:
            sg.check_meta(meta, dtype=SINGLE)
            return
        row, group = min(spoiled)
        with pytest.raises(ValueError, match=rf"row {row}, group {group}$"):
            sg.check_meta(meta, dtype=SINGLE)


def test_codes_of_float32_are_two_of_those_of_16_bit_values(engine):
    meta = engine.array(stored(np.full((32, 8), 0b1001), 16))
    with sg.use_engine(engine.name):
        sg.check_meta(meta)
        sg.check_meta(meta, dtype="bfloat16")
        with pytest.raises(ValueError, match=r"1:2.*0b0100, 0b1110.*got 0b1001 in row 0, group 0"):
            sg.check_meta(meta, dtype=np.float32)


@pytest.mark.parametrize("dtype", [HALF, INT8], ids=str)
def test_a_batch_names_the_matrix(engine, rng, dtype):
    bits = SIZES[dtype.itemsize][3]
    codes = [[legal_codes(rng, dtype) for _ in range(3)] for _ in range(2)]
    codes[1][0][5, 3] = 0b1011
    codes[1][2][0, 0] = 0
    meta = np.stack([np.stack([stored(c, bits) for c in row]) for row in codes])
    with sg.use_engine(engine.name):
        sg.check_meta(engine.array(meta[0]))
        with pytest.raises(ValueError, match=r"0b1011 in row 5, group 3 of meta\[1, 0\]$"):
            sg.check_meta(engine.array(meta))
        with pytest.raises(ValueError, match=r"0b0000 in row 0, group 0 of meta\[2\]$"):
            sg.check_meta(engine.array(meta[1, [1, 1, 2]]))


@pytest.mark.parametrize("dtype", [HALF, INT8], ids=str)
def test_strided_read_only_and_unsigned(engine, rng, dtype):
    codes = legal_codes(rng, dtype)
    codes[9, 6] = 0b0001
    meta = stored(codes, SIZES[dtype.itemsize][3])
    wide = np.zeros((meta.shape[0], 2 * meta.shape[1]), meta.dtype)
    wide[:, ::2] = meta
    frozen = meta.copy()
    frozen.flags.writeable = False
    views = [
        engine.array(wide)[:, ::2],
        engine.array(np.asfortranarray(meta)),
        engine.array(frozen),
        engine.array(meta.view(f"u{meta.itemsize}")),
    ]
    for view in views:
        with (
            sg.use_engine(engine.name),
            pytest.raises(ValueError, match=r"0b0001 in row 9, group 6$"),
        ):
            sg.check_meta(view)


@pytest.mark.parametrize("shape", [(0, 2), (32, 0), (3, 0, 2), (0, 32, 2)])
def test_nothing_is_legal(engine, shape):
    with engine.runs(None):
        sg.check_meta(engine.xp.zeros(shape, np.int16))


@pytest.mark.parametrize(
    ("shape", "dtype", "values", "error", "match"),
    [
        ((32,), np.int16, None, ValueError, r"'meta'.*\(\*batch, m, columns\).*got \(32,\)"),
        ((31, 2), np.int16, None, ValueError, "'meta'.*multiple of 32"),
        ((32, 3), np.int16, None, ValueError, "'meta'.*multiple of 2"),
        ((32, 2), np.int64, None, TypeError, "'meta'.*int16 or int32.*int64"),
        ((32, 2), np.float16, None, TypeError, "'meta'.*int16 or int32.*float16"),
        ((32, 2), np.int16, "int8", TypeError, "'meta'.*int32 for int8 values.*int16"),
        ((32, 2), np.int32, np.float32, TypeError, "'meta'.*int16 for float32 values.*int32"),
        ((32, 2), np.int16, "float64", TypeError, "'dtype'.*2:4 dtypes float16.*float64"),
        ((32, 2), np.int16, "nothing", TypeError, "'dtype'.*name.*nothing"),
    ],
)
def test_what_is_no_metadata(engine, shape, dtype, values, error, match):
    meta = engine.xp.zeros(shape, dtype)
    with engine.runs(None), pytest.raises(error, match=f"^check_meta: argument {match}"):
        sg.check_meta(meta, dtype=values)
    with engine.runs(None), pytest.raises(error, match=r"^describe_meta: argument"):
        sg.describe_meta(meta, 0, 0, dtype=values)


# -- where metadata comes from outside ------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_zeros_lose_values_only_unchecked(engine, dtype):
    meta = engine.array(stored(np.zeros((32, 16), int), SIZES[dtype.itemsize][3]))
    packed = packed_for(engine, meta, dtype)
    shape = packed.shape[0], 2 * packed.shape[1]
    with sg.use_engine(engine.name):
        sg.semi_structured_to_dense(packed, meta)
        with pytest.raises(
            ValueError,
            match=r"^semi_structured_to_dense: argument 'meta'.*0b0000 in row 0, group 0$",
        ):
            sg.semi_structured_to_dense(packed, meta, check=True)
        sg.SemiStructuredArray(shape, packed, meta, check=False)
        with pytest.raises(
            ValueError, match=r"^SemiStructuredArray: argument 'meta'.*0b0000 in row 0, group 0$"
        ):
            sg.SemiStructuredArray(shape, packed, meta)
        with pytest.raises(ValueError, match=r"^SemiStructuredArray: argument 'meta_t'.*row 0"):
            sg.SemiStructuredArray(shape[::-1], None, None, packed, meta)


@covered(dtype=DTYPES, unsigned=[False, True])
def test_legal_metadata_is_taken(engine, rng, dtype, unsigned):
    rows, columns, _, bits = SIZES[dtype.itemsize]
    dense = random_24(rng, (rows, columns * 32 // dtype.itemsize), dtype)
    with sg.use_engine(engine.name):
        packed, meta = sg.semi_structured_from_dense(engine.array(dense))
        given = meta.view(f"u{bits // 8}") if unsigned else meta
        back = sg.semi_structured_to_dense(packed, given, check=True)
        again = sg.semi_structured_to_dense(packed, given, check=True)
        A = sg.SemiStructuredArray(dense.shape, packed, given)
        held = A.todense()
        sg.check_meta(given, dtype=dtype)
    assert A.meta.dtype == meta.dtype
    for result in (back, again, held):
        host = engine.host(result).view(dtype)
        np.testing.assert_array_equal(host.astype(np.float32), dense.astype(np.float32))


@pytest.mark.parametrize("generation", [8, 9])
def test_the_vendor_buffer(engine, rng, generation):
    capability = (generation, 0)
    dense = random_24(rng, (128, 128), HALF)
    with sg.use_engine(engine.name):
        packed, meta = sg.semi_structured_from_dense(engine.array(dense))
        given = meta.view(np.uint16)
        buffer = sg.to_cusparselt_layout(packed, given, capability=capability)
        taken = sg.from_cusparselt_layout(buffer, (128, 128), capability=capability)
        np.testing.assert_array_equal(engine.host(taken[1]), engine.host(meta))
        codes = np.full((128, 32), 0b1110)
        codes[77, 21] = 0b1010
        spoiled = sg.to_cusparselt_layout(
            packed, engine.array(stored(codes, 16)), capability=capability
        )
        with pytest.raises(
            ValueError,
            match=r"^from_cusparselt_layout: argument 'buffer'.*0b1010 in row 77, group 21$",
        ):
            sg.from_cusparselt_layout(spoiled, (128, 128), capability=capability)


def test_blocks(engine, rng):
    S = Blocks(engine, rng, (32, 64), HALF).sparse
    meta = engine.host(S.meta).copy()
    with sg.use_engine(engine.name):
        again = sg.BsrSemiStructuredArray(
            (S.packed, S.meta.view(np.uint16), S.indices, S.indptr), S.shape
        )
        np.testing.assert_array_equal(engine.host(again.todense()), engine.host(S.todense()))
        assert again.meta.dtype == np.int16
        meta[2, 0, 0] &= ~0xF
        parts = S.packed, engine.array(meta), S.indices, S.indptr
        with pytest.raises(
            ValueError,
            match=r"^BsrSemi.*: argument 'meta'.*0b0000 in row 0, group 0 of meta\[2\]$",
        ):
            sg.BsrSemiStructuredArray(parts, S.shape)
        sg.BsrSemiStructuredArray(parts, S.shape, check=False)


@pytest.mark.parametrize("kind", ["matrix", "blocks"])
def test_files_with_illegal_codes(rng, tmp_path, kind):
    blocks = sg.bsr_array(random_24(rng, (64, 64), HALF), blocksize=(32, 64))
    A = blocks.semi_structured() if kind == "blocks" else sg.to_semi_structured(blocks.toarray())
    A.save_npz(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as file:
        fields = dict(file)
    fields["meta"] = np.zeros_like(fields["meta"])
    np.savez(tmp_path / "b.npz", **fields)
    type(A).load_npz(tmp_path / "a.npz")
    with pytest.raises(ValueError, match=r"'meta'.*0b0000 in row 0, group 0"):
        type(A).load_npz(tmp_path / "b.npz")


def test_a_check_refuses_to_be_captured(cuda_engine):
    meta = cuda_engine.array(stored(np.full((32, 8), 0b0100), 16))
    stream = cuda_engine.xp.cuda.Stream(non_blocking=True)
    cuda_engine.xp.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        with pytest.raises(NotImplementedError, match=r"check_meta.*waits for the device"):
            sg.check_meta(meta)
        with pytest.raises(NotImplementedError, match=r"describe_meta.*waits for the device"):
            sg.describe_meta(meta, 0, 0)
        stream.end_capture()


# -- one code in words ----------------------------------------------------------------------------


def test_a_code_worked_by_hand(engine):
    codes = np.full((32, 8), 0b0100)
    codes[9, 6] = 0b1101
    codes[9, 7] = 0b0110
    meta = engine.array(stored(codes, 16))
    with sg.use_engine(engine.name):
        said = sg.describe_meta(meta, 9, 6)
        wrong = sg.describe_meta(meta.view(np.uint16), 9, 7)
        pair = sg.describe_meta(meta, np.int64(9), 5, dtype="float32")
    # Element (9, 1): R = 4 + 1 = 5 stays, flat place 5 * 2 + 1 = 11, so [5, 1] of two columns.
    where = "bits 8..11 of 0x6d44, stored at meta[5, 1]"
    assert said == f"row 9, group 6: code 0b1101 keeps columns 25 and 27 of 24..27 ({where})"
    where = "bits 12..15 of 0x6d44, stored at meta[5, 1]"
    assert wrong == (
        f"row 9, group 7: code 0b0110 is illegal: positions 2 and 1 do not rise ({where})"
    )
    where = "bits 4..7 of 0x6d44, stored at meta[5, 1]"
    assert pair == f"row 9, group 5: code 0b0100 keeps column 10 of 10..11 ({where})"


def test_an_illegal_pair_and_wide_elements(engine):
    codes = np.full((16, 16), 0b1110)
    codes[0, 8] = 0b1001
    wide = engine.array(stored(codes, 32))
    narrow = engine.array(stored(np.full((32, 8), 0b1001), 16))
    with sg.use_engine(engine.name):
        # Element (0, 1): R = 0, top right: to (1, 0), flat place 2, so [1, 0].
        assert sg.describe_meta(wide, 0, 8) == (
            "row 0, group 8: code 0b1001 keeps columns 33 and 34 of 32..35 "
            "(bits 0..3 of 0xeeeeeee9, stored at meta[1, 0])"
        )
        assert sg.describe_meta(narrow, 0, 0, dtype=SINGLE) == (
            "row 0, group 0: code 0b1001 is illegal: neither 0b0100 nor 0b1110 "
            "(bits 0..3 of 0x9999, stored at meta[0, 0])"
        )


@drawn(25)
@given(dtype=st.sampled_from(DTYPES), seed=st.integers(0, 999))
def test_what_is_said_is_what_expands(engine, dtype, seed):
    rng = np.random.default_rng(seed)
    m, _, _, bits = SIZES[dtype.itemsize]
    group = group_size(dtype)
    codes = legal_codes(rng, dtype)
    meta = engine.array(stored(codes, bits))
    row, g = int(rng.integers(m)), int(rng.integers(codes.shape[1]))
    with sg.use_engine(engine.name):
        dense = sg.semi_structured_to_dense(packed_for(engine, meta, dtype), meta)
        said = sg.describe_meta(meta, row, g, dtype=dtype)
    host = engine.host(dense).view(dtype)[row, group * g : group * (g + 1)]
    kept = [group * g + int(i) for i in np.flatnonzero(host.astype(np.float32))]
    assert f" {' and '.join(map(str, kept))} of {group * g}..{group * g + group - 1} " in said


@pytest.mark.parametrize(
    ("row", "group", "error", "match"),
    [
        (32, 0, ValueError, "'row'.*0 <= row < 32, got 32"),
        (-1, 0, ValueError, "'row'.*got -1"),
        (0, 8, ValueError, "'group'.*0 <= group < 8, got 8"),
        (1.0, 0, TypeError, "'row'.*an integer"),
        (0, True, TypeError, "'group'.*an integer"),
    ],
)
def test_what_is_no_place(engine, row, group, error, match):
    meta = engine.xp.zeros((32, 2), np.int16)
    with engine.runs(None), pytest.raises(error, match=f"^describe_meta: argument {match}"):
        sg.describe_meta(meta, row, group)


def test_a_batch_is_described_by_its_matrices(engine):
    with engine.runs(None), pytest.raises(ValueError, match=r"'meta'.*two dimensions"):
        sg.describe_meta(engine.xp.zeros((3, 32, 2), np.int16), 0, 0)


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_unsigned_metadata_is_reordered(engine, rng, dtype):
    meta = rng.integers(0, np.iinfo(dtype).max, (64, 4), endpoint=True).astype(dtype)
    signed = meta.view(np.dtype(dtype).name[1:])
    with engine.runs("semi_structured_reorder"):
        got = sg.reorder_meta(engine.array(meta))
        expected = sg.reorder_meta(engine.array(signed))
        back = sg.restore_meta(got)
    assert got.dtype == back.dtype == dtype
    np.testing.assert_array_equal(engine.host(got).view(signed.dtype), engine.host(expected))
    np.testing.assert_array_equal(engine.host(back), meta)
    offsets = sg.meta_reorder_offsets(64, 4, dtype)
    np.testing.assert_array_equal(offsets, sg.meta_reorder_offsets(64, 4, signed.dtype))
