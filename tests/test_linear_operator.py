"""`aslinearoperator`, and the solvers that take it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse.linalg

import sparsegpu
from operator_cases import make
from sparsegpu import bsr_array, testing


def solvers(engine):
    if engine.on_gpu:
        import cupyx.scipy.sparse.linalg

        return cupyx.scipy.sparse.linalg
    return scipy.sparse.linalg


def assert_solved(dense, x, b):
    """Assert what the solvers promise by default: a residual of 1e-5, their rounding aside."""
    assert np.linalg.norm(dense @ x - b) <= 1.001e-5 * np.linalg.norm(b)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128", "bfloat16"])
def test_linear_operator(engine, rng, dtype):
    a, dense = make(engine, rng, dtype=dtype)
    op = a.aslinearoperator()
    assert isinstance(op, solvers(engine).LinearOperator)
    assert op.shape == (12, 20) and op.dtype == ("float32" if dtype == "bfloat16" else dtype)
    exact = dense.astype(complex)

    def value(*shape):
        return testing.random_values(rng, shape, "complex64", small_integers=True)

    with engine.runs("bsr_addmm"):
        for x in (value(20), value(20).real):
            np.testing.assert_array_equal(engine.host(op.matvec(engine.array(x))), exact @ x)
        for y in (value(12), value(12).real):
            np.testing.assert_array_equal(
                engine.host(op.rmatvec(engine.array(y))), exact.conj().T @ y
            )
        x = value(20, 3)
        np.testing.assert_array_equal(engine.host(op.matmat(engine.array(x))), exact @ x)


def test_solvers_take_the_array_itself(engine):
    second_difference = 2 * np.eye(24) - np.eye(24, k=1) - np.eye(24, k=-1)
    a = bsr_array(engine.array(second_difference), blocksize=(4, 4))
    b = np.arange(1.0, 25)
    assert (engine.host(a.rmatvec(engine.array(b))) == second_difference.T @ b).all()
    with sparsegpu.use_engine(engine.name):
        x, info = solvers(engine).cg(a, engine.array(b), maxiter=200)
    assert info == 0
    assert_solved(second_difference, engine.host(x), b)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_a_linear_operator_of_scipy_around_a_product(rng, dtype):
    """SciPy finds the operator's dtype by zeros in int8; no other int8 is promoted."""
    a = sparsegpu.random_bsr((12, 8), (3, 2), 0.6, rng=rng, dtype=dtype)
    operator = scipy.sparse.linalg.LinearOperator(
        a.shape, matvec=lambda x: a @ x, rmatvec=lambda y: y @ a.conj()
    )
    assert operator.dtype == dtype
    np.testing.assert_array_equal(operator @ np.ones(8), a @ np.ones(8))
    for other in (np.ones(8, np.int8), np.zeros((8, 2), np.int8)):
        with pytest.raises(TypeError, match="16-bit floats and int8 are not promoted"):
            a @ other


@pytest.mark.parametrize("solver", ["cg", "gmres", "lobpcg"])
def test_solvers(engine, rng, solver):
    n = 48
    dense = (
        np.diag(np.linspace(1, 4, n))
        + np.diag(np.full(n - 1, 0.3), 1)
        + np.diag(np.full(n - 1, 0.3), -1)
    )
    a = bsr_array(engine.array(dense), blocksize=(4, 4))
    b = rng.standard_normal(n)
    with sparsegpu.use_engine(engine.name), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the solvers' own
        if solver == "lobpcg":
            start = engine.array(rng.standard_normal((n, 2)))
            found = solvers(engine).lobpcg(
                a.aslinearoperator(), start, largest=True, maxiter=200, tol=1e-6
            )
            values, vectors = map(engine.host, found)
            # An eigenvalue of a symmetric matrix is as near as the residual is small.
            residual = np.linalg.norm(dense @ vectors - vectors * values, axis=0)
            assert (residual <= 2e-6 * np.linalg.norm(vectors, axis=0)).all()
            order, expected = np.argsort(values), np.linalg.eigvalsh(dense)[-2:]
            testing.assert_close(values[order], expected, residual[order] + 48 * 2.0**-52 * 4)
            return
        x, info = getattr(solvers(engine), solver)(
            a.aslinearoperator(), engine.array(b), maxiter=400
        )
    assert info == 0
    assert_solved(dense, engine.host(x), b)


def test_linear_operator_errors():
    with pytest.raises(TypeError, match="aslinearoperator: argument 'A': expected a bsr_array"):
        sparsegpu.linalg.aslinearoperator(np.eye(3))
    a = bsr_array(np.eye(4, dtype=np.int8), blocksize=(2, 2))
    with pytest.raises(
        TypeError, match="aslinearoperator: argument 'A': expected a floating dtype"
    ):
        a.aslinearoperator()
