"""Arithmetic of 2:4 arrays, held against dense NumPy: numbers, signs, functions, same elements."""

from __future__ import annotations

import operator

import ml_dtypes
import numpy as np
import pytest
import scipy.sparse.linalg

import sparsegpu as sg
from covering import covered
from sparsegpu._arrays import dtype_of, float8_e4m3fn
from sparsegpu.bsr.ufuncs import Ufuncs
from sparsegpu.testing import random_24

DTYPES = ["float16", "bfloat16", "float32", "int8"]
KINDS = ["matrix", "transposed", "both halves", "blocks"]


def array_of(engine, dense, kind):
    """Return a 2:4 array of a dense matrix, and the matrix."""
    if kind == "blocks":
        return sg.bsr_array(engine.array(dense), blocksize=(32, 64)).semi_structured(), dense
    if kind == "both halves":
        pruned = sg.prune_tile(dense) if dense.dtype != np.float32 else dense * 0
        if dense.dtype == np.float32:
            return sg.to_semi_structured(engine.array(pruned)), pruned
        return sg.SemiStructuredArray.prune_dense_static_sort(engine.array(pruned)), pruned
    a = sg.to_semi_structured(engine.array(dense))
    return (a.T, dense.T) if kind == "transposed" else (a, dense)


def operand(rng, dtype):
    return random_24(rng, (64, 128), dtype_of(dtype), small_integers=True)


def same(engine, array, expected, kind=None):
    assert array.dtype == expected.dtype
    got = engine.host(array.toarray())
    np.testing.assert_array_equal(got, expected)
    if kind == "both halves" and array.bitmask is not None:
        np.testing.assert_array_equal(engine.host(array.T.todense()), expected.T)
        bits = sg.compressed_swizzled_bitmask(engine.array(np.ascontiguousarray(expected)))
        np.testing.assert_array_equal(engine.host(array.bitmask), engine.host(bits))


@covered(dtype=DTYPES, kind=KINDS)
def test_numbers_and_signs(engine, rng, dtype, kind):
    a, dense = array_of(engine, operand(rng, dtype), kind)
    for factor in (2, -1, 0, np.int8(3), True):
        with np.errstate(all="ignore"):
            expected = dense * np.array(int(factor)).astype(dense.dtype)
        same(engine, a * factor, expected, kind)
        same(engine, factor * a, expected, kind)
    if dtype != "int8":
        same(engine, a / 2, (dense.astype("float32") / 2).astype(dense.dtype), kind)
        same(engine, a * 0.5, (dense.astype("float32") / 2).astype(dense.dtype), kind)
    same(engine, -a, -dense, kind)
    same(engine, +a, dense, kind)
    same(engine, abs(a), np.abs(dense), kind)


@covered(dtype=DTYPES, kind=KINDS)
def test_arrays_that_keep_the_same(engine, rng, dtype, kind):
    one = operand(rng, dtype)
    if kind == "both halves" and dtype != "float32":
        one = sg.prune_tile(one)
    other = np.where(one != 0, rng.choice([-3, -2, -1, 1, 2, 3], one.shape), 0).astype(one.dtype)
    (a, dense), (b, another) = (array_of(engine, x, kind) for x in (one, other))
    for operate in (operator.add, operator.sub, operator.mul):
        same(engine, operate(a, b), operate(dense, another))
        same(engine, operate(a, 2 * a), operate(dense, 2 * dense))


@covered(dtype=["float16", "bfloat16", "float32"], kind=KINDS)
def test_functions_that_keep_zeros(engine, rng, dtype, kind):
    a, dense = array_of(engine, operand(rng, dtype), kind)
    for ufunc in (np.sign, np.square, np.absolute, np.negative, np.rint):
        same(engine, ufunc(a), ufunc(dense))
    with pytest.raises(NotImplementedError, match=r"^numpy\.exp: .*zero at zero"):
        np.exp(a)
    with pytest.raises(TypeError, match=r"^numpy\.isnan: argument 'x': .* got bool"):
        np.isnan(a)


