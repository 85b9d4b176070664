"""Where the largest and the smallest elements of a `bsr_array` are."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._segments import starts_run
from ..ops._common import check_sparse, on_device
from .compare import comparable
from .reduce import Reductions, extreme, matrix_axes


class Locations(Reductions):
    """``argmax`` and ``argmin`` of `bsr_array`; what is not stored is zero."""

    __slots__ = ()

    def argmax(self, axis: Any = None) -> Any:
        """Return where the largest element is, or along an axis; int64.

        The first of equals, in row-major order; NaN prevails, as in NumPy.

        Parameters
        ----------
        axis : {None, 0, 1, -1, -2}
            None: the number of the element in the flattened matrix.

        Raises
        ------
        ValueError
            For a batch, another axis, a matrix of length zero.
        TypeError
            For complex values, and an axis that is no integer.

        Examples
        --------
        >>> import numpy as np, sparsegpu
        >>> A = sparsegpu.bsr_array(np.diag([-1.0, 3, 2, 0]), blocksize=(2, 2))
        >>> int(A.argmax()), A.argmax(axis=1)
        (5, array([1, 1, 2, 0]))
        """
        return _located("argmax", self, axis, "max", "maximum")

    def argmin(self, axis: Any = None) -> Any:
        """Return where the smallest element is, or along an axis: see `argmax`.

        Raises
        ------
        ValueError, TypeError
            As `argmax`.
        """
        return _located("argmin", self, axis, "min", "minimum")


def _located(function: str, array: Any, axis: Any, name: str, operation: str) -> Any:
    check_sparse(function, "self", array)
    array._refuse_batch(function)
    axes = matrix_axes(function, axis, 2)
    with on_device(array._data):
        if axes == (-2,):
            array = array.T
        elif axes is None or len(axes) == 2:
            extreme(array, None, function, operation)  # refuses what has no elements
        best = comparable(extreme(array, -1, function, operation))
        columns = _first_columns(array._canonical(function), best)
        if axes is not None and len(axes) == 1:
            return columns
        row = getattr(best, function)()
        return row * array.shape[1] + columns[row]


def _first_columns(array: Any, best: Any) -> Any:
    """Return the first column of each row that holds the row's ``best``."""
    xp, pattern = array._xp, array._pattern
    (m, k), (bm, bk), (rows, columns) = pattern.shape, array.blocksize, pattern.block_shape
    row, column = pattern.element_positions()
    values = comparable(array._data)
    place = xp.sort((row * k + column)[(values == best[row]) | (values != values)])
    found = place // k
    first = starts_run(found)
    position = xp.full((m,), k, np.int64)
    position[found[first]] = place[first] % k
    # Of sorted columns those before the first gap are equal to their rank.
    rank = xp.arange(pattern.nnzb, dtype=np.int64) - pattern._indptr[pattern._rows]
    gap = xp.bincount(pattern._rows[pattern._indices == rank], minlength=rows)
    gap = xp.repeat(gap.astype(np.int64), bm)
    return xp.where((best == 0) & (gap < columns), xp.minimum(position, gap * bk), position)
