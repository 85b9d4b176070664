"""Matrices of their diagonals, of elements or of blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays import as_array, check_may_wait, common_namespace
from .._checks import (
    bad_type,
    bad_value,
    check_blocksize,
    check_element_count,
    check_flags,
    check_integers,
    kind_of,
)
from .._protocols import Sparse
from ..ops._common import on_device
from .align import common_dtype
from .array import bsr_array
from .construct import check_blocks, check_shape, placed
from .elements import OR_PAD, check_dtype, from_elements, padded


def diags(
    diagonals: Any,
    offsets: Any = 0,
    shape: Any = None,
    *,
    dtype: Any = None,
    blocksize: Any = None,
    pad: bool = False,
) -> bsr_array:
    """Return the matrix of given diagonals, of blocks or of elements.

    Parameters
    ----------
    diagonals : sequence of arrays, or one array for one offset
        Each of blocks ``(n, bm, bk)``, or each of elements ``(n,)``. One block, or element, is
        repeated along its diagonal; a number is such an element.
    offsets : int or sequence of int
        Of the diagonals, above the main one where positive; of blocks counted in blocks.
    shape : (M, K), optional
        In elements; by default the square (of blocks) that the first diagonal fits.
    dtype : dtype, optional
        Of the result; by default NumPy's common one.
    blocksize : (bm, bk), optional
        Of diagonals of elements; 1x1 by default.
    pad : bool
        Where the block size does not divide the shape, add rows and columns of zeros, behind the
        ends of the diagonals. Those of blocks are as long as whole blocks have them.

    Returns
    -------
    bsr_array (M, K)

    Raises
    ------
    ValueError
        A diagonal of another length than it has in this shape; an offset outside of it, or twice;
        a block size that is not that of the blocks, or without ``pad`` does not divide the shape.
    TypeError
        Offsets that are no integers; dtypes without a common one; mixed array libraries.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> coupling = np.tile([[1.0, 0], [0, 2]], (2, 1, 1))
    >>> A = sparsegpu.diags([np.full((3, 2, 2), 9.0), coupling], [0, 1])
    >>> A
    <sparsegpu.bsr_array, shape (6, 6), float64, 5 blocks of 2x2 stored (density 0.556), on cpu>
    >>> sparsegpu.diags([4.0, -1.0], [0, 1], shape=(3, 3)).toarray()
    array([[ 4., -1.,  0.],
           [ 0.,  4., -1.],
           [ 0.,  0.,  4.]])
    """
    function = "diags"
    check_flags(function, pad=pad)
    offsets, arrays = _diagonals(function, diagonals, offsets)
    xp = common_namespace(function, **{f"diagonals[{i}]": x for i, x in enumerate(arrays)})
    wanted = None if dtype is None else check_dtype(function, "dtype", dtype)
    common = arrays[0].dtype if wanted is None else wanted
    if wanted is None:
        for x in arrays:
            common = common_dtype(function, common, x.dtype, "diagonals")
    of_blocks = arrays[0].ndim == 3
    block = (int(arrays[0].shape[1]), int(arrays[0].shape[2])) if of_blocks else (1, 1)
    size = block if blocksize is None else check_blocksize(function, blocksize)
    if of_blocks and size != block:
        raise bad_value(function, "blocksize", f"{block}, the shape of the blocks", size)
    if shape is None:
        count = int(arrays[0].shape[0]) + abs(offsets[0])
        shape = (count * block[0], count * block[1])
        check_element_count(function, "diagonals", shape)
    shape = check_shape(function, shape)
    if len(shape) != 2:
        raise bad_value(function, "shape", "(M, K) of one matrix", shape)
    m, k = padded(function, shape, size, bool(pad), hint=OR_PAD)
    check_element_count(function, "shape", (m, k))
    counts = (m // block[0], k // block[1]) if of_blocks else shape
    with on_device(arrays[0]):
        check_may_wait(xp, function)
        rows, columns, values = [], [], []
        for i in sorted(range(len(offsets)), key=offsets.__getitem__):
            x, offset = arrays[i], offsets[i]
            n = _length(function, x, offset, counts)
            number = xp.arange(n, dtype=np.int64)
            rows.append(number + max(-offset, 0))
            columns.append(number + max(offset, 0))
            values.append(xp.broadcast_to(x.astype(common), (n, *x.shape[1:])))
        row, column, data = map(xp.concatenate, (rows, columns, values))
        if of_blocks:
            return bsr_array._of(*placed(row, column, data, (m, k)))
        return bsr_array._of(
            *from_elements(function, "diagonals", row, column, data, (), (m, k), size)
        )


def _diagonals(function: str, diagonals: Any, offsets: Any) -> tuple[list[int], list[Any]]:
    """Return the offsets, and as many diagonals, all of elements or all of blocks of one size."""
    one = not _is_sequence(offsets)
    expected = "an integer, or a list or tuple of them"
    offsets = list(check_integers(function, "offsets", (offsets,) if one else offsets, expected))
    if not _is_sequence(diagonals):
        raise bad_type(function, "diagonals", "a sequence of arrays", kind_of(diagonals))
    if one and (getattr(diagonals, "ndim", 0) in {1, 3} or not any(map(_is_sequence, diagonals))):
        diagonals = [diagonals]
    arrays = [as_array(x, function, "diagonals") for x in diagonals]
    arrays = [x if x.ndim else x.reshape(1) for x in arrays]
    if not arrays or len(arrays) != len(offsets):
        expected = f"{len(offsets)} diagonals, as many as offsets, and at least one"
        raise bad_value(function, "diagonals", expected, len(arrays))
    if len(set(offsets)) < len(offsets):
        raise bad_value(function, "offsets", "each offset once", offsets)
    for x in arrays:
        if x.ndim == 3:
            check_blocks(function, "diagonals", x)
        elif x.ndim != 1:
            expected = "elements (n,) or blocks (n, bm, bk)"
            raise bad_value(function, "diagonals", expected, f"shape {tuple(x.shape)}")
        if x.shape[1:] != arrays[0].shape[1:]:
            expected = f"diagonals of {tuple(arrays[0].shape[1:]) or 'elements'} like the first"
            raise bad_value(function, "diagonals", expected, f"shape {tuple(x.shape)}")
    return offsets, arrays


def _is_sequence(x: Any) -> bool:
    # Sparse matrices have an "ndim", and so has the class numpy.float32.
    listed = not (isinstance(x, (Sparse, type)) or hasattr(x, "tocoo"))
    return (listed and getattr(x, "ndim", 0) > 0) or isinstance(x, (list, tuple, range))


def _length(function: str, x: Any, k: int, counts: tuple[int, int]) -> int:
    """Return how long the k-th diagonal is; ``x`` has to be as long, or of length one."""
    n, (rows, columns) = int(x.shape[0]), counts
    if not -rows < k < columns and n:
        expected = f"offsets in {1 - rows}..{columns - 1}"
        raise bad_value(function, "offsets", expected, k)
    length = max(0, min(rows + min(k, 0), columns - max(k, 0)))
    if n not in {1, length}:
        expected = f"{length} blocks or elements (or one) on diagonal {k}"
        raise bad_value(function, "diagonals", expected, n)
    return length
