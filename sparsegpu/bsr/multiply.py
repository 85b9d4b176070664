"""Elementwise products and quotients of `bsr_array`, of which a sparse operand broadcasts."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .._arrays import CONTAINER_DTYPES, as_array, common_namespace
from .._checks import bad_type, bad_value, broadcast_shape, not_offered
from ..engines import engine_module
from ..ops._blocks_24 import is_sparse_blocks
from ..ops._common import check_sparse, in_dtype, is_block_mask, is_sparse, on_device
from ..pattern import from_sorted_keys
from .align import (
    aligned,
    as_data,
    check_precision,
    common_dtype,
    converted,
    flat,
    is_compiled,
    is_scalar,
    pattern_of,
    repeated,
    scaled_values,
)
from .elements import check_dtype, foreign_shape, is_foreign


def multiplied(function: str, array: Any, other: Any) -> Any:
    """Return the elementwise product with a scalar, or a sparse or a dense array."""
    if is_scalar(other):
        return scaled(function, array, other, "multiply")
    if is_sparse_blocks(other) or is_block_mask(other):
        other = other.tobsr()
    if is_foreign(other):
        other = _in_fitting_blocks(function, array, other)
    if is_sparse(other):
        return _multiply_sparse(function, array, other)
    array, factors, dtype = _beside(function, array, as_array(other, function, "other"))
    with on_device(array._data):
        values = array._data.astype(dtype, copy=False) * factors.astype(dtype)
        return array._with(array._pattern, values)


def divided(function: str, array: Any, other: Any) -> Any:
    """Return the quotient by a scalar, or what is stored divided by a dense array's elements."""
    if is_scalar(other):
        return scaled(function, array, other, "divide")
    if is_sparse(other) or is_foreign(other) or is_sparse_blocks(other) or is_block_mask(other):
        what = "division by a sparse array (0 / 0 is not 0 where neither stores anything)"
        raise not_offered(function, what, "division by a scalar or a dense array")
    array, factors, dtype = _beside(function, array, as_array(other, function, "other"))
    with on_device(array._data):
        values = array._data.astype(dtype, copy=False) / factors.astype(dtype)
        check_dtype(function, "other", values.dtype)
        return array._with(array._pattern, values)


def scaled(function: str, array: Any, factor: Any, name: str) -> Any:
    """Multiply or divide the values; Python numbers do not change the kind of dtype."""
    check_sparse(function, "self", array)
    if isinstance(factor, np.generic):
        check_precision(function, "other", factor.dtype)
    # Duplicate blocks of bool combine by or, not by addition: merge them before they are numbers.
    array = array._canonical(function) if array.dtype.kind == "b" else array
    with on_device(array._data):
        result = scaled_values(function, array._data, factor, name)
    if result.dtype not in CONTAINER_DTYPES:
        expected = f"a number that mixes with {array.dtype} (A.astype first)"
        raise bad_type(function, "other", expected, f"one that makes it {result.dtype}")
    return array._with(array._pattern, result)


def _beside(function: str, array: Any, dense: Any) -> tuple[Any, Any, Any]:
    """Return an array without duplicates, a dense array's elements there, and their dtype."""
    check_sparse(function, "self", array)
    xp = common_namespace(function, self=array._data, other=dense)
    shape = broadcast_shape(function, "other", array.shape, tuple(dense.shape), kind="shapes")
    if shape[-2:] != array.shape[-2:]:
        raise bad_value(function, "other", f"a shape that broadcasts to {array.shape}", dense.shape)
    dtype = common_dtype(function, array.dtype, dense.dtype)
    with on_device(array._data):
        array = repeated(array._canonical(function), shape[:-2])
        factors = xp.empty(array._data.shape, dense.dtype)
        if factors.size:
            engine_module(xp, "convert", function).gather_blocks(
                factors, array._pattern, xp.broadcast_to(dense, shape)
            )
    return array, factors, dtype


# -- sparse operands ----------------------------------------------------------------------------


def _in_fitting_blocks(function: str, array: Any, other: Any) -> Any:
    """Return a sparse array of SciPy or cupyx in blocks as long as ours along axes of equal length.

    Along other axes, one of the two has length one.
    """
    check_sparse(function, "self", array)
    shape, found = array._pattern.shape, foreign_shape(function, "other", other)
    _check_broadcasts(function, array.shape, shape, found)
    blocksize = [b if n == m else 1 for b, n, m in zip(array.blocksize, shape, found)]
    dtype = common_dtype(function, array.dtype, other.dtype)
    kept = other.dtype if other.dtype in CONTAINER_DTYPES else dtype
    return converted(function, array, other, (blocksize[0], blocksize[1]), kept)


