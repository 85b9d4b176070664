"""Linear systems for the solvers' tests, with answers of dense solves in float64."""

from __future__ import annotations

import numpy as np

import sparsegpu
from sparsegpu import bsr_array, linalg
from sparsegpu.engines._solver_steps import ACTIVE, Columns, Step, gmres

#: A kind of matrix that each takes.
KINDS = {"cg": "definite", "minres": "indefinite", "bicgstab": "general", "gmres": "general"}


def dense_system(rng, kind, dtype="float64", n=48, condition=100.0):
    """Return a dense matrix with known eigenvalues: positive definite, indefinite or neither."""
    dtype = np.dtype(dtype)
    vectors = rng.standard_normal((n, n))
    if dtype.kind == "c":
        vectors = vectors + 1j * rng.standard_normal((n, n))
    q = np.linalg.qr(vectors)[0]
    values = np.geomspace(1, condition, n)
    if kind == "indefinite":
        values[::3] *= -1
    if kind == "general":
        left = np.linalg.qr(rng.standard_normal((n, n)))[0]
        # Close to normal, so that methods for general matrices converge on it.
        return (q * (1 + values / condition) @ q.conj().T + 0.2 * left).astype(dtype)
    a = (q * values) @ q.conj().T
    return ((a + a.conj().T) / 2).astype(dtype)


def banded_blocks(rng, dtype="float64", blocks=20, size=3, dominant=1.0):
    """Return a block tridiagonal Hermitian positive definite bsr_array and its dense matrix."""
    n, dtype = blocks * size, np.dtype(dtype)
    a = rng.standard_normal((n, n))
    if dtype.kind == "c":
        a = a + 1j * rng.standard_normal((n, n))
    block = np.arange(n) // size
    a = np.where(abs(block[:, None] - block) <= 1, a + a.conj().T, 0)
    a += np.diag(abs(a).sum(axis=1) * dominant)
    a = a.astype(dtype)
    return bsr_array(a, blocksize=(size, size)), a


def on(engine, array):
    """Return a host bsr_array or array on the engine's device."""
    if not isinstance(array, bsr_array):
        return engine.array(array)
    parts = (array.data, array.indices, array.indptr)
    return bsr_array(tuple(map(engine.array, parts)), shape=array.shape)


def residual_norms(a, x, b):
    """Return the norms of ``b - a x`` of each column, in wide arithmetic."""
    wide = np.result_type(a.dtype, b.dtype, np.float64)
    return np.linalg.norm(b.astype(wide) - a.astype(wide) @ x.astype(wide), axis=0)


def allowed(a, x, b, rtol, atol=0.0, iterations=100, *, solver="cg"):
    """Return what the residual of an answer may be: the tolerance, and the rounding of the run.

    A recursive residual drifts from ``b - a x`` by some u * norm(a) * norm(x) an iteration.

    minres stops at ``rtol * T * norm(x)``: T squared sums ``norm(a v)`` squared over the unit
    vectors v of all iterations, so T is at most ``sqrt(iterations) * norm(a)``. It is no more than
    Frobenius' norm of a while these vectors are orthogonal, which rounding ends.
    """
    u = np.finfo(x.dtype).eps
    size = np.linalg.norm(a, 2) * np.linalg.norm(x, axis=0)
    norm = np.linalg.norm(b, axis=0)
    goal = np.maximum(rtol * norm, atol)
    if solver == "minres":
        goal = rtol * np.sqrt(iterations) * size
    return goal + iterations * u * size + 4 * u * norm


def solve(engine, solver, a, b, **keywords):
    """Return a solver's answer on the host, as it computes with an engine."""
    with sparsegpu.use_engine(engine.name):
        x, info = getattr(linalg, solver)(a, b, **keywords)
    assert type(x) is type(b) and x.shape == b.shape
    assert isinstance(info, int if b.ndim == 1 else np.ndarray)
    return engine.host(x), info


def blocks(engine, dense, size=4):
    return on(engine, bsr_array(dense, blocksize=(size, size)))


def extended_basis(arnoldi, rng, dtype, n, r):
    """Return all arrays after an engine's passes over a basis of ten vectors, and before.

    Sums of small integers are exact, in whatever order. A column in three is not active.
    """
    dtype = np.dtype(dtype)
    basis, w = (rng.integers(-2, 3, (rows, n, r)).astype(dtype) for rows in (11, 1))
    w = w[0] * dtype.type(1 - 2j if dtype.kind == "c" else 1)
    basis[:10] *= rng.random((10, n, 1)) < 20 / n  # or products grow until they are not exact
    numbers = np.zeros((gmres.rows(10), r), np.result_type(dtype, "float64"))
    numbers[gmres.SIZE] = 10
    columns = Columns(np.zeros((3, r), bool), np.zeros((3, r), np.int64), np.zeros((10, r)))
    columns.flags[ACTIVE] = np.arange(r) % 3 != 1
    arrays = {"numbers": numbers, "basis": basis, "w": w, "x": w.copy(), "newest": w.copy()}
    arrays |= columns._asdict()
    before = {name: array.copy() for name, array in arrays.items()}
    active, step = columns.flags[ACTIVE], Step("gmres.start", columns)
    arnoldi.extend_basis(numbers, basis, 10, w, arrays["newest"], active, step)()
    numbers[gmres.MADE] = np.arange(r) % 2 + 9
    arnoldi.add_combination(numbers, basis, 10, arrays["x"], active)()
    w[:, ~active] = 0  # it may be anything there
    return arrays, before
