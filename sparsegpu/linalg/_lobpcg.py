"""Locally optimal block preconditioned conjugate gradients, for a few eigenvalues."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from .._arrays import as_array, common_namespace, is_complex, namespace
from .._checks import bad_type, bad_value, check_flags
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
        Changes nothing; the other solvers have it. The host solves the small eigenproblem of every
        iteration, so that it waits for the GPU in each and looks at the residuals in each.
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
        As `cg`; more columns in X and Y than rows, columns of X or Y that are linearly dependent;
        NaN and infinities; a B that is not positive definite.

    Warns
    -----
    UserWarning
        Residual norms above ``tol`` after ``maxiter`` iterations.

    Notes
    -----
    Knyazev, "Toward the optimal preconditioned eigensolver: locally optimal block preconditioned
    conjugate gradient method", 2001: Rayleigh-Ritz on the iterates, the preconditioned residuals
    and the last directions. With 5 k >= n - m the dense problem is solved instead. An iteration is
    a product with each of A, B and M, a product of matrices for all dot products of the 3 k
    vectors, whose eigenproblem is solved on the host, and one for all updates. On a GPU all of it
    is launched, never captured into a CUDA graph, which could not wait for the host.

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
    system = System(function, A, X, None, M, name="X", columns="k")
    (n, k), xp = system.b.shape, system.xp
    maxiter = 20 if maxiter is None else check_count(function, "maxiter", maxiter, 0)
    check_count(function, "check_every", check_every, 1)
    level = check_count(function, "verbosityLevel", verbosityLevel, 0)
    check_count(function, "restartControl", restartControl, 0)
    eps = float(np.finfo(system.dtype).eps)
    tol = n * eps**0.5 if tol is None else check_tolerance(function, "tol", tol)
    with system.on_device(), np.errstate(all="ignore"):
        mass = _mass(system, B)
        constraints = _constraints(system, Y)
        if k + constraints.shape[1] > n:
            raise bad_value(function, "X", f"at most {n - constraints.shape[1]} columns", k)
        space = _Space(system, mass, constraints, bool(largest))
        if 5 * k >= n - constraints.shape[1] and n:
            values, vectors = space.dense()
            norms = space.norms(vectors, values)
            history = [[values], [norms]]
        else:
            values, vectors, norms, *history = space.iterate(maxiter, tol)
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
    operand.check_beside(system.function, "X", system.b)
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

    def _check_finite(self, argument: str, array: Any) -> None:
        if not bool(namespace(array).isfinite(array).all()):
            raise bad_value(self.system.function, argument, "finite numbers", "others")

    def _check_positive(self, positive: Any) -> None:
        if not bool(positive.all()):
            raise bad_value(self.system.function, "B", "a positive definite matrix", "another one")

    def _eigh(self, argument: str, matrix: Any) -> tuple[Any, Any]:
        """Return eigenvalues and eigenvectors of products with A or B, which have to be finite."""
        self._check_finite(argument, matrix)
        return namespace(matrix).linalg.eigh(matrix)

    def _orthonormal(self, v: Any, argument: str) -> Any:
        """Return B-orthonormal combinations of columns; refuse dependent ones."""
        self._check_finite(argument, v)
        squares = (v.conj() * self.B(v)).sum(axis=0).real
        self._check_positive(squares >= 0)
        norms = self.xp.sqrt(squares)
        v = v / self.xp.where(norms > 0, norms, 1)
        d, u = self._eigh("B", v.conj().T @ self.B(v))
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

    def _residual(self, ax: Any, bx: Any, values: Any, out: Any = None) -> Any:
        """Return what is left of ``A x - lambda B x`` but for multiples of the constraints."""
        r = self.xp.multiply(bx, values, out=out)
        r = self.xp.subtract(ax, r, out=r)
        if self.Y.shape[1]:
            r -= self.BY @ (self.Y.conj().T @ r)
        return r

    def dense(self) -> tuple[Any, Any]:
        """Solve the whole problem in a basis of the complement."""
        n, k = self.system.b.shape
        xp = self.xp
        basis = xp.eye(n, dtype=self.system.dtype)
        if self.Y.shape[1]:
            basis = xp.linalg.qr(self.BY, mode="complete")[0][:, self.Y.shape[1] :]
        d, u = self._eigh("B", _hermitian(basis.conj().T @ self.B(basis)))
        self._check_positive(d > 0)
        basis = basis @ (u / xp.sqrt(d))
        values, vectors = self._eigh("A", _hermitian(basis.conj().T @ self.A(basis)))
        values, vectors = self._ordered(values, vectors, k)
        return values, basis @ vectors

    def iterate(self, maxiter: int, tol: float) -> tuple:
        """Return values, vectors and residual norms of the best iterate, and their histories.

        A row of ``z`` has the iterates, the last directions and the new ones, 3 k numbers, and the
        same of their products with A and B. So all dot products are one product of matrices, and
        all updates are another.
        """
        xp, M, (n, k) = self.xp, self.system.precondition, self.system.b.shape
        engine = self.system.engine
        x = self._orthonormal(self._project(self.system.b), "X")
        ax = self.A(x)
        values, c = self._eigh("A", _hermitian(to_host(x.conj().T @ ax)))
        values, c = self._ordered(values, c, k)
        c = xp.asarray(c)
        x, ax = x @ c, ax @ c
        bx, i_b = self.B(x), 0 if self.mass is None else 2
        z = xp.zeros((n, 2 + (self.mass is not None), 3 * k), x.dtype)
        z[:, 0, :k], z[:, 1, :k], z[:, i_b, :k] = x, ax, bx
        following, of_new = xp.empty((*z.shape[:2], 2 * k), x.dtype), xp.empty_like(x)
        r, square = xp.empty_like(x), self.system.scalars(1)
        measure = self.system.prepare(square, [], [(0, r, r)])

        def residual_norms() -> np.ndarray:
            self._residual(ax, bx, xp.asarray(values), r)
            measure()
            return np.sqrt(to_host(square[0].real)).astype(values.dtype)

        norms = residual_norms()
        best, told = (values, x.copy(), norms), ([values], [norms])
        while len(told[0]) <= maxiter and not best[2].max(initial=0) <= tol:
            w = r if M is None else self._product(M, r)
            if M is not None or self.Y.shape[1]:
                w = self._project(w)
                w -= x @ (bx.conj().T @ w)
            w *= xp.asarray(_over(norms))
            z[:, 0, 2 * k :] = w
            z[:, 1, 2 * k :] = self.system.apply(w, of_new)
            if self.mass is not None:
                z[:, i_b, 2 * k :] = self.mass(w, of_new)
            grams = to_host(engine.gram(z[:, 0], z.reshape(n, -1))).reshape(3 * k, -1, 3 * k)
            if not np.isfinite(grams).all():
                break
            values, c = self._ritz(grams[:, 1], grams[:, i_b], k)
            engine.combine(z.reshape(-1, 3 * k), xp.asarray(c), following.reshape(-1, 2 * k))
            z[:, :, : 2 * k] = following
            x, ax, bx = (following[:, i, :k] for i in (0, 1, i_b))
            norms = residual_norms()
            told[0].append(values)
            told[1].append(norms)
            if norms.max() < best[2].max():
                best[1][...] = x
                best = values, best[1], norms
        values, x = xp.asarray(best[0]), best[1]
        history = ([xp.asarray(one) for one in of_all] for of_all in told)
        return values, x, self.norms(x, values), *history

    def _ritz(self, h: np.ndarray, b: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return Ritz values and coefficients of the next iterates and directions (3 k, 2 k).

        Of what the products of all 3 k vectors with A and B are. It is solved on the host, which
        takes less time for it than a GPU; dependent directions are left out.
        """
        dtype, wide = h.dtype, np.result_type(h.dtype, np.float64)
        h, b = h.astype(wide), b.astype(wide)
        scale = _over(np.sqrt(np.diagonal(b).real))
        h, b = (_hermitian(one * scale[:, None] * scale) for one in (h, b))
        d, u = np.linalg.eigh(b)
        good = d > 10 * self.eps * len(d) * d[-1]
        t = u[:, good] / np.sqrt(d[good])
        values, y = np.linalg.eigh(_hermitian(t.conj().T @ h @ t))
        values, y = self._ordered(values, y, k)
        c = scale[:, None] * (t @ y)
        p = np.concatenate([np.zeros_like(c[:k]), c[k:]])
        real = np.zeros(0, dtype).real.dtype
        return values.astype(real), np.concatenate([c, p], axis=1).astype(dtype)


def _over(norms: np.ndarray) -> np.ndarray:
    """Return what makes vectors of these norms unit vectors; those of zeros stay."""
    return 1 / np.where(norms > 0, norms, 1)


def _hermitian(a: Any) -> Any:
    return (a + a.conj().T) / 2
