"""2:4 metadata by itself: CUTLASS's order, its check, and one code in words."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from .._arrays import (
    as_array,
    check_dtype_name,
    check_may_wait,
    namespace,
)
from .._checks import bad_type, bad_value, check_element_count, check_integer, check_size
from .._format_24 import DTYPE_NAMES, FORMATS, Format, reorder_offsets
from .._signatures import numpy_by_default
from ..engines import engine_module
from ..engines.cuda.runtime.replay import Call
from ._common import on_device
from .compress import as_meta, check_codes, check_matrix, check_multiples, stored_code

_DTYPES = (np.dtype(np.int16), np.dtype(np.int32))
_VIEWS = (np.dtype(np.uint16), np.dtype(np.uint32))
#: Values that metadata stands for where nobody says.
_DEFAULT = dict(zip(_DTYPES, (np.dtype(np.float16), np.dtype(np.int8)), strict=True))


def _check_meta_dtype(function: str, argument: str, dtype: np.dtype) -> None:
    if dtype not in _DTYPES + _VIEWS:
        raise bad_type(function, argument, "int16 or int32 metadata", dtype)


def _meta_rows(dtype: np.dtype) -> int:
    """Return what the number of rows of metadata is a multiple of."""
    return 32 if dtype.itemsize == 2 else 16


def _check_meta(function: str, meta: Any) -> None:
    """Refuse metadata (*batch, m, columns) of another dtype or shape."""
    _check_meta_dtype(function, "meta", meta.dtype)
    why = f" for {meta.dtype} metadata"
    check_multiples(function, "meta", meta.shape[-2:], _meta_rows(meta.dtype), 2, why)


@numpy_by_default
def meta_reorder_offsets(m: int, meta_ncols: int, meta_dtype: Any, xp: ModuleType = np) -> Any:
    """Return where CUTLASS's layout puts each metadata element.

    Parameters
    ----------
    m : int
        Rows: a multiple of 32 (int32 metadata: 16).
    meta_ncols : int
        Metadata columns, even.
    meta_dtype : {int16, int32}
        Or the unsigned dtype of the same size.
    xp : module
        ``numpy`` or ``cupy``.

    Returns
    -------
    int64 array (m * meta_ncols,)
        ``reordered.ravel()[offsets] = meta.ravel()``

    Raises
    ------
    ValueError
        Sizes that are no such multiples.
    TypeError
        Another dtype.

    Notes
    -----
    CUTLASS, ``cutlass/util/host_reorder.h``: rows are interleaved in groups of 32 (16 for 32-bit
    metadata), the off-diagonal of each 2 x 2 cell is swapped, columns are interleaved in pairs.

    Examples
    --------
    >>> from sparsegpu import meta_reorder_offsets
    >>> meta_reorder_offsets(32, 2, "int16")[:8]
    array([ 0,  2,  8, 10, 16, 18, 24, 26])
    """
    function = "meta_reorder_offsets"
    dtype = check_dtype_name(function, "meta_dtype", meta_dtype)
    m = check_size(function, "m", m)
    meta_ncols = check_size(function, "meta_ncols", meta_ncols)
    check_element_count(function, "m", (m, meta_ncols))
    _check_meta_dtype(function, "meta_dtype", dtype)
    rows = _meta_rows(dtype)
    if m % rows:
        raise bad_value(function, "m", f"a multiple of {rows} for {dtype} metadata", m)
    if meta_ncols % 2:
        raise bad_value(function, "meta_ncols", "a multiple of 2", meta_ncols)
    return reorder_offsets(m, meta_ncols, dtype, xp)


def reorder_meta(meta: Any) -> Any:
    """Return row-major metadata in CUTLASS's order (see `meta_reorder_offsets`).

    Parameters
    ----------
    meta : int16 or int32 array (m, meta_ncols)
        Or of the unsigned dtype of the same size.

    Returns
    -------
    array of the same shape and dtype

    Raises
    ------
    ValueError, TypeError
        As `meta_reorder_offsets`.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsegpu import reorder_meta, restore_meta
    >>> meta = np.arange(64, dtype=np.int16).reshape(32, 2)
    >>> reorder_meta(meta).ravel()[:8]
    array([ 0, 16,  1, 17, 32, 48, 33, 49], dtype=int16)
    >>> bool((restore_meta(reorder_meta(meta)) == meta).all())
    True
    """
    return _permute_meta("reorder_meta", meta)


def restore_meta(meta: Any) -> Any:
    """Return CUTLASS-ordered metadata row-major: the inverse of `reorder_meta`.

    Parameters
    ----------
    meta : int16 or int32 array (m, meta_ncols)
        Or of the unsigned dtype of the same size.

    Returns
    -------
    array of the same shape and dtype

    Raises
    ------
    ValueError, TypeError
        As `meta_reorder_offsets`.

    Examples
    --------
    See `reorder_meta`.
    """
    return _permute_meta("restore_meta", meta)


def _permute_meta(function: str, meta: Any) -> Any:
    meta = as_array(meta, function, "meta")
    call = Call(function, None, (meta,))
    replayed = call.replay()
    if replayed is not None:
        return replayed[0]
    check_matrix(function, "meta", meta)
    _check_meta(function, meta)
    xp = namespace(meta)
    with on_device(meta, call=call):
        out = xp.empty(meta.shape, dtype=meta.dtype)
        if meta.size:
            engine = engine_module(xp, "compress", function)
            getattr(engine, function)(out, xp.ascontiguousarray(meta))
            if meta.flags.c_contiguous:
                call.keep(out)
    return out


def _format_of_meta(function: str, meta: Any, dtype: Any) -> Format:
    """Return the format of metadata (*batch, m, columns) of ``dtype`` values, or refuse it."""
    if meta.ndim < 2:
        raise bad_value(function, "meta", "shape (*batch, m, columns)", tuple(meta.shape))
    _check_meta(function, meta)
    named = _DEFAULT[meta.dtype] if dtype is None else dtype
    wanted = check_dtype_name(function, "dtype", named)
    if wanted not in FORMATS:
        raise bad_type(function, "dtype", f"one of the 2:4 dtypes {DTYPE_NAMES}", wanted)
    form = FORMATS[wanted]
    if meta.dtype != form.meta_dtype:
        raise bad_type(function, "meta", f"dtype {form.meta_dtype} for {wanted} values", meta.dtype)
    return form


def check_meta(meta: Any, *, dtype: Any = None) -> None:
    """Refuse 2:4 metadata with an illegal code; the metadata itself is all that is read.

    A code names two positions of four in rising order, or one of a pair. Any other, such as the
    zeros of memory that nobody wrote, has no meaning to the hardware and loses a value here.

    Parameters
    ----------
    meta : int16 or int32 array (*batch, m, columns)
        In CUTLASS's order, each matrix of a batch for itself; uint16 and uint32 stand for the
        same bits.
    dtype : dtype, optional
        What the values are: float32 has codes of pairs, two of the six of other values. None:
        float16 or bfloat16 for int16 metadata, 8-bit values for int32.

    Raises
    ------
    ValueError
        An illegal code, naming row and group (and the matrix of a batch) of the first by rows;
        a shape that no metadata has.
    TypeError
        A dtype that no metadata, or none of these values, has.
    NotImplementedError
        While a CUDA graph is captured: it waits for the device.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsegpu import check_meta, semi_structured_from_dense
    >>> packed, meta = semi_structured_from_dense(np.eye(32, dtype=np.float16))
    >>> check_meta(meta)
    >>> meta[0, 0] = 0
    >>> check_meta(meta)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: check_meta: argument 'meta': expected codes ... got 0b0000 in row 0, group 0
    """
    function = "check_meta"
    meta = as_meta(meta, function, "meta")
    check_codes(function, "meta", meta, _format_of_meta(function, meta, dtype))


def describe_meta(meta: Any, row: int, group: int, *, dtype: Any = None) -> str:
    """Return in words what a group's code keeps, and where in the metadata it is stored.

    Parameters
    ----------
    meta : int16 or int32 array (m, columns)
        As of `check_meta`, of one matrix.
    row, group : int
        The row of the dense matrix, and the number of the group of four (float32: of two) in it.
    dtype : dtype, optional
        As in `check_meta`.

    Returns
    -------
    str
        The code with the columns that it keeps, or why it is illegal; then its bits in the element
        of ``meta`` that holds it.

    Raises
    ------
    ValueError
        A row or group that is not there; a shape that no matrix's metadata has.
    TypeError, NotImplementedError
        As `check_meta`.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsegpu import describe_meta, semi_structured_from_dense
    >>> packed, meta = semi_structured_from_dense(np.eye(32, dtype=np.float16))
    >>> describe_meta(meta, 9, 2)  # doctest: +ELLIPSIS
    'row 9, group 2: code 0b1001 keeps columns 9 and 10 of 8..11 (bits 8..11 of 0xe9ee, ...)'
    """
    function = "describe_meta"
    meta = as_meta(meta, function, "meta")
    form = _format_of_meta(function, meta, dtype)
    check_matrix(function, "meta", meta)
    row = _place(function, "row", row, meta.shape[0])
    group = _place(function, "group", group, meta.shape[1] * form.codes)
    check_may_wait(namespace(meta), function)
    with on_device(meta):
        word, stored, place = stored_code(meta, row, group, form)
    code = word >> 4 * place & 15
    first, second = code & 3, code >> 2
    start = form.group * group
    of = f"of {start}..{start + form.group - 1}"
    if code in form.legal:
        kept = [start + first // 2] if form.group == 2 else [start + first, start + second]
        columns = "column" if form.group == 2 else "columns"
        said = f"keeps {columns} {' and '.join(map(str, kept))} {of}"
    elif form.group == 2:
        said = f"is illegal: neither {form.legal[0]:#06b} nor {form.legal[1]:#06b}"
    else:
        said = f"is illegal: positions {first} and {second} do not rise"
    where = f"bits {4 * place}..{4 * place + 3} of {word:#0{2 + 2 * meta.itemsize}x}"
    return (
        f"row {row}, group {group}: code {code:#06b} {said} "
        f"({where}, stored at meta[{stored[0]}, {stored[1]}])"
    )


def _place(function: str, argument: str, number: Any, stop: int) -> int:
    """Return a number in 0..stop - 1 as an int, or refuse it."""
    number = check_integer(function, argument, number, "an integer")
    if not 0 <= number < stop:
        raise bad_value(function, argument, f"0 <= {argument} < {stop}", number)
    return number
