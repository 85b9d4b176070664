"""Conversions of a `bsr_array` to the sparse formats of SciPy and cupyx."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._arrays import bfloat16, import_scipy, index_dtype
from .._checks import bad_type, check_flags
from ..ops._common import check_sparse, on_device
from .base import BsrBase

_NO_SCIPY = (np.dtype(np.float16), bfloat16)
_CUPYX = tuple(np.dtype(t) for t in (bool, np.float32, np.float64, np.complex64, np.complex128))


class Formats(BsrBase):
    """Methods of `bsr_array` that return arrays of other libraries."""

    __slots__ = ()

    get: Callable[[], Any]

    def to_scipy(self, copy: bool = True) -> Any:
        """Return a `scipy.sparse.bsr_array` on the host.

        Parameters
        ----------
        copy : bool
            False shares the values of a host array; SciPy's in-place methods then change both.

        Raises
        ------
        ValueError
            For a batch.
        TypeError
            For float16 and bfloat16, which SciPy does not hold.
        ImportError
            When SciPy is not installed.
        """
        check_flags("to_scipy", copy=copy)
        check_sparse("to_scipy", "self", self)
        self._refuse_batch("to_scipy")
        if self.dtype in _NO_SCIPY:
            raise bad_type(
                "to_scipy", "dtype", "a dtype that SciPy holds: astype('float32') first", self.dtype
            )
        host = self.get()
        array = host._in_scipy("to_scipy")
        # SciPy's indices may be sorted in place, a pattern's may not.
        array.indices, array.indptr = array.indices.copy(), array.indptr.copy()
        array.data = host._data.copy() if copy and host is self else host._data
        return array

    def _in_scipy(self, function: str) -> Any:
        """Return a `scipy.sparse.bsr_array` over the arrays of this one, not to be written to."""
        sparse, pattern = import_scipy(function), self._pattern
        parts = np.ascontiguousarray(self._data), pattern._indices, pattern._indptr
        return sparse.bsr_array(parts, shape=pattern.shape)

    def tocsr(self, copy: bool = False, *, eliminate_zeros: bool = False) -> Any:
        """Return the stored elements as a `scipy.sparse.csr_array`, on a GPU as cupyx's matrix.

        Made by SciPy, or on the device.

        Parameters
        ----------
        copy : bool
            Of SciPy's signature; the result always has its own values.
        eliminate_zeros : bool
            Leave out the zeros inside blocks, which are stored otherwise, as SciPy does. Duplicate
            blocks are summed first.

        Raises
        ------
        ValueError
            For a batch.
        TypeError
            For a dtype that the other library does not hold.
        ImportError
            For a NumPy array where SciPy is not installed.
        """
        del copy
        return self._csr("tocsr", eliminate_zeros)

    def _csr(self, function: str, eliminate_zeros: bool) -> Any:
        check_flags(function, eliminate_zeros=eliminate_zeros)
        sparse, xp = self._sparse_module(function), self._xp
        if xp is np:
            array = self._canonical(function) if eliminate_zeros else self
            csr = array._in_scipy(function).tocsr()
            if eliminate_zeros:
                csr.eliminate_zeros()
            return csr
        with on_device(self._data):
            array = self._canonical(function) if eliminate_zeros else self
            place, column, starts = array._csr_parts()
            data = xp.empty(array._data.size, self.dtype)
            data[place] = array._data.ravel()
            if eliminate_zeros:
                stored = xp.flatnonzero(data != 0)
                starts = xp.searchsorted(stored, starts.astype(stored.dtype)).astype(starts.dtype)
                data, column = data[stored], column[stored]
            return sparse.csr_matrix((data, column, starts), shape=self.shape)

    def tocsc(self, copy: bool = False, *, eliminate_zeros: bool = False) -> Any:
        """Return the stored elements by columns, for the direct solvers of SciPy and cupyx.

        A `scipy.sparse.csc_array`, on a GPU cupyx's matrix; made from `tocsr`, whose arguments it
        has.

        Raises
        ------
        ValueError, TypeError, ImportError
            As `tocsr`.
        """
        del copy
        return self._csr("tocsc", eliminate_zeros).tocsc()

    def tocoo(self, copy: bool = False, *, eliminate_zeros: bool = False) -> Any:
        """Return the stored elements as a `scipy.sparse.coo_array`, on a GPU as cupyx's matrix.

        The arguments are those of `tocsr`.

        Raises
        ------
        ValueError, TypeError, ImportError
            As `tocsr`.
        """
        del copy
        function = "tocoo"
        check_flags(function, eliminate_zeros=eliminate_zeros)
        sparse, xp = self._sparse_module(function), self._xp
        if xp is np:
            array = self._canonical(function) if eliminate_zeros else self
            coo = array._in_scipy(function).tocoo(copy=True)
            if eliminate_zeros:
                coo.eliminate_zeros()
            return coo
        with on_device(self._data):
            array = self._canonical(function) if eliminate_zeros else self
            row, column = xp.broadcast_arrays(*array._pattern.element_positions())
            dtype, data = array._pattern.indices.dtype, array._data.ravel().copy()
            row, column = row.ravel().astype(dtype), column.ravel().astype(dtype)
            if eliminate_zeros:
                stored = xp.flatnonzero(data != 0)
                row, column, data = row[stored], column[stored], data[stored]
            return sparse.coo_matrix((data, (row, column)), shape=self.shape)

    def _sparse_module(self, function: str) -> Any:
        check_sparse(function, "self", self)
        self._refuse_batch(function)
        sparse: Any
        if self._xp is np:
            sparse = import_scipy(function)
            refused = self.dtype in _NO_SCIPY
        else:
            import cupyx.scipy.sparse

            sparse = cupyx.scipy.sparse
            refused = self.dtype not in _CUPYX
        if refused:
            raise bad_type(
                function,
                "dtype",
                f"a dtype that {sparse.__name__} holds: astype('float32') first",
                self.dtype,
            )
        return sparse

    def _csr_parts(self) -> tuple[Any, Any, Any]:
        """Offset of every element in CSR order, columns in that order, and row starts.

        A block row of n blocks holds bm element rows of n * bk elements each.
        """
        xp, pattern, (bm, bk) = self._xp, self._pattern, self.blocksize
        rows, starts = pattern.rows, pattern.indptr.astype(np.int64)
        count = starts[1:] - starts[:-1]
        line, lane = xp.arange(bm, dtype=np.int64)[:, None], xp.arange(bk, dtype=np.int64)
        block = xp.arange(pattern.nnzb, dtype=np.int64)
        width = (count * bk)[rows][:, None, None]
        first = (starts[:-1] * (bm * bk))[rows][:, None, None]
        within = ((block - starts[:-1][rows]) * bk)[:, None, None]
        place = (first + line * width + within + lane).ravel()
        row_starts = (starts[:-1] * (bm * bk))[:, None] + line.T * (count * bk)[:, None]
        end = xp.full((1,), self._data.size, dtype=np.int64)
        row_starts = xp.concatenate([row_starts.ravel(), end])
        column = xp.empty(self._data.size, dtype=np.int64)
        _, columns = pattern.element_positions()
        column[place] = xp.broadcast_to(columns, self._data.shape).ravel()
        dtype = index_dtype(max(self._data.size, *self.shape))
        return place, column.astype(dtype), row_starts.astype(dtype)
