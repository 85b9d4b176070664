"""The epilogue, which turns accumulators into outputs: its parameters and its definition.

    out = act( beta * input + left_alpha[:, None] * (alpha * acc) * right_alpha[None, :] )

``cuda_src/common/epilogue.cuh`` is the same formula on the device; tests compare the two.
Every product (BSR and 2:4) ends with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

ACTIVATIONS = (None, "relu", "gelu", "gelu_erf", "silu")

#: The largest slope of each activation: how much it can magnify an accumulator's error.
LIPSCHITZ = {None: 1.0, "relu": 1.0, "gelu": 1.13, "gelu_erf": 1.13, "silu": 1.1}


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What is applied to the accumulator: fields are validated, nothing is broadcast in memory.

    Attributes
    ----------
    alpha, beta : Python scalars
    input : array that broadcasts to out's shape, or None
        None also when beta is 0, so that no engine reads it: a NaN there must not propagate.
    left_alpha, right_alpha : arrays (*batch, M) and (*batch, N), or None
    activation : one of `ACTIVATIONS`
    """

    alpha: Any = 1
    beta: Any = 0
    input: Any = None
    left_alpha: Any = None
    right_alpha: Any = None
    activation: str | None = None

    @property
    def is_identity(self) -> bool:
        """Whether the output is the accumulator itself, only rounded."""
        return (
            self.alpha == 1
            and self.input is None
            and self.left_alpha is None
            and self.right_alpha is None
            and self.activation is None
        )

    @property
    def is_integral(self) -> bool:
        """Whether int32 accumulators stay exact integers up to an int32 output."""
        return (
            _is_exact(self.alpha)
            and _is_exact(self.beta)
            and self.left_alpha is None
            and self.right_alpha is None
            and self.activation in {None, "relu"}
            and (self.input is None or self.input.dtype.kind == "i")
        )


def _is_exact(scalar: float) -> bool:
    """Whether int32 times an integer scalar, summed twice, stays within 64 bits."""
    return abs(scalar) <= 2**30 and float(scalar).is_integer()


def transposed_input(array: Any) -> Any:
    """Swap the last two axes of an array that broadcasts against a matrix."""
    if array.ndim == 0:
        return array
    return array[:, None] if array.ndim == 1 else array.swapaxes(-1, -2)


def activate(x: Any, activation: str | None) -> Any:
    """Apply an activation by name; ``x`` is real and of accumulator precision."""
    if activation is None:
        return x
    one = x.dtype.type(1)
    half = x.dtype.type(0.5)
    if activation == "relu":
        return np.where(x < 0, x.dtype.type(0), x)
    if activation == "silu":
        with np.errstate(all="ignore"):
            return x / (one + np.exp(-x))
    if activation == "gelu":
        inner = x.dtype.type(math.sqrt(2 / np.pi)) * (x + x.dtype.type(0.044715) * x * x * x)
        return half * x * (one + np.tanh(inner))
    return half * x * (one + _erf(x)(x * x.dtype.type(math.sqrt(0.5))))


def _erf(x: Any) -> Callable:
    if isinstance(x, np.ndarray):
        try:
            from scipy.special import erf
        except ModuleNotFoundError:  # installed without the extra 'cpu'
            return np.vectorize(math.erf, otypes=[x.dtype])
    else:
        from cupyx.scipy.special import erf
    return erf


def apply_epilogue(acc: Any, epilogue: Epilogue, out: Any) -> None:
    """Write ``out`` from the accumulator: the definition that all engines are tested against.

    ``acc`` is of accumulator dtype (`_arrays.accumulator_dtype`) and of out's shape. Where a sum of
    int8 products may leave int32 (`ops/_long_sums.py`) it is int64, scaled in float64, and may be
    a CuPy array, to which NumPy's functions dispatch.
    """
    e = epilogue
    if acc.dtype.kind == "i":
        if out.dtype == np.int32 and e.is_integral:
            _integer_epilogue(acc, e, out)
            return
        acc = acc.astype(np.float32 if acc.dtype == np.int32 else np.float64)
    # Infinities and NaN are results like any other, as on a GPU: no warning.
    with np.errstate(all="ignore"):
        compute = acc.dtype.type
        value = acc if e.alpha == 1 else compute(e.alpha) * acc
        if e.left_alpha is not None:
            value = e.left_alpha.astype(acc.dtype)[..., :, None] * value
        if e.right_alpha is not None:
            value = value * e.right_alpha.astype(acc.dtype)[..., None, :]
        if e.input is not None:
            value = compute(e.beta) * e.input.astype(acc.dtype) + value
        store(activate(value, e.activation), out)


def _integer_epilogue(acc: Any, e: Epilogue, out: Any) -> None:
    """Exact arithmetic in int64, saturating at int32."""
    alpha, beta = int(e.alpha), int(e.beta)
    if acc.dtype == np.int64:
        # The clipped values are beyond int32 by more than any input, and their products fit int64.
        most = 2**62 // max(abs(alpha), 1)
        acc = np.clip(acc, -most, most)
    value = alpha * acc.astype(np.int64)
    if e.input is not None:
        value = value + beta * e.input.astype(np.int64)
    if e.activation == "relu":
        value = np.maximum(value, 0)
    info = np.iinfo(np.int32)
    out[...] = np.clip(value, info.min, info.max).astype(np.int32)


def store(value: Any, out: Any) -> None:
    """Round once to out's dtype; integers: nearest, ties to even, then saturate; NaN is 0."""
    if out.dtype.kind == "i" and value.dtype.kind != "i":
        info = np.iinfo(out.dtype)
        wide = np.clip(np.rint(value.astype(np.float64)), info.min, info.max)
        out[...] = np.where(np.isnan(wide), 0, wide).astype(out.dtype)
        return
    with np.errstate(all="ignore"):
        if value.dtype == np.float64 and out.dtype.itemsize == 2:
            value = _rounded_to_odd(value)
        out[...] = value.astype(out.dtype)


def _rounded_to_odd(value: Any) -> Any:
    """Return float64 rounded to odd in float32: rounding that to 16 bits is as if rounded once.

    Truncated, with the last bit set where the value was inexact (Boldo and Melquiond, "Emulation
    of a FMA and correctly rounded sums: proved algorithms using rounding to odd", IEEE Trans.
    Comput. 57, 2008). Array libraries convert float64 to 16 bits by way of float32.
    """
    nearest = value.astype(np.float32)
    away = np.abs(nearest) > np.abs(value)
    return ((nearest.view(np.int32) - away) | (nearest != value)).view(np.float32)
