"""Powers and roundings of stored values, which leave what is not stored zero."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays import bfloat16, namespace
from .._checks import bad_value, check_integer, check_scalar, not_offered
from .align import check_held, is_scalar


def checked_exponent(function: str, n: Any, dtype: np.dtype, instead: str) -> Any:
    """Return a positive exponent of values in a dtype; ``instead.format(n)`` does any other."""
    if not is_scalar(n) and (hasattr(n, "shape") or isinstance(n, (list, tuple))):
        what = "an array of exponents (of which a zero would fill what is not stored)"
        raise not_offered(function, what, f"one exponent, {instead.format('blocks')}")
    n = check_scalar(function, "n", n, complex_allowed=False)
    if not n > 0:
        what = f"the power {n} (it would fill what is not stored)"
        raise not_offered(function, what, f"positive powers, {instead.format(n)}")
    if isinstance(n, int):
        check_held(function, n, dtype, "n")
    return n


def raised(values: Any, n: Any) -> Any:
    """Return ``values ** n``; of bfloat16 rounded once."""
    with np.errstate(all="ignore"):
        if values.dtype == bfloat16:
            return _raised(values.astype(np.float32), n).astype(bfloat16)
        return _raised(values, n)


def _raised(values: Any, n: Any) -> Any:
    """Return ``values ** n``, by multiplication where that is exact for what is exact.

    CUDA's ``pow`` is right to one unit in the last place only, of -3.0 to the first power, too.
    """
    if n not in (1, 2, 3) or values.dtype.kind == "b":
        return values**n
    values = result = values.astype(np.result_type(values.dtype, n), copy=n == 1)
    for _ in range(int(n) - 1):
        result = result * values
    return result


def checked_decimals(function: str, decimals: Any) -> int:
    """Return how many decimals to round to."""
    decimals = check_integer(function, "decimals", decimals, "an integer")
    if abs(decimals) > 1000:  # no dtype has as many
        raise bad_value(function, "decimals", "at most 1000 decimals", decimals)
    return decimals


def rounded(values: Any, decimals: int) -> Any:
    """Return values that are no bool rounded, half to even, in their dtype."""
    wide = values.astype(np.float32) if values.dtype == bfloat16 else values
    return namespace(values).round(wide, decimals).astype(values.dtype, copy=False)
