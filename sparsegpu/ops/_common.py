"""What every operation does before an engine sees its arrays."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

import numpy as np

from .._arrays import (
    HALF_DTYPES,
    OPERAND_DTYPES,
    as_array,
    device_of,
    dtype_of,
    float8_e4m3fn,
    is_complex,
    may_overlap,
    namespace,
    same_memory,
)
from .._checks import bad_type, bad_value, check_broadcasts_to, check_choice, check_scalar
from .._epilogue import ACTIVATIONS, Epilogue

_FLOATS = (*HALF_DTYPES, np.dtype(np.float32))


def on_device(array: Any) -> AbstractContextManager:
    """Make the array's CUDA device current for allocation and launch (host: do nothing)."""
    device = device_of(array)
    if device is None:
        return nullcontext()
    cuda = namespace(array).cuda
    return nullcontext() if cuda.runtime.getDevice() == device else cuda.Device(device)


def optional_array(x: Any, function: str, argument: str) -> Any:
    """Return an optional argument as an array, None as None."""
    return None if x is None else as_array(x, function, argument)


def check_sparse(function: str, argument: str, x: Any) -> None:
    """Refuse what has no block pattern."""
    if not (hasattr(x, "pattern") and hasattr(x, "data")):
        raise bad_type(function, argument, "a bsr_array", type(x).__name__)


def check_operand_dtype(function: str, argument: str, dtype: np.dtype) -> None:
    """Refuse a dtype that no product is defined for."""
    if dtype not in OPERAND_DTYPES:
        names = ", ".join(d.name for d in OPERAND_DTYPES)
        raise bad_type(function, argument, f"one of the dtypes {names}", dtype)


def check_same_dtype(function: str, argument: str, dtype: np.dtype, expected: np.dtype) -> None:
    """Refuse operands of two dtypes: nothing is promoted."""
    if dtype != expected:
        raise bad_type(function, argument, f"dtype {expected} like the other operand", dtype)


def output_dtypes(dtype: np.dtype) -> tuple[np.dtype, ...]:
    """Return the output dtypes offered for operands of ``dtype``, the default first."""
    if dtype in _FLOATS:
        return (dtype, *(d for d in _FLOATS if d != dtype))
    if dtype == float8_e4m3fn:
        return (HALF_DTYPES[1], HALF_DTYPES[0], np.dtype(np.float32))
    if dtype == np.int8:
        return (np.dtype(np.int32), np.dtype(np.int8), *_FLOATS)
    return (dtype,)


def resolve_out_dtype(
    function: str, dtype: np.dtype, out: Any, out_dtype: Any, argument: str = "out"
) -> np.dtype:
    """Return the output dtype from ``out``, ``out_dtype`` or the operands."""
    offered = output_dtypes(dtype)
    if out_dtype is not None:
        wanted = dtype_of(out_dtype)
        if wanted not in offered:
            names = ", ".join(d.name for d in offered)
            raise bad_type(function, "out_dtype", f"one of {names} for {dtype} operands", wanted)
        if out is not None and out.dtype != wanted:
            raise bad_type(function, argument, f"dtype {wanted} as out_dtype says", out.dtype)
        return wanted
    if out is None:
        return offered[0]
    if out.dtype not in offered:
        names = ", ".join(d.name for d in offered)
        raise bad_type(function, argument, f"one of the dtypes {names}", out.dtype)
    return out.dtype


