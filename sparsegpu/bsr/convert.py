"""Conversions of a `bsr_array`: dense, SciPy, cupyx, the host, another device or dtype."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from .._arrays import (
    bfloat16,
    common_namespace,
    device_of,
    import_cupy,
    import_scipy,
    index_dtype,
    swap_last,
)
from .._checks import bad_type, check_axes, check_blocksize, check_choice, not_offered
from ..engines import engine_module
from ..engines.cuda.runtime.replay import Call
from ..ops._common import check_sparse, on_device, optional_out, prepare_out
from ..ops.addmm import transposed_operand
from .base import BsrBase
from .elements import check_dtype, reblocked

_NO_SCIPY = (np.dtype(np.float16), bfloat16)
_CUPYX = tuple(np.dtype(t) for t in (bool, np.float32, np.float64, np.complex64, np.complex128))


class Conversions(BsrBase):
    """Methods of `bsr_array` that change how the matrix is stored."""

    __slots__ = ()

    # -- dense --------------------------------------------------------------------------------

    def toarray(self, order: str | None = None, out: Any = None) -> Any:
        """Return the dense array (*batch, M, K); duplicate blocks are summed (bool: or).

        Parameters
        ----------
        order : {None, "C", "F"}
            Memory order of each matrix (of a new result).
        out : array (*batch, M, K), optional
            Written and returned; of the same dtype and array library, any strides.

        Raises
        ------
        ValueError, TypeError
            For an ``out`` that does not fit, another ``order``.
        NotImplementedError
            Both.
        """
        return self._dense("toarray", order, out)

    def todense(self, order: str | None = None, out: Any = None) -> Any:
        """Return the dense array: `toarray` (an array, never a ``numpy.matrix``).

        Raises
        ------
        ValueError, TypeError, NotImplementedError
            As `toarray`.
        """
        return self._dense("todense", order, out)

    def _dense(self, function: str, order: str | None, out: Any) -> Any:
        xp = self._xp
        check_sparse(function, "self", self)
        check_choice(function, "order", order, (None, "C", "F"))
        by_columns = order == "F"
        call = Call("toarray", self._pattern, (self._data, out), (order,), out)
        replayed = call.replay()
        if replayed is not None:
            return swap_last(replayed[0]) if by_columns else replayed[0]
        with on_device(self._data, self._pattern, call):
            if out is None:
                *batch, m, k = self.shape
                memory = xp.empty((*batch, k, m) if by_columns else self.shape, self.dtype)
            else:
                memory = _checked_out(function, self, out, order)
            dense = swap_last(memory) if by_columns else memory
            if dense.size:
                engine_module(xp, "convert", function).scatter_blocks(
                    dense, self._pattern, self._data
                )
                call.keep(memory)
        return dense

    # -- transposition ------------------------------------------------------------------------

    def transpose(self, axes: Any = None, copy: bool = False) -> Self:
        """Return the transpose: blocks and the matrices' last two axes are swapped.

        The transposed pattern is made once and kept with this one; the values are copied
        (``copy`` is here for SciPy's signature).

        Parameters
        ----------
        axes : {None, (1, 0), (-1, -2)}
        copy : bool

        Raises
        ------
        ValueError
            Other axes.
        TypeError
            ``axes`` that are no pair of integers.
        """
        del copy
        check_axes("transpose", axes)
        check_sparse("transpose", "self", self)
        with on_device(self._data):
            if self._data.size == 0:
                pattern, _ = self._pattern.transposed()
                data = self._xp.empty(
                    (*pattern.batch_shape, pattern.nnzb, *pattern.blocksize), self.dtype
                )
                return self._with(pattern, data)
            other = transposed_operand(self, "transpose")
        return self._with(other.pattern, other.data)

    @property
    def T(self) -> Self:
        """The transpose (of each matrix of a batch)."""
        return self.transpose()

    @property
    def H(self) -> Self:
        """The conjugate transpose (of each matrix of a batch)."""
        return self.conj(copy=False).transpose()

    # -- dtype --------------------------------------------------------------------------------

    def astype(self, dtype: Any, copy: bool = True) -> Self:
        """Return the array in another dtype, over the same pattern.

        Duplicate blocks are summed first where the cast is not linear (bool, and floating to
        integer), so that the result is the cast of the matrix.

        Raises
        ------
        TypeError
            A dtype that cannot be held.
        ValueError
            Matrices of a batch that would keep different numbers of blocks.
        """
        wanted = check_dtype("astype", "dtype", dtype)
        check_sparse("astype", "self", self)
        with on_device(self._data):
            if wanted == self.dtype:
                return self.copy() if copy else self
            nonlinear = wanted.kind == "b" or self.dtype.kind == "b" or wanted.kind == "i"
            source = self._canonical("astype") if nonlinear else self
            return self._with(source._pattern, source._data.astype(wanted))

    def conj(self, copy: bool = True) -> Self:
        """Return the complex conjugate (of a real array: a copy, or itself)."""
        check_sparse("conj", "self", self)
        if self.dtype.kind == "c":
            return self._with(self._pattern, self._data.conj())
        return self.copy() if copy else self

    conjugate = conj

    @property
    def real(self) -> Self:
        """Real part, with its own values."""
        check_sparse("real", "self", self)
        if self.dtype.kind == "c":
            return self._with(self._pattern, self._data.real.copy())
        return self.copy()

    @property
    def imag(self) -> Self:
        """Imaginary part, with its own values; zeros for a real array."""
        check_sparse("imag", "self", self)
        if self.dtype.kind == "c":
            return self._with(self._pattern, self._data.imag.copy())
        return self._with(self._pattern, self._xp.zeros_like(self._data))

    # -- host and device ----------------------------------------------------------------------

    def get(self) -> Self:
        """Return the array on the host (itself, if it is there already)."""
        check_sparse("get", "self", self)
        if self._xp is np:
            return self
        return self._with(self._pattern.to_library(np), self._data.get())

    def to_device(self, device: int | None = None) -> Self:
        """Return the array on a CUDA device (itself, if it is there already).

        Parameters
        ----------
        device : int, optional
            Device number; the current device by default.

        Raises
        ------
        ImportError
            When CuPy is not installed.
        """
        cupy = import_cupy("bsr_array.to_device", "a CUDA device is asked for")
        check_sparse("to_device", "self", self)
        target = cupy.cuda.Device(device)  # the current one for None
        if device_of(self._data) == target.id:
            return self
        with target:
            return self._with(self._pattern.to_device(), cupy.asarray(self._data))

    # -- other sparse formats -----------------------------------------------------------------

    def asformat(self, format: str | None, copy: bool = False) -> Any:
        """Return the matrix as "bsr" (or None), "csr", "csc", "coo" or "dense".

        Raises
        ------
        ValueError
            Another format; a batch, for the formats of SciPy.
        TypeError
            A dtype that the other library does not hold.
        """
        check_sparse("asformat", "self", self)
        makers: dict[str, Any] = {
            "csr": self.tocsr,
            "csc": self.tocsc,
            "coo": self.tocoo,
            "dense": self.toarray,
        }
        check_choice("asformat", "format", format, (None, "bsr", *makers))
        if format in {None, "bsr"}:
            return self.copy() if copy else self
        return makers[format]()

    def tobsr(self, blocksize: Any = None, copy: bool = False) -> Self:
        """Return the array with another block size (new blocks of zeros are not kept).

        Raises
        ------
        ValueError
            A block size that does not divide the shape; matrices of a batch that would keep
            different numbers of blocks.
        TypeError
            A block size that is no pair of integers.
        """
        array = self._reblocked("tobsr", "self", blocksize)
        return array.copy() if copy and array._data is self._data else array

    def _reblocked(self, function: str, argument: str, blocksize: Any) -> Self:
        """Do `tobsr` for a caller of another name, in whose messages this is ``argument``."""
        check_sparse(function, argument, self)
        pattern, data = self._pattern, self._data
        blocksize = pattern.blocksize if blocksize is None else check_blocksize(function, blocksize)
        if blocksize != pattern.blocksize:
            with on_device(data):
                pattern, data = reblocked(function, argument, pattern, data, blocksize)
        return self._with(pattern, data)

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

    def tocsr(self, copy: bool = False) -> Any:
        """Return the stored elements as a `scipy.sparse.csr_array`, on a GPU as cupyx's matrix.

        Made by SciPy, or on the device. Zeros inside blocks are stored too, as SciPy does.

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
        sparse = self._sparse_module("tocsr")
        if self._xp is np:
            return self._in_scipy("tocsr").tocsr()
        with on_device(self._data):
            place, column, starts = self._csr_parts()
            data = self._xp.empty(self._data.size, self.dtype)
            data[place] = self._data.ravel()
            return sparse.csr_matrix((data, column, starts), shape=self.shape)

    def tocsc(self, copy: bool = False) -> Any:
        """Return the stored elements by columns, for the direct solvers of SciPy and cupyx.

        A `scipy.sparse.csc_array`, on a GPU cupyx's matrix; made from `tocsr`.

        Raises
        ------
        ValueError, TypeError, ImportError
            As `tocsr`.
        """
        del copy
        self._sparse_module("tocsc")  # whose errors name this function
        return self.tocsr().tocsc()

    def tocoo(self, copy: bool = False) -> Any:
        """Return the stored elements as a `scipy.sparse.coo_array`, on a GPU as cupyx's matrix.

        Raises
        ------
        ValueError, TypeError, ImportError
            As `tocsr`.
        """
        del copy
        sparse, xp = self._sparse_module("tocoo"), self._xp
        if xp is np:
            return self._in_scipy("tocoo").tocoo(copy=True)
        with on_device(self._data):
            row, column = xp.broadcast_arrays(*self._pattern.element_positions())
            dtype = self._pattern.indices.dtype
            positions = (row.ravel().astype(dtype), column.ravel().astype(dtype))
            return sparse.coo_matrix((self._data.ravel().copy(), positions), shape=self.shape)

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


def _checked_out(function: str, array: Any, out: Any, order: str | None) -> Any:
    if order is not None:
        raise not_offered(function, "order together with out", "one of the two")
    out, operands = optional_out(out, function), {"self": array._data}
    common_namespace(function, **operands, out=out)
    return prepare_out(function, out, array.shape, array.dtype, array._xp, operands=operands)
