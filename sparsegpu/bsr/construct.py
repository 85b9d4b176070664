"""The arguments that a `bsr_array` is made from: each is converted to a pattern and its blocks.

Everything runs in the array library of the argument, without a loop over blocks.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from .._arrays import (
    as_array,
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
from .._indices import keys_per_batch
from .._segments import starts_run
from ..engines import engine_module
from ..ops._blocks_24 import is_sparse_blocks
from ..ops._common import check_sparse, is_block_mask, is_sparse, on_device
from ..pattern import Pattern, from_sorted_keys
from .elements import (
    OR_PAD,
    check_dtype,
    estimate_blocksize,
    foreign_blocks,
    foreign_shape,
    from_elements,
    is_foreign,
    padded,
    reblocked,
)
from .torch_bsr import is_sparse_bsr, parts_of

_FUNCTION = "bsr_array"

LARGEST_BLOCK = 256


class _Wanted(NamedTuple):
    """Arguments of `bsr_array` besides ``arg``; None: as in ``arg``."""

    shape: tuple[int, ...] | None
    blocksize: tuple[int, int] | None
    dtype: np.dtype | None
    copy: bool
    check: bool
    pad: bool


def build(
    arg: Any,
    shape: tuple[int, ...] | None,
    *,
    blocksize: tuple[int, int] | None,
    dtype: np.dtype | None,
    copy: bool,
    check: bool,
    pad: bool,
) -> tuple[Pattern, Any]:
    """Return pattern and data of any form that `bsr_array` takes."""
    check_flags(_FUNCTION, copy=copy, check=check, pad=pad)
    if blocksize is not None:
        blocksize = check_blocksize(_FUNCTION, blocksize)
    if shape is not None:
        shape = check_shape(_FUNCTION, shape)
    wanted = _Wanted(shape, blocksize, dtype, copy, check, bool(pad))
    if isinstance(arg, tuple) and len(arg) == 3:
        return _from_parts(*arg, wanted)
    if isinstance(arg, tuple) and len(arg) == 2 and all(isinstance(n, Integral) for n in arg):
        return _empty(check_shape(_FUNCTION, arg), wanted)
    if isinstance(arg, tuple) and len(arg) == 2 and _is_row_and_column(*arg):
        return _from_coordinates(arg[0], arg[1], wanted)
    if is_sparse_blocks(arg) or is_block_mask(arg):
        arg = arg.tobsr()
    if is_sparse(arg):
        check_sparse(_FUNCTION, "arg", arg)
        return _from_bsr(arg, wanted)
    if is_foreign(arg):
        return _from_foreign(arg, wanted)
    if is_sparse_bsr(arg):
        parts = parts_of(_FUNCTION, "arg", arg)
        _check_shape_is(wanted.shape, tuple(arg.shape))
        blocksize = wanted.blocksize
        same = wanted._replace(shape=tuple(arg.shape), blocksize=None, dtype=None)
        pattern, data = _from_parts(*parts, same)
        if blocksize in {None, pattern.blocksize}:
            return pattern, _cast(data, wanted.dtype, False)
        pattern, data = reblocked(_FUNCTION, "arg", pattern, data, blocksize, wanted.pad)
        return pattern, _cast(data, wanted.dtype, False)
    return _from_dense(as_array(arg, _FUNCTION, "arg"), wanted)


def _is_row_and_column(data: Any, x: Any) -> bool:
    """Return whether this is the ``(row, column)`` of SciPy's form ``(data, (row, column))``."""
    if hasattr(x, "shape"):  # beside a matrix it would be another one, of a batch
        return len(x.shape) == 2 and len(getattr(data, "shape", (0,))) == 1
    # of nested tuples it would be a dense array
    nested = isinstance(data, tuple) and any(isinstance(row, (list, tuple)) for row in data)
    listed = list if nested else (list, tuple)
    return isinstance(x, tuple) and all(isinstance(i, listed) or hasattr(i, "shape") for i in x)


def check_shape(function: str, shape: Any) -> tuple[int, ...]:
    """Return ``(*batch, M, K)`` as a tuple of ints."""
    result = check_integers(function, "shape", shape, "a tuple of integers")
    if len(result) < 2:
        raise bad_value(function, "shape", "(*batch, M, K), none negative", result)
    return check_sizes(function, "shape", result, "(*batch, M, K)")


def _check_shape_is(shape: tuple[int, ...] | None, found: tuple[int, ...]) -> None:
    if shape is not None and shape != found and shape != found[-2:]:
        raise bad_value(_FUNCTION, "shape", f"{found}, the shape of 'arg'", shape)


def _cast(data: Any, dtype: np.dtype | None, copy: bool) -> Any:
    """Return data in a dtype that can be held, copied when asked or when the dtype changes."""
    if dtype is None:
        check_dtype(_FUNCTION, "arg", data.dtype)
        return data.copy() if copy else data
    return data.astype(dtype, copy=copy)


# -- one function for each kind of argument ----------------------------------------------------


