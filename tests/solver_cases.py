"""Linear systems for the solvers' tests, with answers of dense solves in float64."""

from __future__ import annotations

import numpy as np

from sparsegpu import bsr_array


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


def allowed(a, x, b, rtol, atol=0.0, iterations=100):
    """Return what the residual of an answer may be: the tolerance, and the rounding of the run.

    A recursive residual drifts from ``b - a x`` by some u * norm(a) * norm(x) an iteration.
    """
    u = np.finfo(x.dtype).eps
    drift = iterations * u * (np.linalg.norm(a, 2) * np.linalg.norm(x, axis=0))
    norm = np.linalg.norm(b, axis=0)
    return np.maximum(rtol * norm, atol) + drift + 4 * u * norm
