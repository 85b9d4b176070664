"""Values as int8 with scales, for products that dequantise in their epilogue."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from .._arrays import as_array, check_may_wait, namespace
from .._checks import bad_type, bad_value
from ._canonical import canonical_blocks
from ._common import check_sparse, is_sparse, on_device

_LARGEST = 127


def quantize_int8(W: Any, axis: int | None = None) -> tuple[Any, Any]:
    """Quantise a matrix symmetrically: return int8 values and scales, ``W ~ scales * values``.

    ``scaled_mm(to_semi_structured(values), x, scales, ...)`` and ``int_bsr_addmm(None, values, x,
    left_alpha=scales, out_dtype="float32")`` multiply by it.

    Parameters
    ----------
    W : array (*batch, M, K) or bsr_array (M, K)
        float16, bfloat16, float32 or float64, all finite. Of a `bsr_array` duplicate blocks are
        summed first.
    axis : {None, -1, -2} or the same counted from the front
        Along which the largest magnitude is taken: -1 gives each row a scale, -2 each column,
        None the whole array one.

    Returns
    -------
    values : int8, like W
        ``W / scales`` rounded to nearest, ties to even, in -127..127.
    scales : float32 array
        Of W's shape without ``axis`` (None: no dimensions); the largest magnitude over 127, and 1
        where that is 0.

    Raises
    ------
    ValueError
        Another axis; a batched `bsr_array`; values that are not finite, or beyond float32.
    TypeError
        Another dtype; an axis that is no integer; what is neither dense nor a `bsr_array`.
    NotImplementedError
        While a CUDA graph is captured: that all is finite is read on the host.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> values, scales = sparsegpu.quantize_int8(np.array([[1.0, -2.0], [0.0, 254.0]]), axis=1)
    >>> values.tolist(), scales.tolist()
    ([[64, -127], [0, 127]], [0.015748031437397003, 2.0])
    """
    function = "quantize_int8"
    pattern, data, of_blocks = None, None, is_sparse(W)
    if of_blocks:
        check_sparse(function, "W", W)
        if W.pattern.batch_shape:
            raise bad_value(function, "W", "one matrix (2-D)", f"a batch {W.shape}")
        data, shape = W.data, W.pattern.shape
    else:
        data = as_array(W, function, "W")
        shape = tuple(data.shape)
    if data.dtype.kind != "f" and data.dtype.name != "bfloat16":
        raise bad_type(function, "W", "float16, bfloat16, float32 or float64", data.dtype)
    if len(shape) < 2:
        raise bad_value(function, "W", "shape (*batch, M, K)", shape)
    axis = _checked_axis(function, axis, len(shape))
    xp = namespace(data)
    check_may_wait(xp, function)
    with on_device(data):
        if of_blocks:
            pattern, data = canonical_blocks(W, function, "W")
        wide = data if data.dtype == np.float64 else data.astype(np.float32)
        scales = xp.ones(() if axis is None else _without(shape, axis), np.float32)
        if wide.size:
            size = xp.absolute(wide)
            size = size if pattern is None else W._with(pattern, size)
            with np.errstate(over="ignore", under="ignore"):
                found = (size.max(axis=axis) / _LARGEST).astype(np.float32)
            if not bool(xp.isfinite(found).all()):
                expected = "finite values, with scales that float32 holds"
                raise bad_value(function, "W", expected, "others")
            # where values are so small that their scale underflows, they become zeros
            scales = xp.where(found > 0, found, np.float32(1))
        divisors = scales
        if axis is not None:
            row, column = (None, None) if pattern is None else pattern.element_positions()
            line = row if axis == -1 else column
            divisors = xp.expand_dims(scales, axis) if line is None else scales[line]
        values = xp.clip(xp.rint(wide / divisors), -_LARGEST, _LARGEST).astype(np.int8)
    return (values if pattern is None else W._with(pattern, values)), scales


def _checked_axis(function: str, axis: Any, ndim: int) -> int | None:
    """Return the axis counted from the back."""
    if axis is None:
        return None
    try:
        found = index(axis)
    except TypeError:
        raise bad_type(function, "axis", "an integer or None", repr(axis)) from None
    if found >= 0:
        found -= ndim
    if found not in {-1, -2} or isinstance(axis, bool):
        raise bad_value(function, "axis", f"None, {ndim - 2}, {ndim - 1}, -2 or -1", axis)
    return found


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """Return a shape without an axis."""
    return tuple(np.delete(shape, axis).tolist())
