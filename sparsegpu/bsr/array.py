"""`bsr_array` and `BsrSemiStructuredArray`: values over a shared, immutable block pattern.

Both derive from classes in the other files of this package. They are in one file because each
converts to the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from .._arrays import check_dtype_among, check_dtype_name
from .._checks import check_flags
from ..ops._blocks_24 import (
    DTYPES,
    compressed_blocks,
    expanded_blocks,
    format_of_blocks,
)
from ..ops._common import check_sparse, on_device
from ..ops.prune import prune_24
from . import npz
from .base_24 import Bsr24Base
from .compare import Comparisons
from .construct import build
from .convert import Conversions
from .draw import Drawings
from .elements import check_dtype
from .elementwise import Elementwise
from .index import Indexing
from .locate import Locations
from .logic import Logic
from .operators import Operators
from .order import Ordering
from .reshape import Reshaping
from .torch_bsr import TorchTensors
from .ufuncs import Ufuncs


class bsr_array(
    Operators,
    Ufuncs,
    Elementwise,
    Comparisons,
    Logic,
    Locations,
    Indexing,
    Conversions,
    TorchTensors,
    Reshaping,
    Ordering,
    Drawings,
):
    """Block sparse row array, or a batch of them, over NumPy or CuPy.

    Fields and conventions are those of `scipy.sparse.bsr_array`; in addition arrays may be
    batched, live on a GPU, and share their pattern.

    Parameters
    ----------
    arg : array_like, tuple or sparse array
        - a dense 2-D or batched array: blocks with any nonzero are kept (NaN is one, -0.0 is
          not), ``blocksize`` is required;
        - ``(data, indices, indptr)``: ``data (*batch, nnzb, bm, bk)``, ``indices
          (*batch, nnzb)``, ``indptr (*batch, M // bm + 1)``; indices may be unsorted, repeated
          ones mean the sum of their blocks;
        - ``(data, (row, column))``: elements, or blocks ``data (n, bm, bk)`` at block rows and
          columns; repeated ones are summed;
        - any `scipy.sparse` or `cupyx.scipy.sparse` array, or a tensor of torch.sparse_bsr;
        - another `bsr_array`, a `BsrSemiStructuredArray` or a `BlockMask`, whose pattern is
          shared unless ``blocksize`` changes;
        - ``(M, K)``: no blocks at all.
    shape : tuple of int, optional
        ``(*batch, M, K)``, or ``(M, K)`` of one matrix. Without it the smallest that fits.
    blocksize : (bm, bk), optional
        Each in 1..256. Estimated for a sparse ``arg`` and for elements, as SciPy does.
    dtype : dtype, optional
        float16, bfloat16, float32, float64, int8, int32, bool, complex64 or complex128.
    copy : bool
        Copy the data; indices and indptr always are. Without it the data is shared with ``arg``
        where dtype and format allow.
    check : bool
        Look at every index (one synchronisation on a GPU). False trusts the caller.
    pad : bool
        Where the block size does not divide the shape, add rows and columns of zeros: the array
        then has the larger shape.

    Attributes
    ----------
    data, indices, indptr : array
        As in SciPy, each with the batch shape in front. ``A.data[...] = values`` keeps all that
        has been computed about the pattern; ``indices`` and ``indptr`` are not to be written to.
        ``data`` may be the caller's own array: whatever reads it compares its shape and dtype with
        the pattern first.
    pattern : Pattern
        Block size, shape, indptr, indices and schedules: immutable and shared.

    Raises
    ------
    ValueError
        Shapes that do not fit, or of more than 2**63 - 1 elements; indices out of range; batches
        that keep different numbers of blocks.
    TypeError
        A dtype that cannot be held, or an ``arg`` of another type.

    See Also
    --------
    scipy.sparse.bsr_array : the model of this class.

    Notes
    -----
    Operators: ``A @ x``, ``x @ A`` and ``A @ B`` (sparse); ``A + B``, ``A - dense``, ``2 * A``,
    ``A / 2``, ``-A``, ``abs(A)``; ``A > 1`` and ``A != B``, bool arrays. All but ``@`` are
    elementwise; ``A / dense`` divides what is stored. Of bool arrays ``A & B``, ``A | B`` and
    ``A ^ B`` are sparse, and ``~A`` is within the stored blocks. What would fill every element that
    is not stored (``A + 1``, ``A == 0``) is a NotImplementedError.

    An operand may be a sparse array of `scipy.sparse`, or of `cupyx.scipy.sparse` for CuPy arrays:
    it is converted to blocks. ``@`` takes lists, and operands of different dtypes (float32,
    float64, complex, integers) with SciPy's result dtype, converting their values at every call;
    16-bit floats and int8 are not promoted.

    Indices count elements: ``A[i:j, k:l]`` that cuts no block is a `bsr_array`, and so is
    ``A[rows]``, in blocks of one row, for a list, an array or a mask of rows; ``A[i]``,
    ``A[:, j]`` and ``A[i, j]`` are dense; ``A[b]`` is a matrix of a batch. Parts have their own
    values.

    NumPy's functions: ``numpy.array_equal`` and ``numpy.allclose``, those that are methods here
    (``numpy.sum``), ufuncs that are zero at zero (``numpy.sqrt``), and ``y += A``, ``y -= A`` and
    ``y *= A`` in place for a dense ``y``. All others are a TypeError.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.bsr_array(np.diag([1.0, 2, 3, 4]), blocksize=(2, 2))
    >>> A
    <sparsegpu.bsr_array, shape (4, 4), float64, 2 blocks of 2x2 stored (density 0.5), on cpu>
    >>> A.indices, A.indptr
    (array([0, 1], dtype=int32), array([0, 1, 2], dtype=int32))
    >>> A @ np.ones(4)
    array([1., 2., 3., 4.])
    """

    __slots__ = ()

    format = "bsr"

    def __init__(
        self,
        arg: Any,
        shape: tuple[int, ...] | None = None,
        *,
        blocksize: tuple[int, int] | None = None,
        dtype: Any = None,
        copy: bool = False,
        check: bool = True,
        pad: bool = False,
    ):
        wanted = None if dtype is None else check_dtype("bsr_array", "dtype", dtype)
        self._pattern, self._data = build(
            arg, shape, blocksize=blocksize, dtype=wanted, copy=copy, check=check, pad=pad
        )

    def semi_structured(
        self, *, strict: bool = True, prune: bool = False
    ) -> BsrSemiStructuredArray:
        """Return the array with its blocks compressed to 2:4, over the same pattern.

        Products with it read and multiply half of each block. Duplicate blocks are not summed.

        Parameters
        ----------
        strict : bool
            Refuse blocks that are not 2:4; False drops what is too much, by the rule of
            `semi_structured_from_dense`.
        prune : bool
            Prune every block first, as `prune_24` does: the two largest of each four elements are
            kept (float32: the larger of each two).

        Raises
        ------
        ValueError
            ``strict`` and not 2:4, naming the first such group; blocks that are no multiple of 32
            rows and 32 columns (int8: 16 and 64; float32: 32 and 16).
        TypeError
            A dtype that 2:4 lacks.

        Examples
        --------
        >>> import numpy as np, sparsegpu
        >>> A = sparsegpu.bsr_array(np.ones((64, 64), np.float16), blocksize=(32, 32))
        >>> A.semi_structured(prune=True) @ np.ones(64, np.float16)  # doctest: +ELLIPSIS
        array([32., 32., ...], dtype=float16)
        """
        function = "bsr_array.semi_structured"
        return BsrSemiStructuredArray._compressed(function, "self", self, strict, prune)

    def _save(self, function: str, file: Any, compressed: bool) -> None:
        npz.write(function, file, self, compressed=compressed)


class BsrSemiStructuredArray(Drawings, Bsr24Base):
    """Block sparse rows, or a batch of them, that keep two of each four elements in their blocks.

    float32 keeps one of each two. Made by `bsr_array.semi_structured` or `load_npz`; the
    constructor takes the parts.

    Parameters
    ----------
    parts : (packed, meta, indices, indptr)
        ``packed (*batch, nnzb, bm, bk / 2)`` and ``meta (*batch, nnzb, bm, columns)``: of each
        block what `semi_structured_from_dense` gives for it. ``indices`` and ``indptr`` as of
        `bsr_array`: unsorted and repeated ones are fine, and are copied.
    shape : (M, K)
        Of one matrix.
    check : bool
        Look at every index and every code of the metadata, as `check_meta` does (synchronises on
        a GPU). False trusts the caller.

    Attributes
    ----------
    packed, meta, indices, indptr : array
        The parts. ``indices`` and ``indptr`` are not to be written to.
    pattern : Pattern
        Immutable, and shared with the `bsr_array` that this was made of.
    shape, ndim, dtype, blocksize, nnz, size, nnzb, density, nbytes, device
        As of `bsr_array`; but ``nnz`` and ``size`` count the kept values only.

    Raises
    ------
    ValueError
        Parts that do not match; indices out of range; an illegal code, naming row, group and
        block; blocks that are no multiple of what the format needs: 32 rows and 32 columns
        (int8: 16 and 64; float32: 32 and 16).
    TypeError
        A dtype that is not float16, bfloat16, float32 or int8; ``parts`` that are not four arrays.

    See Also
    --------
    bsr_array.semi_structured : makes one.
    SemiStructuredArray : a whole 2:4 matrix.

    Notes
    -----
    ``A @ x``, `bsr_matmul` and `bsr_addmm` multiply it: blocks that are not stored are
    skipped, and of the others half is read and multiplied (PTX ISA, ``mma.sp``, and
    ``wgmma.mma_async.sp`` for blocks of multiples of 64 rows and of 128 bytes of columns on
    compute capability 9.0). The transpose of a 2:4 block is not 2:4: ``x @ A`` and ``A.T`` are
    not offered, ``A.tobsr()`` has them. Comparisons are those of ``A.tobsr()``.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> dense = np.kron(np.eye(2), np.tile([0, 5, 0, 7], (32, 8))).astype(np.float16)
    >>> A = sparsegpu.bsr_array(dense, blocksize=(32, 32)).semi_structured()
    >>> A
    <sparsegpu.BsrSemiStructuredArray, shape (64, 64), float16, 2:4, 2 blocks of 32x32 stored
    (density 0.5), on cpu>
    >>> A.packed.shape, A.meta.shape
    ((2, 32, 16), (2, 32, 2))
    >>> A @ np.ones(64, np.float16)  # doctest: +ELLIPSIS
    array([96., 96., ...], dtype=float16)
    """

    __slots__ = ()

    _instead_of_bool = "(A != B).sum() == 0 says whether two are equal"

    @classmethod
    def from_bsr(cls, bsr: Any, *, strict: bool = True, prune: bool = False) -> Self:
        """Compress the blocks of a `bsr_array`: what `bsr_array.semi_structured` does.

        Parameters
        ----------
        bsr : bsr_array
        strict, prune : bool
            As in `bsr_array.semi_structured`.

        Raises
        ------
        ValueError, TypeError
            As `bsr_array.semi_structured`.
        """
        function = "BsrSemiStructuredArray.from_bsr"
        return cls._compressed(function, "bsr", bsr, strict, prune)

    @classmethod
    def _compressed(cls, function: str, argument: str, bsr: Any, strict: bool, prune: bool) -> Self:
        check_flags(function, strict=strict, prune=prune)
        check_sparse(function, argument, bsr)
        pattern, data = bsr.pattern, bsr.data
        form = format_of_blocks(function, argument, data.dtype, pattern.blocksize)
        with on_device(data):
            if prune and data.size:
                data = prune_24(data, keep=form.rule)
            strict = bool(strict) and not prune
            values = compressed_blocks(function, argument, pattern, data, strict)
        return cls._of(pattern, values)

    def tobsr(self) -> bsr_array:
        """Return the `bsr_array` of the same pattern, its blocks expanded.

        Examples
        --------
        >>> import numpy as np, sparsegpu
        >>> A = sparsegpu.bsr_array(np.eye(64, dtype=np.float16), blocksize=(32, 32))
        >>> A.semi_structured().tobsr()
        <sparsegpu.bsr_array, shape (64, 64), float16, 2 blocks of 32x32 stored (density 0.5),
        on cpu>
        """
        self._check("tobsr")
        data = expanded_blocks("BsrSemiStructuredArray.tobsr", *self._values)
        return bsr_array._of(self._pattern, data)

    def toarray(self) -> Any:
        """Return the dense array (*batch, M, K); duplicate blocks are summed."""
        return self.tobsr().toarray()

    todense = toarray

    def astype(self, dtype: Any, copy: bool = True) -> BsrSemiStructuredArray:
        """Return the array in another dtype, over the same pattern.

        Parameters
        ----------
        dtype : dtype
            float16, bfloat16, float32 or int8.
        copy : bool
            False returns the array itself when it has the dtype already.

        Raises
        ------
        ValueError
            Blocks that do not fit the other format, by their size or what they hold.
        TypeError
            Another dtype.
        """
        function = "BsrSemiStructuredArray.astype"
        wanted = check_dtype_name(function, "dtype", dtype)
        check_dtype_among(function, "dtype", wanted, DTYPES, "2:4 ")
        check_flags(function, copy=copy)
        self._check("astype")
        if wanted == self.dtype:
            return self.copy() if copy else self
        return self._compressed(function, "self", self.tobsr().astype(wanted), True, False)

    def _compared(self, other: Any, function: str, operation: Callable) -> Any:
        return self.tobsr()._compared(other, function, operation)

    def _beside(self, other: Any, function: str) -> tuple[Any, Any]:
        return self.tobsr()._beside(other, function)
