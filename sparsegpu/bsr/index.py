"""Elements, rows, columns and other parts of a `bsr_array`."""

from __future__ import annotations

import reprlib
from numbers import Integral
from typing import Any, Self

import numpy as np

from .._arrays import as_array, common_namespace
from .._checks import bad_type, bad_value, check_integer, not_offered, shown
from .._segments import expand_counts
from ..engines import engine_module
from ..ops._common import check_sparse, on_device
from ..pattern import Pattern
from .assign import assign
from .base import BsrBase
from .keys import index_parts


def _is_integer(key: Any) -> bool:
    """Return whether a key is an integer; NumPy takes True and False as masks."""
    return isinstance(key, Integral) and not isinstance(key, bool)


def _is_whole(key: Any) -> bool:
    return isinstance(key, slice) and key == slice(None)


class Indexing(BsrBase):
    """``A[i]``, ``A[i, j]``, ``A[i:j, k:l]``, ``A[:, j]``, ``A[rows]``; ``A[b]`` of a batch.

    Indices count elements. ``A[i, j] = value`` writes to elements of stored blocks (`assign`).
    """

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        parts = index_parts("bsr_array[...]", key, self.ndim)
        if self._pattern.batch_shape:
            return self._of_batch(key, parts)
        if len(parts) not in {1, 2}:
            raise _not_offered(key)
        rows, columns = parts if len(parts) == 2 else (*parts, slice(None))
        if not _is_rows(rows) or not (_is_integer(columns) or isinstance(columns, slice)):
            raise _not_offered(key)
        if _is_integer(rows):
            function = "bsr_array[i]" if isinstance(columns, slice) else "bsr_array[i, j]"
            if isinstance(columns, slice):
                return self._row(function, int(rows))[columns]
            return self._element(function, int(rows), columns)
        if _is_integer(columns):
            column = self._column(_checked_column("bsr_array[:, j]", self, columns))
            return column[rows if isinstance(rows, slice) else self._row_numbers(rows)]
        part = self if _is_whole(columns) else self._column_slice(columns)
        return part._row_slice(rows) if isinstance(rows, slice) else part._listed_rows(rows)

    def __setitem__(self, key: Any, value: Any) -> None:
        assign(self, key, value)

    def _of_batch(self, key: Any, parts: tuple) -> Any:
        """Return matrices of the batch, with their own values, or a part of one of them."""
        check_sparse("bsr_array[b]", "self", self)
        sizes = self._pattern.batch_shape
        chosen, rest = parts[: len(sizes)], parts[len(sizes) :]
        if not all(_is_integer(b) or isinstance(b, slice) for b in chosen):
            raise _not_offered(key)
        if rest and not all(map(_is_integer, chosen)):
            raise _not_offered(key)
        for b, n in zip(chosen, sizes):
            if _is_integer(b) and not -n <= b < n:
                expected = f"an index in {-n}..{n - 1}"
                raise _out_of_range("bsr_array[b]", "b", expected, b)
        with on_device(self._data):
            indptr, indices = self._pattern._indptr[chosen], self._pattern._indices[chosen]
            shape, blocksize = self._pattern.shape, self.blocksize
            pattern = Pattern(indptr, indices, shape, blocksize, check=False)
            matrices = self._with(pattern, self._data[chosen].copy())
        return matrices[rest] if rest else matrices

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
        self._refuse_batch("getrow")
        i = check_integer("getrow", "i", i, "an integer")
        return self._row("getrow", i)

    def _element(self, function: str, i: int, j: Any) -> Any:
        """Return one element; of blocks that are stored more than once as `_row` has it."""
        check_sparse(function, "self", self)
        block_row, line = divmod(_checked_row(function, self, i), self.blocksize[0])
        column, lane = divmod(_checked_column(function, self, j), self.blocksize[1])
        with on_device(self._data):
            first, last = (int(p) for p in self._pattern._indptr[block_row : block_row + 2])
            found = self._xp.flatnonzero(self._pattern._indices[first:last] == column)
            if found.size == 0:
                return self._xp.zeros((), self.dtype)[()]
            if found.size == 1:
                return self._data[first + int(found[0]), line, lane]
        return self._row(function, i)[j]

    def _row(self, function: str, i: int) -> Any:
        check_sparse(function, "self", self)
        k, (bm, bk), xp = self._pattern.shape[1], self.blocksize, self._xp
        block_row, line = divmod(_checked_row(function, self, i), bm)
        with on_device(self._data):
            first, last = (int(p) for p in self.indptr[block_row : block_row + 2])
            row = xp.zeros((1, k), self.dtype)
            if last > first:
                # One block row, of blocks of height 1.
                starts = xp.array([0, last - first], dtype=self.indptr.dtype)
                indices = self.indices[first:last]
                pattern = Pattern(starts, indices, (1, k), (1, bk), check=False)
                engine_module(xp, "convert", function).scatter_blocks(
                    row, pattern, self._data[first:last, line : line + 1]
                )
        return row[0]

    def _row_slice(self, key: slice) -> Self:
        """Return element rows, a `bsr_array` with its own values."""
        function = "bsr_array[i:j]"
        check_sparse(function, "self", self)
        (m, k), (bm, _) = self._pattern.shape, self.blocksize
        start, stop = _on_grid(function, "i, j", key, m, bm)
        with on_device(self._data):
            starts = self._pattern._indptr[start // bm : stop // bm + 1]
            first, last = int(starts[0]), int(starts[-1])
            pattern = Pattern(
                starts - starts[0],
                self._pattern._indices[first:last],
                (stop - start, k),
                self.blocksize,
                check=False,
            )
            return self._with(pattern, self._data[first:last].copy())

    def _column_slice(self, key: slice) -> Self:
        """Return element columns, a `bsr_array` with its own values."""
        function = "bsr_array[:, k:l]"
        check_sparse(function, "self", self)
        (m, k), (bm, bk) = self._pattern.shape, self.blocksize
        start, stop = _on_grid(function, "k, l", key, k, bk)
        with on_device(self._data):
            stored = self._stored_columns(start // bk, stop // bk)
            pattern = Pattern(
                self._row_starts(stored),
                self._pattern._indices[stored] - start // bk,
                (m, stop - start),
                (bm, bk),
                check=False,
            )
            return self._with(pattern, self._data[stored])

    def _column(self, j: int) -> Any:
        """Return element column ``j``, dense, shape (M,)."""
        function = "bsr_array[:, j]"
        check_sparse(function, "self", self)
        m, (bm, bk), xp = self._pattern.shape[0], self.blocksize, self._xp
        block, lane = divmod(j, bk)
        with on_device(self._data):
            column, stored = xp.zeros((m, 1), self.dtype), self._stored_columns(block, block + 1)
            if stored.size:
                pattern = Pattern(
                    self._row_starts(stored),
                    xp.zeros_like(stored),
                    (m, 1),
                    (bm, 1),
                    check=False,
                )
                engine_module(xp, "convert", function).scatter_blocks(
                    column, pattern, self._data[stored, :, lane : lane + 1]
                )
        return column[:, 0]

    def _stored_columns(self, first: int, stop: int) -> Any:
        """Return which blocks are in some block columns, by their numbers."""
        columns = self._pattern._indices
        return self._xp.flatnonzero((columns >= first) & (columns < stop))

    def _row_starts(self, stored: Any) -> Any:
        """Return the indptr of some of the blocks, given by ascending numbers."""
        return self._xp.searchsorted(stored, self._pattern._indptr.astype(stored.dtype))

    def _listed_rows(self, rows: Any) -> Self:
        """Return element rows in any order, a `bsr_array` in blocks of one row."""
        check_sparse("bsr_array[rows]", "self", self)
        with on_device(self._data):
            rows = self._row_numbers(rows)
            xp, (bm, bk), k = self._xp, self.blocksize, self._pattern.shape[1]
            block_row, line = rows // bm, rows % bm
            starts = self._pattern._indptr.astype(np.int64)
            first = starts[block_row]
            count = starts[block_row + 1] - first
            row, number = expand_counts(count)
            stored = first[row] + number
            ends = xp.cumsum(count, dtype=np.int64)
            pattern = Pattern(
                xp.concatenate([xp.zeros((1,), np.int64), ends]),
                self._pattern._indices[stored],
                (int(rows.size), k),
                (1, bk),
                check=False,
            )
            return self._with(pattern, self._data[stored, line[row]][:, None, :])

    def _row_numbers(self, rows: Any) -> Any:
        """Return a list of rows, or a mask of them, as numbers in 0..M - 1, int64."""
        function, m = "bsr_array[rows]", self._pattern.shape[0]
        array = as_array(rows, function, "rows")
        if isinstance(rows, list):  # an empty one is float64 to NumPy
            array = self._xp.asarray(array if rows else array.astype(np.int64))
        xp = common_namespace(function, self=self._data, rows=array)
        if array.ndim != 1 or array.dtype.kind not in "iub":
            expected = "integers, or a mask, in a list or a 1-D array"
            raise bad_type(function, "rows", expected, f"{array.dtype}, shape {array.shape}")
        if array.dtype.kind == "b":
            if array.size != m:
                expected = f"a mask of shape ({m},)"
                raise _out_of_range(function, "rows", expected, array.shape)
            return xp.flatnonzero(array).astype(np.int64)
        array = array.astype(np.int64)
        if array.size:
            low, high = int(array.min()), int(array.max())
            if low < -m or high >= m:
                wrong = low if low < -m else high
                raise _out_of_range(function, "rows", f"rows in {-m}..{m - 1}", wrong)
        return xp.where(array < 0, array + m, array)


def _is_rows(key: Any) -> bool:
    """Return whether a key chooses rows: one, a slice of them, or by a list, a mask, an array."""
    if isinstance(key, (slice, list)) or _is_integer(key):
        return True
    listed = not isinstance(key, (BsrBase, type))  # numpy.float32 has an "ndim", too
    return listed and getattr(key, "ndim", 0) > 0


def _not_offered(key: Any) -> NotImplementedError:
    return not_offered(
        "bsr_array[...]",
        f"the index {shown(key, reprlib.repr)}",
        "A[i], A[i, j], A[:, j], A[i:j, k:l] with multiples of the block size, A[rows] with a "
        "list, an array or a mask of rows; of a batch A[b], and of one of its matrices A[b, i:j]",
    )


def _out_of_range(function: str, argument: str, expected: str, got: Any) -> IndexError:
    return IndexError(f"{function}: argument '{argument}': expected {expected}, got {shown(got)}")


def _checked_row(function: str, array: Any, i: int) -> int:
    """Return a row counted from the top."""
    m = array._pattern.shape[0]
    if not -m <= i < m:
        raise _out_of_range(function, "i", f"a row in {-m}..{m - 1}", i)
    return i % m


def _checked_column(function: str, array: Any, j: Any) -> int:
    """Return a column counted from the left."""
    k = array._pattern.shape[1]
    if not -k <= j < k:
        raise _out_of_range(function, "j", f"a column in {-k}..{k - 1}", j)
    return int(j) % k


def _on_grid(function: str, argument: str, key: slice, length: int, block: int) -> tuple[int, int]:
    """Return the first element of a slice that cuts no block, and the one after the last."""
    start, stop, step = key.indices(length)
    if step != 1:
        raise bad_value(function, "step", "1", step)
    stop = max(start, stop)
    if start % block or stop % block:
        expected = f"multiples of {block} (or A.tobsr() with smaller blocks first)"
        raise bad_value(function, argument, expected, (start, stop))
    return start, stop
