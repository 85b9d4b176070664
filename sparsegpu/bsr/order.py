"""The order of a `bsr_array`'s blocks, and which of them are stored."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from .._checks import bad_value, check_flags
from ..ops._canonical import distinct_values, spread
from ..ops._common import check_sparse, check_values, on_device
from ..pattern import Pattern
from .base import BsrBase, computed


class Ordering(BsrBase):
    """Methods of `bsr_array` that sort, merge and drop blocks, in place."""

    __slots__ = ()

    @property
    def has_sorted_indices(self) -> bool:
        """Whether block columns ascend in every row (repeated ones allowed)."""
        return self._pattern.has_sorted_indices

    @has_sorted_indices.setter
    def has_sorted_indices(self, value: Any) -> None:
        del value
        raise computed("has_sorted_indices")

    def check_format(self, full_check: bool = True) -> None:
        """Refuse an array that does not describe a matrix.

        Parameters
        ----------
        full_check : bool
            Look at every index (one synchronisation on a GPU), not only at shapes and dtypes.

        Raises
        ------
        ValueError, TypeError
            Naming the array, the rule and the offending value.
        """
        check_flags("check_format", full_check=full_check)
        check_values("check_format", "data", self._pattern, self._data)
        if full_check:
            self._pattern.check("check_format")

    def sort_indices(self) -> None:
        """Sort the blocks of every row by column, in place; repeated ones stay, in order."""
        check_sparse("sort_indices", "self", self)
        if not self.has_sorted_indices:
            pattern, order = self._pattern.sorted()
            with on_device(self._data):
                blocks = distinct_values(self._data)
                ordered = blocks.reshape(-1, *blocks.shape[-2:])[order].reshape(blocks.shape)
            self._pattern, self._data = pattern, spread(ordered, self.blocksize)

    def sorted_indices(self) -> Self:
        """Return a copy whose blocks are sorted by column in every row: see `sort_indices`."""
        array = self.copy()
        array.sort_indices()
        return array

    def sum_duplicates(self) -> None:
        """Sum blocks at the same place (bool: or) and sort, in place.

        Summed in accumulator precision and rounded once.

        Raises
        ------
        ValueError
            When the matrices of a batch would keep different numbers of blocks.
        """
        summed = self._canonical("sum_duplicates")
        self._pattern, self._data = summed._pattern, summed._data

    def eliminate_zeros(self) -> None:
        """Drop the blocks that hold zeros only, in place (NaN is no zero, -0.0 is).

        Raises
        ------
        ValueError
            When the matrices of a batch would keep different numbers of blocks.
        """
        check_sparse("eliminate_zeros", "self", self)
        xp, pattern = self._xp, self._pattern
        if self._data.size == 0:
            return
        with on_device(self._data):
            data = distinct_values(self._data)
            keep = (data != 0).any(axis=(-2, -1)).reshape(pattern.batch_size, pattern.nnzb)
            before = xp.zeros((pattern.batch_size, pattern.nnzb + 1), dtype=np.int64)
            before[:, 1:] = xp.cumsum(keep, axis=1, dtype=np.int64)
            low, high = int(before[:, -1].min()), int(before[:, -1].max())
            if low != high:
                raise bad_value(
                    "eliminate_zeros",
                    "self",
                    "the same number of nonzero blocks in every batch",
                    f"between {low} and {high}",
                )
            if low == pattern.nnzb:
                return
            starts = pattern.indptr.reshape(pattern.batch_size, -1).astype(np.int64)
            starts = xp.take_along_axis(before, starts, axis=1).reshape(pattern.indptr.shape)
            batch, flat = pattern.batch_shape, keep.ravel()
            kept = Pattern(
                starts.astype(pattern.indptr.dtype),
                pattern.indices.ravel()[flat].reshape(*batch, low),
                pattern.shape,
                pattern.blocksize,
                check=False,
                copy=False,
            )
            size = data.shape[-2:]
            blocks = data.reshape(-1, *size)[flat].reshape(*batch, low, *size)
            blocks = spread(blocks, pattern.blocksize)
        # Together and last: an allocation that fails leaves the array as it was.
        self._pattern, self._data = kept, blocks
