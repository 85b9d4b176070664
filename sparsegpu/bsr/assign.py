"""``A[i, j] = value`` where blocks are stored."""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np

from .._arrays import as_array, bfloat16, check_may_wait, common_namespace
from .._checks import bad_type, bad_value, broadcast_shape, check_scalar, not_offered, shown
from ..ops._common import check_sparse, on_device
from .align import check_can_be_set, check_values_writeable, is_scalar
from .construct import index_array
from .keys import index_parts

_FUNCTION = "bsr_array[i, j] ="


def assign(array: Any, key: Any, value: Any) -> None:
    """Write ``value`` to elements of stored blocks; the pattern stays.

    Of ``A[i, j]``, i and j are integers, slices, or integers in a list or 1-D array; two lists go
    in pairs, as in NumPy, anything else outer. Nothing is written unless all can be.
    """
    check_sparse(_FUNCTION, "self", array)
    array._refuse_batch(_FUNCTION)
    parts = index_parts(_FUNCTION, key, 2)
    parts = parts if len(parts) == 2 else (*parts, slice(None))
    if len(parts) != 2 or any(part is ... for part in parts):
        raise not_offered(_FUNCTION, f"the index {shown(key, reprlib.repr)}", "A[i, j] and A[i]")
    if not array.has_canonical_format:
        expected = "blocks of which none is repeated and rows that are sorted (sum_duplicates())"
        raise bad_value(_FUNCTION, "self", expected, "others")
    xp, pattern, (bm, bk) = array._xp, array._pattern, array.blocksize
    with on_device(array._data):
        check_may_wait(xp, _FUNCTION)
        row, column = (
            _positions(array, name, part, size)
            for name, part, size in zip("ij", parts, pattern.shape, strict=True)
        )
        if any(isinstance(part, slice) for part in parts):
            row = row[(..., *(None,) * column.ndim)]  # outer
        shape = broadcast_shape(
            _FUNCTION, "j", tuple(row.shape), tuple(column.shape), kind="shapes"
        )
        value = _checked(array, value, shape)
        if 0 in shape:
            return
        check_values_writeable(_FUNCTION, array._data)
        keys = pattern.keys()
        wanted = (row // bm) * pattern.block_shape[1] + column // bk
        block = xp.minimum(xp.searchsorted(keys, wanted), max(keys.size - 1, 0))
        if not keys.size or not bool((keys[block] == wanted).all()):
            expected = (
                "elements of stored blocks (patterns are immutable: A + B adds blocks, setdiag "
                "those of a diagonal)"
            )
            raise bad_value(_FUNCTION, "i, j", expected, "an element that is not stored")
        array._data[block, row % bm, column % bk] = value


def _positions(array: Any, name: str, part: Any, size: int) -> Any:
    """Return the rows or columns that a part of an index means, int64, counted from the front."""
    xp = array._xp
    if isinstance(part, slice):
        return xp.arange(*part.indices(size), dtype=np.int64)
    found = index_array(_FUNCTION, name, part)
    common_namespace(_FUNCTION, self=array._data, **({name: found} if found.ndim else {}))
    if found.dtype.kind not in "iu" or found.ndim > 1:
        expected = "an integer, a slice, or integers in a list or a 1-D array"
        raise bad_type(_FUNCTION, name, expected, f"{found.dtype}, shape {found.shape}")
    found = xp.asarray(found).astype(np.int64)
    if found.size:
        low, high = int(found.min()), int(found.max())
        if low < -size or high >= size:
            wrong = low if low < -size else high
            expected = f"{-size}..{size - 1}"
            raise IndexError(f"{_FUNCTION}: argument '{name}': expected {expected}, got {wrong}")
    return xp.where(found < 0, found + size, found)


def _checked(array: Any, value: Any, shape: tuple[int, ...]) -> Any:
    """Return values that can be written to elements of that shape, in the array's dtype."""
    if is_scalar(value):
        value = check_scalar(_FUNCTION, "value", value, complex_allowed=True)
        check_can_be_set(_FUNCTION, "value", value, array.dtype)
        kind = np.asarray(value).dtype
    else:
        value = as_array(value, _FUNCTION, "value")
        common_namespace(_FUNCTION, self=array._data, value=value)
        kind, given = value.dtype, tuple(value.shape)
        if broadcast_shape(_FUNCTION, "value", shape, given, kind="shapes") != shape:
            raise bad_value(_FUNCTION, "value", f"a shape that broadcasts to {shape}", given)
    if kind.kind not in "biufc" and kind != bfloat16:
        raise bad_type(_FUNCTION, "value", "numbers", kind)
    if kind.kind == "c" and array.dtype.kind != "c":
        raise bad_type(_FUNCTION, "value", f"real numbers for {array.dtype}", kind)
    return value if is_scalar(value) else value.astype(array.dtype)
