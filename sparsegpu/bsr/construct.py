"""The arguments that a `bsr_array` is made from: each is converted to a pattern and its blocks.

Everything runs in the array library of the argument, without a loop over blocks. Of a sparse
matrix of another format the elements are numbered linearly, block by block, and sorted once: that
order gives the pattern and the position of every value.
"""

from __future__ import annotations

import sys
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from .._arrays import (
    CONTAINER_DTYPES,
    as_array,
    check_dtype_name,
    check_may_wait,
    check_range,
    common_namespace,
    namespace,
)
from .._checks import (
    bad_type,
    bad_value,
    check_blocksize,
    check_element_count,
    check_flags,
    check_integers,
    check_sizes,
)
from .._segments import starts_run
from ..engines import engine_module
from ..ops._blocks_24 import is_sparse_blocks
from ..ops._common import check_sparse, is_sparse, on_device
from ..pattern import Pattern, from_sorted_keys, keys_per_batch

_FUNCTION = "bsr_array"


class _Wanted(NamedTuple):
    """Arguments of `bsr_array` besides ``arg``; None: as in ``arg``."""

    shape: tuple[int, ...] | None
    blocksize: tuple[int, int] | None
    dtype: np.dtype | None
    copy: bool
    check: bool


def check_dtype(function: str, argument: str, dtype: Any) -> np.dtype:
    """Return a dtype, or its name, as a ``numpy.dtype``; refuse what no container holds."""
    dtype = check_dtype_name(function, argument, dtype)
    if dtype not in CONTAINER_DTYPES:
        names = ", ".join(d.name for d in CONTAINER_DTYPES)
        hint = "; say which one with dtype=" if argument == "arg" else ""
        raise bad_type(function, argument, f"one of the dtypes {names}", f"{dtype}{hint}")
    return dtype


def build(
    arg: Any,
    shape: tuple[int, ...] | None,
    *,
    blocksize: tuple[int, int] | None,
    dtype: np.dtype | None,
    copy: bool,
    check: bool,
) -> tuple[Pattern, Any]:
    """Return pattern and data of any form that `bsr_array` takes."""
    check_flags(_FUNCTION, copy=copy, check=check)
    if blocksize is not None:
        blocksize = check_blocksize(_FUNCTION, blocksize)
    if shape is not None:
        shape = check_shape(_FUNCTION, shape)
    wanted = _Wanted(shape, blocksize, dtype, copy, check)
    if isinstance(arg, tuple) and len(arg) == 3:
        return _from_parts(*arg, wanted)
    if isinstance(arg, tuple) and len(arg) == 2 and all(isinstance(n, Integral) for n in arg):
        return _empty(check_shape(_FUNCTION, arg), wanted)
    if isinstance(arg, tuple) and len(arg) == 2 and _is_row_and_column(*arg):
        expected = "(data, indices, indptr); of elements make a scipy.sparse.coo_array first"
        raise bad_type(_FUNCTION, "arg", expected, "(data, (row, column))")
    if is_sparse_blocks(arg):
        arg = arg.tobsr()
    if is_sparse(arg):
        check_sparse(_FUNCTION, "arg", arg)
        return _from_bsr(arg, wanted)
    if is_foreign(arg):
        return _from_foreign(arg, wanted)
    return _from_dense(as_array(arg, _FUNCTION, "arg"), wanted)


def _is_row_and_column(data: Any, x: Any) -> bool:
    """Return whether this is the ``(row, column)`` of SciPy's form ``(data, (row, column))``."""
    if hasattr(x, "shape"):  # beside a matrix it would be another one, of a batch
        return len(x.shape) == 2 and len(getattr(data, "shape", (0,))) == 1
    return isinstance(x, tuple) and all(isinstance(i, list) or hasattr(i, "shape") for i in x)


def check_shape(function: str, shape: Any) -> tuple[int, ...]:
    """Return ``(*batch, M, K)`` as a tuple of ints."""
    result = check_integers(function, "shape", shape, "a tuple of integers")
    if len(result) < 2:
        raise bad_value(function, "shape", "(*batch, M, K), none negative", result)
    return check_sizes(function, "shape", result, "(*batch, M, K)")


def _check_shape_is(shape: tuple[int, ...] | None, found: tuple[int, ...]) -> None:
    if shape is not None and shape != found and shape != found[-2:]:
        raise bad_value(_FUNCTION, "shape", f"{found}, the shape of 'arg'", shape)


