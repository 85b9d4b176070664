"""Grids within CUDA's limits."""

from __future__ import annotations

#: Largest extents of a grid (CUDA C++ Programming Guide, "Compute Capabilities").
MAX_GRID_X = 2**31 - 1
MAX_GRID_Y = 65535


def grid_of(x: int, y: int = 1) -> tuple[int, int]:
    """Return the grid for ``x`` by ``y`` tiles; the kernels loop over what is cut off.

    Examples
    --------
    >>> grid_of(10, 100_000)
    (10, 65535)
    """
    return min(x, MAX_GRID_X), min(y, MAX_GRID_Y)
