"""Comparisons, copies and conversions of 2:4 arrays, held against dense NumPy."""

import copy
import operator

import numpy as np
import pytest

import sparsegpu as sg
from covering import covered
from semi_structured_cases import BF16, FP8, HALF, INT8, SINGLE, bits
from sparsegpu.testing import random_24

DTYPES = [HALF, BF16, SINGLE, INT8, FP8]
OPERATIONS = [getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")]
EXPAND, COMPRESS = "semi_structured_expand", "semi_structured_compress"


def wide(dense):
    return dense.astype(np.float64)


def host_of(engine, array):
    """Return a 2:4 array as a dense one on the host, in its own dtype."""
    return engine.host(array.todense()).view(array.dtype)


def positive_zeros(dense):
    """-0.0 is a zero that a 2:4 matrix need not keep."""
    return np.where(dense == 0, np.zeros((), dense.dtype), dense)


def check(engine, got, expected):
    assert isinstance(got, engine.xp.ndarray) and got.dtype == bool
    np.testing.assert_array_equal(engine.host(got), expected)


@covered(operation=OPERATIONS, dtype=DTYPES)
def test_comparisons(engine, rng, dtype, operation):
    dense, other = (random_24(rng, (9, 20), dtype, small_integers=True) for _ in range(2))
    if dtype != INT8:
        dense[2, :4] = np.array([np.nan, 0, -0.0, 0]).astype(dtype)
    A, B = (sg.to_semi_structured(engine.array(x), pad=True) for x in (dense, other))
    x, y = wide(dense), wide(other)
    row = np.arange(-10, 10, dtype=np.float32)
    with engine.runs(EXPAND):
        check(engine, operation(A, B), operation(x, y))
        check(engine, operation(A.T, B.T), operation(x, y).T)
        check(engine, operation(A, engine.array(row)), operation(x, row))
        check(engine, operation(engine.array(row), A), operation(row, x))
        for number in (0, 1, -2.5, True, np.float32(1), np.int64(-1), BF16.type(2), 1000):
            check(engine, operation(A, number), operation(x, float(number)))
            check(engine, operation(number, A), operation(float(number), x))
    with engine.runs(None):
        got = operation(sg.to_semi_structured(engine.array(dense[:0]), pad=True), 0)
        check(engine, got, np.zeros((0, 20), bool))


def test_what_does_not_compare(engine, rng):
    xp, dense = engine.xp, random_24(rng, (32, 64), HALF)
    a, b = sg.to_semi_structured(engine.array(dense)), sg.bsr_array((32, 64), blocksize=(32, 32))
    fp8 = sg.to_semi_structured(engine.array(np.zeros((16, 64), FP8)))
    with engine.runs(None):
        assert (a == None) is False and (a != object()) is True  # noqa: E711
        assert {a: 1}[a] == 1
        with pytest.raises(TypeError):
            a < None  # noqa: B015
        with pytest.raises(ValueError, match=r"SemiStructuredArray is ambiguous; \(A == B\)\.all"):
            bool(a)
        with pytest.raises(
            ValueError, match=r"SemiStructuredArray ==: argument 'other'.*\(3, 64\)"
        ):
            a == xp.ones((3, 64))  # noqa: B015
        with pytest.raises(ValueError, match=r"'other': expected shape \(32, 64\), got \(64, 32\)"):
            a != a.T  # noqa: B015
        with pytest.raises(TypeError, match=r"'other': expected real numbers"):
            a < 1j  # noqa: B015
        with pytest.raises(
            TypeError, match=r"'other': expected a number, a dense array.*bsr_array"
        ):
            a == b  # noqa: B015
        if engine.on_gpu:
            with pytest.raises(TypeError, match=r"'other': expected numbers .*uint8"):
                fp8 == xp.zeros((16, 64), np.uint8)  # noqa: B015
            with pytest.raises(TypeError, match=r"'other': expected a cupy array"):
                a == dense  # noqa: B015


def test_blocks_compare_as_a_bsr_array(engine, rng):
    dense = random_24(rng, (64, 64), HALF, small_integers=True)
    dense[:32, :32] = 0
    bsr = sg.bsr_array(engine.array(dense), blocksize=(32, 32))
    a = bsr.semi_structured()
    with engine.runs(EXPAND):
        for got, expected in ((a != bsr, 0), (bsr != a, 0), (a != a.copy(), 0), (a > 0, dense > 0)):
            assert isinstance(got, sg.bsr_array) and got.dtype == bool
            np.testing.assert_array_equal(engine.host(got.toarray()), expected)
        with pytest.raises(NotImplementedError, match="holds for zeros"):
            a == 0  # noqa: B015
        cast = a.astype(BF16)
        assert cast.dtype == BF16 and cast.pattern is a.pattern and a.astype(HALF, copy=False) is a
        np.testing.assert_array_equal(wide(engine.host(cast.toarray())), wide(dense))
        with pytest.raises(ValueError, match=r"\(A != B\)\.sum\(\) == 0"):
            bool(a)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_copy(engine, rng, dtype):
    A = sg.to_semi_structured(engine.array(random_24(rng, (33, 64), dtype)), pad=True)
    with engine.runs(None):
        B, C = A.copy(), A.T.copy()
    assert type(B) is sg.SemiStructuredArray
    for other, half in ((B, B.packed), (C, C.packed_t), (copy.deepcopy(A), None)):
        assert other.dtype == A.dtype and set(other.shape) == {33, 64}
        if half is not None:
            half[...] = 0
    assert C.packed is None and (engine.host(B.todense()).view(np.uint8) == 0).all()
    assert engine.host(A.packed).view(np.uint8).any()


@covered(wanted=DTYPES, dtype=DTYPES)
def test_astype(engine, rng, dtype, wanted):
    like = SINGLE if SINGLE in {dtype, wanted} else dtype  # one of two is two of four
    dense = random_24(rng, (33, 70), like, small_integers=like != INT8)
    dense = dense.astype(dtype)
    A = sg.to_semi_structured(engine.array(dense), pad=True)
    if engine.on_gpu and dtype == SINGLE and wanted == FP8:
        with pytest.raises(NotImplementedError, match=r"astype\('float16'\)"):
            A.astype(wanted)
        A = A.astype(HALF)
    expected = dense.astype(wanted)
    with engine.runs(COMPRESS if wanted != dtype else None):
        got, turned = A.astype(wanted), A.T.astype(wanted)
    assert got.dtype == turned.dtype == wanted and got.shape == (33, 70) and turned.packed is None
    assert got is not A and (A.astype(wanted, copy=False) is A) == (wanted == A.dtype)
    for array, matrix in ((got, expected), (turned, expected.T)):
        np.testing.assert_array_equal(
            bits(positive_zeros(host_of(engine, array))), bits(positive_zeros(matrix))
        )


@pytest.mark.parametrize("wanted", [BF16, INT8, FP8], ids=str)
def test_astype_of_both_halves(engine, rng, wanted):
    dense = engine.array((20 * rng.standard_normal((70, 100))).astype(HALF))
    A = sg.SemiStructuredArray.prune_dense_static_sort(dense, pad=True)
    B = A.astype(wanted)
    kept = engine.host(A.todense()).astype(wanted)
    for other, matrix in ((B, kept), (B.T, kept.T)):
        one = sg.to_semi_structured(engine.array(np.ascontiguousarray(matrix)), pad=True)
        for name in ("packed", "meta"):
            np.testing.assert_array_equal(
                bits(engine.host(getattr(other, name))), bits(engine.host(getattr(one, name)))
            )
    rows, columns, _ = B.bitmask.shape
    padded = np.zeros((8 * rows, 8 * columns), wanted)
    padded[:70, :100] = kept
    expected = sg.compressed_swizzled_bitmask(padded)
    np.testing.assert_array_equal(engine.host(B.bitmask), expected)


def test_astype_refuses(engine, rng):
    dense = np.tile(np.array([3, 5, 0, 0], HALF), (32, 8))
    A = sg.to_semi_structured(engine.array(dense))
    with pytest.raises(ValueError, match=r"astype: argument 'self': expected at most 1 nonzero"):
        A.astype("float32")
    for dtype in ("float64", "uint8", "complex64", "nonsense"):
        with engine.runs(None), pytest.raises(TypeError, match=r"astype: argument 'dtype'"):
            A.astype(dtype)
    # A half that was built on the way, and that the new format cannot have, is none.
    only_rows = np.zeros((32, 32), HALF)
    only_rows[:2, 0] = 1
    A = sg.to_semi_structured(engine.array(only_rows))
    A @ engine.xp.ones(32, HALF), engine.xp.ones(32, HALF) @ A
    assert A.packed_t is not None
    B = A.astype("float32")
    assert B.packed_t is None
    np.testing.assert_array_equal(engine.host(B.todense()), only_rows.astype(np.float32))