def _check_divides(function: str, shape: tuple[int, ...], blocksize: tuple[int, int]) -> None:
    if shape[-2] % blocksize[0] or shape[-1] % blocksize[1]:
        raise bad_value(
            function,
            "blocksize",
            f"a block size that divides the shape {tuple(shape)} (pad the matrix if need be)",
            blocksize,
        )


def _cast(data: Any, dtype: np.dtype | None, copy: bool) -> Any:
    """Return data in a dtype that can be held, copied when asked or when the dtype changes."""
    if dtype is None:
        check_dtype(_FUNCTION, "arg", data.dtype)
        return data.copy() if copy else data
    return data.astype(dtype, copy=copy)


# -- one function for each kind of argument ----------------------------------------------------


def _from_parts(data: Any, indices: Any, indptr: Any, wanted: _Wanted) -> tuple[Pattern, Any]:
    data = as_array(data, _FUNCTION, "data")
    indices = _index_array(indices, "indices")
    indptr = _index_array(indptr, "indptr")
    common_namespace(_FUNCTION, data=data, indices=indices, indptr=indptr)
    if data.ndim < 3 or indices.ndim < 1 or data.ndim != indices.ndim + 2:
        raise bad_value(
            _FUNCTION,
            "data",
            f"shape (*batch, nnzb, bm, bk) over indices of shape {tuple(indices.shape)}",
            tuple(data.shape),
        )
    found = check_blocksize(_FUNCTION, data.shape[-2:])
    if wanted.blocksize not in {None, found}:
        expected = f"{found}, the shape of the blocks"
        raise bad_value(_FUNCTION, "blocksize", expected, wanted.blocksize)
    if tuple(data.shape[:-2]) != tuple(indices.shape):
        raise bad_value(_FUNCTION, "data", f"shape {(*indices.shape, *found)}", tuple(data.shape))
    if indptr.ndim != indices.ndim or indptr.shape[-1] == 0:
        raise bad_value(
            _FUNCTION,
            "indptr",
            f"shape (*{tuple(indices.shape[:-1])}, M // {found[0]} + 1)",
            tuple(indptr.shape),
        )
    batch, shape = tuple(indices.shape[:-1]), wanted.shape
    if shape is None:
        shape = ((indptr.shape[-1] - 1) * found[0], _block_columns(indices) * found[1])
        check_element_count(_FUNCTION, "indices", (*batch, *shape))
    elif shape[:-2] not in {(), batch}:
        raise bad_value(_FUNCTION, "shape", f"the batch shape {batch} of 'indices'", shape)
    with on_device(data):
        pattern = Pattern(indptr, indices, (shape[-2], shape[-1]), found, check=wanted.check)
        return pattern, _cast(data, wanted.dtype, wanted.copy)


def _block_columns(indices: Any) -> int:
    """Return the least number of block columns for these indices."""
    if not indices.size:
        return 0
    first, last = int(indices.min()), int(indices.max())
    if first < 0:
        raise bad_value(_FUNCTION, "indices", "block columns, none negative", first)
    return last + 1


def _index_array(x: Any, argument: str) -> Any:
    array = as_array(x, _FUNCTION, argument)
    # An empty list is float64 to NumPy.
    return array.astype(np.int32) if isinstance(x, (list, tuple)) and not array.size else array


def _empty(found: tuple[int, ...], wanted: _Wanted) -> tuple[Pattern, Any]:
    blocksize = wanted.blocksize or (1, 1)
    _check_shape_is(wanted.shape, found)
    _check_divides(_FUNCTION, found, blocksize)
    nothing = np.zeros(0, dtype=np.int64)
    pattern = from_sorted_keys(nothing, (), 0, (found[0], found[1]), blocksize)
    return pattern, np.zeros((0, *blocksize), wanted.dtype or np.float64)


def _from_bsr(arg: Any, wanted: _Wanted) -> tuple[Pattern, Any]:
    pattern: Pattern = arg.pattern
    shape, blocksize, dtype, copy, _ = wanted
    _check_shape_is(shape, (*pattern.batch_shape, *pattern.shape))
    with on_device(arg.data):
        if blocksize is None or blocksize == pattern.blocksize:
            if dtype is not None and dtype != arg.data.dtype:
                arg = arg.astype(dtype)
            return arg.pattern, arg.data.copy() if copy else arg.data
        pattern, data = reblocked(_FUNCTION, "arg", pattern, arg.data, blocksize)
        return pattern, _cast(data, dtype, False)


