"""Operands of elementwise operations brought to one shape, batch, block size, dtype and pattern."""

from __future__ import annotations

from numbers import Number
from typing import Any

import numpy as np

from .._arrays import CONTAINER_DTYPES, bfloat16, common_namespace, is_cupy, namespace
from .._checks import bad_type, bad_value, broadcast_shape, check_scalar
from .._indices import keys_per_batch
from .._segments import distinct
from ..engines import computing_engine, engine_module
from ..ops._canonical import distinct_blocks
from ..ops._common import check_sparse, in_dtype
from ..pattern import Pattern, from_sorted_keys
from .elements import check_dtype, foreign_blocks, foreign_shape, is_foreign, with_values


def is_scalar(other: Any) -> bool:
    """Return whether ``other`` is one number; an array without dimensions is."""
    if isinstance(other, (Number, np.generic)):
        return True
    return (isinstance(other, np.ndarray) or is_cupy(other)) and other.ndim == 0


def check_number(function: str, other: Any) -> None:
    """Refuse dates, durations and text of NumPy, which are scalars (durations even integers)."""
    if getattr(getattr(other, "dtype", None), "kind", "") in {"m", "M", "S", "U"}:
        raise bad_type(function, "other", "a number", other.dtype)


def check_held(function: str, factor: int, dtype: np.dtype, argument: str = "other") -> None:
    """Refuse an integer that the integers it meets do not hold."""
    if dtype.kind == "i":
        limits = np.iinfo(dtype)
        if not limits.min <= factor <= limits.max:
            expected = f"an integer that {dtype} holds (astype, or a float)"
            raise bad_value(function, argument, expected, factor)


def check_can_be_set(function: str, argument: str, value: Any, dtype: np.dtype) -> None:
    """Refuse a number that an array of integers cannot hold, cut to an integer."""
    if dtype.kind == "i" and not isinstance(value, complex):
        limits = np.iinfo(dtype)
        # NaN is not between any two numbers.
        if not limits.min - 1 < value < limits.max + 1:
            raise bad_value(function, argument, f"a number that {dtype} holds (astype)", value)


def check_values_writeable(function: str, data: Any) -> None:
    """Refuse to write to values over read-only memory; arrays of CuPy never are."""
    if isinstance(data, np.ndarray) and not data.flags.writeable:
        raise bad_value(function, "self", "writeable values", "read-only ones (copy())")


def scaled_values(function: str, data: Any, factor: Any, name: str) -> Any:
    """Return values after "multiply" or "divide" by a scalar, which a Python number is weakly."""
    if isinstance(factor, (np.bool_, np.integer)):
        check_number(function, factor)
        factor = int(factor)
    if isinstance(factor, int):
        check_scalar(function, "other", factor, complex_allowed=True)
        check_held(function, factor, data.dtype)
    if not isinstance(factor, Number):
        check_number(function, factor)
        common_namespace(function, self=data, other=factor)
    operation = getattr(namespace(data), name)
    if data.dtype == bfloat16 and type(factor) in {bool, int, float}:
        return operation(data.astype(np.float32), factor).astype(bfloat16)
    return operation(data, factor)


def check_precision(function: str, argument: str, dtype: np.dtype) -> None:
    """Refuse the floats that are longer than float64, which no container holds."""
    if dtype.kind in "fc" and dtype not in CONTAINER_DTYPES:
        kept = "complex128" if dtype.kind == "c" else "float64"
        expected = f"at most double precision ({argument}.astype('{kept}'))"
        raise bad_type(function, argument, expected, dtype)


def common_dtype(function: str, a: np.dtype, b: np.dtype, argument: str = "other") -> np.dtype:
    """Return NumPy's common dtype of two, if there is one that a container holds."""
    try:
        dtype = np.result_type(a, b)
    except TypeError:
        dtype = None
    check_precision(function, argument, b)
    if a != b and (dtype is None or dtype not in CONTAINER_DTYPES):  # None equals float64
        raise bad_type(function, argument, f"a dtype that mixes with {a} (astype)", b)
    return check_dtype(function, argument, dtype)


def in_blocks(function: str, array: Any, other: Any) -> Any:
    """Return a sparse array of SciPy or cupyx in the block size of ``array``, anything else as is.

    Its dtype stays, or is the common one where no container holds it (int64).
    """
    if not is_foreign(other):
        return other
    check_sparse(function, "self", array)
    shape = foreign_shape(function, "other", other)
    if shape != array._pattern.shape:
        raise bad_value(function, "other", f"shape {array._pattern.shape}", shape)
    dtype = common_dtype(function, array.dtype, other.dtype)
    kept = other.dtype if other.dtype in CONTAINER_DTYPES else dtype
    return converted(function, array, other, array.blocksize, kept)


