"""Block-sparse arrays put together of others, of blocks, or of nothing but a diagonal."""

from __future__ import annotations

from itertools import accumulate
from types import ModuleType
from typing import Any

import numpy as np

from .._arrays import as_array, check_may_wait, common_namespace, namespace
from .._checks import bad_type, bad_value, check_element_count, check_flags, kind_of
from ..ops._common import check_sparse, is_sparse, not_sparse, on_device
from .align import common_dtype
from .array import bsr_array
from .construct import LARGEST_BLOCK, blocks_at, placed
from .elements import (
    check_dtype,
    foreign_blocks,
    foreign_shape,
    is_foreign,
    with_values,
)


def vstack(blocks: Any, *, dtype: Any = None) -> bsr_array:
    """Stack matrices one below another.

    Parameters
    ----------
    blocks : list or tuple of bsr_array (M_i, K)
        Sparse arrays of SciPy, or of cupyx, may be among them. All are converted to the block
        size of the first `bsr_array`.
    dtype : dtype, optional
        Of the result; by default NumPy's common one.

    Returns
    -------
    bsr_array (sum of M_i, K)

    Raises
    ------
    ValueError
        Different numbers of columns; a shape that the block size does not divide; a batch; an
        empty list.
    TypeError
        dtypes without a common one; mixed array libraries; what is not sparse.

    Examples
    --------
    >>> import sparsegpu
    >>> A = sparsegpu.eye(4, blocksize=(2, 2))
    >>> sparsegpu.vstack([A, 2 * A])
    <sparsegpu.bsr_array, shape (8, 4), float64, 4 blocks of 2x2 stored (density 0.5), on cpu>
    """
    return _stacked("vstack", blocks, dtype, 0)


def hstack(blocks: Any, *, dtype: Any = None) -> bsr_array:
    """Put matrices side by side.

    Parameters
    ----------
    blocks : list or tuple of bsr_array (M, K_i)
        As in `vstack`.
    dtype : dtype, optional
        As in `vstack`.

    Returns
    -------
    bsr_array (M, sum of K_i)

    Raises
    ------
    ValueError
        Different numbers of rows; otherwise as `vstack`.
    TypeError
        As `vstack`.

    Examples
    --------
    >>> import sparsegpu
    >>> A = sparsegpu.eye(4, blocksize=(2, 2))
    >>> sparsegpu.hstack([A, 2 * A]).shape
    (4, 8)
    """
    return _stacked("hstack", blocks, dtype, 1)


def block_diag(blocks: Any, *, dtype: Any = None) -> bsr_array:
    """Put matrices on the diagonal of a larger one.

    Parameters
    ----------
    blocks : list or tuple of bsr_array (M_i, K_i)
        As in `vstack`.
    dtype : dtype, optional
        As in `vstack`.

    Returns
    -------
    bsr_array (sum of M_i, sum of K_i)

    Raises
    ------
    ValueError, TypeError
        As `vstack`, but for the numbers of columns.

    Examples
    --------
    >>> import sparsegpu
    >>> A = sparsegpu.eye(4, blocksize=(2, 2))
    >>> sparsegpu.block_diag([A, A]).shape
    (8, 8)
    """
    return _stacked("block_diag", blocks, dtype, None)


def block_array(blocks: Any, *, dtype: Any = None) -> bsr_array:
    """Put matrices into the places of a grid, such as those of a saddle-point system.

    Parameters
    ----------
    blocks : list of lists of bsr_array or None
        Row by row; None is a part without blocks. Otherwise as in `vstack`.
    dtype : dtype, optional
        As in `vstack`.

    Returns
    -------
    bsr_array
        Its block size is that of the first `bsr_array` in the grid.

    Raises
    ------
    ValueError
        Rows of the grid of different lengths; different numbers of rows in one of them, or of
        columns; None alone in one; otherwise as `vstack`.
    TypeError
        As `vstack`.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.eye(4, blocksize=(2, 2))
    >>> B = sparsegpu.bsr_array(np.ones((2, 4)), blocksize=(2, 2))
    >>> sparsegpu.block_array([[A, B.T], [B, None]])
    <sparsegpu.bsr_array, shape (6, 6), float64, 6 blocks of 2x2 stored (density 0.667), on cpu>
    """
    function = "block_array"
    _check_list(function, blocks, "a list of lists of sparse arrays")
    for row in blocks:
        _check_list(function, row, "a list of lists of sparse arrays")
        if len(row) != len(blocks[0]):
            raise bad_value(function, "blocks", f"rows of {len(blocks[0])} matrices", len(row))
    places = [(i, j) for i, row in enumerate(blocks) for j, x in enumerate(row) if x is not None]
    given = [blocks[i][j] for i, j in places]
    return _in_grid(function, given, places, (len(blocks), len(blocks[0])), dtype)


