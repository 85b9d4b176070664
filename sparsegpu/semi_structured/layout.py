"""The two halves of a 2:4 matrix, by rows and by columns, shared by an array and its transpose."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Any

import numpy as np

from .._arrays import check_may_wait, common_namespace, device_of, float8_e4m3fn
from .._checks import bad_type, bad_value, check_sizes
from .._device import device_context
from .._format_24 import FORMATS
from .._locks import fork_safe, held
from .._math import round_up
from ..ops._common import on_device, optional_array
from ..ops._product_24 import Half
from ..ops.compress import (
    as_meta,
    check_codes,
    check_packed,
    compress_matrix,
    semi_structured_to_dense,
    split_24,
    zero_padded,
)

_NAMES = (("packed", "meta"), ("packed_t", "meta_t"))


class Halves:
    """A matrix compressed by rows (side 0), its transpose compressed by rows (side 1), or both.

    A missing half is built on the first call that needs it and kept; one thread builds while the
    others wait. Arrays are never replaced, and are held as views: setting the shape of an array
    that was passed in, or returned by `shown`, changes nothing here.

    Parameters
    ----------
    shape : (m, k)
        Logical shape of side 0; what is stored beyond it is zero padding.
    sides : two pairs (packed, meta), at least one without None
        Whatever `as_array` takes.
    dtype : dtype, optional
        What the values stand for, where the array library cannot say (uint8: float8_e4m3fn).
    check : bool
        Look at every code of the metadata, which waits for the device.

    Raises
    ------
    ValueError, TypeError
        Arrays that do not match; with ``check`` an illegal code.
    """

    __slots__ = (
        *("_lock", "_shown", "_sides", "_splits", "_vendors"),
        *("device", "dtype", "kept", "shape", "xp"),
    )

    def __init__(self, shape: tuple[int, int], sides: Any, dtype: Any, check: bool, function: str):
        sides = [_as_arrays(function, *pair) for pair in zip(_NAMES, sides, strict=True)]
        m, k = check_sizes(function, "shape", shape, "a pair of integers (m, k)", count=2)
        self.shape = (m, k)
        self._lock = fork_safe(threading.RLock())
        self._sides: list[Half | None] = [None, None]
        self._shown: list[Half | None] = [None, None]  # the same memory, for users
        self._splits: list[Half | None] = [None, None]
        self._vendors: list[Half | None] = [None, None]
        self.kept: dict[Hashable, Any] = {}  # by streams, of the CUDA engine
        given = check_parts(function, self.shape, (*sides[0], *sides[1]))
        self.xp = common_namespace(function, **given)
        dtypes = {array.dtype for name, array in given.items() if name.startswith("packed")}
        if len(dtypes) > 1:
            raise bad_type(function, "packed_t", "the dtype of 'packed'", dtypes)
        self.dtype = _tag(function, dtypes.pop(), dtype)
        for (_, name), (packed, meta) in zip(_NAMES, sides, strict=True) if check else ():
            if packed is not None:
                check_codes(function, name, meta, FORMATS[packed.dtype])
        for side, (packed, meta) in enumerate(sides):
            if packed is not None:
                with on_device(packed):
                    shown = Half(*map(self.xp.ascontiguousarray, (packed, meta)))
                    self._shown[side] = shown
                    self._sides[side] = shown.viewed()
        self.device = device_of(self.any().packed)

    def check_bitmask(self, function: str, bits: Any) -> None:
        """Refuse what is no bitmask of (at least) this matrix."""
        common_namespace(function, packed=self.any().packed, bitmask=bits)
        _check_bits(function, self.shape, bits)

    def stored(self, side: int) -> Half | None:
        """Return what is held of a side now, nothing built."""
        return self._sides[side]

    def shown(self, side: int) -> Half | None:
        """Return what is held of a side now, for users: always the same arrays."""
        half = self._sides[side]
        if half is not None and self._shown[side] is None:
            with held(self._lock):
                if self._shown[side] is None:
                    self._shown[side] = half.viewed()
        return self._shown[side]

    def any(self) -> Half:
        """Return a half that is held."""
        half = self._sides[0] or self._sides[1]
        assert half is not None
        return half

    def get(self, side: int) -> Half:
        """Return a side, built from the other one on the first call."""
        half = self._sides[side] or self._splits[side]
        if half is not None:
            return half
        with held(self._lock), device_context(self.device):
            half = self._sides[side] or self._splits[side]
            if half is None:
                check_may_wait(self.xp, "making the missing half of a 2:4 matrix")
                half = self._build(side)
                if self.xp is not np:  # complete before another stream uses it
                    self.xp.cuda.get_current_stream().synchronize()
                kept = self._splits if half.split else self._sides
                # Who may not wait for this lock builds it, too.
                half = kept[side] = kept[side] or half
        return half

    def for_vendor(self, side: int) -> Half:
        """Return a side with what the backend "cusparselt" reads, made on the first call."""
        found = self._vendors[side]
        if found is not None:
            return found
        half = self.get(side)
        with held(self._lock):
            found = self._vendors[side]
            if found is None:
                from ..engines.cusparselt.compress import compressed

                check_may_wait(self.xp, "making what backend 'cusparselt' reads of a 2:4 matrix")
                with on_device(half.packed):
                    vendor = compressed(half.packed, half.meta, self.dtype)
                    self.xp.cuda.get_current_stream().synchronize()
                found = self._vendors[side] or half._replace(vendor=vendor)
                self._vendors[side] = found
        return found

    @property
    def vendor_nbytes(self) -> int:
        """Bytes of what was made for the backend "cusparselt", besides its workspaces."""
        return sum(h.vendor.buffer.nbytes for h in self._vendors if h is not None)

    def convert_for_vendor(self) -> None:
        """Make what the backend "cusparselt" reads of the halves that are held now."""
        for side in (0, 1):
            if self._sides[side] is not None:
                self.for_vendor(side)

    def _build(self, side: int) -> Half:
        """Compress a side; one that is not 2:4 itself becomes a sum of two that are."""
        function = "SemiStructuredArray"
        with on_device(self.any().packed):
            matrix = self.dense(1 - side).T
            form = FORMATS[matrix.dtype]
            m, k = matrix.shape
            rows = round_up(m, form.rows)
            padded = zero_padded(matrix, (rows, round_up(k, form.columns)))
            packed, meta, group = compress_matrix(padded, True, function)
            if group < 0:
                return Half(packed, meta)
            return Half(*split_24(zero_padded(matrix, (rows, k)), function), split=True)

    def dense(self, side: int) -> Any:
        """Return a side as a dense matrix of its logical shape."""
        half = self._sides[side]
        if half is None:
            return self.xp.ascontiguousarray(self.dense(1 - side).T)
        m, k = self.shape if side == 0 else self.shape[::-1]
        dense = semi_structured_to_dense(half.packed, half.meta)
        return dense if dense.shape == (m, k) else self.xp.ascontiguousarray(dense[:m, :k])


def _as_arrays(function: str, names: tuple[str, str], side: tuple[Any, Any]) -> tuple[Any, Any]:
    packed, meta = side
    if meta is not None:
        meta = as_meta(meta, function, names[1])
    return optional_array(packed, function, names[0]), meta


def check_parts(function: str, shape: tuple[int, int], parts: Any) -> dict[str, Any]:
    """Refuse parts that do not belong to a matrix of this shape; metadata only.

    Parameters
    ----------
    shape : (m, k)
    parts : packed, meta, packed_t, meta_t and maybe bitmask
        Each an array or None.

    Returns
    -------
    dict
        The arrays of the halves, by name.
    """
    (m, k), (*halves, bits) = shape, (*parts, None)[:5]
    given: dict[str, Any] = {}
    for side, names in enumerate(_NAMES):
        packed, meta = halves[2 * side : 2 * side + 2]
        if (packed is None) != (meta is None):
            raise bad_value(function, names[1], f"'{names[0]}' with it", "None")
        if packed is None:
            continue
        given |= dict(zip(names, (packed, meta), strict=True))
        check_packed(function, packed, meta, names)
        stored = (packed.shape[0], 2 * packed.shape[1])
        wanted = (k, m) if side else (m, k)
        if stored[0] < wanted[0] or stored[1] < wanted[1]:
            raise bad_value(function, names[0], f"values of a {wanted} matrix", stored)
    if not given:
        raise bad_value(function, "packed", "at least one half of the matrix", "None")
    if bits is not None:
        _check_bits(function, shape, bits)
    return given


def _check_bits(function: str, shape: tuple[int, int], bits: Any) -> None:
    if bits.dtype != np.uint8:
        raise bad_type(function, "bitmask", "uint8", bits.dtype)
    m, k = shape
    enough = bits.ndim == 3 and 8 * bits.shape[0] >= m and 8 * bits.shape[1] >= k
    if not enough or bits.shape[2] != 8:
        expected = f"shape (rows/8, columns/8, 8) of a {(m, k)} matrix"
        raise bad_value(function, "bitmask", expected, tuple(bits.shape))


def _tag(function: str, stored: np.dtype, wanted: np.dtype | None) -> np.dtype:
    """Return what values stored as ``stored`` stand for."""
    stands_for = float8_e4m3fn if stored == np.uint8 else stored
    if wanted is not None and wanted != stands_for:
        raise bad_type(function, "dtype", f"{stands_for} for values stored as {stored}", wanted)
    return stands_for


def padded_to_format(dense: Any, *, both: bool) -> Any:
    """Return a matrix padded with zeros to what its format (in both orientations) needs."""
    form = FORMATS[dense.dtype]
    rows, columns = form.rows, form.columns
    if both:
        rows = columns = max(rows, columns)
    with on_device(dense):
        shape = (round_up(dense.shape[0], rows), round_up(dense.shape[1], columns))
        return zero_padded(dense, shape)
