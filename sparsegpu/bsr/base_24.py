"""Storage, attributes and operators of a `BsrSemiStructuredArray`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, Self

import numpy as np

from .._arrays import (
    as_array,
    common_namespace,
    device_name,
    namespace,
)
from .._checks import bad_type, bad_value, check_flags, check_sizes, not_offered
from .._device import Portable
from .._format_24 import FORMATS
from .._npz import reading
from .._protocols import leaves
from ..ops._blocks_24 import Packed, check_parts, check_sparse_blocks
from ..ops._bsr_product import matmul
from ..ops._common import on_device
from ..ops.compress import as_meta, check_codes
from ..pattern import Pattern
from . import npz
from .arithmetic_24 import Arithmetic24, same_elements
from .compare import Compared
from .npz import PARTS_24
from .patterned import Patterned


class Bsr24Base(Patterned, Arithmetic24, Compared, Portable):
    """Packed values and metadata over a pattern; `BsrSemiStructuredArray` derives from it."""

    __slots__ = ("__weakref__", "_pattern", "_values")

    format = "bsr"

    _values: Packed

    def __init__(
        self, parts: tuple[Any, Any, Any, Any], shape: tuple[int, int], *, check: bool = True
    ):
        function = "BsrSemiStructuredArray"
        check_flags(function, check=check)
        if not isinstance(parts, tuple) or len(parts) != len(PARTS_24):
            got = f"{len(parts)} of them" if isinstance(parts, tuple) else type(parts).__name__
            raise bad_type(function, "parts", f"a tuple ({', '.join(PARTS_24)})", got)
        packed, meta, indices, indptr = (
            (as_meta if name == "meta" else as_array)(part, function, name)
            for part, name in zip(parts, PARTS_24, strict=True)
        )
        m, k = check_sizes(function, "shape", shape, "a pair of integers (M, K)", count=2)
        if packed.ndim < 3:
            expected = "shape (*batch, nnzb, bm, bk / 2)"
            raise bad_value(function, "packed", expected, tuple(packed.shape))
        blocksize = (packed.shape[-2], 2 * packed.shape[-1])
        with on_device(packed):
            pattern = Pattern(indptr, indices, (m, k), blocksize, check=check, function=function)
            check_parts(function, pattern, packed, meta)
            if check:
                check_codes(function, "meta", meta, FORMATS[packed.dtype])
            contiguous = namespace(packed).ascontiguousarray
            self._values = Packed(contiguous(packed), contiguous(meta))
        self._pattern = pattern

    @classmethod
    def _of(cls, pattern: Pattern, values: Packed) -> Self:
        array = object.__new__(cls)
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
        return sum(part.nbytes for part in self._parts())

    @property
    def device(self) -> Any:
        """``"cpu"``, or the `cupy.cuda.Device`."""
        return self.packed.device

    def __repr__(self) -> str:
        rule = FORMATS[self.dtype].rule
        return (
            f"<sparsegpu.BsrSemiStructuredArray, shape {self.shape}, {self.dtype}, {rule}, "
            f"{self._stored()}, on {device_name(self.packed)}>"
        )

    def _check(self, method: str) -> None:
        check_sparse_blocks(f"BsrSemiStructuredArray.{method}", "self", self)

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

    def copy(self) -> Self:
        """Return an array with its own values over the same (immutable) pattern."""
        self._check("copy")
        with on_device(self.packed):
            return self._of(self._pattern, Packed(self.packed.copy(), self.meta.copy()))

    def __copy__(self) -> Self:
        return self._of(self._pattern, self._values)

    def __deepcopy__(self, memo: dict) -> Self:
        del memo
        return self.copy()

    def get(self) -> Self:
        """Return the array on the host (itself, if it is there already)."""
        self._check("get")
        if self._xp is np:
            return self
        values = Packed(self.packed.get(), self.meta.get())
        return self._of(self._pattern.to_library(np), values)

    def _moved(self, cupy: ModuleType) -> Self:
        parts = (cupy.asarray(part) for part in self._parts())
        return type(self)(tuple(parts), self._pattern.shape, check=False)

    def _parts(self) -> tuple[Any, Any, Any, Any]:
        return self.packed, self.meta, self.indices, self.indptr

    def __reduce__(self) -> tuple:
        self._check("__reduce__")
        return partial(type(self), check=False), (self._parts(), self._pattern.shape)

    def _save(self, function: str, file: Any, compressed: bool) -> None:
        check_sparse_blocks(function, "self", self)
        npz.write_24(function, file, self.get(), compressed=compressed)

    @classmethod
    def load_npz(cls, file: Any) -> Self:
        """Return the array of a file that `save_npz` wrote, on the host.

        Raises
        ------
        ValueError
            A file that holds no such array, holds an illegal code, or is damaged: file and member.
        OSError
            A file that cannot be opened or read.
        TypeError
            No file.
        """
        with reading(f"{cls.__name__}.load_npz", file) as members:
            members.check_format(npz.FORMAT_24)
            return npz.read_24(members, cls)

    # -- operators ------------------------------------------------------------------------------

    def __matmul__(self, other: Any) -> Any:
        if leaves(other, "__rmatmul__"):
            return NotImplemented
        return matmul("BsrSemiStructuredArray @", self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return matmul("BsrSemiStructuredArray @", self, other, from_the_right=True)

    def _mapped(self, function: str, operation: Callable, linear: bool) -> Self:
        check_sparse_blocks(function, "self", self)
        self._refuse_repeated(function, linear)
        with on_device(self.packed):
            return self._of(self._pattern, Packed(operation(self.packed), self.meta))

    def _paired(self, function: str, other: Any, operation: Callable, linear: bool) -> Self:
        for name, array in (("self", self), ("other", other)):
            check_sparse_blocks(function, name, array)
            array._refuse_repeated(function, linear, name)
        common_namespace(function, self=self.packed, other=other.packed)
        with on_device(self.packed):
            same = self._pattern.same_as(other._pattern) and same_elements(self.meta, other.meta)
            if not same:
                expected = "the same blocks, of which the same elements are kept (see tobsr)"
                raise bad_value(function, "other", expected, f"others, {other!r}")
            return self._of(self._pattern, Packed(operation(self.packed, other.packed), self.meta))

    def _refuse_repeated(self, function: str, linear: bool, argument: str = "self") -> None:
        if not linear and self._pattern.has_repeated_blocks:
            expected = "no block twice (A.tobsr() sums them)"
            raise bad_value(function, argument, expected, "blocks at the same place")