def _check_list(function: str, blocks: Any, expected: str) -> None:
    if not isinstance(blocks, (list, tuple)):
        raise bad_type(function, "blocks", expected, kind_of(blocks))
    if not blocks:
        raise bad_value(function, "blocks", "at least one matrix", "none")


def _stacked(function: str, blocks: Any, dtype: Any, axis: int | None) -> bsr_array:
    """Put matrices one after another along an axis, along both for None."""
    _check_list(function, blocks, "a list or tuple of sparse arrays")
    n = len(blocks)
    places = [(0 if axis == 1 else i, 0 if axis == 0 else i) for i in range(n)]
    grid = 1 if axis == 1 else n, 1 if axis == 0 else n
    return _in_grid(function, blocks, places, grid, dtype)


def _in_grid(
    function: str, blocks: Any, places: list[tuple[int, int]], grid: tuple[int, int], dtype: Any
) -> bsr_array:
    """Put matrices at their places in a grid, of which the others stay empty."""
    wanted = None if dtype is None else check_dtype(function, "dtype", dtype)
    arrays = _in_one_blocksize(function, blocks, wanted)
    lengths: tuple[dict, dict] = ({}, {})
    for place, a in zip(places, arrays):
        for axis, name in enumerate(("rows", "columns")):
            n = lengths[axis].setdefault(place[axis], a.shape[axis])
            if a.shape[axis] != n:
                raise bad_value(function, "blocks", f"{n} {name} like the first", a.shape[axis])
    if (len(lengths[0]), len(lengths[1])) != grid:
        expected = "a matrix in every row and in every column"
        raise bad_value(function, "blocks", expected, "one with None alone")
    ends = [list(accumulate(of[n] for n in sorted(of))) for of in lengths]
    shape = ends[0][-1], ends[1][-1]
    check_element_count(function, "blocks", shape)
    xp, (bm, bk) = arrays[0]._xp, arrays[0].blocksize
    with on_device(arrays[0]._data):
        check_may_wait(xp, function)
        rows, columns = [], []
        for (i, j), a in zip(places, arrays):
            first = (ends[0][i] - a.shape[0]) // bm, (ends[1][j] - a.shape[1]) // bk
            rows.append(a._pattern._rows.astype(np.int64) + first[0])
            columns.append(a._pattern._indices.astype(np.int64) + first[1])
        data = xp.concatenate([a._data for a in arrays])
        parts = xp.concatenate(rows), xp.concatenate(columns), data, shape
        return bsr_array._of(*placed(*parts))


def _in_one_blocksize(function: str, blocks: Any, dtype: np.dtype | None) -> list[bsr_array]:
    """Return operands as arrays of one block size and dtype."""
    if not blocks:
        raise bad_value(function, "blocks", "at least one matrix", "none")
    for x in blocks:
        if not is_foreign(x):
            _check_matrix(function, "blocks", x)
    ours = [x for x in blocks if not is_foreign(x)]
    blocks = [with_values(x) if is_foreign(x) else x for x in blocks]
    if not ours:
        expected = "at least one bsr_array, whose block size counts"
        raise bad_type(function, "blocks", expected, kind_of(blocks[0]))
    common_namespace(function, **{f"blocks[{i}]": x.data for i, x in enumerate(blocks)})
    blocksize, common = ours[0].pattern.blocksize, dtype or ours[0].data.dtype
    for x in blocks:
        shape = foreign_shape(function, "blocks", x) if is_foreign(x) else x.pattern.shape
        if shape[0] % blocksize[0] or shape[1] % blocksize[1]:
            expected = f"shapes that blocks of {blocksize} divide"
            raise bad_value(function, "blocks", expected, shape)
        if dtype is None:
            common = common_dtype(function, common, np.dtype(x.data.dtype), "blocks")
    arrays = []
    for x in blocks:
        if is_foreign(x):
            array = bsr_array._of(*foreign_blocks(function, "blocks", x, blocksize, common))
        else:
            array = bsr_array._of(x.pattern, x.data)._reblocked(function, "blocks", blocksize)
        arrays.append(array.astype(common, copy=False))
    return arrays


def _check_matrix(function: str, argument: str, x: Any) -> None:
    if not is_sparse(x):
        raise not_sparse(function, argument, x)
    check_sparse(function, argument, x)
    if x.pattern.batch_shape:
        raise bad_value(function, argument, "one matrix (2-D)", f"a batch, shape {x.shape}")