@covered(dtype=["float16", "bfloat16", "float32"], kind=KINDS)
def test_methods_that_keep_zeros(engine, rng, dtype, kind):
    """Those that a `bsr_array` has, with NumPy's results."""
    a, dense = array_of(engine, operand(rng, dtype), kind)
    exact, two = dense.astype("float32"), dense.dtype.type(2)
    ulps = 8 * float(ml_dtypes.finfo(dense.dtype).eps)
    for name in (name for name in vars(Ufuncs) if name[0] != "_"):
        with np.errstate(all="ignore"):
            expected, found = getattr(np, name)(dense), getattr(a, name)()
        assert found.dtype == a.dtype and type(found) is type(a)
        pair = (x.astype("float32") for x in (engine.host(found.toarray()), expected))
        np.testing.assert_allclose(*pair, rtol=ulps, atol=ulps, err_msg=name)
    for n in (1, 2, 3):
        same(engine, a.power(n), (exact**n).astype(dense.dtype), kind)
        same(engine, a**n, (exact**n).astype(dense.dtype), kind)
    for decimals in (0, 1):
        wanted, b = np.round(exact / 4, decimals).astype(dense.dtype), a / 4
        for found in (b.round(decimals), round(b, decimals), np.round(b, decimals)):
            same(engine, found, wanted, kind)
    same(engine, a.multiply(2), dense * two, kind)
    same(engine, a.multiply(2 * a), dense * two * dense, kind)


def test_methods_of_integers(engine, rng):
    for kind in ("matrix", "transposed", "blocks"):
        a, dense = array_of(engine, operand(rng, "int8"), kind)
        for found, wanted in (
            (a.power(2), dense * dense),
            (a.sign(), np.sign(dense)),
            (a.round(), dense),
            (a.floor(), dense),
            (a.multiply(a), dense * dense),
        ):
            same(engine, found, wanted)
        with pytest.raises(TypeError, match=r"^numpy\.sqrt: argument 'x': .*returns int8"):
            a.sqrt()
        with pytest.raises(TypeError, match=r"^power: argument 'n': .*leaves int8 .* float"):
            a.power(0.5)


@pytest.mark.parametrize("kind", ["matrix", "transposed"])
def test_float8(engine, rng, kind):
    dense = random_24(rng, (64, 128), float8_e4m3fn)
    a, expected = array_of(engine, dense, kind)
    for result, wanted in ((-a, -expected), (abs(a), np.abs(expected))):
        bits = engine.host(result.todense()).view("u1")
        numbers = bits.view(float8_e4m3fn).astype("float32")
        np.testing.assert_array_equal(numbers, wanted.astype("float32"))
    for call in (
        *(lambda: a * 2, lambda: a + a, lambda: np.sign(a), lambda: a.sqrt(), lambda: a.power(2)),
        *(lambda: a**2, lambda: a.round(), lambda: a.multiply(2), lambda: a.multiply(a)),
    ):
        with pytest.raises(NotImplementedError, match="float8_e4m3fn"):
            call()


@pytest.mark.parametrize("dtype", DTYPES)
def test_sizes(engine, rng, dtype):
    dense = random_24(rng, (33, 101), dtype_of(dtype))
    a = sg.to_semi_structured(engine.array(dense), pad=True)
    kept = 33 * 51  # half of 100 columns, and the one that is left
    assert a.nnz == a.size == a.T.nnz == kept and a.density == kept / (33 * 101)
    full = sg.to_semi_structured(engine.array(random_24(rng, (64, 128), dtype_of(dtype))))
    assert full.density == 0.5 and full.nnz == full.packed.size
    same(engine, 2 * a, (dense * np.array(2).astype(dense.dtype)))


@covered(dtype=["float16", "bfloat16", "float32"], kind=KINDS)
def test_linear_operators(engine, rng, dtype, kind):
    a, dense = array_of(engine, operand(rng, dtype), kind)
    op = a.aslinearoperator()
    wide = dense.astype("float32")
    x, y = (rng.integers(-3, 4, n).astype("float32") for n in dense.shape[::-1])
    assert op.shape == dense.shape and op.dtype == np.float32
    np.testing.assert_array_equal(engine.host(op @ engine.array(x)), wide @ x)
    if kind != "blocks":
        np.testing.assert_array_equal(engine.host(op.rmatvec(engine.array(y))), wide.T @ y)
    elif not engine.on_gpu:
        with pytest.raises(NotImplementedError):
            op.rmatvec(y)


