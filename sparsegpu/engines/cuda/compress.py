"""2:4 compression on the device: one pass each way."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._math import ceil_div
from ._grid import same_place
from ._host_numbers import HostNumbers
from .runtime.launch import NULL, Launch, address, kernel, submit

#: A block of the compress and expand kernels takes this many rows and metadata columns.
_ROWS, _COLUMNS, _THREADS = 32, 16, 256
_NO_GROUP = 2**63 - 1


def compress(packed: Any, meta: Any, dense: Any, strict: bool) -> int:
    """Write the kept values (m, k/2) and the reordered metadata of ``dense`` (m, k).

    Returns
    -------
    int
        -1, or with ``strict`` the row-major number of the first group with more nonzeros than
        it keeps. Only ``strict`` waits for the device.
    """
    targets = contiguous_target(packed), contiguous_target(meta)
    source = aligned(dense)
    flag = HostNumbers() if strict else None
    whole = all(map(same_place, (*targets, source), (packed, meta, dense)))
    _launch(*targets, source, flag, NULL, whole)
    copy_back(packed, targets[0])
    copy_back(meta, targets[1])
    return _first_crowded(*targets, source) if flag is not None and any(flag.wait()) else -1


def _launch(
    packed: Any, meta: Any, dense: Any, failed: HostNumbers | None, first: Any, whole: bool
) -> None:
    m, columns = meta.shape
    compiled = kernel(
        "semi_structured_compress",
        BYTES=dense.itemsize,
        SIGNED_ZERO=int(dense.dtype != np.int8),
    )
    arrays, sizes = map(address, (packed, meta, dense)), (np.int64(m), np.int64(columns))
    told = NULL if failed is None else failed.pointer
    launch = Launch(compiled, (blocks(m, columns),), (_THREADS,), (*arrays, told, first, *sizes))
    submit(*([] if failed is None else [failed]), launch, whole=whole)


def _first_crowded(packed: Any, meta: Any, dense: Any) -> int:
    """Return the number of the first group with too many nonzeros, by a second pass."""
    import cupy

    first = cupy.full((), _NO_GROUP, dtype=np.int64)
    _launch(packed, meta, dense, None, first, whole=False)
    group = int(first)
    return -1 if group == _NO_GROUP else group  # -1: the values were changed meanwhile


def expand(dense: Any, packed: Any, meta: Any) -> None:
    """Write the dense matrix that ``compress`` came from: zeros where nothing was kept."""
    m, columns = meta.shape
    arrays = contiguous_target(dense), aligned(packed), aligned(meta)
    launch = Launch(
        kernel("semi_structured_expand", BYTES=dense.itemsize),
        (blocks(m, columns),),
        (_THREADS,),
        (*map(address, arrays), np.int64(m), np.int64(columns)),
    )
    submit(launch, whole=all(map(same_place, arrays, (dense, packed, meta))))
    copy_back(dense, arrays[0])


def first_illegal(meta: Any, group: int) -> int:
    """Return the row-major number of the first group whose code is illegal, or -1.

    CuPy's array code, which waits for the device: what is legal does not depend on the order, and
    only where something is not, the order is undone.
    """
    import cupy

    if not illegal_bits(meta, group).any():
        return -1
    rows = cupy.empty(meta.shape, meta.dtype)
    restore_meta(rows, meta)
    wrong = illegal_bits(rows, group).ravel()
    number = int((wrong != 0).argmax())
    word = int(wrong[number])
    lowest = (word & -word).bit_length() - 1
    return number * 2 * meta.itemsize + lowest // 4


def illegal_bits(meta: Any, group: int) -> Any:
    """Return unsigned words with a bit set in the place of each code that is illegal."""
    words = meta.view(f"u{meta.itemsize}")

    def each(bits: int) -> Any:
        """Repeat four bits for all codes of a word, as its dtype: nothing is promoted."""
        return words.dtype.type(bits * (0x1111 if meta.itemsize == 2 else 0x11111111))

    if group == 2:  # 0b0100 or 0b1110: bits 2 and 0 are known, bits 3 and 1 equal
        return (words & each(0b0101)) ^ each(0b0100) | (words ^ words >> 2) & each(0b0010)
    first, second = words & each(0b0011), words >> 2 & each(0b0011)
    # second + 4 - first - 1 fits three bits, of which the highest says that second > first.
    rising = (second | each(0b0100)) - first - each(0b0001)
    return ~rising & each(0b0100)


def reorder_meta(out: Any, meta: Any) -> None:
    """Write row-major metadata in CUTLASS's order."""
    _move_meta(out, meta, restore=0)


def restore_meta(out: Any, meta: Any) -> None:
    """Write CUTLASS-ordered metadata row-major: the inverse of `reorder_meta`."""
    _move_meta(out, meta, restore=1)


def _move_meta(out: Any, meta: Any, *, restore: int) -> None:
    import cupy

    m, columns = meta.shape
    arrays = contiguous_target(out), cupy.ascontiguousarray(meta)
    launch = Launch(
        kernel("semi_structured_reorder", META_BYTES=meta.itemsize, RESTORE=restore),
        (ceil_div(meta.size, _THREADS),),
        (_THREADS,),
        (*map(address, arrays), np.int64(m), np.int64(columns)),
    )
    submit(launch, whole=all(map(same_place, arrays, (out, meta))))
    copy_back(out, arrays[0])


def blocks(m: int, columns: int) -> int:
    """Return the number of blocks that cover (m, columns) metadata elements."""
    return ceil_div(m, _ROWS) * ceil_div(columns, _COLUMNS)


def aligned(array: Any) -> Any:
    """Return ``array`` if it is C-contiguous and aligned to 16 bytes, else a copy."""
    import cupy

    array = cupy.ascontiguousarray(array)
    return array if array.data.ptr % 16 == 0 else array.copy()


def contiguous_target(array: Any) -> Any:
    """Return ``array`` if it is C-contiguous and aligned to 16 bytes, else a temporary array.

    After the launch `copy_back` copies a temporary array to ``array``.
    """
    import cupy

    if array.flags.c_contiguous and array.data.ptr % 16 == 0:
        return array
    return cupy.empty(array.shape, dtype=array.dtype)


def copy_back(array: Any, target: Any) -> None:
    """Copy what a kernel wrote to the temporary array of ``array`` to the array itself."""
    if target is not array:
        array[...] = target
