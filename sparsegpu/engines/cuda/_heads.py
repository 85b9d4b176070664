"""The heads of attention as the batch of a kernel: with groups, key and value only broadcast."""

from __future__ import annotations

from typing import Any


def as_vectors(of_heads: Any) -> Any:
    """Return numbers of heads (*B, H) as vectors of one element, as a kernel's batch has them."""
    return None if of_heads is None else of_heads[..., None]


def split_heads(array: Any, trailing: int, heads: int, kv_heads: int) -> Any:
    """Return a view whose axis of heads is split into (key heads, groups), if there are groups.

    That axis stands before the ``trailing`` last ones; where it is missing or 1 it broadcasts.
    """
    groups = heads // kv_heads
    if groups == 1 or array is None or array.ndim <= trailing:
        return array
    axis = array.ndim - trailing - 1
    n = array.shape[axis]
    split = (kv_heads, groups) if n == heads else (n, 1)
    return array.reshape(*array.shape[:axis], *split, *array.shape[axis + 1 :])
