"""Algebraic multigrid: PyAMG's hierarchy, cycled through our products."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from .. import _install
from .._arrays import as_array, common_namespace, device_of, namespace
from .._checks import bad_type, bad_value, check_choice, check_flags
from .._device import device_context
from ..engines import host_engine, use_engine
from ..pattern import Pattern
from ._block_jacobi import inverse_diagonal
from ._operator import linear_operator
from ._product import bound_product
from ._system import check_count, to_host

_SMOOTHERS = ("chebyshev", "block_jacobi")
#: Steps of the power method, and what its value, which is too low, is multiplied by.
_POWER_STEPS, _SAFETY = 15, 1.1
#: More than any hierarchy has, of which each level halves the unknowns at least.
_MOST_LEVELS = 64
#: Unknowns of the coarsest level, unless more were asked for.
_LARGEST_INVERSE = 4000
#: Block size of the inverse of the coarsest level, at most.
_LARGEST_BLOCK = 32
#: Chebyshev smoothing is for the eigenvalues from the largest down to this part of it.
_LOWEST = 0.1


def amg(
    A: Any,
    *,
    B: Any = None,
    smoother: str = "chebyshev",
    degree: int = 2,
    max_levels: int = 10,
    max_coarse: int = 500,
    verbose: bool = False,
) -> Any:
    """Return a V-cycle of smoothed aggregation as an operator: ``M`` for a solver.

    PyAMG builds the hierarchy on the CPU, once. A cycle runs where A is: products with the
    operators of the levels, through our BSR products, and with the dense inverse of the coarsest.
    It is symmetric, so it goes with `cg`.

    Parameters
    ----------
    A : bsr_array (n, n)
        Hermitian positive definite, of square blocks; float32, float64, complex64 or complex128.
    B : array (n, k), optional
        What A hardly changes (near its null space), which coarse levels have to represent: for
        elasticity the rigid-body motions. On the host or the GPU, as A. By default the constants,
        one for each row of a block.
    smoother : "chebyshev" or "block_jacobi"
        A polynomial in A with the inverse diagonal blocks, or damped steps with these alone.
    degree : int
        Products with A before the coarser level, and after.
    max_levels, max_coarse : int
        The hierarchy ends at so many levels, or so many unknowns, which are solved by a dense
        inverse.
    verbose : bool
        Print a line on the hierarchy.

    Returns
    -------
    scipy.sparse.linalg.LinearOperator or cupyx.scipy.sparse.linalg.LinearOperator

    Raises
    ------
    ImportError
        Without PyAMG: ``pip install 'sparsegpu[amg]'``.
    ValueError
        A batch, A or blocks that are not square, singular diagonal blocks, B of another shape,
        counts that are too small (levels, if thousands of unknowns remain), a smoother of
        another name, A and B on two GPUs.
    TypeError
        What is no `sparsegpu.bsr_array` or array, other dtypes; A on the host and B on a GPU, or
        the other way round.
    NotImplementedError
        While a CUDA graph is captured.

    Notes
    -----
    Vanek, Mandel and Brezina, "Algebraic multigrid by smoothed aggregation for second and fourth
    order elliptic problems", Computing 56, 1996. Chebyshev smoothing: Adams, Brezina, Hu and
    Tuminaro, "Parallel multigrid smoothing: polynomial versus Gauss-Seidel", 2003. The same A
    gives the same hierarchy in every run.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> from sparsegpu.benchmark.elasticity import cantilever
    >>> A, f = cantilever(60, 15)
    >>> counts = []
    >>> for M in (None, sparsegpu.linalg.amg(A)):
    ...     history = []
    ...     x, info = sparsegpu.linalg.cg(A, f, M=M, residuals=history)
    ...     counts.append(len(history) - 1)
    >>> counts[1] * 5 < counts[0]
    True
    """
    function = "amg"
    inverse = inverse_diagonal(A, function)  # checks A, too
    check_choice(function, "smoother", smoother, _SMOOTHERS)
    degree = check_count(function, "degree", degree, 1)
    max_levels = min(check_count(function, "max_levels", max_levels, 1), _MOST_LEVELS)
    max_coarse = check_count(function, "max_coarse", max_coarse, 1)
    check_flags(function, verbose=verbose)
    xp, device, n = namespace(A.data), device_of(A.data), A.shape[0]
    if B is not None:
        B = as_array(B, function, "B")
        common_namespace(function, A=A.data, B=B)
        if B.ndim != 2 or B.shape[0] != n or not 1 <= B.shape[1] <= n:
            raise bad_value(function, "B", f"shape ({n}, k)", tuple(B.shape))
        if B.dtype.kind not in "biufc" or (B.dtype.kind == "c" and A.dtype.kind != "c"):
            raise bad_type(function, "B", "numbers of the kind of A", B.dtype)
        B = to_host(B)
    host = A._canonical(function).get()  # repeated blocks are too many for PyAMG
    hierarchy = _hierarchy(host, B, max_levels, max_coarse)
    size = hierarchy[-1].A.shape[0]
    if size > max(_LARGEST_INVERSE, max_coarse):
        expected = f"enough levels to come down to {_LARGEST_INVERSE} unknowns"
        raise bad_value(function, "max_levels", expected, f"{len(hierarchy)} that end at {size}")
    levels: list[_Level] = []
    for i, level in enumerate(hierarchy[:-1]):
        with use_engine(host_engine()):
            a = host if i == 0 else _bsr(host, level.A)
            blocks = moved(inverse, None) if i == 0 else inverse_diagonal(a, function, _pseudo)
            parts = [a, blocks, _bsr(host, level.P), _bsr(host, level.R)]
            largest = _largest_eigenvalue(*parts[:2])
        parts = [moved(part, device) for part in parts]
        levels.append(_Level(parts, largest, smoother, degree))
    coarsest = hierarchy[-1].A.toarray()
    exact = moved(_dense_blocks(host, np.linalg.pinv(coarsest, hermitian=True)), device)

    def bound(r: int) -> Callable[[Any, Any], Any]:
        return _Cycle(xp, levels, exact, r)

    def cycle(b: Any) -> Any:
        common_namespace(function, A=A.data, x=b)
        with device_context(device):
            columns = xp.ascontiguousarray(b.reshape(n, -1), dtype=A.dtype)
            return bound(columns.shape[1])(columns, xp.empty_like(columns)).reshape(b.shape)

    if verbose:
        sizes = ", ".join(str(level.A.shape[0]) for level in hierarchy)
        work = sum(level.A.nnz for level in hierarchy) / max(hierarchy[0].A.nnz, 1)
        print(f"amg: {len(hierarchy)} levels of {sizes} unknowns, operator complexity {work:.2f}")
    operator = linear_operator(function, A, cycle, cycle, A.dtype)
    operator.bound = bound
    return operator


#: Of coarse levels, where aggregates that represent less than all of B leave blocks singular.
_pseudo = partial(np.linalg.pinv, hermitian=True)


class _Level:
    """One level but the coarsest: its products and its smoother."""

    def __init__(self, parts: list, largest: float, smoother: str, degree: int):
        self.degree = degree
        self.fine, self.coarse = parts[2].shape
        self.A, self.inverse, self.prolong, self.restrict = (
            bound_product("amg", part) for part in parts
        )
        self.smooth: Callable = self._chebyshev if smoother == "chebyshev" else self._jacobi
        high, low = largest, largest * _LOWEST
        self.middle, self.half = (high + low) / 2, (high - low) / 2
        self.damping = 4 / (3 * largest)

    def _jacobi(self, b: Any, x: Any, r: Any, d: Any) -> None:
        """Improve x, whose residual is r; r is not kept up. (d is memory.)"""
        for i in range(self.degree):
            if i:
                self.A(x, r, alpha=-1, beta=1, input=b)
            self.inverse(r, x, alpha=self.damping, beta=1, input=x)

    def _chebyshev(self, b: Any, x: Any, r: Any, d: Any) -> None:
        """Improve x, whose residual is r, by a polynomial of least maximum on the interval."""
        sigma = self.middle / self.half
        rho = 1 / sigma
        self.inverse(r, d, alpha=1 / self.middle)
        for i in range(self.degree):
            if i:
                self.A(d, r, alpha=-1, beta=1, input=r)
                following = 1 / (2 * sigma - rho)
                self.inverse(r, d, alpha=2 * following / self.half, beta=following * rho, input=d)
                rho = following
            x += d


class _Cycle:
    """A V-cycle of r vectors, with its memory: ``cycle(b, x)`` writes the answer to x."""

    def __init__(self, xp: ModuleType, levels: list[_Level], exact: Any, r: int):
        self._levels, self._exact = levels, bound_product("amg", exact)
        # Of each level the residual and a correction, of the next its right side and solution.
        self._vectors = [
            [xp.empty((n, r), exact.dtype) for n in (level.fine, level.fine, *[level.coarse] * 2)]
            for level in levels
        ]

    def __call__(self, b: Any, x: Any, depth: int = 0) -> Any:
        if depth == len(self._levels):
            return self._exact(b, x)
        level = self._levels[depth]
        r, d, of_coarse, correction = self._vectors[depth]
        x.fill(0)
        r[...] = b
        level.smooth(b, x, r, d)
        level.A(x, r, alpha=-1, beta=1, input=b)
        level.restrict(r, of_coarse)
        self(of_coarse, correction, depth + 1)
        level.prolong(correction, x, beta=1, input=x)
        level.A(x, r, alpha=-1, beta=1, input=b)
        level.smooth(b, x, r, d)
        return x


def _dense_blocks(like: Any, matrix: np.ndarray) -> Any:
    """Return a dense square matrix as our array, in blocks as large as they can be."""
    n = matrix.shape[0]
    size = max((b for b in range(1, _LARGEST_BLOCK + 1) if n % b == 0), default=1)
    count = n // size
    indptr, indices = np.arange(count + 1) * count, np.tile(np.arange(count), count)
    pattern = Pattern(indptr, indices, (n, n), (size, size), function="amg")
    blocks = matrix.reshape(count, size, count, size).swapaxes(1, 2).reshape(-1, size, size)
    return like._with(pattern, np.ascontiguousarray(blocks, like.dtype))


def _hierarchy(A: Any, B: Any, max_levels: int, max_coarse: int) -> list:
    """Return PyAMG's levels."""
    try:
        from pyamg import smoothed_aggregation_solver
    except ModuleNotFoundError as error:
        raise ImportError(
            "amg: PyAMG, which builds the hierarchy, is not installed; "
            f"{_install.with_extra('amg')}"
        ) from error
    kind = np.result_type(A.dtype, np.float64)
    candidates = A.blocksize[0] if B is None else B.shape[1]  # unknowns of an aggregate
    if B is not None:
        B = B.astype(kind)
    with _seeded():
        return smoothed_aggregation_solver(
            A.astype(kind).to_scipy(), B=B, symmetry="hermitian", max_levels=max_levels,
            max_coarse=max(max_coarse // candidates, 1), presmoother=None, postsmoother=None,
        ).levels  # fmt: skip


@contextmanager
def _seeded() -> Iterator[None]:
    """Give PyAMG, which draws from NumPy's global generator, the same numbers in every run."""
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(0)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002


def _bsr(like: Any, matrix: Any) -> Any:
    """Return a SciPy matrix in blocks as our array, in the dtype of ``like``."""
    m = matrix.tobsr() if matrix.format != "bsr" else matrix
    pattern = Pattern(m.indptr, m.indices, m.shape, m.blocksize, function="amg")
    return like._with(pattern, np.ascontiguousarray(m.data, like.dtype))


def moved(bsr: Any, device: int | None) -> Any:
    """Return a `bsr_array` on a GPU, by its number, or on the host (None)."""
    if device_of(bsr.data) == device:
        return bsr
    return bsr.get() if device is None else bsr.to_device(device)


def _largest_eigenvalue(A: Any, inverse: Any) -> float:
    """Return a bound of the largest eigenvalue of ``inverse @ A`` by the power method."""
    a, d = (bound_product("amg", part) for part in (A, inverse))
    v = np.random.default_rng(0).standard_normal((A.shape[0], 1)).astype(A.dtype)
    w, norm = np.empty_like(v), 1.0
    for _ in range(_POWER_STEPS):
        v /= np.linalg.norm(v)
        d(a(v, w), v)
        norm = float(np.linalg.norm(v))
    return norm * _SAFETY
