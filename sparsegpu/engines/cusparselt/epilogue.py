"""Which epilogues the library fuses, what our kernel does after it, and what is refused.

=====================  ===================================================================
16-bit operands        the library: alpha, ReLU, and of ``input`` either a column (M, 1) (its
                       bias; beta 1) or a whole matrix (its C, copied where its strides differ from
                       the result's). It rounds to the operands' dtype, so that
                       nothing can follow with one rounding: the rest is refused
int8, fp8, float32     the library: alpha, ReLU. Everything else: it writes its
                       accumulators, int32 or float32, to which our kernel
                       applies the epilogue (``accumulator_epilogue.cu``), with one rounding
=====================  ===================================================================

The library's GELU is for int8 in and out only and not documented as the tanh form or the other,
so our kernel applies it. Source: cuSPARSELt documentation, "cusparseLtMatmulDescAttribute_t" and
"Release Notes" (v0.2.0); "cusparseLtMatmul" for the combinations of dtypes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..._arrays import HALF_DTYPES, accumulator_dtype, bfloat16, float8_e4m3fn
from ..._checks import not_offered
from ..._epilogue import Epilogue

_HALF, _SINGLE, _INT32 = (np.dtype(d) for d in (np.float16, np.float32, np.int32))

#: Outputs that the library writes, besides which it only writes accumulators.
_OUTPUTS = {
    _HALF: (_HALF,),
    bfloat16: (bfloat16,),
    _SINGLE: (_SINGLE,),
    np.dtype(np.int8): (_INT32, _HALF, bfloat16),
    float8_e4m3fn: (_SINGLE, _HALF, bfloat16),
}


class Fused(NamedTuple):
    """What the library is asked for.

    Attributes
    ----------
    out_dtype : dtype
        That it writes: the result's, or the accumulators'.
    relu, bias, matrix : bool
        Whether it applies ReLU, and what it takes ``input`` as.
    finished : bool
        Whether nothing is left for our kernel.
    """

    out_dtype: np.dtype
    relu: bool = False
    bias: bool = False
    matrix: bool = False
    finished: bool = True


def fused(function: str, e: Epilogue, dtype: np.dtype, out: Any) -> Fused:
    """Divide an epilogue between the library and our kernel.

    Raises
    ------
    NotImplementedError
        16-bit operands and an epilogue that the library does not have.

    Examples
    --------
    >>> out = np.empty((32, 8), np.float16)
    >>> fused("f", Epilogue(activation="relu"), out.dtype, out).relu
    True
    >>> fused("f", Epilogue(activation="silu"), np.dtype(np.int8), out).finished
    False
    """
    simple = e.left_alpha is e.right_alpha is None and e.activation in {None, "relu"}
    relu = e.activation == "relu"
    bias = matrix = False
    if e.input is not None and dtype in HALF_DTYPES and e.input.dtype == out.dtype:
        bias = _is_column(e.input, out) and e.beta == 1
        matrix = not bias and e.input.shape == out.shape
    served = out.dtype in _OUTPUTS[dtype] and simple and (e.input is None or bias or matrix)
    if out.dtype == _INT32 and (e.alpha != 1 or relu):  # exact and saturating: ours
        served = False
    if served and e.alpha != 0:
        return Fused(out.dtype, relu, bias, matrix)
    if dtype in HALF_DTYPES and e.alpha != 0:
        raise not_offered(
            function,
            f"this epilogue of {dtype} operands into {out.dtype} by backend 'cusparselt'",
            "alpha, relu, and a contiguous bias (M, 1) with beta=1 or an input of the result's "
            "shape, all of the operands' dtype; or to_backend('native')",
        )
    return Fused(accumulator_dtype(dtype), finished=False)


def _is_column(input: Any, out: Any) -> bool:
    """Whether ``input`` is one contiguous value for each row, the same for every batch."""
    m = out.shape[-2]
    if input.ndim < 2 or input.shape[-2:] != (m, 1) or input.size != m:
        return False
    return m == 1 or input.strides[-2] == input.itemsize
