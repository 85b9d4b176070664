"""Other shapes of a `bsr_array`: of its batch, of its rows, of any element order."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Self

import numpy as np

from .._checks import bad_value, check_choice, check_flags, check_integers
from ..ops._common import check_sparse, on_device
from ..pattern import Pattern
from .base import BsrBase
from .elements import check_divides, from_elements


class Reshaping(BsrBase):
    """``reshape`` of `bsr_array`."""

    __slots__ = ()

    transpose: Callable[..., Any]

    def reshape(self, *shape: Any, order: str = "C", copy: bool = False) -> Self:
        """Return the same elements, in the same order, in another shape.

        Where the matrices keep their columns, as those of a batch whose shape alone changes, the
        blocks stay as they are and the values are shared. Otherwise the elements are sorted into
        blocks of the same size anew.

        Parameters
        ----------
        *shape : int, or one tuple
            ``(*batch, M, K)``; -1 stands for what is left.
        order : {"C", "F"}
            Of the elements: row by row, or of one matrix also column by column.
        copy : bool
            Copy the values where they would be shared.

        Raises
        ------
        ValueError
            A shape of another size, or that the block size does not divide; matrices of a batch
            that would store different numbers of blocks; another order, of a batch "F", too.
        TypeError
            What are no integers.

        Examples
        --------
        >>> import sparsegpu
        >>> A = sparsegpu.random_bsr((6, 4, 8), (2, 2), 0.5, rng=0)
        >>> A.reshape(2, 3, 4, 8).shape, A.reshape(24, 8).nnzb, A[0].reshape(8, -1).shape
        ((2, 3, 4, 8), 24, (8, 4))
        """
        function = "reshape"
        check_sparse(function, "self", self)
        check_choice(function, "order", order, ("C", "F"))
        check_flags(function, copy=copy)
        wanted = _checked_shape(function, shape, self.shape)
        check_divides(function, wanted, self.blocksize, "shape")
        if order == "F":
            if len(self.shape) > 2 or len(wanted) > 2:
                raise bad_value(function, "order", "'C' for a batch", repr(order))
            return self.transpose().reshape(wanted[::-1]).transpose()
        with on_device(self._data):
            if wanted[-1] == self.shape[-1]:
                pattern = _with_rows(function, self._pattern, wanted)
                data = self._data.reshape(pattern.data_shape)
                return self._with(pattern, data.copy() if copy else data)
            xp, k, values = self._xp, wanted[-1], self._data.ravel()
            row, column = self._pattern.element_positions()
            place = (row * self.shape[-1] + column).ravel()
            stored = xp.flatnonzero(values != 0)
            place, values = place[stored], values[stored]
            batch, matrix = wanted[:-2], (wanted[-2], wanted[-1])
            positions = place // max(k, 1), place % max(k, 1)
            parts = from_elements(
                function, "shape", *positions, values, batch, matrix, self.blocksize
            )
            return self._with(*parts)


def _checked_shape(function: str, shape: tuple, found: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape asked for, with its size instead of -1."""
    given = shape[0] if len(shape) == 1 and hasattr(shape[0], "__len__") else shape
    wanted = list(check_integers(function, "shape", given, "integers (*batch, M, K)"))
    if len(wanted) < 2 or min(wanted) < -1 or wanted.count(-1) > 1:
        expected = "(*batch, M, K), none negative but one that may be -1"
        raise bad_value(function, "shape", expected, tuple(wanted))
    size = prod(found)
    if -1 in wanted:
        known = -prod(wanted)
        if known == 0 or size % known:
            raise bad_value(function, "shape", f"a shape of {size} elements", tuple(wanted))
        wanted[wanted.index(-1)] = size // known
    if prod(wanted) != size:
        raise bad_value(function, "shape", f"a shape of {size} elements", tuple(wanted))
    return tuple(wanted)


def _with_rows(function: str, pattern: Pattern, shape: tuple[int, ...]) -> Pattern:
    """Return the pattern of the same block rows, in matrices of other numbers of rows."""
    xp, (*batch, m, k) = pattern.xp, shape
    rows, matrices = m // pattern.blocksize[0], prod(batch)
    if m == pattern.shape[0] and matrices == pattern.batch_size:
        nnzb = pattern.nnzb
        indptr = pattern._indptr.reshape(*batch, rows + 1)
    else:
        starts = pattern.stacked()._indptr.astype(np.int64)
        ends = starts[xp.arange(matrices + 1, dtype=np.int64) * rows]
        counts = xp.diff(ends)
        nnzb = int(counts[0]) if matrices else 0
        if matrices and bool((counts != nnzb).any()):
            expected = "the same number of stored blocks in every matrix of the batch"
            got = f"between {int(counts.min())} and {int(counts.max())}"
            raise bad_value(function, "shape", expected, got)
        line = xp.arange(rows + 1, dtype=np.int64)
        first = xp.arange(matrices, dtype=np.int64)[:, None] * rows
        indptr = (starts[first + line] - ends[:-1, None]).reshape(*batch, rows + 1)
    indices = pattern._indices.reshape(*batch, nnzb)
    return Pattern(indptr, indices, (m, k), pattern.blocksize, check=False)
