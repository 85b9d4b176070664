"""Triangles, and where the largest and smallest elements are, held against SciPy and NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import sparsegpu as sg
from operator_cases import check, make


@pytest.mark.parametrize("name", ["tril", "triu"])
@pytest.mark.parametrize("k", [0, 1, -2, 5, -7, 19, -11, 100, -100])
@pytest.mark.parametrize("dtype", ["float64", "bool"])
def test_triangles(engine, rng, name, k, dtype):
    a, dense = make(engine, rng, dtype=dtype, duplicates=True, density=0.8)
    ours = getattr(sg, name)(a, k=k)
    assert ours.blocksize == (3, 4)
    check(engine, ours, getattr(sp, name)(sp.csr_array(dense), k=k).toarray())
    inside = getattr(np, name)(np.ones((12, 20)), k).reshape(4, 3, 5, 4).any(axis=(1, 3))
    rows, columns = engine.host(ours.pattern.rows), engine.host(ours.indices)
    assert inside[rows, columns].all()  # no block that is outside altogether
    check(engine, a, dense)


def test_what_is_cut_off_does_not_show(engine):
    a = sg.bsr_array(engine.array(np.full((4, 4), np.nan)), blocksize=(4, 4))
    assert int(np.isnan(engine.host(sg.tril(a, -1).toarray())).sum()) == 6


def test_bad_triangles():
    a = sg.eye(4, blocksize=(2, 2))
    with pytest.raises(TypeError, match=r"^tril: argument 'k': expected an integer"):
        sg.tril(a, 0.5)
    with pytest.raises(TypeError, match=r"^triu: argument 'A': expected a bsr_array"):
        sg.triu(np.eye(4))
    with pytest.raises(ValueError, match=r"^triu: argument 'A': expected one matrix"):
        sg.triu(sg.bsr_array(np.ones((2, 4, 4)), blocksize=(2, 2)))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "int8", "bool"])
@pytest.mark.parametrize("density", [0.0, 0.2, 0.6, 1.0])
def test_locations(engine, rng, name, dtype, density):
    a, dense = make(engine, rng, dtype=dtype, duplicates=density == 0.6, density=density)
    wide = dense.astype("float32")
    for sign in (1, -1):
        if sign < 0:
            if dtype == "bool":
                continue
            a, wide = abs(a) * -1, abs(wide) * -1
        for axis in (None, 0, 1, -1, -2):
            ours = engine.host(getattr(a, name)(axis))
            assert ours.dtype == np.int64
            np.testing.assert_array_equal(ours, getattr(wide, name)(axis))


def test_locations_of_nan(engine, rng):
    dense = rng.standard_normal((6, 8))
    dense[2, 5] = dense[2, 7] = dense[4, 1] = np.nan
    a = sg.bsr_array(engine.array(dense), blocksize=(2, 4))
    for axis in (None, 0, 1):
        np.testing.assert_array_equal(engine.host(a.argmax(axis)), dense.argmax(axis))
        kept = engine.host(a.argmin(axis, keepdims=True))
        np.testing.assert_array_equal(kept, dense.argmin(axis, keepdims=True))
        np.testing.assert_array_equal(engine.host(a.argmin(axis)), dense.argmin(axis))


def test_bad_locations(engine, rng):
    a, _ = make(engine, rng, dtype="complex64")
    with pytest.raises(TypeError, match=r"^argmax: argument 'self': expected a dtype with an o"):
        a.argmax()
    with pytest.raises(ValueError, match=r"^argmin: argument 'axis'"):
        abs(a).argmin(2)
    with pytest.raises(ValueError, match=r"^argmin: argument 'self': expected one matrix"):
        make(engine, rng, dtype="float64", batch=(2,))[0].argmin()
    for shape, axis in (((0, 4), None), ((0, 4), 0), ((4, 0), 1)):
        with pytest.raises(ValueError, match=r"^argmax: argument 'axis': expected something"):
            sg.bsr_array(shape, blocksize=(2, 2)).argmax(axis)
    assert sg.bsr_array((0, 4), blocksize=(2, 2)).argmax(1).shape == (0,)
