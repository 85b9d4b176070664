"""`bsr_array`: values over a shared, immutable block pattern."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from .._arrays import Sparse, as_array
from .._checks import bad_type, bad_value
from ..ops._canonical import canonical_blocks
from ..ops._common import check_sparse, check_values, on_device
from ..pattern import Pattern
from .compare import Comparisons
from .construct import CONTAINER_DTYPES, build, check_dtype
from .convert import Conversions
from .draw import Drawings
from .index import Indexing
from .io import save_npz
from .operators import Operators
from .patterned import Patterned
from .reduce import Reductions


class bsr_array(
    Patterned, Operators, Comparisons, Reductions, Indexing, Conversions, Drawings, Sparse
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
        - any `scipy.sparse` or `cupyx.scipy.sparse` array;
        - another `bsr_array`, or a `BsrSemiStructuredArray`, whose pattern is shared unless
          ``blocksize`` changes;
        - ``(M, K)``: no blocks at all.
    shape : tuple of int, optional
        ``(*batch, M, K)``, or ``(M, K)`` of one matrix. Without it the smallest that fits.
    blocksize : (bm, bk), optional
        Each in 1..256. Estimated for a sparse ``arg``, as SciPy does.
    dtype : dtype, optional
        float16, bfloat16, float32, float64, int8, int32, bool, complex64 or complex128.
    copy : bool
        Copy the data; indices and indptr always are. Without it the data is shared with ``arg``
        where dtype and format allow.
    check : bool
        Look at every index (one synchronisation on a GPU). False trusts the caller.

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
        A dtype or kind of thing that cannot be held.

    See Also
    --------
    scipy.sparse.bsr_array : the model of this class.

    Notes
    -----
    Operators: ``A @ x``, ``x @ A`` and ``A @ B`` (sparse); ``A + B``, ``A - dense``, ``2 * A``,
    ``A / 2``, ``-A``, ``abs(A)``; ``A > 1`` and ``A != B``, bool arrays; ``A[i]``, ``A[i, j]`` and
    ``A[i:j]``, rows counted in elements. All but ``@`` are elementwise. What would fill every
    element that is not stored (``A + 1``, ``A == 0``) is a NotImplementedError.

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

    __slots__ = ("__weakref__", "_data", "_pattern")

    format = "bsr"

    _data: Any

    def __init__(
        self,
        arg: Any,
        shape: tuple[int, ...] | None = None,
        *,
        blocksize: tuple[int, int] | None = None,
        dtype: Any = None,
        copy: bool = False,
        check: bool = True,
    ):
        wanted = None if dtype is None else check_dtype("bsr_array", "dtype", dtype)
        self._pattern, self._data = build(
            arg, shape, blocksize=blocksize, dtype=wanted, copy=copy, check=check
        )

    @classmethod
    def _of(cls, pattern: Pattern, data: Any) -> bsr_array:
        """Return an array over a pattern and data that are known to fit."""
        array: bsr_array = object.__new__(cls)
        array._pattern, array._data = pattern, data
        return array

    def _with(self, pattern: Pattern, data: Any) -> bsr_array:
        """Return the same class over another pattern and data, unchecked."""
        return self._of(pattern, data)

    # -- metadata ---------------------------------------------------------------------------

    @property
    def data(self) -> Any:
        """Stored blocks, shape (*batch, nnzb, bm, bk)."""
        return self._data

    @data.setter
    def data(self, data: Any) -> None:
        self._data = self._checked_data(data, "data")

    @property
    def dtype(self) -> np.dtype:
        """dtype of the values."""
        return self._data.dtype

    @property
    def nnz(self) -> int:
        """Number of stored elements (of one matrix of a batch), zeros in blocks included."""
        return self._pattern.nnzb * self.blocksize[0] * self.blocksize[1]

    @property
    def size(self) -> int:
        """Number of stored elements, as `nnz`."""
        return self.nnz

    @property
    def device(self) -> Any:
        """``"cpu"``, or the `cupy.cuda.Device`."""
        return self._data.device

    @property
    def _xp(self) -> ModuleType:
        return self._pattern.xp

    def __reduce__(self) -> tuple:
        check_sparse("pickle", "self", self)
        return _restore, (type(self), self._pattern, self._data)

    # -- values -----------------------------------------------------------------------------

    def with_data(self, data: Any) -> bsr_array:
        """Return an array of the same pattern, with whatever is kept with it, and other values.

        Parameters
        ----------
        data : array (*batch, nnzb, bm, bk)
            Of the same array library and device; not copied. May have another dtype.

        Raises
        ------
        ValueError
            Another shape or device.
        TypeError
            Another array library, or a dtype that cannot be held.
        """
        return self._with(self._pattern, self._checked_data(data, "with_data"))

    def _checked_data(self, data: Any, function: str) -> Any:
        data = as_array(data, function, "data")
        check_values(function, "data", self._pattern, data)
        return data

    def copy(self) -> bsr_array:
        """Return an array with its own values over the same (immutable) pattern."""
        check_sparse("copy", "self", self)
        with on_device(self._data):
            return self._with(self._pattern, self._data.copy())

    def __copy__(self) -> bsr_array:
        return self._with(self._pattern, self._data)

    def __deepcopy__(self, memo: dict) -> bsr_array:
        del memo
        return self.copy()

    def same_pattern(self, other: Any) -> bool:
        """Whether ``other`` stores the same blocks in the same order (shape and block size too).

        Compares indices when the patterns are not one object (a synchronisation on a GPU).
        """
        if not hasattr(other, "pattern"):
            raise bad_type("same_pattern", "other", "a bsr_array", type(other).__name__)
        return self._pattern.same_as(other.pattern)

    def save_npz(self, file: Any, *, compressed: bool = True) -> None:
        """Write to ``file``: see `sparsegpu.save_npz`."""
        save_npz(file, self, compressed=compressed)

    # -- the order of blocks ----------------------------------------------------------------

    @property
    def has_sorted_indices(self) -> bool:
        """Whether block columns ascend in every row (repeated ones allowed)."""
        return self._pattern.has_sorted_indices

    @property
    def has_canonical_format(self) -> bool:
        """Whether block columns are sorted and none is repeated."""
        return self._pattern.has_canonical_format

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
        check_values("check_format", "data", self._pattern, self._data)
        if full_check:
            self._pattern.check("check_format")

    def sort_indices(self) -> None:
        """Sort the blocks of every row by column, in place; repeated ones stay, in order."""
        check_sparse("sort_indices", "self", self)
        if not self.has_sorted_indices:
            pattern, order = self._pattern.sorted()
            with on_device(self._data):
                blocks = self._data.reshape(-1, *self.blocksize)[order]
            self._pattern, self._data = pattern, blocks.reshape(self._data.shape)

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

    def _canonical(self, function: str) -> bsr_array:
        """Return this array if it is canonical, else a new one with duplicates summed."""
        check_sparse(function, "self", self)
        if self.has_canonical_format:
            return self
        return self._with(*canonical_blocks(self, function))

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
            keep = (self._data != 0).any(axis=(-2, -1)).reshape(pattern.batch_size, pattern.nnzb)
            before = xp.zeros((pattern.batch_size, pattern.nnzb + 1), dtype=np.int64)
            before[:, 1:] = xp.cumsum(keep, axis=1, dtype=np.int64)
            low, high = int(before[:, -1].min()), int(before[:, -1].max())
            if low != high:
                raise bad_value(
                    "eliminate_zeros",
                    "batch",
                    "the same number of nonzero blocks in every batch",
                    f"between {low} and {high}",
                )
            if low == pattern.nnzb:
                return
            starts = pattern.indptr.reshape(pattern.batch_size, -1).astype(np.int64)
            starts = xp.take_along_axis(before, starts, axis=1).reshape(pattern.indptr.shape)
            batch, flat = pattern.batch_shape, keep.ravel()
            self._pattern = Pattern(
                starts.astype(pattern.indptr.dtype),
                pattern.indices.ravel()[flat].reshape(*batch, low),
                pattern.shape,
                pattern.blocksize,
                check=False,
                copy=False,
            )
            blocks = self._data.reshape(-1, *pattern.blocksize)[flat]
            self._data = blocks.reshape(*batch, low, *pattern.blocksize)


def _restore(cls: type[bsr_array], pattern: Pattern, data: Any) -> bsr_array:
    return cls._of(pattern, data)


__all__ = ["CONTAINER_DTYPES", "bsr_array"]
