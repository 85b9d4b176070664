"""Conversions of a `bsr_array`: dense, the host, another device, dtype or block size."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Self, cast

import numpy as np

from .._arrays import common_namespace, swap_last
from .._checks import (
    bad_type,
    check_axes,
    check_blocksize,
    check_choice,
    check_flags,
    not_offered,
)
from .._device import Portable
from ..engines import engine_module
from ..engines.cuda.runtime.replay import Call
from ..ops._bsr_product import transposed_operand
from ..ops._common import check_sparse, on_device, optional_out, prepare_out
from .elements import check_dtype, reblocked
from .formats import Formats

#: Which casts NumPy's words allow.
_CASTING = ("no", "equiv", "safe", "same_kind", "unsafe")


class Conversions(Formats, Portable):
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
        return dense if out is None else out

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
    def mT(self) -> Self:
        """The same as `T`: the name of the array API standard, and of SciPy from 1.18 on."""
        return self.transpose()

    @property
    def H(self) -> Self:
        """The conjugate transpose (of each matrix of a batch)."""
        return self.conj(copy=False).transpose()

    # -- dtype --------------------------------------------------------------------------------

    def astype(self, dtype: Any, casting: str = "unsafe", copy: bool = True) -> Self:
        """Return the array in another dtype, over the same pattern.

        Duplicate blocks are summed first where the cast is not linear (bool, and floating to
        integer), so that the result is the cast of the matrix.

        Parameters
        ----------
        dtype : dtype
        casting : {"no", "equiv", "safe", "same_kind", "unsafe"}
            Which casts are allowed, as in NumPy.
        copy : bool
            Copy the values where the dtype stays, too.

        Raises
        ------
        TypeError
            A dtype that cannot be held, or that ``casting`` does not allow.
        ValueError
            Another ``casting``; matrices of a batch that would keep different numbers of blocks.
        """
        wanted = check_dtype("astype", "dtype", dtype)
        check_flags("astype", copy=copy)
        if not isinstance(casting, str) or casting != "unsafe":  # which operators ask for, twice
            check_choice("astype", "casting", casting, _CASTING)
            if not np.can_cast(self.dtype, wanted, cast("Any", casting)):
                expected = f"a cast from {self.dtype} that is {casting!r}"
                raise bad_type("astype", "dtype", expected, wanted)
        check_sparse("astype", "self", self)
        with on_device(self._data):
            if wanted == self.dtype:
                return self.copy() if copy else self
            nonlinear = wanted.kind == "b" or self.dtype.kind == "b" or wanted.kind == "i"
            source = self._canonical("astype") if nonlinear else self
            return self._with(source._pattern, source._data.astype(wanted))

    def conj(self, copy: bool = True) -> Self:
        """Return the complex conjugate (of a real array: a copy, or itself).

        Raises
        ------
        TypeError
            When ``copy`` is neither True nor False.
        """
        check_flags("conj", copy=copy)
        check_sparse("conj", "self", self)
        if self.dtype.kind == "c":
            with on_device(self._data):
                return self._with(self._pattern, self._data.conj())
        return self.copy() if copy else self

    conjugate = conj

    @property
    def real(self) -> Self:
        """Real part, with its own values."""
        check_sparse("real", "self", self)
        if self.dtype.kind == "c":
            with on_device(self._data):
                return self._with(self._pattern, self._data.real.copy())
        return self.copy()

    @property
    def imag(self) -> Self:
        """Imaginary part, with its own values; zeros for a real array."""
        check_sparse("imag", "self", self)
        with on_device(self._data):
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

    def _check(self, method: str) -> None:
        check_sparse(method, "self", self)

    def _moved(self, cupy: ModuleType) -> Self:
        return self._with(self._pattern.to_device(), cupy.asarray(self._data))

    # -- other formats and block sizes -------------------------------------------------------

    def asformat(self, format: str | None, copy: bool = False) -> Any:
        """Return the matrix as "bsr" (or None), "csr", "csc", "coo" or "array" ("dense").

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
            "array": self.toarray,
            "dense": self.toarray,
        }
        check_choice("asformat", "format", format, (None, "bsr", *makers))
        check_flags("asformat", copy=copy)
        if format in {None, "bsr"}:
            return self.copy() if copy else self
        return makers[format]()

    def tobsr(self, blocksize: Any = None, copy: bool = False, *, pad: bool = False) -> Self:
        """Return the array with another block size (new blocks of zeros are not kept).

        Parameters
        ----------
        blocksize : (bm, bk), optional
        copy : bool
            Copy the values where the block size stays.
        pad : bool
            Add rows and columns of zeros where the block size does not divide the shape.

        Raises
        ------
        ValueError
            A block size that does not divide the shape; matrices of a batch that would keep
            different numbers of blocks.
        TypeError
            A block size that is no pair of integers.
        """
        check_flags("tobsr", copy=copy, pad=pad)
        array = self._reblocked("tobsr", "self", blocksize, bool(pad))
        return array.copy() if copy and array._data is self._data else array

    def _reblocked(self, function: str, argument: str, blocksize: Any, pad: bool = False) -> Self:
        """Do `tobsr` for a caller of another name, in whose messages this is ``argument``."""
        check_sparse(function, argument, self)
        pattern, data = self._pattern, self._data
        blocksize = pattern.blocksize if blocksize is None else check_blocksize(function, blocksize)
        if blocksize != pattern.blocksize:
            with on_device(data):
                pattern, data = reblocked(function, argument, pattern, data, blocksize, pad)
        return self._with(pattern, data)


def _checked_out(function: str, array: Any, out: Any, order: str | None) -> Any:
    if order is not None:
        raise not_offered(function, "order together with out", "one of the two")
    out, operands = optional_out(out, function), {"self": array._data}
    common_namespace(function, **operands, out=out)
    return prepare_out(function, out, array.shape, array.dtype, array._xp, operands=operands)