def _from_parts(data: Any, indices: Any, indptr: Any, wanted: _Wanted) -> tuple[Pattern, Any]:
    data = as_array(data, _FUNCTION, "data")
    indices = index_array(_FUNCTION, "indices", indices)
    indptr = index_array(_FUNCTION, "indptr", indptr)
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
    if wanted.pad:
        shape = padded(_FUNCTION, shape, found, True)
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


def index_array(function: str, argument: str, x: Any) -> Any:
    """Return an argument of indices as an array; an empty list is float64 to NumPy."""
    array = as_array(x, function, argument)
    return array.astype(np.int32) if isinstance(x, (list, tuple)) and not array.size else array


def _empty(found: tuple[int, ...], wanted: _Wanted) -> tuple[Pattern, Any]:
    blocksize = wanted.blocksize or (1, 1)
    _check_shape_is(wanted.shape, found)
    found = padded(_FUNCTION, found, blocksize, wanted.pad)
    nothing = np.zeros(0, dtype=np.int64)
    pattern = from_sorted_keys(nothing, (), 0, (found[0], found[1]), blocksize)
    return pattern, np.zeros((0, *blocksize), wanted.dtype or np.float64)


def _from_bsr(arg: Any, wanted: _Wanted) -> tuple[Pattern, Any]:
    pattern: Pattern = arg.pattern
    shape, blocksize, dtype, copy, _, pad = wanted
    _check_shape_is(shape, (*pattern.batch_shape, *pattern.shape))
    with on_device(arg.data):
        if blocksize is None or blocksize == pattern.blocksize:
            if dtype is not None and dtype != arg.data.dtype:
                arg = arg.astype(dtype)
            return arg.pattern, arg.data.copy() if copy else arg.data
        pattern, data = reblocked(_FUNCTION, "arg", pattern, arg.data, blocksize, pad)
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
    shape = padded(_FUNCTION, tuple(dense.shape), blocksize, wanted.pad)
    with on_device(dense):
        check_may_wait(namespace(dense), "finding the blocks of a dense array")
        dense = with_zeros(_cast(dense, wanted.dtype, False), shape)
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


def with_zeros(dense: Any, shape: tuple[int, ...]) -> Any:
    """Return a dense array of a larger shape, zero where the other one is not."""
    if tuple(dense.shape) == shape:
        return dense
    larger = namespace(dense).zeros(shape, dense.dtype)
    larger[..., : dense.shape[-2], : dense.shape[-1]] = dense
    return larger


# -- matrices given by their elements -----------------------------------------------------------


def _from_foreign(arg: Any, wanted: _Wanted) -> tuple[Pattern, Any]:
    found = foreign_shape(_FUNCTION, "arg", arg)
    _check_shape_is(wanted.shape, found)
    if arg.format == "bsr" and wanted.blocksize in {None, tuple(arg.blocksize)}:
        same = wanted._replace(shape=found, blocksize=None)
        return _from_parts(arg.data, arg.indices, arg.indptr, same)
    blocksize, dtype, check, pad = wanted.blocksize, wanted.dtype, wanted.check, wanted.pad
    return foreign_blocks(_FUNCTION, "arg", arg, blocksize, dtype, check, pad)


def _from_coordinates(data: Any, positions: Any, wanted: _Wanted) -> tuple[Pattern, Any]:
    """Return elements, or blocks, ``data`` at ``(row, column)``; repeated ones are summed."""
    if len(positions) != 2:
        raise bad_value(_FUNCTION, "arg", "(data, (row, column))", f"{len(positions)} positions")
    values = as_array(data, _FUNCTION, "data")
    if values.ndim == 3:
        return _from_placed_blocks(values, positions, wanted)
    row, column = (
        index_array(_FUNCTION, name, x)
        for x, name in zip(positions, ("row", "column"), strict=True)
    )
    xp = common_namespace(_FUNCTION, data=values, row=row, column=column)
    if values.ndim != 1:
        expected = "elements, shape (n,), or blocks, shape (n, bm, bk)"
        raise bad_value(_FUNCTION, "data", expected, f"shape {values.shape}")
    for name, index in (("row", row), ("column", column)):
        if index.dtype.kind not in "iu":
            raise bad_type(_FUNCTION, name, "an integer dtype", index.dtype)
        if index.shape != values.shape:
            raise bad_value(_FUNCTION, name, f"shape {values.shape}, as of data", index.shape)
    dtype = check_dtype(_FUNCTION, "arg", values.dtype if wanted.dtype is None else wanted.dtype)
    with on_device(values):
        check_may_wait(xp, "sorting elements into blocks")
        shape = wanted.shape
        if shape is None:
            if not values.size:
                raise bad_value(_FUNCTION, "shape", "(M, K) where there are no elements", None)
            shape = (int(row.max()) + 1, int(column.max()) + 1)
            check_element_count(_FUNCTION, "row", shape)
        if len(shape) != 2:
            raise bad_value(_FUNCTION, "shape", "(M, K) of one matrix", shape)
        row, column = row.astype(np.int64), column.astype(np.int64)
        if wanted.check or wanted.shape is None:
            for name, index, size in (("row", row, shape[0]), ("column", column, shape[1])):
                check_range(_FUNCTION, name, index, size, f"{name}s in 0..{size - 1}")
        blocksize = wanted.blocksize or estimate_blocksize(row, column, shape)
        shape = padded(_FUNCTION, shape, blocksize, wanted.pad)
        values = values.astype(dtype, copy=False)
        matrix = (shape[0], shape[1])
        return from_elements(_FUNCTION, "arg", row, column, values, (), matrix, blocksize)


