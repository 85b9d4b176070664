"""The library's accuracy bound, and assertions that results are within it.

The tolerance is never a flat ``rtol``. It is the forward error bound of a sum of n products,
elementwise and in float64::

    abs(out - exact) <= c * n * u * S + output rounding,      S = abs(A) @ abs(B),  c = 2

with S scaled like the product and u the unit roundoff of the accumulator (Higham, "Accuracy and
Stability of Numerical Algorithms", 2nd ed., section 3.1). Since it is wide for long sums, data of
small integers, whose sums are exact, is compared bit by bit besides.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from .._arrays import dtype_of, float8_e4m3fn
from .._epilogue import LIPSCHITZ
from .data import exact_dtype, to_host

_SAFETY = 2
_TF32 = 2.0**-9
_FP8_TENSOR_CORE = 2.0**-13


def unit_roundoff(dtype: np.dtype) -> float:
    """Return half the spacing of 1 and the next number; 0 for integers."""
    if dtype.kind in "iu":
        return 0.0
    return float(ml_dtypes.finfo(dtype).eps) / 2


def exact_activation(x: np.ndarray, activation: str | None) -> np.ndarray:
    """Return an activation of wide reals, by formulas of its own: engines are held to these.

    They are not `_epilogue.activate`, which is under test: gelu's tanh is a logistic function here
    and its erf the normal distribution's erfc, so that nothing cancels for negative arguments. Of
    -inf they make NaN (relu: 0).
    """
    if activation is None:
        return x
    if activation == "relu":
        return np.where(x < 0, 0, x)
    if activation == "gelu_erf":
        below = np.vectorize(math.erfc, otypes=[np.float64])(-math.sqrt(0.5) * x)
        with np.errstate(invalid="ignore"):
            return x * (below / 2)
    inner = x
    if activation == "gelu":
        pi = x.dtype.type("3.14159265358979323846264338327950288")
        inner = np.sqrt(8 / pi) * (x + x.dtype.type("0.044715") * x**3)
    with np.errstate(over="ignore", invalid="ignore"):
        return x / (1 + np.exp(-inner))


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
        As in `sparsegpu.bsr_addmm`.
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
        exact = exact_activation(exact.astype(real), activation)
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
    """Assert ``abs(out - exact) <= bound`` plus one rounding to out's dtype (or saturation).

    A NaN passes where ``exact`` is NaN and nowhere else. An infinity passes where ``exact`` has
    the same one, or comes within the bound of what rounds to it.
    """
    out, exact = to_host(out), np.asarray(exact)
    assert out.shape == exact.shape, f"shape {out.shape}, expected {exact.shape}"
    bound = np.broadcast_to(np.asarray(bound), exact.shape)
    if out.dtype.kind in "iu":
        difference, allowed = _integer_errors(out, exact, bound)
    else:
        difference, allowed = _float_errors(out, exact, bound)
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


def _integer_errors(
    out: np.ndarray, exact: np.ndarray, bound: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return errors and what is allowed of saturating integers."""
    info = np.iinfo(out.dtype)
    exact = np.clip(exact, info.min, info.max)
    # int32 beyond 2**24 is rounded to float32 first wherever the epilogue is not integral.
    rounding = np.where((bound > 0) | (exact != np.rint(exact)), 0.5, 0.0)
    return np.abs(out.astype(np.float64) - exact.astype(np.float64)), bound + rounding


