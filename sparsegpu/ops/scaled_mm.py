"""Quantised 2:4 products: fp8 and int8 operands with scales."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays import as_array, bfloat16, check_dtype_name, common_namespace, float8_e4m3fn
from .._checks import bad_type, bad_value, check_scalar
from ._blocks_24 import is_semi_structured
from ._common import on_device, optional_out
from ._product import Options, check_dense_operand
from ._product_24 import addmm, check_semi_structured


def scaled_mm(
    sparse: Any,
    dense: Any,
    scale_sparse: Any,
    scale_dense: Any,
    *,
    input: Any = None,
    activation: str | None = None,
    out: Any = None,
    out_dtype: Any = None,
    dense_dtype: Any = None,
    config: dict | None = None,
) -> Any:
    """Multiply quantised operands: ``act(input + scale_sparse * (sparse @ dense) * scale_dense)``.

    The 2:4 operand may also be the second: ``scaled_mm(dense, sparse, scale_dense, scale_sparse)``
    is ``act(input + scale_dense * (dense @ sparse) * scale_sparse)``.

    Parameters
    ----------
    sparse : SemiStructuredArray (M, K)
        float8_e4m3fn or int8.
    dense : array (*B, K, N)
        Of the same dtype; float8_e4m3fn may come as its bytes (uint8) with ``dense_dtype``.
    scale_sparse, scale_dense : number or array
        Of the first and of the second operand: a scalar (a number, or an array of one element,
        which is not read on the host), or one for each row of the first, (M,), and each column of
        the second, (*B, N).
    input : array that broadcasts to the result, optional
        Of the operands' or the output's dtype (int8: int32 too).
    activation : {None, "relu", "gelu", "gelu_erf", "silu"}
    out : array (*B, M, N), optional
        Any strides; float16, bfloat16 or float32.
    out_dtype : {bfloat16, float16, float32}, optional
        bfloat16 by default, or that of ``out``.
    dense_dtype : {"float8_e4m3fn", "int8"}, optional
        What the elements of the dense operand stand for.
    config : dict, optional
        As in `semi_structured_addmm`.

    Returns
    -------
    array (*B, M, N)

    Raises
    ------
    ValueError
        Shapes that do not fit; ``out`` overlapping an operand.
    TypeError
        Other dtypes; uint8 without ``dense_dtype``.

    Notes
    -----
    Micikevicius et al., "FP8 Formats for Deep Learning" (arXiv:2209.05433).

    Examples
    --------
    >>> import numpy as np
    >>> from sparsegpu import SemiStructuredArray, scaled_mm
    >>> A = SemiStructuredArray.from_dense(np.tile(np.int8([2, 0, 0, 1]), (16, 16)))
    >>> scaled_mm(A, np.ones((64, 2), np.int8), 0.5, np.float32([1, 10]), out_dtype="float32")[0]
    array([ 24., 240.], dtype=float32)
    """
    function = "scaled_mm"
    second = is_semi_structured(dense) and not is_semi_structured(sparse)
    names = ("dense", "sparse") if second else ("sparse", "dense")
    weight, dense = (dense, sparse) if second else (sparse, dense)
    check_semi_structured(function, names[0], weight)
    check_dense_operand(function, names[1], dense, weight)
    if weight.dtype not in {float8_e4m3fn, np.dtype(np.int8)}:
        raise bad_type(function, names[0], "dtype float8_e4m3fn or int8", weight.dtype)
    dense = as_array(dense, function, names[1])
    if dense.ndim < 2:
        raise bad_value(function, names[1], "at least two dimensions", f"shape {dense.shape}")
    operand_dtype = None
    if dense_dtype is not None:
        operand_dtype = check_dtype_name(function, "dense_dtype", dense_dtype)
    if operand_dtype is not None and dense.dtype != operand_dtype:
        if dense.dtype != np.uint8 or operand_dtype != float8_e4m3fn:
            expected = "dense's own dtype, or float8_e4m3fn for uint8"
            raise bad_type(function, "dense_dtype", expected, f"{operand_dtype} for {dense.dtype}")
        if isinstance(dense, np.ndarray):
            dense = dense.view(float8_e4m3fn)
    seen = optional_out(out, function)
    if out_dtype is not None or seen is None:
        wanted = bfloat16 if out_dtype is None else out_dtype
        result_dtype = check_dtype_name(function, "out_dtype", wanted)
    else:
        result_dtype = seen.dtype
    if result_dtype not in {bfloat16, np.dtype(np.float16), np.dtype(np.float32)}:
        argument = "out" if out_dtype is None else "out_dtype"
        raise bad_type(function, argument, "bfloat16, float16 or float32", result_dtype)
    m, n = (dense.shape[-2], weight.shape[1]) if second else (weight.shape[0], dense.shape[-1])
    alpha_sparse, left_alpha = _scale(function, "scale_sparse", scale_sparse, m, (m, 1))
    alpha_dense, right_alpha = _scale(function, "scale_dense", scale_dense, n, (1, n))
    return addmm(
        function,
        input,
        weight,
        dense,
        Options(
            alpha=alpha_sparse * alpha_dense,
            left_alpha=left_alpha,
            right_alpha=right_alpha,
            activation=activation,
            out=out,
            out_dtype=result_dtype,
            config=config,
        ),
        names=names,
        alpha_names=("scale_sparse", "scale_dense"),
        stored_transposed=second,
        from_the_right=second,
        operand_dtype=operand_dtype,
    )


def _scale(
    function: str, argument: str, scale: Any, size: int, column: tuple[int, int]
) -> tuple[Any, Any]:
    """Return ``(number, None)`` or ``(1, float32 array (*batch, size))``.

    A device array of one element is broadcast with stride 0: nothing is read.
    """
    if isinstance(scale, (int, float, np.generic)) or (
        isinstance(scale, np.ndarray) and scale.ndim == 0
    ):
        return check_scalar(function, argument, scale, complex_allowed=False), None
    array = as_array(scale, function, argument)
    if array.dtype.kind not in "fiu" and array.dtype != bfloat16:
        raise bad_type(function, argument, "real numbers", array.dtype)
    with on_device(array):
        array = array.astype(np.float32, copy=False)
    xp = common_namespace(function, **{argument: array})
    if array.size == 1:
        return 1, xp.broadcast_to(array.reshape(1), (size,))
    if tuple(array.shape) == column:
        array = array.reshape(size)
    if array.shape[-1] != size:
        expected = f"a scalar, or one for each of {size}"
        raise bad_value(function, argument, expected, f"shape {tuple(array.shape)}")
    return 1, array
