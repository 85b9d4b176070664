"""A 2:4 matrix in both orientations at once, and the bitmask that says what it keeps."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from .._arrays import as_array, check_may_wait, common_namespace, namespace
from .._checks import bad_type, bad_value, check_choice, check_flags
from .._format_24 import FORMATS
from ..engines import engine_module
from ..engines.cuda.runtime.replay import Call
from ._common import on_device
from .compress import check_matrix, check_multiples, compress_matrix, format_of, not_24
from .cusparselt_layout import check_layout, to_buffer
from .prune import ALGORITHMS, check_order


def _both_orientations(function: str, argument: str, dense: Any) -> None:
    """Refuse a shape that does not fit the 2:4 format in both orientations."""
    form = format_of(function, argument, dense)
    check_matrix(function, argument, dense)
    multiple = max(form.rows, form.columns)  # each is a multiple of the smaller
    why = f" for {dense.dtype} in both orientations"
    check_multiples(function, argument, dense.shape, multiple, multiple, why)


def _empty_halves(xp: ModuleType, dense: Any) -> tuple[Any, Any, Any, Any]:
    (m, k), form = dense.shape, FORMATS[dense.dtype]
    return (
        xp.empty((m, k // 2), dtype=dense.dtype),
        xp.empty((m, form.meta_columns(k)), dtype=form.meta_dtype),
        xp.empty((k, m // 2), dtype=dense.dtype),
        xp.empty((k, form.meta_columns(m)), dtype=form.meta_dtype),
    )


def semi_structured_tile(
    dense: Any, algorithm: str = "largest_abs_values_greedy", layout: str = "cutlass"
) -> tuple[Any, Any, Any, Any, Any]:
    """Prune by tiles and compress both orientations in one pass.

    Parameters
    ----------
    dense : array (m, k)
        float16, bfloat16, int8 or float8_e4m3fn; any strides; ``m`` and ``k`` multiples of 32
        (8-bit: 64).
    algorithm : str
        See `prune_tile`.
    layout : {"cutlass", "cusparselt"}

    Returns
    -------
    packed, meta, packed_t, meta_t, bitmask
        The pruned matrix and its transpose, each as `semi_structured_from_dense` gives it, and
        `compressed_swizzled_bitmask` of the pruned values. With ``layout="cusparselt"``:
        ``(buffer, None, buffer_t, None, bitmask)``, see `to_cusparselt_layout`.

    Raises
    ------
    ValueError
        A shape that does not fit both orientations; another algorithm or layout.
    TypeError
        float32, whose format keeps one of two, or another dtype.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsegpu import semi_structured_tile
    >>> dense = np.ones((32, 64), np.float16)
    >>> packed, meta, packed_t, meta_t, bitmask = semi_structured_tile(dense)
    >>> packed.shape, packed_t.shape, bitmask.shape, bitmask[0, 0]
    ((32, 32), (64, 16), (4, 8, 8), array([ 51, 204,  51, 204,  51, 204,  51, 204], dtype=uint8))
    """
    function = "semi_structured_tile"
    return tiled(function, as_array(dense, function, "dense"), algorithm, layout)


def tiled(
    function: str, dense: Any, algorithm: str, layout: str = "cutlass"
) -> tuple[Any, Any, Any, Any, Any]:
    """Do `semi_structured_tile` for a caller of another name."""
    call = Call("semi_structured_tile", None, (dense,), (algorithm, layout))
    replayed = call.replay()
    if replayed is not None:
        return tuple(replayed)
    if dense.dtype == np.float32:
        raise bad_type(
            function,
            "dense",
            "a dtype that keeps two of four (float32 keeps one of two)",
            "float32",
        )
    _both_orientations(function, "dense", dense)
    check_choice(function, "algorithm", algorithm, ALGORITHMS)
    check_choice(function, "layout", layout, ("cutlass", "cusparselt"))
    xp = namespace(dense)
    (m, k) = dense.shape
    if layout == "cusparselt":
        generation = check_layout(function, "dense", dense, ((m, k), (k, m)), None)
    with on_device(dense, call=call):
        halves = _empty_halves(xp, dense)
        bits = xp.empty((m // 8, k // 8, 8), dtype=np.uint8)
        if dense.size:
            engine_module(xp, "prune", function).tile(*halves, bits, dense, algorithm)
        if layout == "cutlass":
            call.keep(*halves, bits)
            return (*halves, bits)
        packed, meta, packed_t, meta_t = halves
        buffer, buffer_t = (
            to_buffer(p, q, generation) for p, q in ((packed, meta), (packed_t, meta_t))
        )
        return buffer, None, buffer_t, None, bits


def compressed_swizzled_bitmask(pruned: Any) -> Any:
    """Return one bit for each element: whether it is not zero.

    Parameters
    ----------
    pruned : array (rows, cols), multiples of 8
        float16, bfloat16, float32, float64, int8 or float8_e4m3fn; any strides.

    Returns
    -------
    uint8 array (rows / 8, cols / 8, 8)
        One 8 x 8 cell each. Its bytes are the 4 x 4 tiles top-left, top-right, bottom-left,
        bottom-right, each as rows 0-1, then rows 2-3; bit ``4 * (row % 2) + column``.

    Raises
    ------
    ValueError
        Sizes that are no multiples of 8.
    TypeError
        Another dtype.

    Notes
    -----
    The layout is that of PyTorch's ``SparseSemiStructuredTensor.compressed_swizzled_bitmask``.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsegpu import compressed_swizzled_bitmask
    >>> corner = np.zeros((8, 8))
    >>> corner[:2, :2] = 1
    >>> compressed_swizzled_bitmask(corner)
    array([[[51,  0,  0,  0,  0,  0,  0,  0]]], dtype=uint8)
    """
    function = "compressed_swizzled_bitmask"
    pruned = as_array(pruned, function, "pruned")
    call = Call(function, None, (pruned,))
    replayed = call.replay()
    if replayed is not None:
        return replayed[0]
    check_order(function, "pruned", pruned)
    check_matrix(function, "pruned", pruned)
    check_multiples(function, "pruned", pruned.shape, 8, 8)
    xp = namespace(pruned)
    rows, cols = pruned.shape
    with on_device(pruned, call=call):
        out = xp.empty((rows // 8, cols // 8, 8), dtype=np.uint8)
        if out.size:
            engine_module(xp, "prune", function).bitmask(out, pruned)
            call.keep(out)
    return out


def _check_bitmask(function: str, dense: Any, bitmask: Any) -> tuple[Any, ModuleType]:
    """Refuse a bitmask that is not the matrix's; return it C-contiguous, and the array library."""
    xp = common_namespace(function, dense=dense, bitmask=bitmask)
    check_order(function, "dense", dense)
    check_matrix(function, "dense", dense)
    check_multiples(function, "dense", dense.shape, 8, 8)
    if bitmask.dtype != np.uint8:
        raise bad_type(function, "bitmask", "uint8", bitmask.dtype)
    expected = (dense.shape[0] // 8, dense.shape[1] // 8, 8)
    if tuple(bitmask.shape) != expected:
        raise bad_value(function, "bitmask", f"shape {expected}", tuple(bitmask.shape))
    with on_device(bitmask):
        return xp.ascontiguousarray(bitmask), xp


def semi_structured_apply_dense(dense: Any, bitmask: Any) -> Any:
    """Keep what the bitmask keeps, zero the others (a NaN too).

    Parameters
    ----------
    dense : array (m, k), multiples of 8
        float16, bfloat16, float32, float64, int8 or float8_e4m3fn; any strides.
    bitmask : uint8 array (m / 8, k / 8, 8)
        As `compressed_swizzled_bitmask` gives it.

    Returns
    -------
    array (m, k), C-contiguous

    Raises
    ------
    ValueError, TypeError
        Shapes or dtypes that do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsegpu import compressed_swizzled_bitmask, semi_structured_apply_dense
    >>> mask = compressed_swizzled_bitmask(np.eye(8))
    >>> bool((semi_structured_apply_dense(np.full((8, 8), 3.0), mask) == 3 * np.eye(8)).all())
    True
    """
    function = "semi_structured_apply_dense"
    dense, bitmask = as_array(dense, function, "dense"), as_array(bitmask, function, "bitmask")
    call = Call(function, None, (dense, bitmask))
    replayed = call.replay()
    if replayed is not None:
        return replayed[0]
    mask, xp = _check_bitmask(function, dense, bitmask)
    with on_device(dense, call=call):
        out = xp.empty(dense.shape, dtype=dense.dtype)
        if out.size:
            engine_module(xp, "prune", function).apply_dense(out, dense, mask)
            if mask is bitmask:
                call.keep(out)
    return out


def semi_structured_apply(
    dense: Any, bitmask: Any, *, strict: bool = True
) -> tuple[Any, Any, Any, Any]:
    """Compress what a bitmask keeps of a matrix, and the transpose of it.

    Parameters
    ----------
    dense : array (m, k)
        float16, bfloat16, int8, float8_e4m3fn or float32; any strides; multiples of 32 (8-bit:
        64) in both directions.
    bitmask : uint8 array (m / 8, k / 8, 8)
        As `compressed_swizzled_bitmask` gives it.
    strict : bool
        Refuse a result that is not 2:4 in both orientations. False trusts the mask (no
        synchronisation) and drops what is too much by the rule of `semi_structured_from_dense`.

    Returns
    -------
    packed, meta, packed_t, meta_t
        Each as `semi_structured_from_dense` gives it for
        `semi_structured_apply_dense` of the arguments, and for its transpose.

    Raises
    ------
    ValueError
        Shapes that do not fit; ``strict`` and not 2:4.
    TypeError
        Another dtype.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsegpu import semi_structured_apply, semi_structured_tile
    >>> dense = np.ones((32, 32), np.float16)
    >>> packed, meta, packed_t, meta_t, bitmask = semi_structured_tile(dense)
    >>> again = semi_structured_apply(2 * dense, bitmask)
    >>> bool((again[0] == 2 * packed).all() and (again[1] == meta).all())
    True
    """
    function = "semi_structured_apply"
    dense, bitmask = as_array(dense, function, "dense"), as_array(bitmask, function, "bitmask")
    check_flags(function, strict=strict)
    call = Call(function, None, (dense, bitmask), waits=bool(strict))
    replayed = call.replay()
    if replayed is not None:
        return replayed[0], replayed[1], replayed[2], replayed[3]
    mask, xp = _check_bitmask(function, dense, bitmask)
    _both_orientations(function, "dense", dense)
    if strict:
        with on_device(dense):
            check_may_wait(xp, f"{function} with strict=True")
    if dense.dtype != np.float32:
        with on_device(dense, call=call):
            result = _empty_halves(xp, dense)
            if not dense.size or engine_module(xp, "prune", function).apply(
                *result, dense, mask, bool(strict)
            ):
                if mask is bitmask:
                    call.keep(*result)
                return result
    # float32, or the error that names the first group in which the mask keeps too much.
    kept = semi_structured_apply_dense(dense, bitmask)
    halves: list[Any] = []
    for matrix, side in ((kept, "dense"), (xp.ascontiguousarray(kept.T), "dense.T")):
        packed, meta, group = compress_matrix(matrix, bool(strict), function)
        if group >= 0:
            raise not_24(function, side, matrix.shape[1], group, FORMATS[dense.dtype])
        halves += [packed, meta]
    return halves[0], halves[1], halves[2], halves[3]