def _from_dense(dense: Any, wanted: _Wanted) -> tuple[Pattern, Any]:
    blocksize = wanted.blocksize
    if dense.ndim < 2:
        raise bad_value(
            _FUNCTION, "arg", "a dense array (*batch, M, K), (data, indices, indptr) or a sparse "
            "array", f"shape {tuple(dense.shape)}"
        )  # fmt: skip
    if blocksize is None:
        raise bad_value(_FUNCTION, "blocksize", "(bm, bk) for a dense array", None)
    _check_shape_is(wanted.shape, tuple(dense.shape))
    _check_divides(_FUNCTION, dense.shape, blocksize)
    with on_device(dense):
        check_may_wait(namespace(dense), "finding the blocks of a dense array")
        dense = _cast(dense, wanted.dtype, False)
        xp, batch, matrix = namespace(dense), tuple(dense.shape[:-2]), tuple(dense.shape[-2:])
        blocks = (matrix[0] // blocksize[0]) * (matrix[1] // blocksize[1])
        if dense.size:
            convert = engine_module(xp, "convert", _FUNCTION)
            keys = xp.flatnonzero(convert.block_mask(dense, blocksize)).astype(np.int64)
        else:
            keys = xp.zeros((0,), dtype=np.int64)
        nnzb = keys_per_batch(keys, batch, blocks, _FUNCTION, "arg")
        pattern = from_sorted_keys(keys, batch, nnzb, matrix, blocksize)
        data = xp.empty((*batch, nnzb, *blocksize), dense.dtype)
        if data.size:
            convert.gather_blocks(data, pattern, dense)
    return pattern, data


# -- sparse matrices of other formats -----------------------------------------------------------


def is_foreign(arg: Any) -> bool:
    """Whether ``arg`` belongs to scipy.sparse or cupyx.scipy.sparse (neither is imported)."""
    for name in ("scipy.sparse", "cupyx.scipy.sparse"):
        module = sys.modules.get(name)
        if module is not None and module.issparse(arg):
            return True
    return False


def _from_foreign(arg: Any, wanted: _Wanted) -> tuple[Pattern, Any]:
    found = foreign_shape(_FUNCTION, "arg", arg)
    _check_shape_is(wanted.shape, found)
    if arg.format == "bsr" and wanted.blocksize in {None, tuple(arg.blocksize)}:
        same = wanted._replace(shape=found, blocksize=None)
        return _from_parts(arg.data, arg.indices, arg.indptr, same)
    return foreign_blocks(_FUNCTION, "arg", arg, wanted.blocksize, wanted.dtype, wanted.check)


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
) -> tuple[Pattern, Any]:
    """Return a sparse array of SciPy or cupyx in blocks; zeros that fill its own are dropped."""
    found, coo = foreign_shape(function, argument, arg), arg.tocoo()
    with on_device(coo.data):
        row, column, values = coo.row.astype(np.int64), coo.col.astype(np.int64), coo.data
        if arg.format == "bsr":
            stored = values != 0
            row, column, values = row[stored], column[stored], values[stored]
        if blocksize is None:
            blocksize = estimate_blocksize(row, column, found)
        _check_divides(function, found, blocksize)
        if check:
            _check_positions(function, argument, row, column, found)
        values = values if dtype is None else values.astype(dtype, copy=False)
        check_dtype(function, argument, values.dtype)
        return _from_elements(function, argument, row, column, values, (), found, blocksize)


def _check_positions(
    function: str, argument: str, row: Any, column: Any, shape: tuple[int, int]
) -> None:
    for index, size, name in ((row, shape[0], "rows"), (column, shape[1], "columns")):
        check_range(function, argument, index, size, f"{name} in 0..{size - 1}")


def _from_elements(
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
    function: str, argument: str, pattern: Pattern, data: Any, blocksize: tuple[int, int]
) -> tuple[Pattern, Any]:
    """Return the same matrices in blocks of another size; new blocks of zeros are not kept."""
    _check_divides(function, pattern.shape, blocksize)
    xp, values = pattern.xp, data.ravel()
    row, column = (x.ravel() for x in xp.broadcast_arrays(*pattern.element_positions()))
    stored = xp.flatnonzero(values != 0)
    return _from_elements(
        function,
        argument,
        row[stored],
        column[stored],
        values[stored],
        pattern.batch_shape,
        pattern.shape,
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
        blocks = namespace(row).unique((row // size) * (shape[1] // size) + column // size)
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


__all__ = [
    "CONTAINER_DTYPES",
    "build",
    "check_dtype",
    "check_shape",
    "estimate_blocksize",
    "foreign_blocks",
    "foreign_shape",
    "is_foreign",
    "reblocked",
]