def prepare_out(
    function: str,
    out: Any,
    shape: tuple[int, ...],
    dtype: np.dtype,
    xp: ModuleType,
    *,
    input: Any = None,
    operands: dict[str, Any] | None = None,
    argument: str = "out",
) -> Any:
    """Return the array to write: a new one, or ``out`` once it is known to be safe.

    ``operands`` maps argument names to arrays that ``out`` must not overlap (None is skipped);
    ``input`` may be ``out`` itself and nothing else that overlaps it. ``argument`` is out's name
    in messages.
    """
    if out is None:
        return xp.empty(shape, dtype=dtype)
    if not isinstance(out, xp.ndarray):
        raise bad_type(function, argument, f"a {xp.__name__} array", type(out).__name__)
    if tuple(out.shape) != tuple(shape):
        raise bad_value(function, argument, f"shape {tuple(shape)}", tuple(out.shape))
    if out.dtype != dtype:
        raise bad_type(function, argument, f"dtype {dtype}", out.dtype)
    if xp is np and not out.flags.writeable:
        raise bad_value(function, argument, "a writeable array", "a read-only one")
    for name, array in (operands or {}).items():
        if array is not None and device_of(array) != device_of(out):
            raise bad_value(
                function, argument, f"device {device_of(array)} like '{name}'", device_of(out)
            )
        if array is not None and may_overlap(out, array):
            raise bad_value(function, argument, f"memory apart from '{name}'", "an overlap")
    if input is not None and may_overlap(out, input) and not same_memory(out, input):
        raise bad_value(
            function, argument, "memory apart from 'input', or input itself", "a partial overlap"
        )
    if (
        out.size
        and 0 in out.strides
        and any(n > 1 and s == 0 for n, s in zip(out.shape, out.strides, strict=True))
    ):
        raise bad_value(function, argument, "distinct elements", "a broadcast view (stride 0)")
    return out


def prepare_epilogue(
    function: str,
    *,
    dtype: np.dtype,
    out_dtype: np.dtype,
    shape: tuple[int, ...],
    input: Any,
    beta: Any,
    alpha: Any,
    left_alpha: Any,
    right_alpha: Any,
    activation: str | None,
) -> Epilogue:
    """Validate everything that happens to the accumulator (`_epilogue.Epilogue`).

    Array arguments come in as arrays of the call's one library (`optional_array`,
    `_arrays.common_namespace`).
    """
    check_choice(function, "activation", activation, ACTIVATIONS)
    complex_allowed = is_complex(dtype)
    if complex_allowed and activation is not None:
        raise bad_type(function, "activation", "None for complex operands", repr(activation))
    alpha = check_scalar(function, "alpha", alpha, complex_allowed=complex_allowed)
    beta = check_scalar(function, "beta", beta, complex_allowed=complex_allowed)
    if input is not None:
        allowed = {dtype, out_dtype} | ({np.dtype(np.int32)} if dtype == np.int8 else set())
        if input.dtype not in allowed:
            names = " or ".join(sorted(d.name for d in allowed))
            raise bad_type(function, "input", f"dtype {names}", input.dtype)
        check_broadcasts_to(function, "input", tuple(input.shape), shape)
    left_alpha = _side_alpha(
        function, "left_alpha", left_alpha, (*shape[:-2], shape[-2]), dtype, out_dtype
    )
    right_alpha = _side_alpha(
        function, "right_alpha", right_alpha, (*shape[:-2], shape[-1]), dtype, out_dtype
    )
    if alpha == 0:  # no product, so nothing that scales it is read
        left_alpha = right_alpha = None
    unread = input is None or beta == 0
    return Epilogue(
        alpha, 0 if unread else beta, None if unread else input, left_alpha, right_alpha, activation
    )


def _side_alpha(
    function: str,
    argument: str,
    array: Any,
    target: tuple[int, ...],
    dtype: np.dtype,
    out_dtype: np.dtype,
) -> Any:
    if array is None:
        return None
    allowed = {dtype, out_dtype, np.dtype(np.float32)}
    if array.dtype not in allowed:
        names = " or ".join(sorted(d.name for d in allowed))
        raise bad_type(function, argument, f"dtype {names}", array.dtype)
    check_broadcasts_to(function, argument, tuple(array.shape), target)
    if array.ndim == 0 or array.shape[-1] != target[-1]:
        raise bad_value(function, argument, f"a last dimension of {target[-1]}", array.shape)
    return array
