"""Integer arithmetic that several layers need."""

from __future__ import annotations

from typing import overload

import numpy as np


@overload
def ceil_div(a: int, b: int) -> int: ...
@overload
def ceil_div(a: np.ndarray, b: int) -> np.ndarray: ...
def ceil_div(a, b):
    """Return ``a / b`` rounded up; of arrays of integers, too."""
    return -(-a // b)


def round_up(a: int, multiple: int) -> int:
    """Return the smallest multiple that is at least ``a``."""
    return ceil_div(a, multiple) * multiple


def power_of_two_below(n: int) -> int:
    """Return the largest power of two that is at most ``n`` (n >= 1)."""
    return 1 << (n.bit_length() - 1)


def power_of_two_from(n: int) -> int:
    """Return the least power of two that is at least ``n``."""
    return power_of_two_below(max(2 * n - 1, 1))
