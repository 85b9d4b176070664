"""Tools to test code that uses sparsegpu, and sparsegpu itself: data, patterns and the bound.

The tolerance is never a flat ``rtol``. It is the forward error bound of a sum of n products,
elementwise and in float64::

    abs(out - exact) <= c * n * u * S + output rounding,      S = abs(A) @ abs(B),  c = 2

with S scaled like the product and u the unit roundoff of the accumulator (Higham, "Accuracy and
Stability of Numerical Algorithms", 2nd ed., section 3.1). Since it is wide for long sums, data of
small integers, whose sums are exact, is compared bit by bit beside it.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from ._arrays import dtype_of, float8_e4m3fn, is_cupy
from ._epilogue import LIPSCHITZ, activate

_SAFETY = 2
_TF32 = 2.0**-9
_FP8_TENSOR_CORE = 2.0**-13


def to_host(array: Any) -> np.ndarray:
    """Return a NumPy array from a NumPy or CuPy one."""
    return array.get() if is_cupy(array) else np.asarray(array)


def random_values(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, *, small_integers: bool = False
) -> np.ndarray:
    """Return signed random data: standard normal, or integers in -3..3 whose sums are exact.

    Examples
    --------
    >>> import numpy as np
    >>> random_values(np.random.default_rng(0), (4,), "float32", small_integers=True)
    array([ 2.,  1.,  0., -2.], dtype=float32)
    """
    dtype = dtype_of(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu" and not small_integers:
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype)
    if small_integers:
        values = rng.integers(-3, 3, shape, endpoint=True).astype(np.float64)
        if dtype.kind == "c":
            values = values + 1j * rng.integers(-3, 3, shape, endpoint=True)
        return values.astype(dtype)
    values = rng.standard_normal(shape)
    if dtype.kind == "c":
        return (values + 1j * rng.standard_normal(shape)).astype(dtype)
    return values.astype(dtype)


def random_blocks(
    rng: np.random.Generator,
    shape: tuple[int, int],
    blocksize: tuple[int, int],
    *,
    density: float = 0.3,
    batch: tuple[int, ...] = (),
    dtype: Any = "float32",
    duplicates: bool = False,
    shuffled: bool = True,
    small_integers: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ``(data, indices, indptr)`` of a random pattern that is hard to get right.

    Parameters
    ----------
    rng : numpy.random.Generator
    shape : (M, K)
    blocksize : (bm, bk)
        Divides the shape.
    density : float
        How much of each matrix is stored; every matrix of a batch stores as many blocks. Rows
        may be empty.
    batch : tuple of int
    dtype : dtype
    duplicates : bool
        Let a position be stored several times.
    shuffled : bool
        Leave the columns of a row unsorted.
    small_integers : bool
        Values in -3..3, whose sums are exact.

    Returns
    -------
    data, indices, indptr : NumPy arrays

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> arrays = random_blocks(np.random.default_rng(0), (4, 6), (2, 3), density=0.5)
    >>> sparsegpu.bsr_array(arrays, shape=(4, 6)).nnzb
    2
    """
    (m, k), (bm, bk) = shape, blocksize
    rows, columns = m // bm, k // bk
    count = round(density * rows * columns)
    size = int(np.prod(batch, dtype=np.int64))
    indices = np.empty((size, count), dtype=np.int32)
    indptr = np.zeros((size, rows + 1), dtype=np.int32)
    for b in range(size):
        if duplicates and count:
            places = rng.integers(0, rows * columns, count)
        else:
            places = rng.choice(rows * columns, count, replace=False)
        if not shuffled:
            places = np.sort(places)
        places = places[np.argsort(places // max(columns, 1), kind="stable")]
        indices[b] = places % max(columns, 1)
        indptr[b, 1:] = np.cumsum(np.bincount(places // max(columns, 1), minlength=rows))
    data = random_values(rng, (*batch, count, bm, bk), dtype, small_integers=small_integers)
    return data, indices.reshape(*batch, count), indptr.reshape(*batch, rows + 1)


def random_24(
    rng: np.random.Generator,
    shape: tuple[int, int],
    dtype: Any = "float16",
    *,
    small_integers: bool = False,
) -> np.ndarray:
    """Return a dense 2:4 matrix (float32: 1:2) with every kind of group, -0.0 among its zeros.

    Parameters
    ----------
    rng : numpy.random.Generator
    shape : (m, k)
    dtype : dtype or str
    small_integers : bool
        Values in -3..3, whose sums are exact, instead of standard normal ones.

    Returns
    -------
    numpy.ndarray (m, k)

    Examples
    --------
    >>> import numpy as np
    >>> dense = random_24(np.random.default_rng(0), (2, 8), "int8", small_integers=True)
    >>> int((dense.reshape(-1, 4) != 0).sum(axis=-1).max()) <= 2
    True
    """
    dtype = dtype_of(dtype)
    group = 2 if dtype == np.float32 else 4
    m, k = shape
    keep = rng.random((m, -(-k // group), group)).argsort(axis=-1) < group // 2
    keep &= rng.random(keep.shape) < 0.9
    values = random_values(rng, shape, dtype, small_integers=small_integers)
    zero = np.where(rng.random(shape) < 0.2, -0.0, 0.0).astype(dtype)
    return np.where(keep.reshape(m, keep.shape[1] * group)[:, :k], values, zero)


def dense_from_blocks(data: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> np.ndarray:
    """Return the dense matrix of a BSR triple by the plainest loop; duplicates are summed.

    The result is wide enough to hold the sums exactly for the tests' sizes: int64, float64,
    longdouble for float64, and complex alike.
    """
    data, indices, indptr = to_host(data), to_host(indices), to_host(indptr)
    batch, (bm, bk) = data.shape[:-3], data.shape[-2:]
    dense = np.zeros((*batch, *shape), dtype=exact_dtype(data.dtype))
    for b in np.ndindex(batch):
        for i in range(shape[0] // bm):
            for p in range(indptr[b][i], indptr[b][i + 1]):
                j = indices[b][p]
                dense[b][i * bm : (i + 1) * bm, j * bk : (j + 1) * bk] += data[b][p].astype(
                    dense.dtype
                )
    return dense


def exact_dtype(dtype: np.dtype) -> np.dtype:
    """Return a dtype so much wider that its own rounding does not count."""
    if dtype.kind in "iub":
        return np.dtype(np.int64)
    if dtype.kind == "c":
        return np.dtype(np.clongdouble if dtype == np.complex128 else np.complex128)
    return np.dtype(np.longdouble if dtype == np.float64 else np.float64)


def unit_roundoff(dtype: np.dtype) -> float:
    """Return half the spacing of 1 and the next number; 0 for integers."""
    if dtype.kind in "iu":
        return 0.0
    return float(ml_dtypes.finfo(dtype).eps) / 2


def accumulator_roundoff(dtype: np.dtype, *, allow_tf32: bool = False) -> tuple[float, float]:
    """Return ``(u, operand)``: accumulator roundoff and the operands' own relative error."""
    if dtype == np.int8:
        return 0.0, 0.0
    if dtype == float8_e4m3fn:
        return _FP8_TENSOR_CORE, 0.0
    if dtype.kind == "c":
        # A complex product is four real ones and two sums: twice the terms of a real one.
        return 2 * unit_roundoff(np.dtype(np.float32 if dtype == np.complex64 else np.float64)), 0.0
    if dtype == np.float64:
        return unit_roundoff(dtype), 0.0
    return 2.0**-24, _TF32 if allow_tf32 else 0.0


def accuracy_bound(
    a: Any,
    b: Any,
    *,
    alpha: Any = 1,
    beta: Any = 0,
    input: Any = None,
    left_alpha: Any = None,
    right_alpha: Any = None,
    activation: str | None = None,
    dtype: Any = None,
    terms: int | None = None,
    allow_tf32: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the exact result of a product with its epilogue, and the error bound of its sums.

    Parameters
    ----------
    a, b : dense arrays (*B, M, K) and (*B, K, N)
        The operands' values, of the operands' or a wider dtype.
    alpha, beta, input, left_alpha, right_alpha, activation
        As in `bsr_addmm`.
    dtype : dtype, optional
        The operands' dtype when ``a`` and ``b`` come in a wider one; default ``b.dtype``.
    terms : int, optional
        How many products are summed; default K.
    allow_tf32 : bool
        Add the operand rounding of TF32.

    Returns
    -------
    exact, bound : arrays (*B, M, N)

    Examples
    --------
    >>> import numpy as np
    >>> exact, bound = accuracy_bound(np.eye(2), np.ones((2, 1), "float32"))
    >>> exact.ravel(), bool((bound < 1e-5).all())
    (array([1., 1.]), True)
    """
    a, b = to_host(a), to_host(b)
    dtype = dtype_of(b.dtype if dtype is None else dtype)
    wide = exact_dtype(dtype)
    real = np.dtype(np.longdouble if wide.itemsize >= 16 and wide != np.complex128 else np.float64)
    product = a.astype(wide) @ b.astype(wide)
    size = (np.abs(a.astype(wide)) @ np.abs(b.astype(wide))).astype(real)
    float_wide = np.dtype(np.float64) if wide.kind == "i" else wide
    exact = product.astype(float_wide) * alpha
    size = size * abs(alpha)
    for side, axis in (
        (left_alpha, (..., slice(None), None)),
        (right_alpha, (..., None, slice(None))),
    ):
        if side is not None:
            scale = to_host(side).astype(float_wide)[axis]
            exact = exact * scale
            size = size * np.abs(scale)
    if input is not None and beta != 0:
        term = beta * to_host(input).astype(float_wide)
        exact = exact + term
        size = size + np.abs(term)
    u, operand = accumulator_roundoff(dtype, allow_tf32=allow_tf32)
    if wide.kind == "i" and not _is_integral(
        alpha, beta, input, left_alpha, right_alpha, activation
    ):
        u = 2.0**-24  # the epilogue of an int32 accumulator is float32
    # The epilogue's own roundings: alpha, two sides, input's product and sum, the activation.
    n = max(a.shape[-1] if terms is None else terms, 1) + 5
    bound = (_SAFETY * n * u + operand) * size * LIPSCHITZ[activation]
    if activation is not None:
        # SciPy's erf knows no longdouble; what float64 loses is within the 8 u below.
        wide_enough = np.float64 if activation == "gelu_erf" else real
        exact = activate(exact.astype(wide_enough), activation)
        bound = bound + 8 * u * np.abs(exact)
    return exact, bound.astype(real)


def _is_integral(alpha, beta, input, left_alpha, right_alpha, activation) -> bool:
    return (
        float(alpha).is_integer()
        and float(beta).is_integer()
        and left_alpha is None
        and right_alpha is None
        and activation in {None, "relu"}
        and (input is None or to_host(input).dtype.kind == "i")
    )


def assert_within_bound(
    out: Any,
    a: Any,
    b: Any,
    *,
    alpha: Any = 1,
    beta: Any = 0,
    input: Any = None,
    left_alpha: Any = None,
    right_alpha: Any = None,
    activation: str | None = None,
    dtype: Any = None,
    terms: int | None = None,
    allow_tf32: bool = False,
) -> None:
    """Assert that ``out`` is the product of ``a`` and ``b`` within the library's promise.

    Parameters
    ----------
    out : array (*B, M, N)
        What was computed; its rounding follows from its dtype.
    a, b, alpha, beta, input, left_alpha, right_alpha, activation, dtype, terms, allow_tf32
        As in `accuracy_bound`.

    Raises
    ------
    AssertionError
        With the worst element, its error and what was allowed.

    Examples
    --------
    >>> import numpy as np
    >>> a, b = np.eye(2, dtype="float32"), np.ones((2, 2), "float32")
    >>> assert_within_bound(a @ b, a, b)
    >>> assert_within_bound(a @ b + np.float32(1e-5), a, b)
    Traceback (most recent call last):
    ...
    AssertionError: 4 of 4 elements outside the bound; worst at (0, 0): got 1.00001...
    """
    exact, bound = accuracy_bound(
        a,
        b,
        alpha=alpha,
        beta=beta,
        input=input,
        left_alpha=left_alpha,
        right_alpha=right_alpha,
        activation=activation,
        dtype=dtype,
        terms=terms,
        allow_tf32=allow_tf32,
    )
    assert_close(out, exact, bound)


def assert_close(out: Any, exact: np.ndarray, bound: np.ndarray | float) -> None:
    """Assert ``abs(out - exact) <= bound`` plus one rounding to out's dtype (or saturation)."""
    out = to_host(out)
    assert out.shape == exact.shape, f"shape {out.shape}, expected {exact.shape}"
    bound = np.broadcast_to(np.asarray(bound), exact.shape)
    if out.dtype.kind in "iu":
        info = np.iinfo(out.dtype)
        exact = np.clip(exact, info.min, info.max)
        # int32 beyond 2**24 is rounded to float32 first wherever the epilogue is not integral.
        rounding = np.where(np.abs(exact) == np.rint(exact), 0.0, 0.5)
        rounding = np.where(bound > 0, 0.5, rounding)
        difference = np.abs(out.astype(np.float64) - exact.astype(np.float64))
        allowed = bound + rounding
    else:
        finfo = ml_dtypes.finfo(out.dtype if out.dtype.kind != "c" else out.real.dtype)
        u = float(finfo.eps) / 2
        tiny = float(finfo.smallest_subnormal)
        allowed = bound + u * (np.abs(exact) + bound) * (2 if out.dtype.kind == "c" else 1) + tiny
        wide = exact_dtype(out.dtype)
        overflow = np.abs(exact) + bound >= float(finfo.max) * (1 + u)
        difference = np.abs(out.astype(wide) - exact)
        same_infinity = overflow & np.isinf(out.astype(np.complex128 if wide.kind == "c" else wide))
        difference = np.where(same_infinity, 0, difference)
        difference = np.where(np.isnan(exact) & np.isnan(out.astype(wide)), 0, difference)
        allowed = np.where(np.isnan(allowed), 0, allowed)
    wrong = ~(difference <= allowed)
    if wrong.any():
        excess = np.where(np.isnan(difference), np.inf, difference) - allowed
        worst = np.unravel_index(np.argmax(np.where(wrong, excess, -np.inf)), out.shape)
        place = tuple(int(i) for i in worst)
        raise AssertionError(
            f"{int(wrong.sum())} of {out.size} elements outside the bound; worst at {place}: "
            f"got {out[worst]}, exact {exact[worst]}, error {float(difference[worst]):.3g}, "
            f"allowed {float(allowed[worst]):.3g}"
        )