def kron(A: Any, B: Any) -> bsr_array:
    """Return the Kronecker product: a copy of ``B`` for each nonzero of ``A``, scaled by it.

    Parameters
    ----------
    A : bsr_array, sparse array of SciPy or cupyx, or dense array (M, K)
    B : bsr_array (P, Q), or dense array of at most 256 x 256
        A dense one becomes a block.

    Returns
    -------
    bsr_array (M * P, K * Q)
        In the blocks of ``B``.

    Raises
    ------
    ValueError
        What has not two dimensions; a dense ``B`` that is larger than a block.
    TypeError
        dtypes without a common one; mixed array libraries; what is no matrix.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> K = sparsegpu.kron(np.array([[0, 1.0], [2, 0]]), np.ones((3, 3)))
    >>> K
    <sparsegpu.bsr_array, shape (6, 6), float64, 2 blocks of 3x3 stored (density 0.5), on cpu>
    """
    function = "kron"
    block = _block_of(function, B)
    if is_foreign(A):
        A = with_values(A)
    elif is_sparse(A):
        _check_matrix(function, "A", A)
    else:
        A = _dense_matrix(function, "A", A)
    values = A.data if is_sparse(A) or is_foreign(A) else A
    xp = common_namespace(function, B=block._data, A=values)
    shape = foreign_shape(function, "A", A) if is_foreign(A) else tuple(A.shape[-2:])
    dtype = common_dtype(function, np.dtype(values.dtype), block.dtype, "B")
    (block_rows, block_columns), (m, k) = block._pattern.block_shape, block.shape
    shape = (shape[0] * m, shape[1] * k)
    check_element_count(function, "B", shape)
    with on_device(block._data):
        check_may_wait(xp, function)
        row, column, values = _nonzeros(function, xp, A, dtype)
        rows = row[:, None] * block_rows + block._pattern._rows
        columns = column[:, None] * block_columns + block._pattern._indices
        scales = values.astype(dtype)[:, None, None, None]
        data = (scales * block._data.astype(dtype)).reshape(-1, *block.blocksize)
        return bsr_array._of(*placed(rows.ravel(), columns.ravel(), data, shape))


def _dense_matrix(function: str, argument: str, x: Any) -> Any:
    x = as_array(x, function, argument)
    if x.ndim != 2:
        raise bad_value(function, argument, "a two-dimensional array", f"shape {tuple(x.shape)}")
    check_dtype(function, argument, x.dtype)
    return x


def _block_of(function: str, x: Any) -> bsr_array:
    """Return the second operand of a Kronecker product, a dense one as a block."""
    if is_sparse(x) or is_foreign(x):
        _check_matrix(function, "B", x)
        return bsr_array._of(x.pattern, x.data)
    dense = _dense_matrix(function, "B", x)
    if not 1 <= min(dense.shape) <= max(dense.shape) <= LARGEST_BLOCK:
        expected = f"a block, 1 to {LARGEST_BLOCK} long, or a bsr_array"
        raise bad_value(function, "B", expected, f"shape {tuple(dense.shape)}")
    with on_device(dense):
        zero = namespace(dense).zeros((1,), np.int64)
        shape = (int(dense.shape[0]), int(dense.shape[1]))
        return bsr_array._of(*placed(zero, zero, dense[None], shape))


def _nonzeros(function: str, xp: ModuleType, A: Any, dtype: np.dtype) -> tuple[Any, Any, Any]:
    """Return row, column and value of what is not zero in any kind of matrix."""
    if is_foreign(A):
        A = bsr_array._of(*foreign_blocks(function, "A", A, (1, 1), dtype))
    if is_sparse(A):
        row, column = (x.ravel() for x in xp.broadcast_arrays(*A.pattern.element_positions()))
        values = A.data.ravel()
    else:
        row, column = xp.nonzero(A)
        values = A[row, column]
    stored = xp.flatnonzero(values != 0)
    return row[stored].astype(np.int64), column[stored].astype(np.int64), values[stored]


def from_blocks(
    rows: Any, cols: Any, blocks: Any, shape: Any = None, *, pad: bool = False
) -> bsr_array:
    """Return the array of blocks at given places; those at the same place are summed.

    So a finite-element matrix is assembled from its element matrices, on the device.

    Parameters
    ----------
    rows, cols : integer array (n,)
        Block rows and block columns, counted in blocks.
    blocks : array (n, bm, bk)
    shape : (M, K), optional
        In elements; by default the smallest that holds the blocks.
    pad : bool
        Round ``shape`` up to whole blocks.

    Returns
    -------
    bsr_array (M, K)
        Canonical. Each sum is computed in accumulator precision and rounded once.

    Raises
    ------
    ValueError
        Places out of range; shapes that do not fit; no shape where there are no blocks.
    TypeError
        Places that are no integers, a dtype that cannot be held, mixed array libraries.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.from_blocks([0, 1, 0], [1, 0, 1], np.ones((3, 2, 2)))
    >>> A.toarray()[0], A.nnzb
    (array([0., 0., 2., 2.]), 2)
    """
    function, names = "from_blocks", ("rows", "cols", "blocks")
    check_flags(function, pad=pad)
    return bsr_array._of(*blocks_at(function, names, rows, cols, blocks, shape, bool(pad)))
