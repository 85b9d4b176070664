"""The epilogue as a kernel argument: what ``common/epilogue.cuh`` unpacks."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from ..._epilogue import Epilogue
from .runtime.types import ctype
from .runtime.view import matrix_view, vector_view

_INTEGERS = struct.Struct("<2q")
_FLAGS = struct.Struct("<2i")
_UNREAD = bytes(3 * 56 + _FLAGS.size)  # what "identity" does not read


def epilogue_args(
    epilogue: Epilogue, batch_shape: tuple[int, ...], acc_dtype: np.dtype, out_dtype: np.dtype
) -> tuple[dict[str, str], bytes]:
    """Return the ``-D`` names that choose the epilogue's code, and its by-value argument.

    Parameters
    ----------
    epilogue : Epilogue
        Validated.
    batch_shape : tuple of int
        Of the result, as in `view.matrix_view`.
    acc_dtype, out_dtype : dtype
        Of the accumulator (`_arrays.accumulator_dtype`) and of the output.

    Returns
    -------
    defines : dict
        ``OUT``, ``ACT``, ``EPILOGUE`` and the types of the side operands.
    argument : bytes
        ``Epilogue<Acc<T>::type>``.
    """
    e = epilogue
    mode = _mode(e, acc_dtype, out_dtype)
    defines = {
        "OUT": ctype(out_dtype),
        "ACT": e.activation or "none",
        "EPILOGUE": mode,
        "INPUT": _side_type(e.input),
        "LEFT": _side_type(e.left_alpha),
        "RIGHT": _side_type(e.right_alpha),
    }
    scalars = _pack_scalars(e.alpha, e.beta, mode, acc_dtype)
    if mode == "identity":
        return defines, _UNREAD + scalars
    argument = b"".join(
        (
            matrix_view(e.input, batch_shape),
            vector_view(e.left_alpha, batch_shape),
            vector_view(e.right_alpha, batch_shape),
            _FLAGS.pack(e.alpha == 1, 0),
            scalars,
        )
    )
    return defines, argument


def batched_operands(e: Epilogue) -> tuple[tuple[Any, int], ...]:
    """Return what an epilogue reads, as `view.merged_batch` wants it."""
    return (e.input, 2), (e.left_alpha, 1), (e.right_alpha, 1)


def _mode(e: Epilogue, acc_dtype: np.dtype, out_dtype: np.dtype) -> str:
    if e.is_identity:
        return "identity"
    integers = acc_dtype == np.int32 and out_dtype == np.int32
    return "exact" if integers and e.is_integral else "scaled"


def _pack_scalars(alpha: Any, beta: Any, mode: str, acc_dtype: np.dtype) -> bytes:
    if mode == "exact":
        return _INTEGERS.pack(int(alpha), int(beta))
    compute = np.float32 if acc_dtype == np.int32 else acc_dtype
    with np.errstate(over="ignore"):
        pair = np.array([alpha, beta], dtype=compute)
    return pair.tobytes()


def _side_type(array: Any) -> str:
    return "none" if array is None else ctype(array.dtype)
