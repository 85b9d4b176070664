"""Storage and attributes of a `bsr_array`, on which its operators and conversions build."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from .._arrays import as_array, device_name
from .._protocols import Sparse
from ..ops._canonical import canonical_blocks
from ..ops._common import check_sparse, check_values, not_sparse, on_device
from ..pattern import Pattern
from .patterned import Patterned


def computed(name: str) -> AttributeError:
    """Return the error for setting what SciPy lets one set (the caller raises it)."""
    return AttributeError(
        f"bsr_array.{name}: expected not to be set: it is computed from the indices, which "
        "sum_duplicates() and sort_indices() change"
    )


class BsrBase(Patterned, Sparse):
    """Values over a pattern; the classes that `bsr_array` is made of derive from this one."""

    __slots__ = ("__weakref__", "_data", "_pattern")

    _data: Any

    @classmethod
    def _of(cls, pattern: Pattern, data: Any) -> Self:
        """Return an array over a pattern and data that are known to fit."""
        array = object.__new__(cls)
        array._pattern, array._data = pattern, data
        return array

    def _with(self, pattern: Pattern, data: Any) -> Self:
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
    def nbytes(self) -> int:
        """Bytes of values and pattern."""
        return sum(part.nbytes for part in (self._data, self.indices, self.indptr))

    @property
    def device(self) -> Any:
        """``"cpu"``, or the `cupy.cuda.Device`."""
        return self._data.device

    def __reduce__(self) -> tuple:
        check_sparse("pickle", "self", self)
        return type(self)._of, (self._pattern, self._data)

    # -- values -----------------------------------------------------------------------------

    def with_data(self, data: Any) -> Self:
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

    def copy(self) -> Self:
        """Return an array with its own values over the same (immutable) pattern."""
        check_sparse("copy", "self", self)
        with on_device(self._data):
            return self._with(self._pattern, self._data.copy())

    def __copy__(self) -> Self:
        return self._with(self._pattern, self._data)

    def __deepcopy__(self, memo: dict) -> Self:
        del memo
        return self.copy()

    def same_pattern(self, other: Any) -> bool:
        """Whether ``other`` stores the same blocks in the same order (shape and block size too).

        Compares indices when the patterns are not one object (a synchronisation on a GPU).

        Raises
        ------
        TypeError
            When ``other`` has no block pattern.
        """
        if not hasattr(other, "pattern"):
            raise not_sparse("same_pattern", "other", other)
        return self._pattern.same_as(other.pattern)

    @property
    def has_canonical_format(self) -> bool:
        """Whether block columns are sorted and none is repeated."""
        return self._pattern.has_canonical_format

    @has_canonical_format.setter
    def has_canonical_format(self, value: Any) -> None:
        del value
        raise computed("has_canonical_format")

    def _canonical(self, function: str, argument: str = "self") -> Self:
        """Return this array if it is canonical, else a new one with duplicates summed."""
        check_sparse(function, argument, self)
        if self.has_canonical_format:
            return self
        return self._with(*canonical_blocks(self, function, argument))

    def _one_matrix(self) -> Self:
        """Return the matrices of the batch one below another, over the same values.

        Without its duplicates a matrix of a batch may have fewer blocks than the others, which no
        batched array holds; this one does.
        """
        return self._with(self._pattern.stacked(), self._data.reshape(-1, *self.blocksize))

    def __repr__(self) -> str:
        return (
            f"<sparsegpu.{type(self).__name__}, shape {self.shape}, {self.dtype}, "
            f"{self._stored()}, on {device_name(self._data)}>"
        )