# -- matrices given by their blocks -------------------------------------------------------------


def _from_placed_blocks(blocks: Any, positions: Any, wanted: _Wanted) -> tuple[Pattern, Any]:
    row, column = positions
    found = tuple(blocks.shape[1:])
    if wanted.blocksize not in {None, found}:
        expected = f"{found}, the shape of the blocks"
        raise bad_value(_FUNCTION, "blocksize", expected, wanted.blocksize)
    blocks, names = _cast(blocks, wanted.dtype, False), ("row", "column", "data")
    return blocks_at(_FUNCTION, names, row, column, blocks, wanted.shape, wanted.pad)


def blocks_at(
    function: str,
    names: tuple[str, str, str],
    rows: Any,
    columns: Any,
    blocks: Any,
    shape: Any,
    pad: bool,
) -> tuple[Pattern, Any]:
    """Return the sum of blocks at given block positions; ``names`` are those of the arguments."""
    rows, columns = (index_array(function, n, x) for n, x in zip(names, (rows, columns)))
    blocks = as_array(blocks, function, names[2])
    xp = common_namespace(function, **{names[2]: blocks, names[0]: rows, names[1]: columns})
    check_blocks(function, names[2], blocks)
    n, bm, bk = (int(length) for length in blocks.shape)
    for name, index in zip(names, (rows, columns)):
        if index.dtype.kind not in "iu":
            raise bad_type(function, name, "an integer dtype", index.dtype)
        if index.shape != (n,):
            expected = f"shape ({n},), as of {names[2]}"
            raise bad_value(function, name, expected, tuple(index.shape))
    if shape is not None:
        shape = check_shape(function, shape)
        if pad and len(shape) == 2:
            shape = padded(function, shape, (bm, bk), pad)
        if len(shape) != 2 or shape[0] % bm or shape[1] % bk:
            expected = f"multiples of {(bm, bk)}{OR_PAD}, (M, K)"
            raise bad_value(function, "shape", expected, shape)
    with on_device(blocks):
        check_may_wait(xp, function)
        if shape is None:
            if not n:
                raise bad_value(function, "shape", "(M, K) where there are no blocks", None)
            counts = (int(rows.max()) + 1, int(columns.max()) + 1)
        else:
            counts = (shape[0] // bm, shape[1] // bk)
        for name, index, count, what in zip(names, (rows, columns), counts, ("rows", "columns")):
            check_range(function, name, index, count, f"block {what} in 0..{count - 1}")
        shape = (counts[0] * bm, counts[1] * bk)
        check_element_count(function, names[0], shape)
        keys = rows.astype(np.int64) * counts[1] + columns.astype(np.int64)
        order = xp.argsort(keys, kind="stable")
        keys = keys[order]
        first = xp.flatnonzero(starts_run(keys)).astype(np.int64)
        pattern = from_sorted_keys(keys[first], (), int(first.size), shape, (bm, bk))
        data = xp.empty(pattern.data_shape, blocks.dtype)
        if data.size:
            starts = xp.concatenate([first, xp.full((1,), n, np.int64)])
            engine_module(xp, "convert", function).sum_blocks(data, blocks, order, starts)
        return pattern, data


def placed(rows: Any, columns: Any, blocks: Any, shape: tuple[int, int]) -> tuple[Pattern, Any]:
    """Return blocks at block positions in range; repeated ones stay apart."""
    xp, blocksize = namespace(blocks), (int(blocks.shape[1]), int(blocks.shape[2]))
    order = xp.argsort(rows, kind="stable")
    ends = xp.arange(shape[0] // blocksize[0] + 1, dtype=np.int64)
    indptr = xp.searchsorted(rows[order], ends)
    return Pattern(indptr, columns[order], shape, blocksize, check=False), blocks[order]


def check_blocks(function: str, argument: str, blocks: Any) -> None:
    """Refuse what are no blocks (n, bm, bk) that an array can hold."""
    shape = tuple(blocks.shape)
    if len(shape) != 3 or not 1 <= min(shape[1:]) <= max(shape[1:]) <= LARGEST_BLOCK:
        expected = f"shape (n, bm, bk), blocks 1 to {LARGEST_BLOCK} long"
        raise bad_value(function, argument, expected, shape)
    check_dtype(function, argument, blocks.dtype)
