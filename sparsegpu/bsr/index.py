"""Rows of a `bsr_array`."""

from __future__ import annotations

import reprlib
from numbers import Integral
from typing import Any, Self

from .._checks import bad_value, check_integers, not_offered
from ..engines import engine_module
from ..ops._common import check_sparse, on_device
from ..pattern import Pattern
from .base import BsrBase


def _is_integer(key: Any) -> bool:
    """Return whether a key is an integer; NumPy takes True and False as masks."""
    return isinstance(key, Integral) and not isinstance(key, bool)


def _is_whole(key: Any) -> bool:
    return isinstance(key, slice) and key == slice(None)


class Indexing(BsrBase):
    """``A[i]`` and ``A[i:j]``; ``i`` and ``j`` count element rows."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple) and len(key) == 2 and _is_whole(key[1]):
            key = key[0]
        if isinstance(key, slice):
            return self._row_slice(key)
        if _is_integer(key):
            return self.getrow(int(key))
        if isinstance(key, tuple) and len(key) == 2 and all(map(_is_integer, key)):
            k = self._pattern.shape[1]
            if not -k <= key[1] < k:
                raise IndexError(
                    f"bsr_array[i, j]: argument 'j': expected a column in {-k}..{k - 1}, "
                    f"got {key[1]}"
                )
            return self.getrow(int(key[0]))[int(key[1])]
        raise not_offered(
            "bsr_array[...]",
            f"the index {reprlib.repr(key)}",
            "A[i], A[i, j], A[i:j] with multiples of the block height",
        )

    def getrow(self, i: int) -> Any:
        """Return element row ``i``, dense, shape (K,).

        Raises
        ------
        IndexError
            Out of range.
        ValueError
            For a batch.
        TypeError
            When ``i`` is no integer.
        """
        check_sparse("getrow", "self", self)
        self._refuse_batch("getrow")
        (i,) = check_integers("getrow", "i", (i,), "an integer")
        (m, k), (bm, bk), xp = self._pattern.shape, self.blocksize, self._xp
        if not -m <= i < m:
            raise IndexError(f"getrow: argument 'i': expected a row in {-m}..{m - 1}, got {i}")
        block_row, line = divmod(i % m, bm)
        with on_device(self._data):
            first, last = (int(p) for p in self.indptr[block_row : block_row + 2])
            row = xp.zeros((1, k), self.dtype)
            if last > first:
                # One block row, of blocks of height 1.
                starts = xp.array([0, last - first], dtype=self.indptr.dtype)
                indices = self.indices[first:last]
                pattern = Pattern(starts, indices, (1, k), (1, bk), check=False)
                engine_module(xp, "convert", "getrow").scatter_blocks(
                    row, pattern, self._data[first:last, line : line + 1]
                )
        return row[0]

    def _row_slice(self, key: slice) -> Self:
        """Return element rows, a `bsr_array` with its own values."""
        check_sparse("bsr_array[i:j]", "self", self)
        self._refuse_batch("bsr_array[i:j]")
        (m, k), (bm, _) = self._pattern.shape, self.blocksize
        start, stop, step = key.indices(m)
        if step != 1:
            raise bad_value("bsr_array[i:j]", "step", "1", step)
        stop = max(start, stop)
        if start % bm or stop % bm:
            raise bad_value("bsr_array[i:j]", "i, j", f"multiples of {bm}", (start, stop))
        with on_device(self._data):
            starts = self.indptr[start // bm : stop // bm + 1]
            first, last = int(starts[0]), int(starts[-1])
            pattern = Pattern(
                starts - starts[0],
                self.indices[first:last],
                (stop - start, k),
                self.blocksize,
                check=False,
            )
            return self._with(pattern, self._data[first:last].copy())