def _check_broadcasts(
    function: str, full: tuple[int, ...], shape: tuple[int, ...], other: tuple[int, ...]
) -> None:
    if any(n != m and 1 not in {n, m} for n, m in zip(shape, other)):
        raise bad_value(function, "other", f"a shape that broadcasts with {full}", other)


def _multiply_sparse(function: str, array: Any, other: Any) -> Any:
    if other.pattern.shape == array._pattern.shape:
        a, b = aligned(function, array, other)
    else:
        a, b = _fitted(function, array, other)
    with on_device(a._data):
        a, b = a._canonical(function), b._canonical(function, "other")
        if a._pattern.same_as(b._pattern):
            return array._with(a._pattern, a._data * b._data)
        shapes = a._pattern.shape, b._pattern.shape
        if shapes[0] == shapes[1] and is_compiled(a):
            multiply = engine_module(a._xp, "union", function).multiply
            return a._with(*multiply(a._pattern, a._data, b._pattern, b._data))
        if all(n in {1, m} for m, n in zip(*shapes)):
            return _at_blocks(function, a, b)
        if all(m in {1, n} for m, n in zip(*shapes)):
            return _at_blocks(function, b, a)
        return _outer(*((a, b) if shapes[0][1] == 1 else (b, a)))


def _fitted(function: str, array: Any, other: Any) -> tuple[Any, Any]:
    """Return two operands, one of which broadcasts, with one batch and dtype.

    Their blocks have equal lengths along axes of equal length.
    """
    check_sparse(function, "self", array)
    check_sparse(function, "other", other)
    common_namespace(function, self=array._data, other=other.data)
    shape, found = array._pattern.shape, other.pattern.shape
    _check_broadcasts(function, array.shape, shape, found)
    blocksize = [
        ours if n == m else theirs
        for ours, theirs, n, m in zip(array.blocksize, other.pattern.blocksize, shape, found)
    ]
    dtype = common_dtype(function, array.dtype, other.data.dtype)
    batches = array._pattern.batch_shape, other.pattern.batch_shape
    batch = broadcast_shape(function, "other", *batches)
    other = array._with(other.pattern, other.data)._reblocked(function, "other", tuple(blocksize))
    a, b = (repeated(in_dtype(x, dtype), batch) for x in (array, other))
    return a, b


def _at_blocks(function: str, a: Any, b: Any) -> Any:
    """Return the product at the blocks of ``a`` whose factors ``b``, which broadcasts, stores."""
    xp, a_keys, b_keys = a._xp, a._pattern.keys(), b._pattern.keys()
    (rows, columns), (b_rows, b_columns) = a._pattern.block_shape, b._pattern.block_shape
    wanted = a_keys
    if (rows, columns) != (b_rows, b_columns):
        line, column = a_keys // max(columns, 1), a_keys % max(columns, 1)
        line = line if b_rows == rows else line // rows
        wanted = line * b_columns + (column if b_columns == columns else 0)
    # searchsorted needs an array that is not empty
    place = xp.searchsorted(b_keys, wanted) if b_keys.size else xp.zeros_like(wanted)
    both = xp.zeros(wanted.shape, dtype=bool)
    if b_keys.size:
        place = xp.minimum(place, b_keys.size - 1)
        both = b_keys[place] == wanted
    pattern = pattern_of(a_keys[both], a._pattern, function)
    return a._with(pattern, as_data(flat(a)[both] * flat(b)[place[both]], pattern))


def _outer(column: Any, row: Any) -> Any:
    """Return the product of a column and a row: of each two blocks one."""
    xp, batch, na, nb = column._xp, column._pattern.batch_shape, column.nnzb, row.nnzb
    n, columns = prod(batch), row._pattern.block_shape[1]
    lines = column._pattern.keys().reshape(n, na, 1)  # of a matrix of one column: block rows
    keys = lines * columns + (row._pattern.keys() % max(columns, 1)).reshape(n, 1, nb)
    (bm, _), (_, bk) = column.blocksize, row.blocksize
    shape = column._pattern.shape[0], row._pattern.shape[1]
    pattern = from_sorted_keys(keys.ravel(), batch, na * nb, shape, (bm, bk))
    blocks = flat(column).reshape(n, na, 1, bm, 1) * flat(row).reshape(n, 1, nb, 1, bk)
    return column._with(pattern, xp.ascontiguousarray(blocks).reshape(pattern.data_shape))
