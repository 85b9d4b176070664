"""`BsrSemiStructuredArray`: block sparse rows whose blocks are 2:4 themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .._arrays import Sparse, as_array, check_dtype_name, device_of, namespace
from .._checks import bad_type, bad_value, check_sizes, not_offered
from .._format_24 import FORMATS
from ..bsr.compare import Compared
from ..bsr.patterned import Patterned
from ..ops._blocks_24 import (
    Packed,
    check_parts,
    check_sparse_blocks,
    compressed_blocks,
    expanded_blocks,
)
from ..ops._blocks_24 import format_of_blocks as check_format_of_blocks
from ..ops._common import check_sparse, is_sparse, on_device
from ..ops.addmm import bsr_matmul, dense_bsr_matmul
from ..ops.prune import prune_24
from ..pattern import Pattern
from . import io

if TYPE_CHECKING:
    from ..bsr.array import bsr_array


class BsrSemiStructuredArray(Patterned, Compared, Sparse):
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
        Look at every index (one synchronisation on a GPU). False trusts the caller.

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
        Parts that do not belong together; indices out of range; blocks that are no multiple of
        what the format needs: 32 rows and 32 columns (int8: 16 and 64; float32: 32 and 16).
    TypeError
        A dtype that is not float16, bfloat16, float32 or int8; ``parts`` that are not four arrays.

    See Also
    --------
    bsr_array.semi_structured : makes one.
    SemiStructuredArray : a whole 2:4 matrix.

    Notes
    -----
    ``A @ x``, `bsr_matmul` and `bsr_addmm` multiply it with both savings: absent blocks are
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

    __slots__ = ("__weakref__", "_pattern", "_values")

    format = "bsr"

    _instead_of_bool = "(A != B).sum() == 0 says whether two are equal"

    def __init__(
        self, parts: tuple[Any, Any, Any, Any], shape: tuple[int, int], *, check: bool = True
    ):
        function = "BsrSemiStructuredArray"
        if not isinstance(parts, tuple) or len(parts) != len(io.BLOCKS_PARTS):
            got = f"{len(parts)} of them" if isinstance(parts, tuple) else type(parts).__name__
            raise bad_type(function, "parts", f"a tuple ({', '.join(io.BLOCKS_PARTS)})", got)
        packed, meta, indices, indptr = (
            as_array(part, function, name)
            for part, name in zip(parts, io.BLOCKS_PARTS, strict=True)
        )
        m, k = check_sizes(function, "shape", shape, "a pair of integers (M, K)", count=2)
        if packed.ndim < 3:
            expected = "shape (*batch, nnzb, bm, bk / 2)"
            raise bad_value(function, "packed", expected, tuple(packed.shape))
        blocksize = (packed.shape[-2], 2 * packed.shape[-1])
        with on_device(packed):
            pattern = Pattern(indptr, indices, (m, k), blocksize, check=check, function=function)
            check_parts(function, pattern, packed, meta)
            contiguous = namespace(packed).ascontiguousarray
            self._values = Packed(contiguous(packed), contiguous(meta))
        self._pattern = pattern

    @classmethod
    def from_bsr(
        cls, bsr: Any, *, strict: bool = True, prune: bool = False
    ) -> BsrSemiStructuredArray:
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
        function = "bsr_array.semi_structured"
        if not is_sparse(bsr):
            check_sparse("BsrSemiStructuredArray.from_bsr", "bsr", bsr)
        check_sparse(function, "self", bsr)
        pattern, data = bsr.pattern, bsr.data
        form = check_format_of_blocks(function, "self", data.dtype, pattern.blocksize)
        with on_device(data):
            if prune and data.size:
                data = prune_24(data, keep=form.rule)
            values = compressed_blocks(function, pattern, data, bool(strict) and not prune)
        return cls._of(pattern, values)

    @classmethod
    def _of(cls, pattern: Pattern, values: Packed) -> BsrSemiStructuredArray:
        array: BsrSemiStructuredArray = object.__new__(cls)
        array._pattern, array._values = pattern, values
        return array

    # -- metadata -------------------------------------------------------------------------------

    @property
    def packed(self) -> Any:
        """Kept values of every block, shape (*batch, nnzb, bm, bk / 2)."""
        return self._values.packed

    @property
    def meta(self) -> Any:
        """Metadata of every block in CUTLASS's order, shape (*batch, nnzb, bm, columns)."""
        return self._values.meta

    @property
    def dtype(self) -> np.dtype:
        """dtype of the values."""
        return self.packed.dtype

    @property
    def nnz(self) -> int:
        """Number of kept values (of one matrix of a batch): half of the blocks' elements."""
        bm, bk = self.blocksize
        return self.nnzb * bm * (bk // 2)

    @property
    def size(self) -> int:
        """Number of kept values, as `nnz`."""
        return self.nnz

    @property
    def nbytes(self) -> int:
        """Bytes of values, metadata and pattern."""
        parts = (self.packed, self.meta, self.indices, self.indptr)
        return sum(part.nbytes for part in parts)

    @property
    def device(self) -> Any:
        """``"cpu"``, or the `cupy.cuda.Device`."""
        return self.packed.device

    def __repr__(self) -> str:
        rule = FORMATS[self.dtype].rule
        device = self.device if namespace(self.packed) is np else f"cuda:{self.device.id}"
        return (
            f"<sparsegpu.BsrSemiStructuredArray, shape {self.shape}, {self.dtype}, {rule}, "
            f"{self._stored()}, on {device}>"
        )

    def _check(self, method: str) -> None:
        """Refuse to go on with parts that were set to another shape or dtype meanwhile."""
        check_sparse_blocks(f"BsrSemiStructuredArray.{method}", "self", self)

    # -- conversions ----------------------------------------------------------------------------

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
        from ..bsr.array import bsr_array

        self._check("tobsr")
        data = expanded_blocks("BsrSemiStructuredArray.tobsr", *self._values)
        return bsr_array._of(self._pattern, data)

    def toarray(self) -> Any:
        """Return the dense array (*batch, M, K); duplicate blocks are summed."""
        return self.tobsr().toarray()

    todense = toarray

    def transpose(self) -> Any:
        """Refuse: the transpose of a 2:4 block is not 2:4.

        Raises
        ------
        NotImplementedError
            Always; ``A.tobsr().T`` is the transpose.
        """
        what = "the transpose of 2:4 blocks (which are not 2:4 by columns)"
        raise not_offered("BsrSemiStructuredArray.transpose", what, "A.tobsr().T")

    @property
    def T(self) -> Any:
        """Not offered: see `transpose`."""
        return self.transpose()

    def copy(self) -> BsrSemiStructuredArray:
        """Return an array with its own values over the same (immutable) pattern."""
        self._check("copy")
        with on_device(self.packed):
            return self._of(self._pattern, Packed(self.packed.copy(), self.meta.copy()))

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
        ValueError, TypeError
            As `bsr_array.astype` and `bsr_array.semi_structured` of the expanded blocks.
        """
        wanted = check_dtype_name("BsrSemiStructuredArray.astype", "dtype", dtype)
        self._check("astype")
        if wanted == self.dtype:
            return self.copy() if copy else self
        return self.tobsr().astype(wanted).semi_structured()

    def __copy__(self) -> BsrSemiStructuredArray:
        return self._of(self._pattern, self._values)

    def __deepcopy__(self, memo: dict) -> BsrSemiStructuredArray:
        del memo
        return self.copy()

    def get(self) -> BsrSemiStructuredArray:
        """Return the array on the host (itself, if it is there already)."""
        self._check("get")
        if namespace(self.packed) is np:
            return self
        values = Packed(self.packed.get(), self.meta.get())
        return self._of(self._pattern.to_library(np), values)

    def to_device(self, device: int | None = None) -> BsrSemiStructuredArray:
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
        import cupy

        self._check("to_device")
        if device is None:
            device = cupy.cuda.runtime.getDevice()
        if device_of(self.packed) == device:
            return self
        with cupy.cuda.Device(device):
            parts = (cupy.asarray(part) for part in self._parts())
            return type(self)(tuple(parts), self._pattern.shape, check=False)

    def _parts(self) -> tuple[Any, Any, Any, Any]:
        return self.packed, self.meta, self.indices, self.indptr

    def __reduce__(self) -> tuple:
        self._check("__reduce__")
        return _restore, (type(self), self._parts(), self._pattern.shape)

    def save_npz(self, file: Any, compressed: bool = True) -> None:
        """Write the array to a ``.npz`` file that `load_npz` reads.

        Parameters
        ----------
        file : str, path or binary file
        compressed : bool
        """
        self._check("save_npz")
        io.save_blocks_npz(file, self.get(), compressed=compressed)

    @classmethod
    def load_npz(cls, file: Any) -> BsrSemiStructuredArray:
        """Return the array of a file that `save_npz` wrote, on the host.

        Raises
        ------
        ValueError
            A file that holds no such array.
        """
        parts, shape = io.load_blocks_npz(file)
        return cls(parts, shape)

    # -- operators ------------------------------------------------------------------------------

    def __matmul__(self, other: Any) -> Any:
        return bsr_matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return dense_bsr_matmul(other, self)

    def _compared(self, other: Any, sign: str, operation: Callable) -> Any:
        del sign
        return operation(self.tobsr(), other)


def _restore(cls: type, parts: tuple, shape: tuple) -> Any:
    return cls(parts, shape, check=False)
