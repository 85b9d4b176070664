"""Random block patterns."""

from __future__ import annotations

from typing import Any

import numpy as np


def block_pattern(
    kind: str, block_shape: tuple[int, int], density: float, rng: np.random.Generator
) -> tuple[Any, Any]:
    """Return ``(indptr, indices)`` of a pattern as NumPy arrays, columns sorted.

    Parameters
    ----------
    kind : {"uniform", "power law", "full row", "diagonal", "strata", "pages", "stencil"}
        "uniform": positions drawn without replacement. "power law": the length of the r-th longest
        row is proportional to 1 / r. "full row": one full row, the others uniform. "diagonal":
        uniform, and the diagonal besides. "strata": the columns are divided into equal parts, and
        each row has one block in each part (drawn without a block mask, for very large patterns).
        "pages": rows take the columns one after the other, as a random order has them, and keep it.
        "stencil": the 27 points around each one of a cube, whatever the density.
    block_shape : (block rows, block columns)
    density : float
    rng : numpy.random.Generator

    Examples
    --------
    >>> import numpy as np
    >>> indptr, indices = block_pattern("power law", (4, 8), 0.5, np.random.default_rng(0))
    >>> sorted(np.diff(indptr).tolist()), len(indices)
    ([2, 2, 4, 8], 16)
    """
    rows, columns = block_shape
    if kind == "strata":
        count = max(round(density * columns), 1)
        edges = np.arange(count + 1) * columns // count
        indices = rng.integers(edges[:-1], edges[1:], (rows, count), dtype=np.int32)
        return np.arange(rows + 1, dtype=np.int32) * np.int32(count), indices.ravel()
    if kind == "stencil":
        return _stencil(rows)
    if kind == "pages":
        count = max(round(density * columns), 1)
        pages = rng.permutation(columns)[np.arange(rows * count) % columns]
        return np.arange(rows + 1, dtype=np.int32) * np.int32(count), pages.astype(np.int32)
    mask = _MASKS[kind](rows, columns, density, rng)
    indptr = np.zeros(rows + 1, dtype=np.int32)
    indptr[1:] = np.cumsum(mask.sum(axis=1))
    return indptr, np.nonzero(mask)[1].astype(np.int32)


def _stencil(points: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the neighbours of the first ``points`` points of the smallest cube that has them."""
    side = next(n for n in range(round(points ** (1 / 3)), points + 2) if n**3 >= points)
    place = np.arange(points)
    near = np.arange(-1, 2)
    axes = place // side**2, place // side % side, place % side
    inside = [np.isin(axis[:, None] + near, np.arange(side)) for axis in axes]
    valid = inside[0][:, :, None, None] & inside[1][:, None, :, None] & inside[2][:, None, None]
    step = (near[:, None, None] * side + near[:, None]) * side + near
    neighbours = (place[:, None] + step.ravel()).reshape(points, 27)
    valid = valid.reshape(points, 27) & (neighbours < points)
    indptr = np.concatenate([[0], np.cumsum(valid.sum(axis=1))])
    return indptr.astype(np.int32), neighbours[valid].astype(np.int32)


def _uniform(rows: int, columns: int, density: float, rng: np.random.Generator) -> np.ndarray:
    mask = np.zeros(rows * columns, dtype=bool)
    mask[rng.permutation(rows * columns)[: round(density * rows * columns)]] = True
    return mask.reshape(rows, columns)


def _full_row(rows: int, columns: int, density: float, rng: np.random.Generator) -> np.ndarray:
    mask = _uniform(rows, columns, density, rng)
    mask[rows // 2] = True
    return mask


def _diagonal(rows: int, columns: int, density: float, rng: np.random.Generator) -> np.ndarray:
    return _uniform(rows, columns, density, rng) | np.eye(rows, columns, dtype=bool)


def _power_law(rows: int, columns: int, density: float, rng: np.random.Generator) -> np.ndarray:
    lengths = rng.permutation(power_law_lengths(rows, columns, density))
    rank = rng.random((rows, columns)).argsort(axis=1).argsort(axis=1)
    return rank < lengths[:, None]


_MASKS = {
    "uniform": _uniform,
    "power law": _power_law,
    "full row": _full_row,
    "diagonal": _diagonal,
}


def power_law_lengths(rows: int, columns: int, density: float) -> np.ndarray:
    """Return row lengths proportional to 1 / rank, none above ``columns``, of a given sum."""
    total = round(density * rows * columns)
    share = 1 / np.arange(1, rows + 1)
    low, high = 0.0, float(rows * columns)
    for _ in range(60):  # bisection: the sum grows with the factor
        middle = (low + high) / 2
        if np.minimum(share * middle, columns).sum() < total:
            low = middle
        else:
            high = middle
    exact = np.minimum(share * high, columns)
    lengths = np.floor(exact).astype(np.int64)
    # Add what was lost by rounding down to the rows that lost most.
    lost = np.argsort(lengths - exact, kind="stable")[: total - lengths.sum()]
    lengths[lost] += 1
    return lengths
