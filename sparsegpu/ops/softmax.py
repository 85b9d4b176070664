"""Softmax over the stored elements of a block-sparse matrix, and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays import HALF_DTYPES, check_dtype_among, common_namespace
from ..engines import engine_module
from ..engines.cuda.runtime.replay import Call
from ._canonical import (
    canonical_blocks,
    canonical_pattern,
    check_out_pattern,
    check_same_pattern,
)
from ._common import (
    check_same_dtype,
    check_sparse,
    on_device,
    prepare_out,
    resolve_out_dtype,
)

_DTYPES = (*HALF_DTYPES, np.dtype(np.float32), np.dtype(np.float64))


def bsr_softmax(bsr: Any, *, out: Any = None) -> Any:
    """Softmax along each row, over the stored elements only.

    What is not stored counts as minus infinity. Rows without stored blocks stay empty; a row
    whose stored elements are all -inf gives NaN. Computed in float32 (float64 for float64) with
    the row's maximum subtracted, rounded once; rows may be of any length.

    Parameters
    ----------
    bsr : bsr_array (*B, M, K)
        float16, bfloat16, float32 or float64. Duplicate blocks are summed first.
    out : bsr_array, optional
        With the pattern of the result (``bsr``'s own, columns ascending, without duplicates).
        May be ``bsr`` itself.

    Returns
    -------
    bsr_array
        Of the canonical pattern; ``out`` when given.

    Raises
    ------
    TypeError
        A dtype without exponentials.
    ValueError
        ``out`` with another pattern or overlapping ``bsr`` in part.

    Notes
    -----
    Maximum and sum are found together, as in Milakov and Gimelshein, "Online normalizer
    calculation for softmax", 2018, section 3. `bsr_softmax_backward` has the gradient.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.bsr_array(np.array([[1.0, 1, 0, 0], [2, 2, 0, 0]]), blocksize=(2, 2))
    >>> sparsegpu.bsr_softmax(A).toarray()
    array([[0.5, 0.5, 0. , 0. ],
           [0.5, 0.5, 0. , 0. ]])
    """
    function = "bsr_softmax"
    check_sparse(function, "bsr", bsr)
    check_dtype_among(function, "bsr", bsr.data.dtype, _DTYPES)
    if out is not None:
        check_sparse(function, "out", out)
    out_data = None if out is None else out.data
    own_pattern = out is None or out.pattern is bsr.pattern  # else its indices are to be compared
    call = Call(function, bsr.pattern, (bsr.data, out_data), (own_pattern,), out_data)
    replayed = call.replay()
    if replayed is not None:
        return out if out is not None else bsr._with(bsr.pattern, *replayed)
    xp = common_namespace(function, bsr=bsr.data, out=out_data)
    dtype = resolve_out_dtype(function, bsr.data.dtype, out_data, None)
    if out is not None:
        check_out_pattern(function, out, canonical_pattern(bsr, function, "bsr"))
    pattern, data = canonical_blocks(bsr, function, "bsr")
    with on_device(data, pattern, call):
        result = prepare_out(
            function, out_data, data.shape, dtype, xp, input=bsr.data, input_name="bsr"
        )
        if result.size:
            engine_module(xp, "softmax", function).bsr_softmax(result, pattern, data)
            if own_pattern and data is bsr.data:
                call.keep(result)
    return out if out is not None else bsr._with(pattern, result)


def bsr_softmax_backward(grad: Any, softmax: Any, *, out: Any = None) -> Any:
    """Gradient of `bsr_softmax`, from the gradient of its result.

    ``softmax * (grad - sum(grad * softmax))``, the sum along each row's stored elements. Computed
    in float32 (float64 for float64) and rounded once; rows may be of any length.

    Parameters
    ----------
    grad : bsr_array (*B, M, K)
        Gradient of the result; float16, bfloat16, float32 or float64. Of the same blocks as
        ``softmax``; repeated ones are summed first.
    softmax : bsr_array (*B, M, K)
        What `bsr_softmax` returned. Same dtype as ``grad``.
    out : bsr_array, optional
        With the pattern of the result (``softmax``'s own, columns ascending, without duplicates).
        May be ``grad`` itself.

    Returns
    -------
    bsr_array
        Gradient of the argument of `bsr_softmax`, of ``softmax``'s pattern; ``out`` when given.

    Raises
    ------
    TypeError
        A dtype without exponentials; two dtypes; arrays of two array libraries.
    ValueError
        ``grad`` or ``out`` with another pattern; ``out`` overlapping ``softmax``, or ``grad`` in
        part.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.bsr_array(np.array([[1.0, 1, 0, 0], [2, 2, 0, 0]]), blocksize=(2, 2))
    >>> softmax = sparsegpu.bsr_softmax(A)
    >>> grad = softmax.with_data(np.array([[[1.0, 0], [0, 2]]]))
    >>> sparsegpu.bsr_softmax_backward(grad, softmax).data
    array([[[ 0.25, -0.25],
            [-0.5 ,  0.5 ]]])
    """
    function = "bsr_softmax_backward"
    check_sparse(function, "grad", grad)
    check_sparse(function, "softmax", softmax)
    check_dtype_among(function, "softmax", softmax.data.dtype, _DTYPES)
    check_same_dtype(function, "grad", grad.data.dtype, softmax.data.dtype)
    if out is not None:
        check_sparse(function, "out", out)
    out_data = None if out is None else out.data
    own_pattern = grad.pattern is softmax.pattern and (out is None or out.pattern is grad.pattern)
    arrays = (grad.data, softmax.data, out_data)
    call = Call(function, softmax.pattern, arrays, (own_pattern,), out_data)
    replayed = call.replay()
    if replayed is not None:
        return out if out is not None else softmax._with(softmax.pattern, *replayed)
    xp = common_namespace(function, grad=grad.data, softmax=softmax.data, out=out_data)
    dtype = resolve_out_dtype(function, softmax.data.dtype, out_data, None)
    pattern = canonical_pattern(softmax, function, "softmax")
    of_grad = canonical_pattern(grad, function, "grad")
    check_same_pattern(function, "grad", "'softmax'", of_grad, pattern)
    if out is not None:
        check_out_pattern(function, out, pattern)
    _, data = canonical_blocks(softmax, function, "softmax")
    _, grad_data = canonical_blocks(grad, function, "grad")
    with on_device(data, pattern, call):
        result = prepare_out(
            function,
            out_data,
            data.shape,
            dtype,
            xp,
            input=grad.data,
            operands={"softmax": softmax.data},
            input_name="grad",
        )
        if result.size:
            engine = engine_module(xp, "softmax", function)
            engine.bsr_softmax_backward(result, pattern, grad_data, data)
            if own_pattern and data is softmax.data:
                call.keep(result)
    return out if out is not None else softmax._with(pattern, result)
