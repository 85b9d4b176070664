"""Quantised 2:4 products: fp8 and int8 operands with scales."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays import as_array, bfloat16, check_dtype_name, common_namespace, float8_e4m3fn
from .._checks import bad_type, bad_value, check_scalar
from ._common import on_device
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
    out_dtype: Any = bfloat16,
    dense_dtype: Any = None,
) -> Any:
    """Multiply quantised operands: ``act(input + scale_sparse * (sparse @ dense) * scale_dense)``.

    Parameters
    ----------
    sparse : SemiStructuredArray (M, K)
        float8_e4m3fn or int8.
    dense : array (*B, K, N)
        Of the same dtype; float8_e4m3fn may come as its bytes (uint8) with ``dense_dtype``.
    scale_sparse, scale_dense : number or array
        A scalar (a number, or an array of one element, which is not read on the host), or one
        for each row of ``sparse``, (M,), and each column of ``dense``, (*B, N).
    input : array that broadcasts to the result, optional
        Of the operands' or the output's dtype (int8: int32 too).
    activation : {None, "relu", "gelu", "gelu_erf", "silu"}
    out_dtype : {bfloat16, float16, float32}
    dense_dtype : {"float8_e4m3fn", "int8"}, optional
        What the elements of ``dense`` stand for.

    Returns
    -------
    array (*B, M, N)

    Raises
    ------
    ValueError
        Shapes that do not fit.
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
    check_semi_structured(function, "sparse", sparse)
    check_dense_operand(function, "dense", dense, sparse)
    if sparse.dtype not in {float8_e4m3fn, np.dtype(np.int8)}:
        raise bad_type(function, "sparse", "dtype float8_e4m3fn or int8", sparse.dtype)
    dense = as_array(dense, function, "dense")
    if dense.ndim < 2:
        raise bad_value(function, "dense", "at least two dimensions", f"shape {dense.shape}")
    operand_dtype = None
    if dense_dtype is not None:
        operand_dtype = check_dtype_name(function, "dense_dtype", dense_dtype)
    if operand_dtype is not None and dense.dtype != operand_dtype:
        if dense.dtype != np.uint8 or operand_dtype != float8_e4m3fn:
            expected = "dense's own dtype, or float8_e4m3fn for uint8"
            raise bad_type(function, "dense_dtype", expected, f"{operand_dtype} for {dense.dtype}")
        if isinstance(dense, np.ndarray):
            dense = dense.view(float8_e4m3fn)
    result_dtype = check_dtype_name(function, "out_dtype", out_dtype)
    if result_dtype not in {bfloat16, np.dtype(np.float16), np.dtype(np.float32)}:
        raise bad_type(function, "out_dtype", "bfloat16, float16 or float32", result_dtype)
    m, n = sparse.shape[0], dense.shape[-1]
    alpha_sparse, left_alpha = _scale(function, "scale_sparse", scale_sparse, m, (m, 1))
    alpha_dense, right_alpha = _scale(function, "scale_dense", scale_dense, n, (1, n))
    return addmm(
        function,
        input,
        sparse,
        dense,
        Options(
            alpha=alpha_sparse * alpha_dense,
            left_alpha=left_alpha,
            right_alpha=right_alpha,
            activation=activation,
            out_dtype=result_dtype,
        ),
        alpha_names=("scale_sparse", "scale_dense"),
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
