"""2:4 blocks of a block-sparse matrix: compressed, expanded, checked."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from .._arrays import HALF_DTYPES, check_dtype_among, common_namespace, device_of, namespace
from .._checks import bad_type, bad_value
from .._format_24 import FORMATS, Format, as_blocks, as_stack
from ..engines import engine_module
from ..pattern import Pattern
from ._common import on_device
from .compress import compress_matrix

#: Dtypes of both `bsr_array` and the 2:4 format.
DTYPES = (*HALF_DTYPES, np.dtype(np.float32), np.dtype(np.int8))


class Packed(NamedTuple):
    """Kept values (*batch, nnzb, bm, bk / 2) of 2:4 blocks, and each block's metadata."""

    packed: Any
    meta: Any


def format_of_blocks(
    function: str, argument: str, dtype: np.dtype, blocksize: tuple[int, int]
) -> Format:
    """Return the 2:4 format of blocks, or refuse their dtype or size."""
    check_dtype_among(function, argument, dtype, DTYPES, "2:4 ")
    form = FORMATS[dtype]
    bm, bk = blocksize
    if bm % form.rows or bk % form.columns:
        expected = (
            f"blocks of a multiple of {form.rows} rows and of {form.columns} columns for {dtype}"
        )
        raise bad_value(function, argument, expected, f"{bm}x{bk} blocks")
    return form


def compressed_blocks(
    function: str, argument: str, pattern: Pattern, data: Any, strict: bool
) -> Packed:
    """Return checked blocks compressed, each as `semi_structured_from_dense` would do it.

    Raises
    ------
    ValueError
        With ``strict``, naming the first group that keeps too much, by block and by element.
    """
    xp, form = namespace(data), FORMATS[data.dtype]
    bm, bk = pattern.blocksize
    blocks = data.shape[:-2]
    with on_device(data):
        stack = xp.ascontiguousarray(data).reshape(-1, bk)
        packed, meta, group = compress_matrix(stack, strict, function)
        if group >= 0:
            raise _not_24(function, argument, pattern, *divmod(group * form.group, bk), form)
        return Packed(
            packed.reshape(*blocks, bm, bk // 2),
            as_blocks(meta, (*blocks, bm, form.meta_columns(bk)), xp),
        )


def _not_24(
    function: str, argument: str, pattern: Pattern, stacked_row: int, column: int, form: Format
) -> ValueError:
    """Return the error for a group, given by its row and column in the stack of all blocks."""
    bm, bk = pattern.blocksize
    number, row = divmod(stacked_row, bm)
    first_row = int(pattern._rows.reshape(-1)[number]) * bm
    first_column = int(pattern._indices.reshape(-1)[number]) * bk
    matrix, block = divmod(number, pattern.nnzb)
    of = f" of matrix {matrix}" if pattern.batch_shape else ""
    return bad_value(
        function,
        argument,
        f"at most {form.kept} nonzero of each {form.group} in a row of a block (see prune=True "
        "and strict=False)",
        f"more in block {block}{of}, in its group at row {row}, column {column} (row "
        f"{first_row + row}, column {first_column + column} of the matrix)",
    )


def expanded_blocks(function: str, packed: Any, meta: Any) -> Any:
    """Return the blocks (*batch, nnzb, bm, bk) that `compressed_blocks` came from."""
    xp = namespace(packed)
    *blocks, bm, half = packed.shape
    with on_device(packed):
        data = xp.empty((*blocks, bm, 2 * half), packed.dtype)
        if data.size:
            engine_module(xp, "compress", function).expand(
                data.reshape(-1, 2 * half), packed.reshape(-1, half), as_stack(meta, xp)
            )
    return data


def is_sparse_blocks(x: Any) -> bool:
    """Whether an operand holds 2:4 blocks."""
    return hasattr(x, "pattern") and hasattr(x, "packed")


def is_semi_structured(x: Any) -> bool:
    """Whether an operand is a 2:4 matrix, of which nothing is left out by blocks."""
    return hasattr(x, "packed") and hasattr(x, "meta") and not hasattr(x, "pattern")


def check_parts(function: str, pattern: Pattern, packed: Any, meta: Any) -> None:
    """Refuse packed values and metadata that are not of a pattern's blocks; metadata only."""
    common_namespace(function, packed=packed, meta=meta, indices=pattern._indices)
    packed_shape, meta_shape, meta_dtype = _layout(function, packed.dtype, pattern.data_shape)
    for name, array, shape in (("packed", packed, packed_shape), ("meta", meta, meta_shape)):
        if array.shape != shape:
            raise bad_value(function, name, f"shape {shape}", tuple(array.shape))
    if meta.dtype != meta_dtype:
        expected = f"dtype {meta_dtype} for {packed.dtype} values"
        raise bad_type(function, "meta", expected, meta.dtype)


@lru_cache(maxsize=256)
def _layout(
    function: str, dtype: np.dtype, data_shape: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], np.dtype]:
    """Return the shapes of the parts of such blocks, and the dtype of their metadata."""
    *blocks, bm, bk = data_shape
    form = format_of_blocks(function, "packed", dtype, (bm, bk))
    return (*blocks, bm, bk // 2), (*blocks, bm, form.meta_columns(bk)), form.meta_dtype


def check_sparse_blocks(function: str, argument: str, x: Any) -> None:
    """Refuse 2:4 blocks whose parts are not, or no longer, of its pattern, as `check_sparse`."""
    if not is_sparse_blocks(x):
        raise bad_type(function, argument, "a BsrSemiStructuredArray", type(x).__name__)
    check_blocks(function, argument, x.pattern, x.packed, x.meta)


def check_blocks(function: str, argument: str, pattern: Pattern, packed: Any, meta: Any) -> None:
    """Do what `check_values` does for 2:4 blocks, which an engine takes C-contiguous."""
    if (
        isinstance(packed, pattern.xp.ndarray)
        and isinstance(meta, pattern.xp.ndarray)
        and (packed.shape, meta.shape, meta.dtype)
        == _layout(function, packed.dtype, pattern.data_shape)
        and packed.flags.c_contiguous
        and meta.flags.c_contiguous
        and (pattern.device is None or device_of(packed) == device_of(meta) == pattern.device)
    ):
        return
    check_parts(function, pattern, packed, meta)
    for name, array in (("packed", packed), ("meta", meta)):
        if not array.flags.c_contiguous:
            expected = f"'{name}' that is C-contiguous"
            raise bad_value(function, argument, expected, f"strides {array.strides}")
