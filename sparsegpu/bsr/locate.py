"""Where the largest and the smallest elements of a `bsr_array` are, and its diagonal blocks."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .._checks import check_integer
from .._segments import starts_run
from ..ops._common import check_sparse, on_device
from .compare import comparable
from .reduce import Reductions, extreme, kept_axes, matrix_axes


class Locations(Reductions):
    """``argmax``, ``argmin`` and ``diagonal_blocks``; what is not stored is zero."""

    __slots__ = ()

    def argmax(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Return where the largest element is, or along an axis; int64.

        The first of equals, in row-major order; NaN prevails, as in NumPy.

        Parameters
        ----------
        axis : {None, 0, 1, -1, -2}
            None: the number of the element in the flattened matrix.
        keepdims : bool
            Keep the axis, with length one; for None both.

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
        return _located("argmax", self, axis, keepdims, "maximum")

    def argmin(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Return where the smallest element is, or along an axis: see `argmax`.

        Raises
        ------
        ValueError, TypeError
            As `argmax`.
        """
        return _located("argmin", self, axis, keepdims, "minimum")

    def diagonal_blocks(self, k: int = 0) -> Any:
        """Return the blocks of a block diagonal (of each matrix of a batch), dense.

        Parameters
        ----------
        k : int
            Counted in blocks, above the main diagonal where positive. Empty where the matrix has
            no such diagonal.

        Returns
        -------
        array (*batch, n, bm, bk)
            Duplicate blocks are summed.

        Raises
        ------
        TypeError
            When ``k`` is no integer.

        Examples
        --------
        >>> import numpy as np, sparsegpu
        >>> A = sparsegpu.bsr_array(np.diag([1.0, 2, 0, 0]), blocksize=(2, 2))
        >>> A.diagonal_blocks().tolist()
        [[[1.0, 0.0], [0.0, 2.0]], [[0.0, 0.0], [0.0, 0.0]]]
        """
        k = check_integer("diagonal_blocks", "k", k, "an integer")
        check_sparse("diagonal_blocks", "self", self)
        batch, (rows, columns) = self._pattern.batch_shape, self._pattern.block_shape
        length = max(0, min(rows + min(k, 0), columns - max(k, 0)))
        with on_device(self._data):
            blocks = self._xp.zeros((prod(batch) * length, *self.blocksize), self.dtype)
            if length:
                summed = self._one_matrix()._canonical("diagonal_blocks")
                matrix, row = divmod(summed._pattern._rows.astype(np.int64), rows)
                met = self._xp.flatnonzero(summed._pattern._indices == row + k)
                place = matrix * length + row + min(k, 0)
                blocks[place[met]] = summed._data[met]
        return blocks.reshape(*batch, length, *self.blocksize)


def _located(function: str, array: Any, axis: Any, keepdims: Any, operation: str) -> Any:
    check_sparse(function, "self", array)
    array._refuse_batch(function)
    axes = matrix_axes(function, axis, 2)
    with on_device(array._data):
        place = _place_of_extreme(function, array, axes, operation)
        return kept_axes(function, place, array, axes, keepdims)


def _place_of_extreme(
    function: str, array: Any, axes: tuple[int, ...] | None, operation: str
) -> Any:
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
