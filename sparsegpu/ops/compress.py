"""2:4 compression: dense to packed values with metadata in CUTLASS's layout, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._arrays import as_array, check_may_wait, common_namespace, namespace
from .._checks import bad_type, bad_value, check_flags
from .._format_24 import DTYPE_NAMES, FORMATS, Format, as_stack, reorder_offset
from .._math import round_up
from ..engines import checking_module, engine_module
from ..engines.cuda.runtime.replay import Call
from ._common import on_device

_PARTS = ("packed", "meta")


def format_of(function: str, argument: str, array: Any) -> Format:
    """Return the 2:4 format of an array's dtype, or refuse the dtype.

    uint8 is float8_e4m3fn where the array library has no such dtype (CuPy), and nothing in NumPy.
    """
    dtype = array.dtype
    if dtype not in FORMATS or (dtype == np.uint8 and namespace(array) is np):
        raise bad_type(function, argument, f"one of the 2:4 dtypes {DTYPE_NAMES}", dtype)
    return FORMATS[dtype]


def check_matrix(function: str, argument: str, array: Any) -> None:
    """Refuse what is not two-dimensional."""
    if array.ndim != 2:
        raise bad_value(function, argument, "two dimensions", f"shape {tuple(array.shape)}")


def check_multiples(
    function: str, argument: str, shape: tuple[int, int], rows: int, columns: int, why: str = ""
) -> None:
    """Refuse a shape that is no multiple of what a layout needs."""
    m, k = shape
    if m % rows or k % columns:
        expected = f"rows a multiple of {rows} and columns a multiple of {columns}{why}"
        raise bad_value(function, argument, expected, f"shape {(m, k)}")


def compress_matrix(
    dense: Any, strict: bool, function: str, check: Callable[[str, Any], None] | None = None
) -> tuple[Any, Any, int]:
    """Return ``(packed, meta, group)`` of a C-contiguous matrix of a shape that the format has.

    ``group`` is -1, or with ``strict`` the row-major number of the first group that has more
    nonzeros than it may keep; packed and meta mean nothing then. ``check`` refuses a matrix that
    is not so. It is not called where one like it was compressed before.
    """
    call = Call("semi_structured_from_dense", None, (dense,), waits=bool(strict))
    replayed = call.replay()
    if replayed is not None:
        return replayed[0], replayed[1], -1
    if check is not None:
        check(function, dense)
    xp, form = namespace(dense), FORMATS[dense.dtype]
    m, k = dense.shape
    with on_device(dense, call=call):
        if strict:
            check_may_wait(xp, f"{function} with strict=True")
        packed = xp.empty((m, k // 2), dtype=dense.dtype)
        meta = xp.empty((m, form.meta_columns(k)), dtype=form.meta_dtype)
        group = -1
        if dense.size:
            engine = engine_module(xp, "compress", function)
            group = engine.compress(packed, meta, dense, strict)
            call.keep(packed, meta)
    return packed, meta, group


def semi_structured_from_dense(dense: Any, *, strict: bool = True) -> tuple[Any, Any]:
    """Compress a 2:4 matrix into its kept values and CUTLASS's metadata.

    Groups of four consecutive elements of a row keep two; float32: groups of two keep one, the
    hardware's rule for TF32.

    Parameters
    ----------
    dense : array (m, k), C-contiguous
        float16, bfloat16, float32, int8 or float8_e4m3fn (in CuPy: its bytes, uint8). ``m`` is a
        multiple of 32 (8-bit: 16), ``k`` of 32 (float32: 16; 8-bit: 64).
    strict : bool
        Refuse a group with more nonzeros than it keeps. False drops the others: with nonzero
        flags f0..f3 the kept positions are (0, 1) if f0 and f1, (2, 3) if neither, else the set
        one of the two, and 3 if f3 else 2. -0.0 is zero, NaN and infinities are not.

    Returns
    -------
    packed : array (m, k / 2)
        The kept values in order.
    meta : int16 (8-bit values: int32) array (m, k / 16), (m, k / 8) for float32, (m, k / 32)
        Codes ``i | j << 2`` of the kept positions, low bits first, in the order of
        `meta_reorder_offsets`.

    Raises
    ------
    ValueError
        A shape that is no such multiple; not C-contiguous; ``strict`` and not 2:4, naming row
        and first column of the first such group.
    TypeError
        Another dtype.

    Notes
    -----
    The codes are those of ``mma.sp`` (PTX ISA, "Sparse matrix storage"), the order is that of
    CUTLASS's operand E (``cutlass/util/host_reorder.h``).

    Examples
    --------
    >>> import numpy as np
    >>> from sparsegpu import semi_structured_from_dense
    >>> dense = np.tile(np.array([0, 5, 0, 7], np.float16), (32, 8))
    >>> packed, meta = semi_structured_from_dense(dense)
    >>> packed.shape, packed[0, :4], hex(meta.view(np.uint16)[0, 0])
    ((32, 16), array([5., 7., 5., 7.], dtype=float16), '0xdddd')
    """
    function = "semi_structured_from_dense"
    return compressed(function, as_array(dense, function, "dense"), strict)


def compressed(function: str, dense: Any, strict: bool) -> tuple[Any, Any]:
    """Do `semi_structured_from_dense` for a caller of another name."""
    check_flags(function, strict=strict)
    packed, meta, group = compress_matrix(dense, bool(strict), function, _check_dense)
    if group >= 0:
        raise not_24(function, "dense", dense.shape[1], group, FORMATS[dense.dtype])
    return packed, meta


def _check_dense(function: str, dense: Any) -> None:
    """Refuse what the format cannot have as it lies in memory."""
    form = format_of(function, "dense", dense)
    check_matrix(function, "dense", dense)
    why = f" for {dense.dtype} (pad=True of SemiStructuredArray.from_dense pads)"
    check_multiples(function, "dense", dense.shape, form.rows, form.columns, why)
    if not dense.flags.c_contiguous:
        raise bad_value(function, "dense", "a C-contiguous array", f"strides {dense.strides}")


def not_24(function: str, argument: str, columns: int, group: int, form: Format) -> ValueError:
    """Return the error for a matrix that is not 2:4, naming its first offending group."""
    row, place = divmod(group, columns // form.group)
    prune = "prune_24" if form.group == 4 else "prune_24(keep='1:2')"
    return bad_value(
        function,
        argument,
        f"at most {form.kept} nonzero of each {form.group} in a row (see {prune}, or strict=False)",
        f"more in the group at row {row}, column {place * form.group}",
    )


def check_packed(function: str, packed: Any, meta: Any, names: tuple[str, str]) -> Format:
    """Refuse packed values and metadata that do not match; reads no element."""
    form = format_of(function, names[0], packed)
    check_matrix(function, names[0], packed)
    m, half = packed.shape
    why = f" for {packed.dtype}"
    check_multiples(function, names[0], (m, half), form.rows, form.columns // 2, why)
    if meta.dtype != form.meta_dtype:
        raise bad_type(
            function, names[1], f"dtype {form.meta_dtype} for {packed.dtype} values", meta.dtype
        )
    expected = (m, form.meta_columns(2 * half))
    if tuple(meta.shape) != expected:
        raise bad_value(function, names[1], f"shape {expected}", tuple(meta.shape))
    return form


def as_meta(x: Any, function: str, argument: str) -> Any:
    """Return metadata as an array, uint16 and uint32 as views of the dtypes that it has here."""
    meta = as_array(x, function, argument)
    unsigned = meta.dtype.kind == "u" and meta.itemsize in {2, 4}
    return meta.view(f"i{meta.itemsize}") if unsigned else meta


def stored_code(meta: Any, row: int, group: int, form: Format) -> tuple[int, tuple[int, int], int]:
    """Return the element that holds a group's code, its place in ``meta``, and the code's place."""
    m, columns = meta.shape
    column, code = divmod(group, form.codes)
    place = divmod(reorder_offset(row, column, m, meta.dtype), columns)
    return int(meta[place]) & (1 << 8 * meta.itemsize) - 1, place, code


def check_codes(function: str, argument: str, meta: Any, form: Format) -> None:
    """Refuse metadata (*batch, m, columns) with an illegal code, naming the first by rows.

    It waits for the device. Shapes and dtypes were checked before.
    """
    xp = namespace(meta)
    check_may_wait(xp, f"{function} with a check of metadata")
    if not meta.size:
        return
    *batch, m, columns = meta.shape
    with on_device(meta):
        stack = as_stack(meta, xp) if batch else xp.ascontiguousarray(meta)
        first = checking_module(xp, "compress").first_illegal(stack, form.group)
        if first < 0:
            return
        row, group = divmod(first, columns * form.codes)
        word, _, place = stored_code(stack, row, group, form)
    matrix, row = divmod(row, m)
    index = ", ".join(str(int(i)) for i in np.unravel_index(matrix, batch)) if batch else ""
    raise bad_value(
        function,
        argument,
        f"codes of {form.rule} metadata ({', '.join(f'{code:#06b}' for code in form.legal)})",
        f"{word >> 4 * place & 15:#06b} in row {row}, group {group}"
        + (f" of meta[{index}]" if batch else ""),
    )


def semi_structured_to_dense(packed: Any, meta: Any, *, check: bool = False) -> Any:
    """Expand kept values and reordered metadata: the inverse of `semi_structured_from_dense`.

    Parameters
    ----------
    packed : array (m, k / 2)
    meta : int16 or int32 array
        In CUTLASS's order; uint16 and uint32 stand for the same bits.
    check : bool
        Refuse illegal codes first, as `check_meta` does, which waits for the device. Unchecked,
        a group with one may lose a value.

    Returns
    -------
    array (m, k)

    Raises
    ------
    ValueError
        Shapes that do not match; with ``check`` an illegal code, naming row and group.
    TypeError
        Dtypes that do not match.
    NotImplementedError
        With ``check``, while a CUDA graph is captured.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsegpu import semi_structured_from_dense, semi_structured_to_dense
    >>> dense = np.tile(np.array([0, 5, 0, 7], np.float16), (32, 8))
    >>> bool((semi_structured_to_dense(*semi_structured_from_dense(dense)) == dense).all())
    True
    """
    function = "semi_structured_to_dense"
    packed = as_array(packed, function, "packed")
    meta = as_meta(meta, function, "meta")
    check_flags(function, check=check)
    if check:  # of what memory holds now: nothing that a replay could know
        common_namespace(function, packed=packed, meta=meta)
        check_codes(function, "meta", meta, check_packed(function, packed, meta, _PARTS))
    call = Call(function, None, (packed, meta))
    replayed = call.replay()
    if replayed is not None:
        return replayed[0]
    xp = common_namespace(function, packed=packed, meta=meta)
    check_packed(function, packed, meta, _PARTS)
    with on_device(packed, call=call):
        dense = xp.empty((packed.shape[0], 2 * packed.shape[1]), dtype=packed.dtype)
        if dense.size:
            engine_module(xp, "compress", function).expand(
                dense, xp.ascontiguousarray(packed), xp.ascontiguousarray(meta)
            )
            if packed.flags.c_contiguous and meta.flags.c_contiguous:
                call.keep(dense)
    return dense


def zero_padded(array: Any, shape: tuple[int, ...]) -> Any:
    """Return a C-contiguous array of the larger ``shape`` with zeros behind; itself if it fits."""
    xp = namespace(array)
    if tuple(array.shape) == tuple(shape):
        return xp.ascontiguousarray(array)
    padded = xp.zeros(shape, dtype=array.dtype)
    padded[tuple(slice(n) for n in array.shape)] = array
    return padded


def split_24(dense: Any, function: str) -> tuple[Any, Any]:
    """Compress *any* matrix as ``[first | rest]``, twice as wide, both 2:4 and adding up to it.

    A group of four has at most two nonzeros that the rule of `semi_structured_from_dense` does
    not keep (float32: one of a pair), and these are a 2:4 matrix again. So
    ``dense @ x == [first | rest] @ [x; x]``: one product, rounded once, of a matrix that is not
    2:4, such as the transpose of one that is. Checked, C-contiguous ``dense``; columns of the
    result are padded to the format's multiple *after* both parts.
    """
    xp, form = namespace(dense), FORMATS[dense.dtype]
    m, k = dense.shape
    wide = round_up(k, form.columns)
    packed, meta, _ = compress_matrix(zero_padded(dense, (m, wide)), False, function)
    with on_device(dense):
        both = xp.zeros((m, round_up(2 * k, form.columns)), dtype=dense.dtype)
        if dense.size:
            first = xp.empty((m, wide), dtype=dense.dtype)
            engine_module(xp, "compress", function).expand(first, packed, meta)
            first = xp.ascontiguousarray(first[:, :k])
            both[:, :k] = first
            # As bits: a value that is kept has some set, and every array library can compare them.
            bits = np.dtype(f"u{dense.itemsize}")
            rest = xp.where(first.view(bits) != 0, bits.type(0), dense.view(bits))
            both[:, k : 2 * k] = rest.view(dense.dtype)
    packed, meta, _ = compress_matrix(both, False, function)
    return packed, meta
