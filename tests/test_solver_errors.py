"""What the iterative solvers of linear systems refuse."""

from __future__ import annotations

import numpy as np
import pytest

import sparsegpu
from solver_cases import KINDS, on
from sparsegpu import bsr_array, linalg

A = sparsegpu.bsr_array(np.eye(4), blocksize=(2, 2))
BAD = {
    "A not square": (dict(A=bsr_array(np.ones((4, 6)), blocksize=(2, 2))), ValueError, "A"),
    "A a batch": (dict(A=bsr_array(np.ones((2, 4, 4)), blocksize=(2, 2))), ValueError, "A"),
    "A int8": (dict(A=A.astype("int8")), TypeError, "A"),
    "A float16": (dict(A=A.astype("float16")), TypeError, "A"),
    "A a string": (dict(A="matrix"), TypeError, "A"),
    "A gives complex": (dict(A=lambda v: v + 1j), TypeError, "A"),
    "A gives another shape": (dict(A=lambda v: v[:-1]), ValueError, "A"),
    "A gives a list": (dict(A=lambda v: v.tolist()), TypeError, "A"),
    "b too long": (dict(b=np.ones(5)), ValueError, "b"),
    "b 3-D": (dict(b=np.ones((4, 1, 1))), ValueError, "b"),
    "b float16": (dict(b=np.ones(4, "float16")), TypeError, "b"),
    "b no number": (dict(b=np.array(list("abcd"))), TypeError, "b"),
    "b objects": (dict(b=np.array([None] * 4)), TypeError, "b"),
    "x0 of another shape": (dict(x0=np.ones((4, 1))), ValueError, "x0"),
    "x0 complex": (dict(x0=np.ones(4) * 1j), TypeError, "x0"),
    "x0 no number": (dict(x0=np.array(list("abcd"))), TypeError, "x0"),
    "M of another shape": (dict(M=sparsegpu.identity(6, blocksize=(2, 2))), ValueError, "M"),
    "M complex": (dict(M=A.astype("complex128")), TypeError, "M"),
    "M a number": (dict(M=2.0), TypeError, "M"),
    "maxiter negative": (dict(maxiter=-1), ValueError, "maxiter"),
    "maxiter a float": (dict(maxiter=3.0), TypeError, "maxiter"),
    "check_every 0": (dict(check_every=0), ValueError, "check_every"),
    "rtol negative": (dict(rtol=-1e-5), ValueError, "rtol"),
    "rtol NaN": (dict(rtol=float("nan")), ValueError, "rtol"),
    "callback no callable": (dict(callback=3), TypeError, "callback"),
    "residuals no list": (dict(residuals=np.zeros(3)), TypeError, "residuals"),
    "verbose a word": (dict(verbose="no"), TypeError, "verbose"),
}


@pytest.mark.parametrize("solver", KINDS)
@pytest.mark.parametrize("name", BAD)
def test_bad_input(solver, name):
    keywords, error, argument = BAD[name]
    b, x0 = np.ones(4), np.zeros(4)
    with pytest.raises(error, match=rf"^{solver}: argument '{argument}': expected "):
        getattr(linalg, solver)(**({"A": A, "b": b, "x0": x0} | keywords))
    assert (x0 == 0).all() and (b == 1).all()


@pytest.mark.parametrize("solver", KINDS)
def test_host_and_device_arrays_do_not_mix(cuda_engine, solver):
    method, device = getattr(linalg, solver), cuda_engine.array(np.ones(4))
    for a, b, keywords, name in (
        (A, device, {}, "b"), (on(cuda_engine, A), np.ones(4), {}, "b"),
        (on(cuda_engine, A), [1.0] * 4, {}, "b"), (A, np.ones(4), {"x0": device}, "x0"),
        (on(cuda_engine, A), device, {"M": A}, "M"),
        (A.aslinearoperator(), device, {}, "A"),
        (on(cuda_engine, A), device, {"M": A.aslinearoperator()}, "M"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=rf"^{solver}: argument '\w+'") as caught:
            method(a, b, **keywords)
        assert name in str(caught.value)
