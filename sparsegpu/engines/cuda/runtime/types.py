"""The names that the kernels have for our dtypes (``common/types.cuh``)."""

from __future__ import annotations

import numpy as np

from ...._arrays import bfloat16, float8_e4m3fn

_CTYPES = {
    np.dtype(np.float16): "f16",
    bfloat16: "bf16",
    np.dtype(np.float32): "f32",
    np.dtype(np.float64): "f64",
    np.dtype(np.int8): "s8",
    np.dtype(np.uint8): "u8",
    np.dtype(np.int32): "s32",
    np.dtype(np.int64): "s64",
    np.dtype(np.bool_): "b8",
    np.dtype(np.complex64): "c64",
    np.dtype(np.complex128): "c128",
    float8_e4m3fn: "e4m3",
}


def ctype(dtype: np.dtype) -> str:
    """Return the kernels' name of a dtype, for ``-DT=...``.

    Raises
    ------
    TypeError
        For a dtype that no kernel knows.

    Examples
    --------
    >>> ctype(np.dtype(np.float32))
    'f32'
    """
    try:
        return _CTYPES[dtype]
    except KeyError:
        names = ", ".join(d.name for d in _CTYPES)
        raise TypeError(f"ctype: argument 'dtype': expected one of {names}, got {dtype}") from None
