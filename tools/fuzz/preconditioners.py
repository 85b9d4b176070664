"""Cases of block Jacobi, of AMG where PyAMG is, and of eigenvalues, held against dense NumPy."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

import numpy as np

import sparsegpu
from sparsegpu.testing import to_host

from .case import Case, Close, Holds, require
from .draws import Bsr, Draws
from .solvers import DTYPES, definite

_LARGEST = 64


def block_jacobi(draws: Draws) -> Case:
    """Diagonal blocks that can be inverted, some stored in two parts; matrices without are refused.

    A vector or columns are multiplied by the operator.
    """
    dtype, b = draws.choice(DTYPES), draws.choice((1, 2, 3, 4, 7, 16))
    count = draws.count(4)
    kinds = ["singular", "missing"] if count else []
    refused = draws.choice((*kinds, "batch", "wide", "large")) if draws.chance(20) else ""
    if refused in {"batch", "wide", "large"}:
        A = _without_answer(draws, refused, dtype)
    else:
        A = _dominant(draws, dtype, b, count, refused)
    n, columns = A.shape[1], draws.choice((None, 1, 3))
    x = draws.values((n,) if columns is None else (n, columns), dtype, finite=True)

    def call(A: Any, x: Any) -> Any:
        return sparsegpu.linalg.block_jacobi(A) @ x

    return Case(
        "linalg.block_jacobi",
        call,
        {"A": A, "x": x},
        _inverted,
        documented=sparsegpu.linalg.block_jacobi,
        fixed=frozenset({"x"}),
        refused=refused,
    )


def _dominant(draws: Draws, dtype: np.dtype, b: int, count: int, refused: str) -> Bsr:
    """Return blocks anywhere, and well-conditioned ones on the diagonal, but for one."""
    others = draws.bsr(dtype, blocksize=(b, b), counts=(count, count), exact=True)
    rng, spoiled = draws.rng(), draws.integer(0, max(count - 1, 0)) if refused else -1
    data, indices, indptr = [], [], [0]
    stored = [(i, j, block) for i, j, block in others.blocks(()) if i != j]
    for i in range(count):
        row = [(j, block) for at, j, block in stored if at == i]
        q = rng.standard_normal((b, b))
        if dtype.kind == "c":
            q = q + 1j * rng.standard_normal((b, b))
        q = np.linalg.qr(q)[0]
        whole = (q * rng.uniform(1, 5, b)).astype(dtype)
        if i == spoiled:
            whole[...] = 0
            whole[1:, :] = 1
        if i != spoiled or refused != "missing":
            row.append((i, whole))
            if draws.chance(30):  # the same place twice means the sum
                row[-1:] = [(i, whole - 1), (i, np.ones_like(whole))]
        for at in rng.permutation(len(row)):
            indices.append(row[at][0])
            data.append(row[at][1])
        indptr.append(len(indices))
    blocks = np.array(data, dtype).reshape(-1, b, b)
    n = count * b
    return Bsr(blocks, np.array(indices, np.int32), np.array(indptr, np.int32), (n, n))


def _without_answer(draws: Draws, kind: str, dtype: np.dtype) -> Bsr:
    """Return what has no such diagonal blocks."""
    if kind == "batch":
        return draws.bsr(dtype, blocksize=(2, 2), counts=(2, 2), batch=(2,), exact=True)
    if kind == "wide":
        size, counts = draws.choice((((2, 2), (2, 3)), ((2, 3), (3, 2)), ((1, 2), (2, 2))))
        return draws.bsr(dtype, blocksize=size, counts=counts, exact=True)
    b = _LARGEST + 1
    eye = np.eye(b, dtype=dtype)[None]
    return Bsr(eye, np.zeros(1, np.int32), np.array([0, 1], np.int32), (b, b))


def _inverted(A: Any, x: np.ndarray) -> Close:
    require(isinstance(A, Bsr) and A.dtype in DTYPES and not A.batch, "a matrix")
    (m, n), (b, bk) = A.shape, A.blocksize
    require(m == n == len(x) and b == bk <= _LARGEST, "square blocks")
    wide = np.complex128 if A.dtype.kind == "c" else np.float64
    dense, columns = A.dense().astype(wide), (x if x.ndim > 1 else x[:, None]).astype(wide)
    exact, bound = np.zeros_like(columns), np.zeros(columns.shape)
    for first in range(0, n, b):
        rows = slice(first, first + b)
        block = dense[rows, rows]
        require(np.linalg.matrix_rank(block) == b, "a block that can be inverted")
        inverse = np.linalg.inv(block)
        exact[rows] = inverse @ columns[rows]
        # An inverse is as far off as the condition says, in norm; parts may be larger than sums.
        condition = np.linalg.norm(block) * np.linalg.norm(inverse) + b
        bound[rows] = condition * np.linalg.norm(inverse) * np.linalg.norm(columns[rows], axis=0)
    eps = float(np.finfo(A.dtype).eps)
    return Close(exact.reshape(x.shape), 16 * eps * bound.reshape(x.shape), A.dtype)


def _laplacian(draws: Draws, dtype: np.dtype) -> Bsr:
    """Return second differences on a line, of which every unknown stands for a small vector."""
    count, b = draws.integer(1, 12), draws.choice((1, 2, 3))
    rng = draws.rng()
    coupling = rng.standard_normal((b, b))
    coupling = coupling @ coupling.T / b + np.eye(b)
    data, indices, indptr = [], [], [0]
    for i in range(count):
        for j in range(max(i - 1, 0), min(i + 2, count)):
            data.append(2 * coupling if i == j else -coupling)
            indices.append(j)
        indptr.append(len(indices))
    parts = np.array(data, dtype), np.array(indices, np.int32), np.array(indptr, np.int32)
    return Bsr(*parts, (count * b, count * b))


def amg(draws: Draws) -> Case:
    """A cycle takes half of the error away, measured by its energy."""
    A = _laplacian(draws, np.dtype(draws.choice(("float32", "float64"))))
    x = draws.rng().standard_normal(A.shape[0]).astype(A.dtype)
    arguments = {
        "A": A,
        "x": x,
        "smoother": draws.choice(("chebyshev", "block_jacobi")),
        "degree": draws.integer(1, 3),
        "max_coarse": draws.choice((500, 4, 8)),
    }

    def call(A: Any, x: Any, **how: Any) -> Any:
        return sparsegpu.linalg.amg(A, **how) @ (A @ x)

    def expected(A: Bsr, x: Any, smoother: Any, degree: Any, max_coarse: Any) -> Holds:
        require(smoother in ("chebyshev", "block_jacobi"), "a smoother")
        require(isinstance(max_coarse, (int, np.integer)) and max_coarse >= 1, "a count")
        require(not isinstance(max_coarse, bool), "a count")
        dense = A.dense().astype(np.float64)

        def rule(got: Any) -> None:
            got = to_host(got)
            assert got.shape == x.shape and got.dtype == x.dtype
            error = x.astype(np.float64) - got
            before, after = (v @ dense @ v for v in (x.astype(np.float64), error))
            assert after <= 0.5 * before, f"energy {after} after a cycle, {before} before it"

        return Holds(rule)

    return Case(
        "linalg.amg",
        call,
        arguments,
        expected,
        documented=sparsegpu.linalg.amg,
        fixed=frozenset({"A", "x", "degree"}),  # as many products as one asks for: 2**70, too
    )


def lobpcg(draws: Draws) -> Case:
    """Eigenvalues of a Hermitian matrix, from random columns."""
    A = definite(draws, draws.choice(DTYPES))
    n, k = A.shape[0], draws.integer(1, 2)
    X = draws.rng().standard_normal((n, min(k, n))).astype(A.dtype)
    arguments = {
        "A": A,
        "X": X,
        "tol": draws.choice((None, 1e-2, 1e-4)),
        "maxiter": draws.choice((None, 0, 3, 60)),
        "largest": draws.chance(50),
    }

    def call(**keywords: Any) -> tuple:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of residuals above the tolerance
            return sparsegpu.linalg.lobpcg(**keywords)

    def expected(A: Bsr, X: Any, tol: Any, maxiter: Any, largest: Any) -> tuple[Holds, Holds]:
        require(isinstance(largest, bool), "a flag")
        require(tol is None or float(tol) >= 0, "a tolerance")
        dense = A.dense().astype(np.complex128 if A.dtype.kind == "c" else np.float64)
        eigenvalues = np.linalg.eigvalsh(dense)
        near = 100 * len(dense) * float(np.finfo(A.dtype).eps)
        found = []  # the values, for the vectors

        def of_values(got: Any) -> None:
            values = to_host(got)
            assert values.shape == X.shape[1:] and values.dtype == A.dtype.type(0).real.dtype
            best = eigenvalues[::-1] if largest else eigenvalues
            ordered = -values if largest else values
            assert (np.diff(ordered) >= -near * eigenvalues[-1]).all(), "values out of order"
            # Of Rayleigh quotients none is beyond the eigenvalue of its place.
            beyond = (values - best[: len(values)]) * (1 if largest else -1)
            assert (beyond <= near * eigenvalues[-1]).all(), f"{values} beyond {best}"
            if 5 * X.shape[1] >= len(dense):  # solved densely
                assert (-beyond <= near * eigenvalues[-1]).all(), f"{values}, expected {best}"
            found.append(values.astype(np.float64))

        def of_vectors(got: Any) -> None:
            assert got.shape == X.shape and got.dtype == A.dtype
            vectors = to_host(got).astype(dense.dtype)
            gram = vectors.conj().T @ vectors
            assert np.abs(gram - np.eye(len(gram))).max() <= near, "vectors not orthonormal"
            quotients = (vectors.conj() * (dense @ vectors)).sum(axis=0).real
            assert np.abs(quotients - found[-1]).max() <= near * eigenvalues[-1], "other quotients"

        return Holds(of_values), Holds(of_vectors)

    return Case(
        "linalg.lobpcg",
        call,
        arguments,
        expected,
        documented=sparsegpu.linalg.lobpcg,
        fixed=frozenset({"A", "X", "maxiter"}),  # as many iterations as one asks for
    )


CASES = (block_jacobi, lobpcg, *([amg] if importlib.util.find_spec("pyamg") else []))
