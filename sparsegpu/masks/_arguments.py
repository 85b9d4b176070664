"""Checks of the arguments that the makers of masks share."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from .._arrays import as_array
from .._checks import (
    bad_type,
    bad_value,
    check_blocksize,
    check_flags,
    check_integer,
    check_sizes,
    shown,
)
from ..bsr.array import bsr_array
from ..bsr.block_mask import BlockMask

#: Wider than any mask, and sums of two are still 64-bit integers.
UNBOUNDED = np.iinfo(np.int64).max // 4


def check_blocks(function: str, blocksize: Any) -> tuple[int, int]:
    """Return a block size, given as an integer or a pair, as a pair."""
    pair = blocksize if isinstance(blocksize, tuple) else (blocksize, blocksize)
    return check_blocksize(function, pair)


def sizes(function: str, length: Any, blocksize: Any) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return ``(L, S)`` and ``(bm, bk)``."""
    pair = length if isinstance(length, tuple) else (length, length)
    blocks = check_blocks(function, blocksize)
    expected = "an integer or a pair (L, S)"
    rows, columns = check_sizes(function, "length", pair, expected, count=2)
    if rows % blocks[0] or columns % blocks[1]:
        raise bad_value(function, "length", f"multiples of the blocksize {blocks}", pair)
    return (rows, columns), blocks


def check_count(function: str, argument: str, count: Any) -> int:
    """Return an integer that is not negative, at most `UNBOUNDED`."""
    count = check_integer(function, argument, count, "an integer")
    if count < 0:
        raise bad_value(function, argument, "an integer, not negative", count)
    return min(count, UNBOUNDED)


def check_options(function: str, xp: Any, **flags: Any) -> None:
    """Refuse what is no array library, and flags that are not True or False."""
    check_flags(function, **flags)
    if not hasattr(xp, "asarray"):
        raise bad_type(function, "xp", "the module numpy or cupy", shown(xp, repr))


def placed(function: str, argument: str, x: Any, xp: ModuleType | None) -> Any:
    """Return an array as it is, a sequence as an array of ``xp`` (by default of NumPy)."""
    if xp is not None:
        check_options(function, xp)
    array = as_array(x, function, argument)
    return array if xp is None or hasattr(x, "dtype") else xp.asarray(array)


def in_form(mask: BlockMask, compact: bool) -> BlockMask | bsr_array:
    """Return the mask itself, or as a `bsr_array` with memory of its own."""
    return mask if compact else mask.tobsr(copy=True)
