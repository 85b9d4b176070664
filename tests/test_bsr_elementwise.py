"""Elementwise functions, positions and the diagonal of a `bsr_array`, held against SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from operator_cases import check, make
from sparsegpu import bsr_array
from sparsegpu._arrays import bfloat16


def pair(engine, rng, dtype="float64", **keywords):
    """Return an array with duplicates and the same of SciPy, without them."""
    a, dense = make(engine, rng, dtype=dtype, duplicates=True, **keywords)
    return a, sp.csr_array(dense)


@pytest.mark.parametrize("name", ["maximum", "minimum"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int8", "bool"])
def test_extremes_of_two(engine, rng, name, dtype):
    a, theirs = pair(engine, rng, dtype)
    b, others = pair(engine, rng, "float64", blocksize=(2, 2), density=0.3)

    def call(x, y):
        return getattr(x, name)(y)

    check(engine, call(a, b), call(theirs, others).toarray())
    check(engine, call(a, a.copy()), call(theirs, theirs).toarray())
    dense = rng.integers(-3, 4, (12, 20)).astype("float64")
    check(engine, call(a, engine.array(dense)), getattr(np, name)(theirs.toarray(), dense))
    if not engine.on_gpu:
        check(engine, call(a, others), call(theirs, others).toarray())
    if dtype == "bool":
        with pytest.raises(TypeError, match=rf"^{name}: argument 'self': expected numbers"):
            call(a, 0)
    else:
        check(engine, call(a, 0), getattr(np, name)(theirs.toarray(), 0))


def test_extremes_of_two_with_scalars_and_nan(engine, rng):
    a, theirs = pair(engine, rng)
    check(engine, a.maximum(-1), theirs.maximum(-1).toarray())
    check(engine, a.minimum(2.0), theirs.minimum(2.0).toarray())
    a.data[0, 0, 0] = np.nan
    np.testing.assert_array_equal(
        engine.host(a.maximum(0).toarray()), np.maximum(engine.host(a.toarray()), 0)
    )
    half = a.astype("bfloat16").minimum(1)
    assert half.dtype == bfloat16
    for bad in (lambda: a.maximum(1), lambda: a.minimum(-0.5), lambda: a.minimum(np.nan)):
        with pytest.raises(NotImplementedError, match=r"^m..imum: the scalar .* fill every"):
            bad()
    with pytest.raises(TypeError, match=r"^maximum: argument 'self': expected real numbers"):
        a.astype("complex64").maximum(0)
    with pytest.raises(TypeError, match=r"^minimum: argument 'other': expected real numbers"):
        a.minimum(1j)
    with pytest.raises(ValueError, match=r"^maximum: argument 'other': expected shape \(12, 20\)"):
        a.maximum(a.T)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int8", "complex64"])
def test_power(engine, rng, dtype):
    a, theirs = pair(engine, rng, dtype)
    for n in (1, 2, 3):
        check(engine, a.power(n), theirs.power(n).toarray())
        check(engine, a**n, (theirs**n).toarray())
    check(engine, a.power(2, dtype="complex128"), theirs.power(2, dtype="complex128").toarray())
    half = abs(a.astype("float32")).power(0.5) if dtype != "complex64" else None
    if half is not None:
        check(engine, half, abs(theirs.astype("float32")).power(0.5).toarray())
    for n in (0, -1, float("nan")):
        with pytest.raises(NotImplementedError, match=r"^power: the power .* not offered"):
            a.power(n)
    for n in (engine.array(np.ones(20)), [2] * 20, a):
        with pytest.raises(NotImplementedError, match=r"^bsr_array \*\*: an array of exponents"):
            a**n
    with pytest.raises(TypeError, match=r"^power: argument 'n'"):
        a.power("2")


@pytest.mark.parametrize("n", [128, 2**70])
def test_power_that_the_integers_do_not_hold(engine, rng, n):
    a, _ = pair(engine, rng, "int8")
    match = r"^bsr_array \*\*: argument 'n': expected an integer that int8 holds .*got"
    with pytest.raises(ValueError, match=match):
        a**n


@pytest.mark.parametrize("decimals", [0, 1, -1])
def test_round(engine, rng, decimals):
    a, dense = make(engine, rng, dtype="float64")
    a = a * 0.37 * 8
    check(engine, a.round(decimals), np.round(dense * 0.37 * 8, decimals))
    if not engine.on_gpu:
        check(engine, np.round(a, decimals), np.round(dense * 0.37 * 8, decimals))
    check(engine, round(a, decimals), np.round(dense * 0.37 * 8, decimals))
    assert a.astype("bfloat16").round().dtype == bfloat16
    assert (a > 0).round().dtype == bool


@pytest.mark.parametrize("dtype", ["float64", "bool", "bfloat16", "complex64"])
def test_positions(engine, rng, dtype):
    a, dense = make(engine, rng, dtype=dtype, duplicates=True)
    for ours, expected in zip(a.nonzero(), dense.nonzero(), strict=True):
        ours = engine.host(ours)
        assert ours.dtype == np.int64
        np.testing.assert_array_equal(ours, expected)
    theirs = sp.csr_array(dense.astype("float32") if dtype == "bfloat16" else dense)
    for axis in (None, 0, 1, -1):
        np.testing.assert_array_equal(
            engine.host(a.count_nonzero(axis)), theirs.count_nonzero(axis)
        )
    with pytest.raises(ValueError, match=r"^nonzero: argument 'self': expected one matrix"):
        make(engine, rng, dtype=dtype, batch=(2,))[0].nonzero()
    with pytest.raises(ValueError, match=r"^count_nonzero: argument 'axis'"):
        a.count_nonzero(2)


def test_positions_of_a_batch_and_of_nothing(engine, rng):
    a, dense = make(engine, rng, dtype="float64", batch=(2,), duplicates=False)
    np.testing.assert_array_equal(engine.host(a.count_nonzero(axis=-1)), (dense != 0).sum(axis=-1))
    none = bsr_array((4, 6), blocksize=(2, 3))
    assert [x.size for x in none.nonzero()] == [0, 0] and none.count_nonzero() == 0


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "bool"])
def test_trace(engine, rng, dtype):
    a, dense = make(engine, rng, dtype=dtype, batch=(2,))
    for offset in (0, 3, -5, 30):
        ours = engine.host(a.trace(offset))
        wide = dense.astype("int64" if dense.dtype.kind in "ib" else "float64")
        np.testing.assert_array_equal(ours, np.trace(wide, offset, axis1=-2, axis2=-1))
        assert ours.dtype == (np.int64 if dense.dtype.kind in "ib" else dense.dtype)
    with pytest.raises(TypeError, match=r"^trace: argument 'offset': expected an integer"):
        a.trace(1.5)


@pytest.mark.parametrize("k", [0, 2, -3, 19, -11])
def test_setdiag(engine, rng, k):
    for values in (7, np.arange(1.0, 30), np.arange(1.0, 3)):
        a, theirs = pair(engine, rng, density=0.2)
        theirs = theirs.tolil()
        kept, before = a.pattern, engine.host(a.pattern.indices).copy()
        a.setdiag(values if np.isscalar(values) else engine.array(values), k)
        theirs.setdiag(values, k)
        check(engine, a, theirs.toarray())
        np.testing.assert_array_equal(engine.host(kept.indices), before)  # it may be shared


def test_setdiag_of_stored_blocks_keeps_the_pattern(engine):
    a = bsr_array(engine.array(np.eye(4)), blocksize=(2, 2))
    pattern, data = a.pattern, a.data
    a.setdiag(5)
    assert a.pattern is pattern and a.data is data
    check(engine, a, 5 * np.eye(4))


def test_bad_diagonals(engine, rng):
    a, _ = pair(engine, rng)
    before = engine.host(a.toarray())
    for values, k, error, match in (
        (1, 20, ValueError, r"'k': expected a diagonal in -11\.\.19, got 20"),
        (1, 0.5, TypeError, "'k': expected an integer"),
        (1j, 0, TypeError, "'values': expected real numbers for float64"),
        (engine.array(np.ones((2, 2))), 0, ValueError, r"'values': expected a scalar or \(n,\)"),
        ("a", 0, TypeError, "'values'"),
    ):
        with pytest.raises(error, match=f"^setdiag: argument {match}"):
            a.setdiag(values, k)
    with pytest.raises(ValueError, match=r"^setdiag: argument 'self': expected one matrix"):
        make(engine, rng, dtype="float64", batch=(2,))[0].setdiag(1)
    np.testing.assert_array_equal(engine.host(a.toarray()), before)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 1)])
def test_keepdims(engine, rng, name, axis):
    a, dense = make(engine, rng, dtype="float64")
    ours = engine.host(getattr(a, name)(axis=axis, keepdims=True))
    expected = getattr(dense, name)(axis=axis, keepdims=True)
    assert ours.shape == expected.shape
    np.testing.assert_allclose(ours, expected, rtol=1e-14)
    if not engine.on_gpu:
        out = np.empty(expected.shape)
        assert getattr(np, name)(a, axis=axis, out=out, keepdims=True) is out
    with pytest.raises(TypeError, match=f"^{name}: argument 'keepdims': expected True or False"):
        getattr(a, name)(axis=axis, keepdims="no")


def test_keepdims_of_a_batch(engine, rng):
    a, dense = make(engine, rng, dtype="float64", batch=(2,))
    for axis in (None, -1, -2, (1, 2)):
        ours, expected = (x.sum(axis=axis, keepdims=True) for x in (a, dense))
        np.testing.assert_array_equal(engine.host(ours), expected)


def test_conjugate_transpose_and_sorted_copy(engine, rng):
    a, dense = make(engine, rng, dtype="complex64", duplicates=True)
    check(engine, a.H, dense.conj().T)
    before = engine.host(a.indices).copy()
    b = a.sorted_indices()
    assert b.has_sorted_indices
    check(engine, b, dense)
    np.testing.assert_array_equal(engine.host(a.indices), before)
    b.data[...] = 0
    check(engine, a, dense)
