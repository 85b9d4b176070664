"""Blocks of matrices that are given by their elements, such as sparse arrays of other formats.

The elements are numbered linearly, block by block, and sorted once: that order gives the pattern
and the position of every value.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .._arrays import CONTAINER_DTYPES, check_dtype_name, check_range, namespace
from .._checks import bad_type, bad_value
from .._indices import keys_per_batch
from .._math import ceil_div
from .._segments import distinct, starts_run
from ..engines import computing_engine, engine_module
from ..ops._common import on_device
from ..pattern import Pattern, from_sorted_keys

#: dtypes whose elements SciPy puts into blocks as is done here (int8 it wraps).
_COMPILED = {np.dtype(t) for t in (np.float32, np.float64, np.complex64, np.complex128)}
#: Block columns of which the memory does not matter.
_FEW_COLUMNS = 1 << 20


def check_dtype(function: str, argument: str, dtype: Any) -> np.dtype:
    """Return a dtype, or its name, as a ``numpy.dtype``; refuse what no container holds."""
    dtype = check_dtype_name(function, argument, dtype)
    if dtype not in CONTAINER_DTYPES:
        names = ", ".join(d.name for d in CONTAINER_DTYPES)
        hint = "; say which one with dtype=" if argument in {"arg", "diagonals"} else ""
        raise bad_type(function, argument, f"one of the dtypes {names}", f"{dtype}{hint}")
    return dtype


def check_divides(
    function: str,
    shape: tuple[int, ...],
    blocksize: tuple[int, int],
    argument: str = "blocksize",
    hint: str = "",
) -> None:
    """Refuse a block size that does not divide the shape of a matrix."""
    if shape[-2] % blocksize[0] == 0 and shape[-1] % blocksize[1] == 0:
        return
    if argument == "blocksize":
        expected = f"a block size that divides the shape {tuple(shape)}{hint}"
        raise bad_value(function, argument, expected, blocksize)
    raise bad_value(function, argument, f"multiples of {blocksize}, the block size", shape)


#: Of a function that has the argument itself.
OR_PAD = " (or pad=True)"


def padded(
    function: str,
    shape: tuple[int, ...],
    blocksize: tuple[int, int],
    pad: bool,
    *,
    hint: str = " (or pad=True, of bsr_array and tobsr)",
) -> tuple[int, ...]:
    """Return a shape of whole blocks: rounded up with ``pad``, and else refused."""
    if not pad:
        check_divides(function, shape, blocksize, hint=hint)
        return shape
    *batch, m, k = shape
    bm, bk = blocksize
    return (*batch, ceil_div(m, bm) * bm, ceil_div(k, bk) * bk)


def is_foreign(arg: Any) -> bool:
    """Whether ``arg`` belongs to scipy.sparse or cupyx.scipy.sparse (neither is imported)."""
    for name in ("scipy.sparse", "cupyx.scipy.sparse"):
        module = sys.modules.get(name)
        if module is not None and module.issparse(arg):
            return True
    return False


def with_values(arg: Any) -> Any:
    """Return a sparse array of SciPy in a format that has an array of values: not dok, not lil."""
    return arg.tocoo() if arg.format in {"dok", "lil"} else arg


def foreign_shape(function: str, argument: str, arg: Any) -> tuple[int, int]:
    """Return the shape of a sparse array of SciPy or cupyx, which has two dimensions."""
    if len(arg.shape) != 2:
        expected = "a two-dimensional sparse array"
        raise bad_value(function, argument, expected, f"shape {arg.shape}")
    return int(arg.shape[0]), int(arg.shape[1])


def foreign_blocks(
    function: str,
    argument: str,
    arg: Any,
    blocksize: tuple[int, int] | None,
    dtype: np.dtype | None,
    check: bool = True,
    pad: bool = False,
) -> tuple[Pattern, Any]:
    """Return a sparse array of SciPy or cupyx in blocks; zeros that fill its own are dropped."""
    found = foreign_shape(function, argument, arg)
    compressed = arg.format in {"csr", "csc"}
    if compressed:
        if check:
            _check_compressed(function, argument, arg)
        arg = _pruned(arg)
    shape = found if blocksize is None else padded(function, found, blocksize, pad)
    columns = shape[1] // (1 if blocksize is None else blocksize[1])
    if compressed and by_scipy(arg.data, dtype, columns) and shape == found:
        csr = arg.tocsr()
        return _blocks_of_csr(csr if dtype is None else csr.astype(dtype, copy=False), blocksize)
    coo = arg.tocoo()
    compiled = by_scipy(coo.data, dtype, columns) and shape == found
    if arg.format != "bsr" and blocksize and compiled:
        if check:
            check_positions(function, argument, coo.row, coo.col, found)
        csr = (coo if dtype is None else coo.astype(dtype, copy=False)).tocsr()
        return _blocks_of_csr(csr, blocksize)
    with on_device(coo.data):
        row, column, values = coo.row.astype(np.int64), coo.col.astype(np.int64), coo.data
        if arg.format == "bsr":
            stored = values != 0
            row, column, values = row[stored], column[stored], values[stored]
        if blocksize is None:
            blocksize = estimate_blocksize(row, column, found)
        if check:
            check_positions(function, argument, row, column, found)
        values = values if dtype is None else values.astype(dtype, copy=False)
        check_dtype(function, argument, values.dtype)
        matrix = (shape[0], shape[1])
        return from_elements(function, argument, row, column, values, (), matrix, blocksize)


def by_scipy(values: Any, dtype: np.dtype | None = None, columns: int = 0) -> bool:
    """Whether SciPy's compiled loops take elements, to be held in another dtype, into blocks.

    They need memory for each of the block columns.
    """
    taken = {values.dtype, dtype or values.dtype} <= _COMPILED and namespace(values) is np
    few = columns <= max(_FEW_COLUMNS, 16 * values.size)
    return taken and few and computing_engine(np) == "cpu"


def _blocks_of_csr(csr: Any, blocksize: tuple[int, int] | None) -> tuple[Pattern, Any]:
    blocks = csr.tobsr(blocksize)
    if blocks.blocksize == (1, 1):  # over the elements as they are, repeated ones too
        csr = csr.copy()
        csr.sum_duplicates()
        blocks = csr.tobsr((1, 1))
    blocks.sort_indices()
    parts = blocks.indptr, blocks.indices
    return Pattern(*parts, blocks.shape, blocks.blocksize, check=False, copy=False), blocks.data


def _check_compressed(function: str, argument: str, arg: Any) -> None:
    """Refuse rows (of csc: columns) that overlap, and elements outside of a matrix."""
    of_rows = arg.format == "csr"
    lines, length = arg.shape if of_rows else arg.shape[::-1]
    starts, stored = arg.indptr, arg.indices.size
    fits = len(starts) == lines + 1 and int(starts[0]) == 0 and int(starts[-1]) <= stored
    if not fits or bool((starts[1:] < starts[:-1]).any()):
        expected = "an indptr that ascends from 0 to at most the number of indices"
        raise bad_value(function, argument, expected, "one that does not")
    name = "columns" if of_rows else "rows"
    check_range(function, argument, arg.indices, length, f"{name} in 0..{length - 1}")


def _pruned(arg: Any) -> Any:
    """Return the matrix without what is stored behind its last row (of csc: column)."""
    stored = int(arg.indptr[-1])
    if stored == arg.indices.size:
        return arg
    return type(arg)((arg.data[:stored], arg.indices[:stored], arg.indptr), shape=arg.shape)


def check_positions(
    function: str, argument: str, row: Any, column: Any, shape: tuple[int, int]
) -> None:
    """Refuse elements outside of a matrix."""
    for index, size, name in ((row, shape[0], "rows"), (column, shape[1], "columns")):
        check_range(function, argument, index, size, f"{name} in 0..{size - 1}")


def from_elements(
    function: str,
    argument: str,
    row: Any,
    column: Any,
    values: Any,
    batch: tuple[int, ...],
    shape: tuple[int, int],
    blocksize: tuple[int, int],
) -> tuple[Pattern, Any]:
    """Return sorted blocks that hold the given elements; repeated ones are summed.

    ``row`` is int64 and counts through the matrices of a batch (batch * M + row).
    """
    if not batch and by_scipy(values, columns=shape[1] // blocksize[1]):
        import scipy.sparse

        elements = scipy.sparse.coo_array((values, (row, column)), shape=shape)
        return _blocks_of_csr(elements.tocsr(), blocksize)
    xp = namespace(values)
    (m, k), (bm, bk) = shape, blocksize
    area = bm * bk
    block = (row // bm) * (k // bk) + column // bk
    place = block * area + (row % bm) * bk + column % bk
    order = xp.argsort(place, kind="stable")
    place = place[order]
    first = xp.flatnonzero(starts_run(place))
    if first.size < place.size:
        summed = xp.empty((first.size, 1, 1), values.dtype)
        starts = xp.concatenate([first.astype(np.int64), xp.full((1,), place.size, np.int64)])
        engine_module(xp, "convert", function).sum_blocks(
            summed, values.reshape(-1, 1, 1), order, starts
        )
        values, place = summed.ravel(), place[first]
    else:
        values = values[order]
    block = place // area
    new_block = starts_run(block)
    keys = block[new_block]
    nnzb = keys_per_batch(keys, batch, (m // bm) * (k // bk), function, argument)
    pattern = from_sorted_keys(keys, batch, nnzb, shape, blocksize)
    data = xp.zeros(int(keys.size) * area, dtype=values.dtype)
    data[(xp.cumsum(new_block, dtype=np.int64) - 1) * area + place % area] = values
    return pattern, data.reshape(*batch, nnzb, bm, bk)


def reblocked(
    function: str,
    argument: str,
    pattern: Pattern,
    data: Any,
    blocksize: tuple[int, int],
    pad: bool = False,
) -> tuple[Pattern, Any]:
    """Return the same matrices in blocks of another size; new blocks of zeros are not kept."""
    m, k = padded(function, pattern.shape, blocksize, pad)
    columns = k // blocksize[1]
    if by_scipy(data, columns=columns) and not pattern.batch_shape and (m, k) == pattern.shape:
        import scipy.sparse

        parts = np.ascontiguousarray(data), pattern._indices, pattern._indptr
        csr = scipy.sparse.bsr_array(parts, shape=pattern.shape).tocsr()
        csr.eliminate_zeros()
        return _blocks_of_csr(csr, blocksize)
    xp, values = pattern.xp, data.ravel()
    row, column = (x.ravel() for x in xp.broadcast_arrays(*pattern.element_positions()))
    if m != pattern.shape[0]:  # rows are counted through the matrices
        row = row // max(pattern.shape[0], 1) * m + row % max(pattern.shape[0], 1)
    stored = xp.flatnonzero(values != 0)
    return from_elements(
        function,
        argument,
        row[stored],
        column[stored],
        values[stored],
        pattern.batch_shape,
        (m, k),
        blocksize,
    )


def estimate_blocksize(row: Any, column: Any, shape: tuple[int, int]) -> tuple[int, int]:
    """Return the block size that SciPy would choose: the largest that stays well filled.

    Counts the blocks of each candidate size and compares how full they would be with 70 % (6x6:
    both 2x2 and 3x3 at 85 % first).
    """

    def filled(size: int) -> float:
        if shape[0] % size or shape[1] % size:
            return 0.0
        blocks = distinct((row // size) * (shape[1] // size) + column // size)
        return int(row.size) / (size * size * int(blocks.size))

    if row.size == 0:
        return 1, 1
    two, three = filled(2), filled(3)
    if min(two, three) > 0.85:
        size = 6 if filled(6) > 0.7 else 3
    elif filled(4) > 0.7:
        size = 4
    elif three > 0.7:
        size = 3
    else:
        size = 2 if two > 0.7 else 1
    return size, size
