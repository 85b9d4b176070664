"""What every operation does before an engine sees its arrays."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache, lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from .._arrays import (
    CONTAINER_DTYPES,
    HALF_DTYPES,
    OPERAND_DTYPES,
    as_array,
    check_dtype_among,
    check_dtype_name,
    device_of,
    float8_e4m3fn,
    is_jax,
    is_masked,
    is_plain,
)
from .._checks import bad_type, bad_value, kind_of
from .._overlap import overlapping, overlaps_itself, same_memory
from ..engines.cuda.runtime.replay import Call
from ..pattern import Pattern

_ANYWHERE: AbstractContextManager = nullcontext()
_OPERANDS, _CONTAINED = frozenset(OPERAND_DTYPES), frozenset(CONTAINER_DTYPES)
_FLOATS = (*HALF_DTYPES, np.dtype(np.float32))


def on_device(array: Any, owner: Any = None, call: Call | None = None) -> AbstractContextManager:
    """Enter one call's work on the array's CUDA device (host: do nothing).

    ``owner`` is the sparse operand's pattern, or what holds its halves: workspace is kept with it.
    ``call`` records what is submitted. See `engines.cuda.runtime.submission`.
    """
    device = device_of(array)
    return _ANYWHERE if device is None else _submission()(device, owner, call)


@cache
def _submission() -> Any:
    from ..engines.cuda.runtime.submission import Submission

    return Submission


def in_dtype(array: Any, dtype: np.dtype) -> Any:
    """Return a dense or sparse array in a dtype, itself where it has it.

    A graph keeps what is converted.
    """
    if array.dtype == dtype:
        return array
    with on_device(array):
        return array.astype(dtype)


def optional_array(x: Any, function: str, argument: str) -> Any:
    """Return an optional argument as an array, None as None."""
    return None if x is None else as_array(x, function, argument)


def optional_out(x: Any, function: str, argument: str = "out") -> Any:
    """Return the optional array to write to, None as None.

    An object that `as_array` would copy (a list) could not be written to. A ``numpy.memmap``, or
    another class of NumPy arrays, stays what it is, so that the caller gets it back.
    """
    if x is None or is_plain(x):
        return x
    if isinstance(x, np.ndarray) and not isinstance(x, np.matrix) and not is_masked(x):
        return x
    if isinstance(x, (list, tuple, int, float, complex, np.generic, np.matrix)):
        raise bad_type(function, argument, "an array to write to", type(x).__name__)
    if is_jax(x):
        expected = "an array that may be written to, which JAX's are not (others may share them)"
        raise bad_type(function, argument, expected, kind_of(x))
    return as_array(x, function, argument)


def check_sparse(function: str, argument: str, x: Any) -> None:
    """Refuse an argument without a block pattern, or with values that do not fit it.

    Values are shared with the caller, who may have set their shape or dtype since the array was
    made. Metadata only.
    """
    if not is_sparse(x):
        raise not_sparse(function, argument, x)
    check_values(function, argument, x.pattern, x.data)


def not_sparse(function: str, argument: str, x: Any) -> TypeError:
    """Return the error for what has no block pattern, with what makes a bsr_array of it."""
    got = kind_of(x)
    if is_block_mask(x):
        got += f" ({argument}.tobsr() makes one)"
    elif hasattr(x, "dtype") and hasattr(x, "shape") and not hasattr(x, "todense"):
        got += f" (bsr_array({argument}, blocksize=...) makes one)"
    return bad_type(function, argument, "a bsr_array", got)


def is_sparse(x: Any) -> bool:
    """Return whether ``x`` has a block pattern and values over it."""
    return hasattr(x, "pattern") and hasattr(x, "data")


def is_block_mask(x: Any) -> bool:
    """Return whether ``x`` is a mask that holds kinds and bits instead of values."""
    kind: Any = type(x)  # asking a mask itself would make views of its arrays
    return _has_bits(kind)


@lru_cache(maxsize=64)  # every call of attention asks
def _has_bits(kind: type) -> bool:
    return hasattr(kind, "kind") and hasattr(kind, "bits") and hasattr(kind, "pattern")


def check_values(function: str, argument: str, pattern: Pattern, data: Any) -> None:
    """Refuse values that no container with this pattern holds; metadata only, on every call."""
    if (
        isinstance(data, pattern.xp.ndarray)
        and data.shape == pattern.data_shape
        and data.dtype in _CONTAINED
        and (pattern.device is None or data.data.device_id == pattern.device)
    ):
        return
    if not isinstance(data, pattern.xp.ndarray):
        expected = f"data in a {pattern.xp.__name__} array, as the indices of its pattern"
        raise bad_type(function, argument, expected, type(data).__name__)
    if data.shape != pattern.data_shape:
        expected = f"shape {pattern.data_shape} of the data, as its pattern says"
        raise bad_value(function, argument, expected, tuple(data.shape))
    check_dtype_among(function, argument, data.dtype, CONTAINER_DTYPES)
    expected = f"device {pattern.device} of the data, as of the indices of its pattern"
    raise bad_value(function, argument, expected, f"device {device_of(data)}")


def check_operand_dtype(function: str, argument: str, dtype: np.dtype) -> None:
    """Refuse a dtype that no product is defined for."""
    check_dtype_among(function, argument, dtype, OPERAND_DTYPES)


def check_same_dtype(function: str, argument: str, dtype: np.dtype, expected: np.dtype) -> None:
    """Refuse operands of two dtypes: nothing is promoted."""
    if dtype != expected:
        raise bad_type(
            function, argument, f"dtype {expected} like the other operand (astype)", dtype
        )


def check_operand_dtypes(
    function: str, names: tuple[str, str], left: np.dtype, right: np.dtype
) -> None:
    """Refuse two operands of a dtype without products, or of two dtypes."""
    if left in _OPERANDS and left == right:
        return
    for name, dtype in zip(names, (left, right)):
        check_operand_dtype(function, name, dtype)
    check_same_dtype(function, names[1], right, left)


@cache
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
        wanted = check_dtype_name(function, "out_dtype", out_dtype)
        if wanted not in offered:
            names = ", ".join(d.name for d in offered)
            raise bad_type(function, "out_dtype", f"one of {names} for {dtype} operands", wanted)
        if out is not None and out.dtype != wanted:
            raise bad_type(function, argument, f"dtype {wanted} as out_dtype says", out.dtype)
        return wanted
    if out is None:
        return offered[0]
    check_dtype_among(function, argument, out.dtype, offered)
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
    input_name: str = "input",
) -> Any:
    """Return the array to write: a new one, or ``out`` once it is known to be safe.

    ``operands`` maps argument names to arrays that ``out`` must not overlap (None is skipped);
    ``input`` may be ``out`` itself and nothing else that overlaps it. ``argument`` is out's name
    in messages, ``input_name`` that of ``input``.
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
    operands, device = operands or {}, device_of(out)
    for name, array in operands.items():
        if array is not None and device_of(array) != device:
            expected = f"device {device_of(array)} like '{name}'"
            raise bad_value(function, argument, expected, device)
    overlapped = overlapping(out, operands)
    if overlapped is not None:
        raise bad_value(function, argument, f"memory apart from '{overlapped}'", "an overlap")
    if not (input is None or same_memory(out, input)) and overlapping(out, {"input": input}):
        expected = f"memory apart from '{input_name}', or {input_name} itself"
        raise bad_value(function, argument, expected, "a partial overlap")
    if overlaps_itself(out):
        raise bad_value(function, argument, "distinct elements", f"a view of strides {out.strides}")
    return out
