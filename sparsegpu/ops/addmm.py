"""BSR @ dense with everything that can be fused behind it."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays import as_array, common_namespace, swap_last
from .._checks import bad_value, broadcast_shape
from ..engines import engine_module
from ._common import (
    check_operand_dtype,
    check_same_dtype,
    check_sparse,
    on_device,
    optional_array,
    prepare_epilogue,
    prepare_out,
    resolve_out_dtype,
)


def bsr_addmm(
    input: Any,
    bsr: Any,
    dense: Any,
    *,
    beta: Any = 1,
    alpha: Any = 1,
    left_alpha: Any = None,
    right_alpha: Any = None,
    activation: str | None = None,
    out: Any = None,
    out_dtype: Any = None,
    allow_tf32: bool = False,
    config: dict | None = None,
) -> Any:
    """Multiply a block-sparse by a dense matrix, scale, add and activate in one pass.

    ::

        out = act( beta * input
                   + left_alpha[:, None] * (alpha * (bsr @ dense)) * right_alpha[None, :] )

    Parameters
    ----------
    input : array that broadcasts to ``out``, or None
        None means no such term. It is never expanded in memory: a bias is an (M, 1) or (1, N)
        array. With ``beta == 0`` it is not read.
    bsr : bsr_array (*B, M, K)
    dense : array (*B, K, N) or (K,)
        Same dtype as ``bsr``; any strides. Batch shapes broadcast.
    beta, alpha : number
        ``alpha == 0`` computes no product: the result is ``act(beta * input)``.
    left_alpha, right_alpha : array (*B, M) and (*B, N), optional
        Row and column scales, of the operands', the output's or float32 dtype.
    activation : {None, "relu", "gelu", "gelu_erf", "silu"}
        Applied to the accumulator, before the one rounding.
    out : array (*B, M, N), optional
        Any strides. May be ``input`` itself; no other overlap.
    out_dtype : dtype, optional
        float16, bfloat16 and float32 for each other; int8 operands: int32 (default), int8
        (saturating) or a float.
    allow_tf32 : bool
        Let float32 products use TF32 tensor cores.
    config : dict, optional
        From `sparsegpu.tune`; looked up when None, never searched here.

    Returns
    -------
    array (*B, M, N), or (*B, M) for a 1-D ``dense``

    Raises
    ------
    ValueError
        Shapes that do not fit; ``out`` overlapping an operand.
    TypeError
        Mixed dtypes or array libraries.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.bsr_array(np.diag([1.0, 2, 3, 4]), blocksize=(2, 2))
    >>> sparsegpu.bsr_addmm(np.ones((4, 1)), A, np.ones((4, 3)), beta=10)[:, 0]
    array([11., 12., 13., 14.])
    """
    return _addmm(
        "bsr_addmm",
        input,
        bsr,
        dense,
        beta=beta,
        alpha=alpha,
        left_alpha=left_alpha,
        right_alpha=right_alpha,
        activation=activation,
        out=out,
        out_dtype=out_dtype,
        allow_tf32=allow_tf32,
        config=config,
    )


def bsr_matmul(bsr: Any, dense: Any, **keywords: Any) -> Any:
    """Return ``bsr @ dense``: `bsr_addmm` without ``input``, with its keywords.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.bsr_array(np.eye(4), blocksize=(2, 2))
    >>> sparsegpu.bsr_matmul(A, np.arange(4.0), alpha=2)
    array([0., 2., 4., 6.])
    """
    keywords.setdefault("beta", 0)
    return _addmm("bsr_matmul", None, bsr, dense, **keywords)


def int_bsr_addmm(input: Any, bsr: Any, dense: Any, **keywords: Any) -> Any:
    """int8 `bsr_addmm` with an exact int32 result by default.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.bsr_array(np.full((2, 2), 100, np.int8), blocksize=(2, 2))
    >>> sparsegpu.int_bsr_addmm(None, A, np.full((2, 1), 100, np.int8)).ravel()
    array([20000, 20000], dtype=int32)
    """
    check_sparse("int_bsr_addmm", "bsr", bsr)
    check_same_dtype("int_bsr_addmm", "bsr", bsr.data.dtype, np.dtype(np.int8))
    return _addmm("int_bsr_addmm", input, bsr, dense, **keywords)


def dense_bsr_matmul(
    dense: Any,
    bsr: Any,
    *,
    left_alpha: Any = None,
    right_alpha: Any = None,
    out: Any = None,
    **keywords: Any,
) -> Any:
    """Return ``dense @ bsr``, the other side, with the keywords of `bsr_addmm`.

    Parameters
    ----------
    dense : array (*B, M, K) or (K,)
    bsr : bsr_array (*B, K, N)
    left_alpha, right_alpha : array (*B, M) and (*B, N), optional
        Scales of the rows and columns of the result.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.bsr_array(np.diag([1.0, 2, 3, 4]), blocksize=(2, 2))
    >>> sparsegpu.dense_bsr_matmul(np.ones(4), A)
    array([1., 2., 3., 4.])
    """
    function = "dense_bsr_matmul"
    check_sparse(function, "bsr", bsr)
    dense = as_array(dense, function, "dense")
    if dense.ndim == 0:
        raise bad_value(function, "dense", "at least one dimension", "a scalar")
    vector = dense.ndim == 1
    keywords.setdefault("beta", 0)
    result = _addmm(
        function,
        keywords.pop("input", None),
        transposed_operand(bsr, function),
        dense if vector else swap_last(dense),
        left_alpha=right_alpha,
        right_alpha=left_alpha,
        out=out if vector or out is None else swap_last(out),
        transposed=True,
        **keywords,
    )
    if out is not None:
        return out
    return result if vector else swap_last(result)


class transposed_operand:
    """A block-sparse operand seen from its other side: the transposed pattern and values."""

    def __init__(self, bsr: Any, function: str):
        xp = common_namespace(function, bsr=bsr.data)
        self.pattern, order = bsr.pattern.transposed()
        blocks = bsr.data.reshape(-1, *bsr.data.shape[-2:])
        self.data = xp.empty((*bsr.data.shape[:-2], *self.pattern.blocksize), bsr.data.dtype)
        with on_device(bsr.data):
            engine_module(xp, "convert", function).transpose_blocks(
                self.data.reshape(-1, *self.pattern.blocksize), blocks, order
            )


def _addmm(
    function: str,
    input: Any,
    bsr: Any,
    dense: Any,
    *,
    beta: Any = 1,
    alpha: Any = 1,
    left_alpha: Any = None,
    right_alpha: Any = None,
    activation: str | None = None,
    out: Any = None,
    out_dtype: Any = None,
    allow_tf32: bool = False,
    config: dict | None = None,
    transposed: bool = False,
) -> Any:
    check_sparse(function, "bsr", bsr)
    dense = as_array(dense, function, "dense")
    pattern, data = bsr.pattern, bsr.data
    check_operand_dtype(function, "bsr", data.dtype)
    check_operand_dtype(function, "dense", dense.dtype)
    check_same_dtype(function, "dense", dense.dtype, data.dtype)
    if dense.ndim == 0:
        raise bad_value(function, "dense", "at least one dimension", "a scalar")
    vector = dense.ndim == 1
    if vector:
        dense = dense[:, None]
    (m, k), n = pattern.shape, dense.shape[-1]
    if dense.shape[-2] != k:
        expected = f"shape (*batch, {k}, N)" if not transposed else f"shape (*batch, M, {k})"
        got = tuple(dense.shape) if not transposed else (*dense.shape[:-2], n, dense.shape[-2])
        raise bad_value(function, "dense", expected, got[:-1] if vector else got)
    input = optional_array(input, function, "input")
    left_alpha = optional_array(left_alpha, function, "left_alpha")
    right_alpha = optional_array(right_alpha, function, "right_alpha")
    out = optional_array(out, function, "out")
    xp = common_namespace(
        function,
        bsr=data,
        dense=dense,
        input=input,
        left_alpha=left_alpha,
        right_alpha=right_alpha,
        out=out,
    )
    batch = broadcast_shape(function, "dense", pattern.batch_shape, tuple(dense.shape[:-2]))
    shape = (*batch, m, n)
    result_dtype = resolve_out_dtype(function, data.dtype, out, out_dtype)
    if vector and input is not None and input.ndim:
        input = input[..., :, None]
    elif transposed and input is not None and input.ndim:
        input = input[:, None] if input.ndim == 1 else swap_last(input)
    epilogue = prepare_epilogue(
        function,
        dtype=data.dtype,
        out_dtype=result_dtype,
        shape=shape,
        input=input,
        beta=beta,
        alpha=0 if pattern.nnzb == 0 else alpha,
        left_alpha=left_alpha,
        right_alpha=right_alpha,
        activation=activation,
    )
    with on_device(data):
        result = prepare_out(
            function,
            out[..., None] if vector and out is not None else out,
            shape,
            result_dtype,
            xp,
            input=input,
            operands={
                "bsr": data,
                "dense": dense,
                "left_alpha": left_alpha,
                "right_alpha": right_alpha,
            },
        )
        if result.size:
            engine_module(xp, "addmm", function).bsr_addmm(
                result, pattern, data, dense, epilogue, allow_tf32=allow_tf32, config=config
            )
    if out is not None:
        return out
    return result[..., 0] if vector else result
