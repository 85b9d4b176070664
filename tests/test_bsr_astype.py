"""Changing the dtype of a bsr_array, and its real and imaginary parts."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from sparsegpu import bsr_array
from sparsegpu._arrays import CONTAINER_DTYPES, bfloat16
from test_bsr_convert import make


@pytest.mark.parametrize("dtype", CONTAINER_DTYPES, ids=str)
def test_astype(engine, rng, dtype):
    a, dense = make(engine, rng, dtype="float32", duplicates=True)
    summed = ["bsr_sum_blocks"] if dtype.kind in "ib" else []
    with engine.runs("bsr_scatter", *summed):
        b = a.astype(dtype)
        out = b.toarray()
    assert b.dtype == dtype
    np.testing.assert_array_equal(engine.host(out), dense.astype(dtype))
    assert (b.pattern is a.pattern) == (dtype.kind not in "ib")


def test_astype_with_scipys_arguments(rng):
    a = bsr_array(rng.standard_normal((4, 4)), blocksize=(2, 2))
    assert a.astype("float32", "same_kind").dtype == np.float32
    assert a.astype("float64", "safe", False) is a and a.astype("float64", "no") is not a
    for dtype in ("float32", "bfloat16"):
        with pytest.raises(TypeError, match=f"'dtype': .* from float64 .* 'safe', got {dtype}$"):
            a.astype(dtype, casting="safe")
    with pytest.raises(ValueError, match=r"^astype: argument 'casting': expected one of 'no'"):
        a.astype("float32", casting=True)


def test_astype_takes_no_array_for_a_dtype(engine):
    """NumPy asks whatever has a dtype for it, but for its own arrays."""
    a = bsr_array(engine.array(np.eye(2, dtype=bool)), blocksize=(2, 2))
    for array in (a.data, a, sp.eye_array(2)):
        with pytest.raises(TypeError, match=r"^astype: argument 'dtype': expected a dtype or"):
            a.astype(array)
    assert a.astype(SimpleNamespace(dtype=np.dtype("float32"))).dtype == np.float32  # as JAX's are


def test_astype_from_bool_does_not_count_duplicates(engine):
    parts = (np.ones((2, 1, 1), bool), np.zeros(2, np.int32), np.array([0, 2]))
    a = bsr_array(tuple(engine.array(p) for p in parts), shape=(1, 1))
    with engine.runs("bsr_scatter", "bsr_sum_blocks"):
        assert engine.host(a.astype("float32").toarray()) == 1
        assert engine.host((a * 3.0).toarray()) == 3 and int(a.sum()) == 1
    same = a.astype(bool, copy=False)
    assert same is a and a.astype(bool) is not a
    with pytest.raises(TypeError, match=r"astype: argument 'dtype': expected one of .* got int64"):
        a.astype(np.int64)


def test_complex_parts(engine, rng):
    a, dense = make(engine, rng, dtype="complex64")
    with engine.runs("bsr_scatter"):
        parts = [x.toarray() for x in (a.conj(), a.conjugate(), a.real, a.imag)]
    for part, expected in zip(parts, (dense.conj(), dense.conj(), dense.real, dense.imag)):
        np.testing.assert_array_equal(engine.host(part), expected)
    assert a.real.dtype == np.float32 and a.conj().pattern is a.pattern
    b, dense = make(engine, rng, dtype="bfloat16")
    assert b.conj(copy=False) is b and b.real.dtype == bfloat16
    with engine.runs(None):
        assert not engine.host(b.imag.data).any()


# -- the order of blocks --------------------------------------------------------------------------
