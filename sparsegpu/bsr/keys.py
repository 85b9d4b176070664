"""What may stand between the brackets of ``A[...]``."""

from __future__ import annotations

import operator
import reprlib
from numbers import Integral
from typing import Any

import numpy as np

from .._checks import shown


def index_parts(function: str, key: Any, dimensions: int) -> tuple:
    """Return the parts of an index, NumPy's integers as integers.

    What is no index to NumPy either, and more parts than the array has dimensions, are refused.
    What merely is not offered is for the caller.
    """
    parts = key if isinstance(key, tuple) else (key,)
    parts = tuple(map(_as_integer, parts))
    for part in parts:
        if not _is_index(part):
            expected = "integers, slices, or integers or a mask in a list or an array"
            raise _bad_index(function, expected, part)
        if isinstance(part, slice):
            _check_slice(function, part)
    if len(parts) > dimensions and ... not in map(_plain, parts):
        raise _bad_index(function, f"at most {dimensions} indices", key)
    return parts


def _as_integer(part: Any) -> Any:
    """Return an array of no dimensions that holds an integer as that integer."""
    if isinstance(part, np.ndarray) and part.ndim == 0 and part.dtype.kind in "iu":
        return int(part)
    return part


def _is_index(part: Any) -> bool:
    if isinstance(part, (bool, np.bool_, str, bytes, dict, set, type)):
        return False
    if isinstance(part, np.ndarray):
        return part.ndim > 0
    return isinstance(part, (Integral, slice, type(...))) or hasattr(part, "__len__")


def _plain(part: Any) -> Any:
    """Return a part that can be compared: of arrays a comparison is no bool."""
    return part if isinstance(part, (Integral, type(...))) else None


def _check_slice(function: str, part: slice) -> None:
    for end in (part.start, part.stop, part.step):
        try:
            if end is not None:
                operator.index(end)
        except TypeError:
            raise _bad_index(function, "slices of integers", part) from None
    if part.step == 0:
        raise _bad_index(function, "slices of a step that is not 0", part)


def _bad_index(function: str, expected: str, got: Any) -> IndexError:
    return IndexError(
        f"{function}: argument 'key': expected {expected}, got {shown(got, reprlib.repr)}"
    )