def converted(
    function: str, array: Any, other: Any, blocksize: tuple[int, int], dtype: np.dtype
) -> Any:
    """Return a sparse array of SciPy or cupyx as one of the class of ``array``."""
    other = with_values(other)
    common_namespace(function, self=array._data, other=other.data)
    return array._with(*foreign_blocks(function, "other", other, blocksize, dtype))


def aligned(function: str, array: Any, other: Any) -> tuple[Any, Any]:
    """Return two block-sparse arrays with one shape, batch, block size and dtype."""
    check_sparse(function, "self", array)
    check_sparse(function, "other", other)
    common_namespace(function, self=array._data, other=other.data)
    if array._pattern.shape != other.pattern.shape:
        raise bad_value(function, "other", f"shape {array._pattern.shape}", other.pattern.shape)
    dtype = common_dtype(function, array.dtype, other.data.dtype)
    batch = broadcast_shape(
        function, "other", array._pattern.batch_shape, other.pattern.batch_shape
    )
    other = array._with(other.pattern, other.data)._reblocked(function, "other", array.blocksize)
    return tuple(repeated(in_dtype(x, dtype), batch) for x in (array, other))


def repeated(array: Any, batch: tuple[int, ...]) -> Any:
    """Return an array over a larger batch, nothing copied."""
    if array._pattern.batch_shape == batch:
        return array
    data = array._xp.broadcast_to(array._data, (*batch, *array._data.shape[-3:]))
    return array._with(array._pattern.broadcast_to(batch), data)


def united(a: Any, b: Any, function: str) -> tuple[Pattern, Any, Any]:
    """Return the union of two patterns, ``a``'s blocks over it and the positions of ``b``'s.

    Both are aligned and canonical; what ``a`` does not store is zero.
    """
    xp, a_keys, b_keys = a._xp, a._pattern.keys(), b._pattern.keys()
    keys = distinct(xp.concatenate([a_keys, b_keys]))
    blocks = xp.zeros((keys.size, *a.blocksize), a.dtype)
    blocks[xp.searchsorted(keys, a_keys)] = flat(a)
    return pattern_of(keys, a._pattern, function), blocks, xp.searchsorted(keys, b_keys)


def flat(array: Any) -> Any:
    """Return the blocks of all matrices of a batch, shape (n, bm, bk)."""
    return array._data.reshape(-1, *array.blocksize)


def pattern_of(keys: Any, like: Pattern, function: str) -> Pattern:
    """Return the pattern of sorted block positions, in the shapes of another pattern."""
    rows, columns = like.block_shape
    nnzb = keys_per_batch(keys, like.batch_shape, rows * columns, function, "other")
    return from_sorted_keys(keys, like.batch_shape, nnzb, like.shape, like.blocksize)


def as_data(blocks: Any, pattern: Pattern) -> Any:
    """Return blocks (n, bm, bk) in the batch shape of a pattern."""
    return blocks.reshape(*pattern.batch_shape, pattern.nnzb, *pattern.blocksize)


def side_by_side(function: str, array: Any, other: Any) -> tuple[Pattern, Any, Any]:
    """Return the blocks of two arrays over one pattern, which holds those of both."""
    a, b = aligned(function, array, other)
    if a._pattern.same_as(b._pattern):
        pattern, blocks = distinct_blocks(a, function, "self")
        return pattern, blocks, distinct_blocks(b, function, "other")[1]
    return over_union(a._canonical(function), b._canonical(function, "other"), function)


def is_compiled(a: Any) -> bool:
    """Return whether a compiled loop of the CPU engine adds and multiplies blocks of two patterns.

    Others are added and multiplied by NumPy.
    """
    wide = a.dtype.kind in "fc" and a.dtype.itemsize > 2
    return computing_engine(a._xp) == "cpu" and wide and not a._pattern.batch_shape


def over_union(a: Any, b: Any, function: str) -> tuple[Pattern, Any, Any]:
    """Return the union of two patterns, aligned and canonical, and the blocks of both over it."""
    engine = computing_engine(a._xp)
    if engine == "cuda" or (engine == "cpu" and not a._pattern.batch_shape):
        both = engine_module(a._xp, "union", function).side_by_side
        found: tuple[Pattern, Any, Any] = both(a._pattern, a._data, b._pattern, b._data, function)
        return found
    pattern, blocks, place = united(a, b, function)
    others = a._xp.zeros_like(blocks)
    others[place] = flat(b)
    return pattern, blocks, others
