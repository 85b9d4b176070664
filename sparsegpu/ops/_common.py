"""What every operation does before an engine sees its arrays."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from .._arrays import (
    HALF_DTYPES,
    OPERAND_DTYPES,
    as_array,
    check_dtype_name,
    device_of,
    float8_e4m3fn,
    is_complex,
    namespace,
    overlapping,
    same_memory,
    swap_last,
)
from .._checks import bad_type, bad_value, check_broadcasts_to, check_choice, check_scalar
from .._epilogue import ACTIVATIONS, Epilogue, transposed_input

_ANYWHERE: AbstractContextManager = nullcontext()
_OPERANDS = frozenset(OPERAND_DTYPES)
_FLOATS = (*HALF_DTYPES, np.dtype(np.float32))


def on_device(array: Any) -> AbstractContextManager:
    """Make the array's CUDA device current for allocation and launch (host: do nothing)."""
    device = device_of(array)
    if device is None:
        return _ANYWHERE
    cuda = namespace(array).cuda
    return _ANYWHERE if cuda.runtime.getDevice() == device else cuda.Device(device)


def optional_array(x: Any, function: str, argument: str) -> Any:
    """Return an optional argument as an array, None as None."""
    return None if x is None else as_array(x, function, argument)


def optional_out(x: Any, function: str, argument: str = "out") -> Any:
    """Return the optional array to write to, None as None.

    What `as_array` would copy (a list) could never be written to.
    """
    if isinstance(x, (list, tuple, int, float, complex, np.generic)):
        raise bad_type(function, argument, "an array to write to", type(x).__name__)
    return optional_array(x, function, argument)


PRODUCT_KEYWORDS = frozenset(
    {
        "beta",
        "alpha",
        "left_alpha",
        "right_alpha",
        "activation",
        "out",
        "out_dtype",
        "allow_tf32",
        "config",
    }
)


def check_keywords(function: str, keywords: dict[str, Any], *others: str) -> None:
    """Refuse a keyword that a product does not take."""
    for name in keywords:
        if name not in PRODUCT_KEYWORDS and name not in others:
            known = ", ".join(sorted(PRODUCT_KEYWORDS.union(others)))
            raise bad_type(function, name, f"one of the keywords {known}", "an unknown one")


class Side(NamedTuple):
    """How the caller of ``sparse @ dense`` sees the result ``(*batch, m, n)``.

    Attributes
    ----------
    vector : bool
        The dense operand has one dimension: the result is ``(*batch, m)``.
    from_the_right : bool
        The product is the transpose of what was asked for, ``dense @ sparse``.
    """

    vector: bool
    from_the_right: bool

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the caller's shape of the result."""
        if self.vector:
            return shape[:-1]
        return (*shape[:-2], shape[-1], shape[-2]) if self.from_the_right else shape

    def check(self, function: str, shape: tuple[int, ...], input: Any, out: Any) -> None:
        """Refuse an ``input`` or ``out`` that does not fit, in the caller's shapes."""
        seen = self.shape(shape)
        if input is not None:
            check_broadcasts_to(function, "input", tuple(input.shape), seen)
        if out is not None and tuple(out.shape) != seen:
            raise bad_value(function, "out", f"shape {seen}", tuple(out.shape))

    def inward(self, array: Any) -> Any:
        """Return the engine's view of the caller's ``input`` or ``out``; None as None."""
        if array is None or array.ndim == 0:
            return array
        if self.vector:
            return array[..., None]
        return transposed_input(array) if self.from_the_right else array

    def outward(self, result: Any) -> Any:
        """Return the caller's view of a result."""
        if self.vector:
            return result[..., 0]
        return swap_last(result) if self.from_the_right else result

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, xp: ModuleType) -> Any:
        """Return a new result ``(*batch, m, n)`` that is row-major to the caller."""
        return self.inward(xp.empty(self.shape(shape), dtype))


def check_config(function: str, config: Any) -> None:
    """Refuse a configuration that is no dictionary."""
    if config is not None and not isinstance(config, dict):
        raise bad_type(function, "config", "a dict or None", config)


def check_sparse(function: str, argument: str, x: Any) -> None:
    """Refuse what has no block pattern."""
    if not (hasattr(x, "pattern") and hasattr(x, "data")):
        raise bad_type(function, argument, "a bsr_array", type(x).__name__)


def check_operand_dtype(function: str, argument: str, dtype: np.dtype) -> None:
    """Refuse a dtype that no product is defined for."""
    if dtype not in _OPERANDS:
        names = ", ".join(d.name for d in OPERAND_DTYPES)
        raise bad_type(function, argument, f"one of the dtypes {names}", dtype)


def check_same_dtype(function: str, argument: str, dtype: np.dtype, expected: np.dtype) -> None:
    """Refuse operands of two dtypes: nothing is promoted."""
    if dtype != expected:
        raise bad_type(function, argument, f"dtype {expected} like the other operand", dtype)


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
    operands, device = operands or {}, device_of(out)
    for name, array in operands.items():
        if array is not None and device_of(array) != device:
            expected = f"device {device_of(array)} like '{name}'"
            raise bad_value(function, argument, expected, device)
    overlapped = overlapping(out, operands)
    if overlapped is not None:
        raise bad_value(function, argument, f"memory apart from '{overlapped}'", "an overlap")
    if not (input is None or same_memory(out, input)) and overlapping(out, {"input": input}):
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
    alphas: dict[str, Any],
    activation: str | None,
    swapped: bool = False,
    no_product: bool = False,
) -> Epilogue:
    """Validate everything that happens to the accumulator (`_epilogue.Epilogue`).

    Array arguments come in as arrays of the call's one library (`optional_array`,
    `_arrays.common_namespace`). ``alphas`` are the caller's scales of the rows and of the
    columns of the result, by the names that messages give them; ``swapped`` says that the engine
    sees the transposed result. With ``no_product`` there is nothing for alpha to scale.
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
    lengths = reversed(shape[-2:]) if swapped else shape[-2:]
    scales = [
        _side_alpha(function, name, array, (*shape[:-2], length), dtype, out_dtype)
        for (name, array), length in zip(alphas.items(), lengths, strict=True)
    ]
    if alpha == 0 or no_product:  # nothing that scales the product is read
        alpha, scales = 0, [None, None]
    left_alpha, right_alpha = reversed(scales) if swapped else scales
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
