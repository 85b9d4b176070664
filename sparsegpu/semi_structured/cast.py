"""Conversions between the 2:4 dtypes, also of float8_e4m3fn as bytes in CuPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays import float8_e4m3fn, namespace
from .._checks import not_offered
from ..bsr.compare import comparable


def decoded(array: Any, dtype: np.dtype) -> Any:
    """Return an array that stands for ``dtype`` in one that both array libraries compare."""
    if dtype == float8_e4m3fn:
        return _converted(array, dtype, np.dtype(np.float32))
    return comparable(array)


def cast(function: str, array: Any, dtype: np.dtype, wanted: np.dtype) -> Any:
    """Return the values of an array that stands for ``dtype`` as ``wanted``, NumPy's conversion.

    Raises
    ------
    NotImplementedError
        More than 16 bits as float8_e4m3fn in CuPy, which has no such conversion.
    """
    if namespace(array) is not np and wanted == float8_e4m3fn and dtype.itemsize > 2:
        what = f"{dtype} as float8_e4m3fn in CuPy (NumPy rounds it once)"
        raise not_offered(function, what, "astype('float16') or astype('bfloat16') before")
    return _converted(array, dtype, wanted)


def _converted(array: Any, dtype: np.dtype, wanted: np.dtype) -> Any:
    """Do what `cast` does; in CuPy, float8_e4m3fn is converted by a table of all values."""
    xp = namespace(array)
    if xp is np or float8_e4m3fn not in {dtype, wanted}:
        return array.astype(wanted)
    bits = np.dtype(f"u{dtype.itemsize}")
    table = np.arange(2 ** (8 * bits.itemsize), dtype=bits).view(dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        table = table.astype(wanted)
    stored = table.view(np.uint8) if wanted == float8_e4m3fn else table
    return xp.asarray(stored)[array.view(bits)]
