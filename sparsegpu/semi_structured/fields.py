"""What a `SemiStructuredArray` holds: its halves and bitmask, and what is read off them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._checks import bad_value
from .._format_24 import FORMATS
from ..ops._common import on_device
from ..ops._product_24 import Half
from ..ops.prune_tiles import compressed_swizzled_bitmask, semi_structured_apply_dense
from .layout import Halves


class Fields:
    """Attributes of `SemiStructuredArray`."""

    __slots__ = ()

    _halves: Halves
    _transposed: bool
    _backend: str
    _bitmask: Any
    _kept_bitmask: Any

    @property
    def shape(self) -> tuple[int, int]:
        """Logical shape ``(m, k)``."""
        m, k = self._halves.shape
        return (k, m) if self._transposed else (m, k)

    @property
    def backend(self) -> str:
        """What computes products, "native" or "cusparselt"; `to_backend` changes it."""
        return self._backend

    @property
    def dtype(self) -> np.dtype:
        """What the values stand for (float8_e4m3fn also where they are held as uint8)."""
        return self._halves.dtype

    @property
    def nnz(self) -> int:
        """Number of elements that are kept, zeros among them included."""
        side = 0 if self._halves.stored(0) is not None else 1
        m, k = self._halves.shape[::-1] if side else self._halves.shape
        form = FORMATS[self.dtype]
        groups, rest = divmod(k, form.group)
        return m * (groups * form.kept + min(rest, form.kept))

    @property
    def size(self) -> int:
        """Number of elements that are kept, as `nnz`."""
        return self.nnz

    @property
    def density(self) -> float:
        """Elements that are kept over all elements; 0.0 where there are none."""
        m, k = self.shape
        return self.nnz / (m * k) if m and k else 0.0

    @property
    def device(self) -> Any:
        """``"cpu"``, or the `cupy.cuda.Device`."""
        return self._halves.any().packed.device

    @property
    def nbytes(self) -> int:
        """Bytes of the halves and the bitmask that are held now, and of the backend's buffers."""
        halves = [h for h in (self._halves.stored(0), self._halves.stored(1)) if h is not None]
        mask = 0 if self._bitmask is None else self._bitmask.nbytes
        kept = sum(h.packed.nbytes + h.meta.nbytes for h in halves)
        return mask + kept + (self._halves.vendor_nbytes if self.backend == "cusparselt" else 0)

    def _part(self, transposed: bool, name: str) -> Any:
        shown = self._halves.shown(int(transposed ^ self._transposed))
        return None if shown is None else getattr(shown, name)

    @property
    def packed(self) -> Any:
        """Kept values by rows, or None while that half is not held."""
        return self._part(False, "packed")

    @property
    def meta(self) -> Any:
        """Metadata by rows in CUTLASS's order, or None."""
        return self._part(False, "meta")

    @property
    def packed_t(self) -> Any:
        """Kept values of the transpose, or None."""
        return self._part(True, "packed")

    @property
    def meta_t(self) -> Any:
        """Metadata of the transpose, or None."""
        return self._part(True, "meta")

    @property
    def bitmask(self) -> Any:
        """`compressed_swizzled_bitmask` of the (padded) matrix, or None."""
        return self._bits() if self._transposed else self._bitmask

    def _bits(self) -> Any:
        bits = self._kept_bitmask
        if bits is None or not self._transposed:
            return bits
        rows, columns, _ = bits.shape
        with on_device(bits):
            ones = self._halves.xp.ones((8 * rows, 8 * columns), dtype=np.int8)
            return compressed_swizzled_bitmask(semi_structured_apply_dense(ones, bits).T)

    def half(self, transposed: bool = False) -> Half:
        """Return the left operand of a product with a dense matrix, built if it is missing.

        For operations only: these are the arrays themselves, not views of them.

        Parameters
        ----------
        transposed : bool
            The half of the transpose, for ``dense @ A``.
        """
        halves, side = self._halves, int(transposed ^ self._transposed)
        return halves.for_vendor(side) if self.backend == "cusparselt" else halves.get(side)

    def held(self, transposed: bool) -> tuple[Halves, tuple[str, bool]]:
        """Return what holds the halves, and which of the operands that share them this is."""
        return self._halves, (self.backend, transposed ^ self._transposed)

    def values(self) -> Any:
        """Return the kept values by rows (`packed`), built if they are missing.

        Raises
        ------
        ValueError
            For the transpose of a matrix that is not 2:4 by columns.
        """
        return self._whole_half("values").packed

    def indices(self) -> Any:
        """Return the metadata by rows in CUTLASS's order (`meta`), built if it is missing.

        Raises
        ------
        ValueError
            As `values`.
        """
        return self._whole_half("indices").meta

    def _whole_half(self, function: str) -> Half:
        half = self._halves.get(int(self._transposed))
        if half.split:
            raise bad_value(
                f"SemiStructuredArray.{function}",
                "self",
                "a matrix that is 2:4 by rows",
                "the transpose of one (products with it work)",
            )
        return self._halves.shown(int(self._transposed)) or half
