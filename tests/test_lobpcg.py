"""A few eigenvalues by LOBPCG, against dense solves and SciPy's."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse.linalg

import sparsegpu
from solver_cases import dense_system, on
from sparsegpu import bsr_array, linalg
from sparsegpu.benchmark.elasticity import cantilever
from sparsegpu.engines import engine_module


def found(engine, a, x, **keywords):
    with sparsegpu.use_engine(engine.name):
        return [engine.host(part) for part in linalg.lobpcg(a, engine.array(x), **keywords)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("largest", [True, False])
def test_eigenvalues(engine, rng, dtype, largest):
    dense = dense_system(rng, "indefinite", dtype, condition=20)
    a = on(engine, bsr_array(dense, blocksize=(4, 4)))
    start = rng.standard_normal((48, 3)).astype(dtype)
    tol = 1e-3 if dtype == "float32" else 1e-7
    values, vectors = found(engine, a, start, largest=largest, tol=tol, maxiter=300)
    expected = np.linalg.eigvalsh(dense.astype("complex128"))
    expected = expected[::-1][:3] if largest else expected[:3]
    assert values.dtype == np.zeros(1, dtype).real.dtype and vectors.dtype == dtype
    residual = np.linalg.norm(dense @ vectors - vectors * values, axis=0)
    slack = 100 * np.finfo(dtype).eps * 20
    assert (residual <= tol + slack).all()
    # An eigenvalue is as near as the residual is small.
    assert (abs(values - expected) <= residual + slack).all()
    assert abs(vectors.conj().T @ vectors - np.eye(3)).max() <= slack


def test_one_vector_of_a_small_operator(engine):
    """It is made dense by a product with as many columns as it has rows."""
    a = on(engine, bsr_array(np.diag([1.0, 2, 3, 4]), blocksize=(2, 2)))
    for operator in (a, a.aslinearoperator(), lambda v: a @ v):
        values, _ = found(engine, operator, np.ones((4, 1)))
        np.testing.assert_allclose(values, [4])


def test_mass_constraints_and_preconditioner(engine, rng):
    a, _ = cantilever(16, 4)
    dense, n = a.toarray(), a.shape[0]
    mass = np.diag(rng.uniform(1, 2, n))
    expected, modes = scipy.linalg.eigh(dense, mass)
    device, B = on(engine, a), on(engine, bsr_array(mass, blocksize=(2, 2)))
    start = rng.standard_normal((n, 4))
    with sparsegpu.use_engine(engine.name):
        M = linalg.block_jacobi(device)
    values, vectors, lambdas, norms = found(
        engine, device, start, B=B, M=M, Y=engine.array(modes[:, :2]), largest=False, tol=1e-7,
        maxiter=500, retLambdaHistory=True, retResidualNormsHistory=True,
    )  # fmt: skip
    np.testing.assert_allclose(values, expected[2:6], rtol=1e-6)
    assert abs(vectors.T @ mass @ vectors - np.eye(4)).max() < 1e-9
    assert abs(vectors.T @ mass @ modes[:, :2]).max() < 1e-9
    assert lambdas.shape == norms.shape and norms[-1].max() <= 1e-7 < norms[:-1].max(axis=1).min()
    exact = on(engine, bsr_array(np.linalg.inv(dense), blocksize=(2, 2)))
    values, _, fewer = found(
        engine, device, start, B=B, M=exact, largest=False, tol=1e-7, maxiter=100,
        retResidualNormsHistory=True,
    )  # fmt: skip
    np.testing.assert_allclose(values, expected[:4], rtol=1e-6)
    assert len(fewer) * 5 < len(norms)


def test_any_check_every_and_scipys_answer(engine, rng):
    dense = dense_system(rng, "definite", condition=50)
    a = on(engine, bsr_array(dense, blocksize=(4, 4)))
    start = rng.standard_normal((48, 2))
    answers = [
        found(engine, a, start, tol=1e-6, maxiter=200, check_every=every, retLambdaHistory=True)
        for every in (1, 7, 16, 1000)
    ]
    for one in answers[1:]:
        assert all((x == y).all() for x, y in zip(one, answers[0]))
    values, vectors = scipy.sparse.linalg.lobpcg(dense, start, tol=1e-6, maxiter=200)
    np.testing.assert_allclose(answers[0][0], values, rtol=1e-8)
    assert (abs(abs((vectors * answers[0][1]).sum(axis=0)) - 1) < 1e-8).all()


def test_the_iterate_with_the_smallest_residuals_is_the_answer(engine, rng):
    a, start = cantilever(16, 4)[0], rng.standard_normal((160, 3))
    device, dense, worse = on(engine, a), a.toarray(), 0
    for maxiter in range(1, 9):
        with pytest.warns(UserWarning, match="above the tolerance"):
            values, vectors, norms = found(
                engine, device, start, tol=1e-12, maxiter=maxiter, retResidualNormsHistory=True
            )
        residual = np.linalg.norm(dense @ vectors - vectors * values, axis=0).max()
        best = norms.max(axis=1).min()
        assert len(norms) == maxiter + 1 and abs(residual - best) <= 1e-9 * best
        worse += norms[-1].max() > best
    assert worse  # residuals do not always become smaller


def test_small_problems_are_solved_densely(engine, rng):
    dense = dense_system(rng, "indefinite", n=12)
    a = on(engine, bsr_array(dense, blocksize=(4, 4)))
    y = rng.standard_normal((12, 1))
    values, vectors = found(engine, a, rng.standard_normal((12, 4)), Y=engine.array(y))
    q = np.linalg.qr(y, mode="complete")[0][:, 1:]
    np.testing.assert_allclose(values, np.linalg.eigvalsh(q.T @ dense @ q)[::-1][:4], rtol=1e-9)
    assert abs(vectors.T @ y).max() < 1e-9


@pytest.mark.parametrize("n", [0, 12])
def test_no_vectors_are_asked_for(engine, n):
    a = on(engine, bsr_array(np.eye(n), blocksize=(2, 2)))
    histories = {"retLambdaHistory": True, "retResidualNormsHistory": True}
    parts = found(engine, a, np.zeros((n, 0)), **histories)
    assert [part.shape for part in parts] == [(0,), (n, 0), (1, 0), (1, 0)]


def test_not_within_tolerance_warns(engine, rng, capsys):
    a = on(engine, cantilever(8, 4)[0])
    x = rng.standard_normal((80, 2))
    with pytest.warns(UserWarning, match="^lobpcg: residual norms up to"):
        found(engine, a, x, largest=False, tol=1e-12, maxiter=2, verbose=True)
    assert "lobpcg: 2 iterations" in capsys.readouterr().out
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found(engine, a, x, largest=True, tol=10.0, maxiter=50)


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize(("n", "p", "q"), [(1, 1, 1), (40_000, 6, 12), (700, 24, 48), (99, 80, 90)])
def test_products_of_tall_matrices(engine, rng, dtype, n, p, q):
    """Sums of small integers are exact, over as many pieces of rows as there are."""
    turn = np.array(1 - 2j if dtype == "complex128" else 1, dtype)
    tall, right = ((rng.integers(-3, 4, (n, c)) * turn).astype(dtype) for c in (q, q))
    few = rng.integers(-3, 4, (q, p)).astype(dtype)
    left = engine.array(tall)[:, :p]
    with sparsegpu.use_engine(engine.name):
        module = engine_module(engine.xp, "vector", "lobpcg")
        products = module.gram(left, engine.array(right))
        out = engine.array(np.full((n, p), np.nan, dtype))
        module.combine(engine.array(tall), engine.array(few), out)
    exact = np.einsum("np,nq->pq", tall[:, :p].conj(), right)
    np.testing.assert_array_equal(engine.host(products), exact)
    np.testing.assert_array_equal(engine.host(out), np.einsum("nq,qp->np", tall, few))


I4 = sparsegpu.identity(20, blocksize=(2, 2))


@pytest.mark.parametrize(
    ("keywords", "error", "argument"),
    [
        (dict(A=bsr_array(np.ones((4, 6)), blocksize=(2, 2))), ValueError, "A"),
        (dict(A=I4.astype("int8")), TypeError, "A"),
        (dict(X=np.ones(20)), ValueError, "X"),
        (dict(X=np.ones((20, 2))), ValueError, "X"),
        (dict(X=np.ones((6, 2))), ValueError, "X"),
        (dict(X=np.eye(20, 2).astype("float16")), TypeError, "X"),
        (dict(B=sparsegpu.identity(6, blocksize=(2, 2))), ValueError, "B"),
        (dict(B="mass"), TypeError, "B"),
        (dict(B=-I4), ValueError, "B"),
        (dict(B=-I4, X=np.eye(20, 5)), ValueError, "B"),  # densely
        (dict(B=I4 * np.nan, X=np.eye(20, 3)), ValueError, "B"),
        (dict(B=I4 * np.nan, X=np.eye(20, 5)), ValueError, "B"),
        (dict(A=I4 * np.nan), ValueError, "A"),
        (dict(A=I4 * np.nan, X=np.eye(20, 5)), ValueError, "A"),
        (dict(X=np.full((20, 3), np.nan)), ValueError, "X"),
        (dict(Y=np.ones((20, 2))), ValueError, "Y"),
        (dict(Y=np.ones(20)), ValueError, "Y"),
        (dict(Y=np.eye(20, 1) * 1j), TypeError, "Y"),
        (dict(tol=-1.0), ValueError, "tol"),
        (dict(maxiter=-1), ValueError, "maxiter"),
        (dict(check_every=0), ValueError, "check_every"),
        (dict(largest="yes"), TypeError, "largest"),
    ],
)
def test_bad_input(keywords, error, argument):
    with pytest.raises(error, match=rf"^lobpcg: argument '{argument}': expected "):
        linalg.lobpcg(**({"A": I4, "X": np.eye(20, 2)} | keywords))


@pytest.mark.parametrize("shape", [(20,), (6, 2), (20, 2, 1)])
def test_the_shape_that_is_expected(shape):
    with pytest.raises(ValueError, match=r"'X': expected shape \(20, k\), got \("):
        linalg.lobpcg(I4, np.ones(shape))
    if len(shape) != 2:
        with pytest.raises(ValueError, match=r"'X': expected shape \(n, k\), got \("):
            linalg.lobpcg(lambda v: v, np.ones(shape[::-1]))