def _float_errors(
    out: np.ndarray, exact: np.ndarray, bound: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return errors and what is allowed; no error where both are NaN or the same infinity."""
    is_complex = out.dtype.kind == "c"
    finfo = ml_dtypes.finfo(out.real.dtype if is_complex else out.dtype)
    u, wide = float(finfo.eps) / 2, out.astype(exact_dtype(out.dtype))
    underflow = np.longdouble(finfo.smallest_subnormal) / (1 if is_complex else 2)
    parts = [(wide, exact)]
    if is_complex:
        parts = [(wide.real, exact.real), (wide.imag, exact.imag)]
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.abs(wide - exact)
        allowed = bound + u * (np.abs(exact) + bound) + underflow
        overflown = np.isinf(wide)
        for got, wanted in parts:
            overflows = np.abs(wanted) + bound >= float(finfo.max) * (1 + u)
            same_sign = np.signbit(got) == np.signbit(wanted)
            overflown &= np.where(
                np.isinf(got), overflows & same_sign, np.abs(got - wanted) <= allowed
            )
    nan = np.isnan(exact) & np.isnan(wide)
    finite = np.isfinite(exact) & np.isfinite(allowed)
    return np.where(nan | overflown, 0, difference), np.where(finite, allowed, 0)


def softmax_bound(x: Any, exact: np.ndarray) -> np.ndarray:
    """Return the error bound of a softmax along the last axis, before the result is rounded.

    Parameters
    ----------
    x : array (*, n)
        All that a row stores, of the operand's dtype.
    exact : array (*, n)
        The softmax of it.

    Returns
    -------
    array (*, n)

    Notes
    -----
    ``x - max`` is rounded, and once more when it is scaled for a power of two. exp magnifies both
    to ``2 * range * u`` relative, range being the largest ``max - x``: in numerator and sum
    together ``4 * range * u``. The sum of n exponentials, exp's own few u and the quotient are
    n + 8 roundings, which count c = 2 times as in every bound here. An exp that underflows may
    lose a few of the smallest numbers there are.
    """
    x = to_host(x)
    u, smallest = (2.0**-53, 2.0**-1074) if x.dtype == np.float64 else (2.0**-24, 2.0**-149)
    wide = np.where(np.isfinite(x), x, np.nan).astype(np.float64)
    spread = np.zeros((*x.shape[:-1], 1))
    some = ~np.isnan(wide).all(axis=-1)
    spread[some, 0] = np.nanmax(wide[some], axis=-1) - np.nanmin(wide[some], axis=-1)
    return (2 * (x.shape[-1] + 8) + 4 * spread) * u * np.abs(exact) + 8 * smallest


def softmax_backward_bound(grad: Any, softmax: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the gradient of a softmax along the last axis in float64, and the bound of its error.

    Parameters
    ----------
    grad, softmax : array (*, n)
        All that a row stores of the gradient of the softmax, and of the softmax itself.

    Returns
    -------
    (array, array)
        The gradient, and the bound before the result is rounded.

    Notes
    -----
    ``y * (g - sum(g * y))``: the sum has n products, and what follows are two roundings, which
    all count c = 2 times as in every bound here.
    """
    grad, softmax = to_host(grad), to_host(softmax)
    u, smallest = (2.0**-53, 2.0**-1074) if grad.dtype == np.float64 else (2.0**-24, 2.0**-149)
    g, y = grad.astype(np.float64), softmax.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        total = (g * y).sum(axis=-1, keepdims=True)
        size = np.abs(g * y).sum(axis=-1, keepdims=True)
        exact = y * (g - total)
        relative = (g.shape[-1] + 2) * size + 2 * (np.abs(g) + np.abs(total))
        return exact, 2 * u * np.abs(y) * relative + 8 * smallest


#: What attention may differ by, relative and absolute, on standard-normal data: the contract's
#: numbers, and for float64 as many roundings as float32's are.
ATTENTION_TOLERANCE = {
    "bfloat16": 3e-2,
    "float16": 4e-3,
    "tf32": 4e-3,  # float32 with ``allow_tf32``: as many digits as float16
    "float32": 2e-5,
    "float64": 2e-5 * 2.0**-29,
}


def assert_attention_close(out: Any, exact: np.ndarray, *, share: float = 1.0) -> None:
    """Assert that attention's result, or its lse, is within a share of the contract's tolerance.

    NaN and infinities must be the same.
    """
    out = to_host(out)
    tolerance = share * ATTENTION_TOLERANCE[out.dtype.name]
    np.testing.assert_allclose(
        out.astype(exact.dtype), exact, rtol=tolerance, atol=tolerance, strict=True
    )


def assert_gradient_close(gradient: Any, exact: np.ndarray, size: np.ndarray, dtype: Any) -> None:
    """Assert that a gradient of attention is within the contract's bound.

    Parameters
    ----------
    gradient : array
        What was computed; its rounding follows from its dtype.
    exact : array
    size : array
        The sums of the absolute products, to which twice attention's tolerance is relative.
    dtype : dtype
        Of attention's operands.

    Raises
    ------
    AssertionError
        With the worst element, its error and what was allowed.

    Examples
    --------
    >>> import numpy as np
    >>> exact = np.array([0.5, 0.0])
    >>> assert_gradient_close(np.float32([0.5, 1e-5]), exact, np.ones(2), "float32")
    """
    assert_close(gradient, exact, 2 * ATTENTION_TOLERANCE[dtype_of(dtype).name] * size)