def test_solvers_take_them(rng):
    dense = np.kron(np.eye(32), [[2, 0], [0, 2]]).astype("float32")
    a = sg.to_semi_structured(dense)
    solution, info = sg.linalg.cg(a.aslinearoperator(), np.ones(64, "f4"))
    assert info == 0
    np.testing.assert_array_equal(solution, 0.5)
    with pytest.raises(TypeError, match=r"^aslinearoperator: argument 'A': .*floating.* int8"):
        sg.to_semi_structured(np.zeros((16, 64), "int8")).aslinearoperator()
    assert scipy.sparse.linalg.aslinearoperator(a.aslinearoperator()).shape == (64, 64)


W = sg.to_semi_structured(np.tile(np.array([0, 1, 0, 2], "float16"), (64, 16)))
V = sg.to_semi_structured(np.tile(np.array([1, 0, 0, 2], "float16"), (64, 16)))
NONE = sg.to_semi_structured(np.zeros((32, 64), "float16"))
B = sg.bsr_array(W.todense(), blocksize=(32, 32)).semi_structured()


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: W + V, ValueError, r"SemiStructuredArray \+: argument 'other': .*same elements"),
        (lambda: W * V, ValueError, r"SemiStructuredArray \*: argument 'other': .*same elements"),
        (lambda: W + B, TypeError, r"SemiStructuredArray \+: argument 'other': expected a number"),
        (lambda: B - W, TypeError, r"BsrSemiStructuredArray -: argument 'other'"),
        (lambda: W * W.todense(), TypeError, r"SemiStructuredArray \*: argument 'other'"),
        (lambda: W.todense() * W, TypeError, r"SemiStructuredArray \*: argument 'other'"),
        (lambda: W * np.float32(2), TypeError, r"SemiStructuredArray \*: .*makes it float32"),
        (lambda: W * 2j, TypeError, r"SemiStructuredArray \*: .* makes it complex"),
        (lambda: W / W, NotImplementedError, r"SemiStructuredArray /: division by an array"),
        (lambda: W.multiply(V), ValueError, r"^multiply: argument 'other': .*same elements"),
        (lambda: W.multiply(W.todense()), TypeError, r"^multiply: argument 'other': expected a nu"),
        (lambda: W.power(0), NotImplementedError, r"^power: the power 0 .*todense\(\) \*\* 0$"),
        (lambda: B**-1, NotImplementedError, r"^BsrSemiStructuredArray \*\*: the power -1"),
        (lambda: B ** [1, 2], NotImplementedError, r"\*\*: an array of exponents"),
        (lambda: W.power(1j), TypeError, r"^power: argument 'n': expected a real number"),
        (lambda: W.power("a"), TypeError, r"^power: argument 'n': expected a Python or NumPy"),
        (lambda: W.round(0.5), TypeError, r"^round: argument 'decimals': expected an integer"),
        (lambda: B.round(2000), ValueError, r"^round: argument 'decimals': .* 1000 decimals"),
        (lambda: W + W.astype("float32"), TypeError, r"'other': expected dtype float16"),
        (lambda: W + NONE, ValueError, r"'other': expected shape \(64, 64\), got \(32, 64\)"),
    ],
)  # fmt: skip
def test_errors(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_repeated_blocks(engine):
    block = np.tile(np.array([0, 1, 0, -2], "float16"), (32, 8))
    parts = np.stack([block, -block]), np.zeros(2, int), np.array([0, 2])
    a = engine.bsr(parts, shape=(32, 32)).semi_structured()
    same(engine, 2 * a, np.zeros((32, 32), "float16"))
    for call in (
        *(lambda: abs(a), lambda: a * a, lambda: np.square(a), lambda: a.sqrt()),
        *(lambda: a.power(2), lambda: a.round(), lambda: a.multiply(a)),
    ):
        with pytest.raises(ValueError, match=r"argument 'self': expected no block twice"):
            call()
