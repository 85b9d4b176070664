"""Values of one 2:4 dtype as those of another, also where CuPy has bytes for float8_e4m3fn."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays import bfloat16, float8_e4m3fn, namespace
from .._checks import not_offered


def decoded(array: Any, dtype: np.dtype) -> Any:
    """Return an array that stands for ``dtype`` in one that both array libraries compare."""
    single = np.dtype(np.float32)
    return cast("", array, dtype, single) if dtype in {bfloat16, float8_e4m3fn} else array


def cast(function: str, array: Any, dtype: np.dtype, wanted: np.dtype) -> Any:
    """Return the values of an array that stands for ``dtype`` as ``wanted``, NumPy's conversion.

    CuPy does not know float8_e4m3fn: what has at most 16 bits is looked up.
    """
    xp = namespace(array)
    if xp is np or float8_e4m3fn not in {dtype, wanted}:
        return array.astype(wanted)
    if dtype.itemsize > 2:
        what = f"{dtype} as float8_e4m3fn in CuPy (NumPy rounds it once)"
        raise not_offered(function, what, "astype('float16') or astype('bfloat16') before")
    bits = np.dtype(f"u{dtype.itemsize}")
    table = np.arange(2 ** (8 * bits.itemsize), dtype=bits).view(dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        table = table.astype(wanted)
    stored = table.view(np.uint8) if wanted == float8_e4m3fn else table
    return xp.asarray(stored)[array.view(bits)]
