"""Locally optimal block preconditioned conjugate gradients, for a few eigenvalues."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from .._arrays import as_array, common_namespace, is_complex
from .._checks import bad_type, bad_value, check_flags, kind_of
from ._system import Operand, System, check_count, check_tolerance, to_host


def lobpcg(
    A: Any,
    X: Any,
    B: Any = None,
    M: Any = None,
    Y: Any = None,
    tol: float | None = None,
    maxiter: int | None = None,
    largest: bool = True,
    verbosityLevel: int = 0,
    retLambdaHistory: bool = False,
    retResidualNormsHistory: bool = False,
    restartControl: int = 20,
    *,
    check_every: int = 16,
    verbose: bool = False,
) -> tuple:
    """Return the largest or smallest eigenvalues of ``A x = lambda B x``, and their vectors.

    As `scipy.sparse.linalg.lobpcg`, for NumPy and CuPy.

    Parameters
    ----------
    A : bsr_array (n, n), LinearOperator, matrix of SciPy, cupyx or NumPy, or callable
        Hermitian; float32, float64, complex64 or complex128.
    X : array (n, k)
        Where to start: k columns that are linearly independent, for k eigenvalues.
    B : as A, optional
        Hermitian positive definite; the identity by default.
    M : as A, optional
        Preconditioner, close to the inverse of A, as from `amg`: for the smallest eigenvalues.
    Y : array (n, m), optional
        Vectors to which the answers are B-orthogonal, linearly independent.
    tol : float, optional
        Of the residual norms ``norm(A x - lambda B x)``, without what the constraints take up;
        n * sqrt(eps) by default.
    maxiter : int, optional
        20 by default.
    largest : bool
        The largest eigenvalues, descending; else the smallest, ascending.
    verbosityLevel : int
        More than 0: as ``verbose``.
    retLambdaHistory, retResidualNormsHistory : bool
        Return the eigenvalues, or the residual norms, of all iterations, too.
    restartControl : int
        Accepted for SciPy's sake: dependent directions are left out in every iteration.
    check_every : int
        Iterations between two looks of the host at the residuals; what is computed in between does
        not change the answer.
    verbose : bool
        Print a line at the end.

    Returns
    -------
    values : array (k,), real
    vectors : array (n, k)
        B-orthonormal, of the iterate with the smallest residuals.
    values_history, norms_history : array (iterations + 1, k)
        As asked for.

    Raises
    ------
    ValueError, TypeError, NotImplementedError
        As `cg`; more columns in X and Y than rows, columns of X or Y that are linearly dependent.

    Warns
    -----
    UserWarning
        Residual norms above ``tol`` after ``maxiter`` iterations.

    Notes
    -----
    Knyazev, "Toward the optimal preconditioned eigensolver: locally optimal block preconditioned
    conjugate gradient method", 2001: Rayleigh-Ritz on the iterates, the preconditioned residuals
    and the last directions. With 5 k >= n - m the dense problem is solved instead.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.bsr_array(np.diag(np.arange(1.0, 41)), blocksize=(4, 4))
    >>> X = np.random.default_rng(0).standard_normal((40, 2))
    >>> values, vectors = sparsegpu.linalg.lobpcg(A, X, tol=1e-6, maxiter=100)
    >>> np.allclose(values, [40, 39])
    True
    """
    function = "lobpcg"
    check_flags(
        function, largest=largest, retLambdaHistory=retLambdaHistory,
        retResidualNormsHistory=retResidualNormsHistory, verbose=verbose,
    )  # fmt: skip
    system = System(function, A, X, None, M, name="X")
    if len(system.shape) != 2:
        raise bad_value(function, "X", "shape (n, k)", system.shape)
    (n, k), xp = system.b.shape, system.xp
    maxiter = 20 if maxiter is None else check_count(function, "maxiter", maxiter, 0)
    check_every = check_count(function, "check_every", check_every, 1)
    level = check_count(function, "verbosityLevel", verbosityLevel, 0)
    check_count(function, "restartControl", restartControl, 0)
    eps = float(np.finfo(system.dtype).eps)
    tol = n * eps**0.5 if tol is None else check_tolerance(function, "tol", tol)
    mass = _mass(system, B)
    constraints = _constraints(system, Y)
    if k + constraints.shape[1] > n:
        raise bad_value(function, "X", f"at most {n - constraints.shape[1]} columns", k)
    with system.on_device(), np.errstate(all="ignore"):
        space = _Space(system, mass, constraints, bool(largest))
        if 5 * k >= n - constraints.shape[1] and n:
            values, vectors = space.dense()
            norms = space.norms(vectors, values)
            history = [[values], [norms]]
        else:
            values, vectors, norms, *history = space.iterate(maxiter, tol, check_every)
        worst = float(to_host(norms).max()) if k else 0.0
        if worst > tol or not np.isfinite(worst):
            warnings.warn(
                f"lobpcg: residual norms up to {worst:.2e} after {len(history[0]) - 1} iterations "
                f"are above the tolerance of {tol:.2e}",
                UserWarning,
                stacklevel=2,
            )
        if verbose or level:
            print(
                f"lobpcg: {len(history[0]) - 1} iterations, residual {worst:.2e} (tolerance "
                f"{tol:.2e}), {'converged' if worst <= tol else 'not converged'}"
            )
        found = [values, vectors]
        if retLambdaHistory:
            found.append(xp.stack(history[0]))
        if retResidualNormsHistory:
            found.append(xp.stack(history[1]))
    return tuple(found)


def _mass(system: System, B: Any) -> Callable[[Any, Any], Any] | None:
    """Return the product with B."""
    if B is None:
        return None
    operand = Operand(system.function, "B", B)
    common_namespace(system.function, X=system.b, B=operand.array)
    if operand.xp not in {None, system.xp}:
        expected = f"an operator on {system.xp.__name__} arrays, like X"
        raise bad_type(system.function, "B", expected, kind_of(B))
    rows = operand.check_square(system.function, "B")
    if rows not in {None, system.b.shape[0]}:
        expected = f"shape {(system.b.shape[0],) * 2} like A"
        raise bad_value(system.function, "B", expected, operand.shape)
    return operand.product(system, False)


def _constraints(system: System, Y: Any) -> Any:
    n, xp = system.b.shape[0], system.xp
    if Y is None:
        return xp.zeros((n, 0), system.dtype)
    Y = as_array(Y, system.function, "Y")
    common_namespace(system.function, X=system.b, Y=Y)
    if Y.ndim != 2 or Y.shape[0] != n:
        raise bad_value(system.function, "Y", f"shape ({n}, m)", tuple(Y.shape))
    if Y.dtype.kind not in "biufc" or (Y.dtype.kind == "c" and not is_complex(system.dtype)):
        raise bad_type(system.function, "Y", f"numbers that fit {system.dtype}", Y.dtype)
    return xp.ascontiguousarray(Y, dtype=system.dtype)


class _Space:
    """Products and Rayleigh-Ritz in the complement of the constraints."""

    def __init__(self, system: System, mass: Callable | None, Y: Any, largest: bool):
        xp = system.xp
        self.system, self.xp, self.mass, self.largest = system, xp, mass, largest
        self.eps = float(np.finfo(system.dtype).eps)
        self.Y = Y
        if Y.shape[1]:
            self.Y = self._orthonormal(Y, "Y")
        self.BY = self.B(self.Y)

    def A(self, v: Any) -> Any:
        return self._product(self.system.apply, v)

    def B(self, v: Any) -> Any:
        return v if self.mass is None else self._product(self.mass, v)

    def _product(self, apply: Callable, v: Any) -> Any:
        v = self.xp.ascontiguousarray(v)
        return apply(v, self.xp.empty_like(v)) if v.shape[1] else v

    def _orthonormal(self, v: Any, argument: str) -> Any:
        """Return B-orthonormal combinations of columns; refuse dependent ones."""
        norms = self.xp.sqrt((v.conj() * self.B(v)).sum(axis=0).real)
        v = v / self.xp.where(norms > 0, norms, 1)
        d, u = self.xp.linalg.eigh(v.conj().T @ self.B(v))
        if not bool((d > 100 * self.eps * v.shape[1]).all()):
            expected = "columns that are linearly independent"
            raise bad_value(self.system.function, argument, expected, "dependent ones")
        return v @ (u / self.xp.sqrt(d))

    def _project(self, v: Any) -> Any:
        """Take the constraints out of vectors."""
        return v - self.Y @ (self.BY.conj().T @ v) if self.Y.shape[1] else v

    def _ordered(self, values: Any, vectors: Any, k: int) -> tuple[Any, Any]:
        """Return the first k of ascending eigenvalues, the last if the largest are wanted."""
        if self.largest:
            return values[::-1][:k], vectors[:, ::-1][:, :k]
        return values[:k], vectors[:, :k]

    def norms(self, x: Any, values: Any) -> Any:
        return self.xp.linalg.norm(self._residual(self.A(x), self.B(x), values), axis=0)

    def _residual(self, ax: Any, bx: Any, values: Any) -> Any:
        """Return what is left of ``A x - lambda B x`` but for multiples of the constraints."""
        r = ax - bx * values
        return r - self.BY @ (self.Y.conj().T @ r) if self.Y.shape[1] else r

    def dense(self) -> tuple[Any, Any]:
        """Solve the whole problem in a basis of the complement."""
        n, k = self.system.b.shape
        xp = self.xp
        basis = xp.eye(n, dtype=self.system.dtype)
        if self.Y.shape[1]:
            basis = xp.linalg.qr(self.BY, mode="complete")[0][:, self.Y.shape[1] :]
        d, u = xp.linalg.eigh(_hermitian(basis.conj().T @ self.B(basis)))
        basis = basis @ (u / xp.sqrt(d))
        values, vectors = xp.linalg.eigh(_hermitian(basis.conj().T @ self.A(basis)))
        values, vectors = self._ordered(values, vectors, k)
        return values, basis @ vectors

    def iterate(self, maxiter: int, tol: float, check_every: int) -> tuple:
        """Return values, vectors and residual norms of the best iterate, and their histories."""
        xp, M = self.xp, self.system.precondition
        k = self.system.b.shape[1]
        x = self._orthonormal(self._project(self.system.b), "X")
        ax = self.A(x)
        values, c = xp.linalg.eigh(_hermitian(x.conj().T @ ax))
        values, c = self._ordered(values, c, k)
        x, ax = x @ c, ax @ c
        bx, p = self.B(x), None
        best = [values, x, xp.linalg.norm(self._residual(ax, bx, values), axis=0)]
        told: tuple[list, list] = ([values], [best[2]])
        for i in range(maxiter):
            # Within tolerance nothing better is looked for: later iterates are not taken.
            if i % check_every == 0 and not bool(best[2].max() > tol):
                break
            w = self._residual(ax, bx, values)
            if M is not None:
                w = self._product(M, w)
            w = self._project(w)
            w = w - x @ (bx.conj().T @ w)
            parts = [x, _unit(xp, w)] + ([] if p is None else [_unit(xp, p)])
            s = xp.concatenate(parts, axis=1)
            products = [ax, *map(self.A, parts[1:])]
            a_s, b_s = xp.concatenate(products, axis=1), self.B(s)
            values, c = self._ritz(s, a_s, b_s, k)
            p = s[:, k:] @ c[k:]
            x, ax = s @ c, a_s @ c
            bx = self.B(x)
            norms = xp.linalg.norm(self._residual(ax, bx, values), axis=0)
            better = (norms.max() < best[2].max()) & (best[2].max() > tol)
            best = [xp.where(better, new, old) for new, old in zip((values, x, norms), best)]
            told[0].append(values)
            told[1].append(norms)
        # Where they were within tolerance for the first time, whenever the host looked.
        highest = to_host(xp.stack(told[1]).max(axis=1))
        reached = np.flatnonzero(highest <= tol)
        made = int(reached[0]) + 1 if reached.size else len(highest)
        values, x, _ = best
        return values, x, self.norms(x, values), told[0][:made], told[1][:made]

    def _ritz(self, s: Any, a_s: Any, b_s: Any, k: int) -> tuple[Any, Any]:
        """Return Ritz values and coefficients (columns of s, k); dependent directions are left out.

        They are kept in the arrays, with eigenvalues beyond all others: no size depends on values.
        """
        xp = self.xp
        h = _hermitian(s.conj().T @ a_s)
        d, u = xp.linalg.eigh(_hermitian(s.conj().T @ b_s))
        good = d > 10 * self.eps * s.shape[1] * d[-1]
        t = u * xp.where(good, 1 / xp.sqrt(abs(d)), 0)
        inner = _hermitian(t.conj().T @ h @ t)
        beyond = 2 * xp.linalg.norm(inner) + 1
        inner = inner + xp.diag(xp.where(good, 0, -beyond if self.largest else beyond))
        values, z = xp.linalg.eigh(inner.astype(s.dtype))
        values, z = self._ordered(values, z, k)
        return values, t.astype(s.dtype) @ z


def _hermitian(a: Any) -> Any:
    return (a + a.conj().T) / 2


def _unit(xp: Any, v: Any) -> Any:
    """Return columns over their norms; those of zeros stay."""
    norms = xp.linalg.norm(v, axis=0)
    return v / xp.where(norms > 0, norms, 1)
