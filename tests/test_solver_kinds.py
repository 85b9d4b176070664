"""What one of the iterative solvers has and the others have not; preconditioners."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse.linalg

import sparsegpu
from solver_cases import allowed, banded_blocks, blocks, dense_system, on, residual_norms, solve
from sparsegpu import bsr_array, linalg

A = bsr_array(np.eye(4), blocksize=(2, 2))


def assert_near(dense, x, b, rtol):
    """Assert that an answer of minres is as near as its residual and the smallest value allow."""
    off = np.linalg.norm(x - np.linalg.solve(dense, b), axis=0)
    bound = allowed(dense, x, b, rtol, solver="minres") / abs(np.linalg.eigvalsh(dense)).min()
    assert (off <= bound).all()


def test_minres_shift_and_preconditioner(engine, rng):
    dense = dense_system(rng, "indefinite")
    b = rng.standard_normal((48, 2))
    a = blocks(engine, dense)
    shifted = dense - 0.5 * np.eye(48)
    x, info = solve(engine, "minres", a, engine.array(b), shift=0.5, rtol=1e-12)
    assert (info == 0).all()
    assert_near(shifted, x, b, 1e-12)
    values, vectors = np.linalg.eigh(dense)
    M = (vectors / abs(values)) @ vectors.T  # with it there are two eigenvalues
    history = []
    x, info = solve(
        engine, "minres", a, engine.array(b), M=blocks(engine, M), rtol=1e-10, residuals=history
    )
    assert (info == 0).all() and len(history) <= 5
    assert_near(dense, x, b, 0)  # so the third iterate is exact but for rounding


def test_minres_solves_a_singular_system_in_least_squares(engine, rng):
    dense = dense_system(rng, "indefinite", n=12)
    values, vectors = np.linalg.eigh(dense)
    values[0] = 0
    dense = (vectors * values) @ vectors.T
    b = rng.standard_normal(12)
    history, a = [], blocks(engine, dense)
    x, info = solve(engine, "minres", a, engine.array(b), rtol=1e-5, residuals=history)
    assert info == 0
    expected = np.linalg.norm(b - dense @ np.linalg.pinv(dense) @ b)
    # norm(A r) <= rtol sqrt(iterations) norm(A) norm(r) at the end (see `allowed`), so the part of
    # r that A sees is smaller than r by `part`, and orthogonal to the rest.
    sizes = np.sort(abs(values))
    part = 1e-5 * np.sqrt(len(history)) * sizes[-1] / sizes[1]
    assert abs(residual_norms(dense, x, b) - expected) <= part**2 * expected


def test_minres_refuses_what_it_can_see(engine, rng):
    a, b = blocks(engine, np.eye(8)), engine.array(np.ones(8))
    with pytest.raises(ValueError, match=r"^minres: argument 'M': expected a positive definite"):
        solve(engine, "minres", a, b, M=blocks(engine, -np.eye(8)))
    lopsided = blocks(engine, np.triu(np.ones((8, 8))))
    with pytest.raises(ValueError, match=r"^minres: argument 'A': expected a symmetric"):
        solve(engine, "minres", lopsided, b, check=True)
    with pytest.raises(ValueError, match=r"^minres: argument 'M': expected a symmetric"):
        solve(engine, "minres", a, b, M=lopsided, check=True)
    with pytest.raises(TypeError, match=r"^minres: argument 'A': expected a real dtype"):
        linalg.minres(A.astype("complex128"), np.ones(4))
    with pytest.raises(TypeError, match=r"^minres: argument 'b': expected a real dtype"):
        linalg.minres(A, np.ones(4) * 1j)


def test_cg_on_an_indefinite_matrix_ends(engine, rng):
    """It may converge or not; what it says of its answer is true."""
    dense = dense_system(rng, "indefinite")
    b = rng.standard_normal(48)
    x, info = solve(engine, "cg", blocks(engine, dense), engine.array(b), rtol=1e-8)
    assert np.isfinite(x).all()
    if info == 0:
        assert residual_norms(dense, x, b) <= allowed(dense, x, b, 1e-8, iterations=10**6)
    # A direction without curvature: no step can be made.
    saddle = bsr_array(np.array([[0.0, 1], [1, 0]]), blocksize=(2, 2))
    x, info = solve(engine, "cg", on(engine, saddle), engine.array(np.array([1.0, 0])))
    assert info == -1 and not x.any()


@pytest.mark.parametrize("kind", ["x", "pr_norm", "legacy"])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("preconditioned", [False, True])
def test_gmres_tells_what_scipys_tells(engine, rng, kind, dtype, preconditioned):
    dense = dense_system(rng, "general", dtype)
    b = rng.standard_normal(48).astype(dtype)
    inverse = np.diag(1 / np.diag(dense)) if preconditioned else None
    M = blocks(engine, inverse) if preconditioned else None
    keywords = dict(rtol=1e-9, restart=5, maxiter=1000, callback_type=kind)
    ours, theirs = [], []
    expected, code = scipy.sparse.linalg.gmres(
        dense, b, M=inverse, callback=lambda told: theirs.append(np.array(told)), **keywords
    )
    x, info = solve(
        engine, "gmres", blocks(engine, dense), engine.array(b), M=M, **keywords,
        callback=lambda told: ours.append(engine.host(told) if kind == "x" else told),
    )  # fmt: skip
    assert info == code == 0 and len(ours) == len(theirs)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    np.testing.assert_allclose(x, expected, atol=1e-8)


def test_gmres_limits_and_exact_solutions(engine, rng):
    dense = dense_system(rng, "definite", condition=1e4)
    b = rng.standard_normal(48)
    a, right = blocks(engine, dense), engine.array(b)
    for keywords in (
        {"maxiter": 2, "restart": 4},
        {"maxiter": 7, "restart": 4, "callback": print, "callback_type": "legacy"},
    ):
        expected, code = scipy.sparse.linalg.gmres(dense, b, rtol=1e-12, **keywords)
        history = []
        x, info = solve(engine, "gmres", a, right, rtol=1e-12, residuals=history, **keywords)
        assert info == code == keywords["maxiter"]
        np.testing.assert_allclose(x, expected, atol=1e-8)
        assert len(history) == (9 if "callback" not in keywords else 8)
    # Two eigenvalues: two iterations are exact, and nothing is left to try.
    two = blocks(engine, np.diag(np.repeat([1.0, 3.0], 24)))
    history = []
    x, info = solve(engine, "gmres", two, right, rtol=1e-14, residuals=history)
    assert info == 0 and len(history) <= 4
    for wrong, error in ((0, ValueError), (2.5, TypeError)):
        with pytest.raises(error, match=r"^gmres: argument 'restart'"):
            linalg.gmres(A, np.ones(4), restart=wrong)
    with pytest.raises(ValueError, match=r"^gmres: argument 'callback_type': expected one of"):
        linalg.gmres(A, np.ones(4), callback_type="residual")


def test_bicgstab_breaks_down_with_scipys_codes(engine):
    turn = np.array([[0.0, 1], [-1, 0]])  # r, A r = 0 for every r
    b = np.array([1.0, 0])
    _, expected = scipy.sparse.linalg.bicgstab(turn, b)
    x, info = solve(
        engine, "bicgstab", on(engine, bsr_array(turn, blocksize=(2, 2))), engine.array(b)
    )
    assert info == expected == -11 and np.isfinite(x).all()


@pytest.mark.parametrize("solver", ["cg", "bicgstab", "gmres"])
def test_preconditioners(engine, rng, solver):
    a, dense = banded_blocks(rng, blocks=30)
    scale = np.repeat(10.0 ** rng.integers(-2, 3, 30), 3)
    dense = dense * scale[:, None] * scale
    a = on(engine, bsr_array(dense, blocksize=(3, 3)))
    b = engine.array(rng.standard_normal((90, 2)))
    with sparsegpu.use_engine(engine.name):
        M = linalg.block_jacobi(a)
    counts = []
    for given in (None, M, lambda v: M @ v):
        history = []
        _, info = solve(engine, solver, a, b, M=given, rtol=1e-8, residuals=history, maxiter=3000)
        counts.append(len(history))
    assert counts[1] * 3 < counts[0] and counts[2] == counts[1] and (info == 0).all()
