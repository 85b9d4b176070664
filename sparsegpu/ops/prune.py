"""Pruning to 2:4: row by row, or tile by tile."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays import (
    HALF_DTYPES,
    REAL_DTYPES,
    as_array,
    check_dtype_among,
    common_namespace,
    float8_e4m3fn,
    namespace,
)
from .._checks import bad_value, check_choice
from ..engines import engine_module
from ..engines.cuda.runtime.replay import Call
from ._common import on_device
from .compress import check_matrix

ALGORITHMS = ("largest_abs_values_greedy", "largest_values_greedy", "", "causal1122")
KEEP = {"2:4": 4, "1:2": 2}  # elements of a group, by rule
_IMPORTANCE = (*HALF_DTYPES, np.dtype(np.float32), np.dtype(np.float64))


def check_order(function: str, argument: str, array: Any) -> None:
    """Refuse a dtype that has no order; CuPy's uint8 is float8_e4m3fn."""
    fp8 = float8_e4m3fn if namespace(array) is np else np.dtype(np.uint8)
    if array.dtype != fp8:
        check_dtype_among(function, argument, array.dtype, (*REAL_DTYPES, float8_e4m3fn))


def rows_and_importance(function: str, dense: Any, criterion: Any, keep: str) -> tuple[Any, Any]:
    """Return the checked operand and its importances, None for magnitudes."""
    dense = as_array(dense, function, "dense")
    check_order(function, "dense", dense)
    if dense.ndim == 0:
        raise bad_value(function, "dense", "at least one dimension", "a scalar")
    check_choice(function, "keep", keep, tuple(KEEP))
    if isinstance(criterion, str):
        check_choice(function, "criterion", criterion, ("magnitude",))
        return dense, None
    importance = as_array(criterion, function, "criterion")
    check_dtype_among(function, "criterion", importance.dtype, _IMPORTANCE)
    if importance.shape != dense.shape:
        expected = f"dense's shape {tuple(dense.shape)}"
        raise bad_value(function, "criterion", expected, tuple(importance.shape))
    return dense, importance


def prune_24(dense: Any, *, criterion: Any = "magnitude", keep: str = "2:4") -> Any:
    """Keep the two largest of each four consecutive elements of a row, zero the others.

    Parameters
    ----------
    dense : array (*, k)
        float16, bfloat16, float32, float64, int8 or float8_e4m3fn; any strides. An incomplete
        last group (k not a multiple of the group) stays as it is.
    criterion : "magnitude" or floating array of dense's shape
        What makes an element large: its absolute value, or a given importance (compared as it
        is, sign included). Ties: the lower index. NaN is smallest.
    keep : {"2:4", "1:2"}
        ``"1:2"`` keeps one of each two: the rule that the hardware has for float32.

    Returns
    -------
    array of dense's shape and dtype, C-contiguous

    Raises
    ------
    ValueError
        Another criterion or ``keep``; importances of another shape.
    TypeError
        Another dtype; arrays of two libraries.

    Notes
    -----
    Mishra et al., "Accelerating Sparse Deep Neural Networks" (arXiv:2104.08378), section 4.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsegpu import prune_24
    >>> prune_24(np.array([[1.0, -4, 2, 3, 5, 5, 5, 0]]))
    array([[ 0., -4.,  0.,  3.,  5.,  5.,  0.,  0.]])
    >>> prune_24(np.array([[1.0, -4, 2, 3]]), criterion=np.array([[9.0, 0, 8, 0]]))
    array([[1., 0., 2., 0.]])
    """
    function = "prune_24"
    dense, importance = rows_and_importance(function, dense, criterion, keep)
    call = Call(function, None, (dense, importance), (keep,))
    replayed = call.replay()
    if replayed is not None:
        return replayed[0]
    xp = common_namespace(function, dense=dense, criterion=importance)
    with on_device(dense, call=call):
        out = xp.empty(dense.shape, dtype=dense.dtype)
        if out.size:
            copied = _copied_as_rows(dense)
            flat = (-1, dense.shape[-1])
            if importance is not None:
                wide = np.float64 if importance.dtype == np.float64 else np.float32
                copied = copied or importance.dtype != wide or _copied_as_rows(importance)
                importance = importance.astype(wide, copy=False).reshape(flat)
            engine_module(xp, "prune", function).prune_24(
                out.reshape(flat), dense.reshape(flat), keep, importance
            )
            if not copied:
                call.keep(out)
    return out


def _copied_as_rows(array: Any) -> bool:
    """Whether reshaping to two dimensions may copy."""
    return array.ndim > 2 and not array.flags.c_contiguous


def prune_tile(dense: Any, algorithm: str = "largest_abs_values_greedy") -> Any:
    """Prune so that the matrix and its transpose both are 2:4.

    The 16 values of each 4 x 4 tile are visited in order; a value is kept when its row and its
    column have fewer than two kept values.

    Parameters
    ----------
    dense : array (m, k)
        float16, bfloat16, float32, float64, int8 or float8_e4m3fn; any strides. Rows and columns
        past the last multiple of 4 stay as they are.
    algorithm : str
        The order of the visit. ``"largest_abs_values_greedy"``: by absolute value, descending.
        ``"largest_values_greedy"`` or ``""``: by value. ``"causal1122"``: by value, with at most
        1, 1, 2, 2 kept in the rows 0..3. Ties: the lower row-major index. NaN comes last.

    Returns
    -------
    array (m, k), C-contiguous

    Raises
    ------
    ValueError
        Another algorithm (the message lists them), or not two dimensions.
    TypeError
        Another dtype.

    Notes
    -----
    The algorithms carry the names of PyTorch's ``torch._sparse_semi_structured_tile``.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsegpu import prune_tile
    >>> prune_tile(np.arange(16.0).reshape(4, 4))
    array([[ 0.,  1.,  0.,  0.],
           [ 4.,  5.,  0.,  0.],
           [ 0.,  0., 10., 11.],
           [ 0.,  0., 14., 15.]])
    """
    function = "prune_tile"
    dense = as_array(dense, function, "dense")
    call = Call(function, None, (dense,), (algorithm,))
    replayed = call.replay()
    if replayed is not None:
        return replayed[0]
    check_order(function, "dense", dense)
    check_matrix(function, "dense", dense)
    check_choice(function, "algorithm", algorithm, ALGORITHMS)
    xp = namespace(dense)
    with on_device(dense, call=call):
        out = xp.empty(dense.shape, dtype=dense.dtype)
        if out.size:
            engine_module(xp, "prune", function).prune_tile(out, dense, algorithm)
            call.keep(out)
    return out
