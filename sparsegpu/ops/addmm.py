"""BSR @ dense with everything that can be fused behind it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .._arrays import as_array, common_namespace
from .._checks import bad_value, broadcast_shape
from ..engines import engine_module
from ..pattern import Pattern
from ._common import (
    Side,
    check_config,
    check_keywords,
    check_operand_dtype,
    check_same_dtype,
    check_sparse,
    on_device,
    optional_array,
    optional_out,
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
        The kernel of the GPU, ``{"path": "simt" | "mma"}``; chosen by shapes and dtype when
        None. On the host it changes nothing.

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

    Parameters
    ----------
    bsr : bsr_array (*B, M, K)
    dense : array (*B, K, N) or (K,)
    **keywords
        As in `bsr_addmm`.

    Returns
    -------
    array (*B, M, N), or (*B, M) for a 1-D ``dense``

    Raises
    ------
    ValueError, TypeError
        As `bsr_addmm`.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.bsr_array(np.eye(4), blocksize=(2, 2))
    >>> sparsegpu.bsr_matmul(A, np.arange(4.0), alpha=2)
    array([0., 2., 4., 6.])
    """
    check_keywords("bsr_matmul", keywords)
    keywords.setdefault("beta", 0)
    return _addmm("bsr_matmul", None, bsr, dense, **keywords)


def int_bsr_addmm(input: Any, bsr: Any, dense: Any, **keywords: Any) -> Any:
    """int8 `bsr_addmm` with an exact int32 result by default.

    Parameters
    ----------
    input : array that broadcasts to ``out``, or None
        int8, int32 or of the output's dtype.
    bsr : bsr_array (*B, M, K), int8
    dense : int8 array (*B, K, N) or (K,)
    **keywords
        As in `bsr_addmm`. With ``out_dtype`` a float the alphas dequantise; with int8 the float32
        result is rounded to nearest, ties to even, and saturates.

    Returns
    -------
    array (*B, M, N), or (*B, M) for a 1-D ``dense``
        int32 unless ``out`` or ``out_dtype`` says otherwise.

    Raises
    ------
    ValueError, TypeError
        As `bsr_addmm`; operands that are not int8.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.bsr_array(np.full((2, 2), 100, np.int8), blocksize=(2, 2))
    >>> sparsegpu.int_bsr_addmm(None, A, np.full((2, 1), 100, np.int8)).ravel()
    array([20000, 20000], dtype=int32)
    """
    check_keywords("int_bsr_addmm", keywords)
    check_sparse("int_bsr_addmm", "bsr", bsr)
    check_same_dtype("int_bsr_addmm", "bsr", bsr.data.dtype, np.dtype(np.int8))
    return _addmm("int_bsr_addmm", input, bsr, dense, **keywords)


def dense_bsr_matmul(
    dense: Any,
    bsr: Any,
    **keywords: Any,
) -> Any:
    """Return ``dense @ bsr``, the other side, with the keywords of `bsr_addmm`.

    Parameters
    ----------
    dense : array (*B, M, K) or (K,)
    bsr : bsr_array (*B, K, N)
    **keywords
        As in `bsr_addmm`, and ``input``; ``left_alpha`` (*B, M), ``right_alpha`` (*B, N) and
        ``out`` (*B, M, N) belong to the result, and ``beta`` is 0 by default.

    Returns
    -------
    array (*B, M, N), or (*B, N) for a 1-D ``dense``

    Raises
    ------
    ValueError, TypeError
        As `bsr_addmm`.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.bsr_array(np.diag([1.0, 2, 3, 4]), blocksize=(2, 2))
    >>> sparsegpu.dense_bsr_matmul(np.ones(4), A)
    array([1., 2., 3., 4.])
    """
    check_keywords("dense_bsr_matmul", keywords, "input")
    keywords.setdefault("beta", 0)
    input = keywords.pop("input", None)
    return _addmm("dense_bsr_matmul", input, bsr, dense, from_the_right=True, **keywords)


class Operand(NamedTuple):
    """What an operation asks of a block-sparse operand."""

    pattern: Pattern
    data: Any


def transposed_operand(bsr: Any, function: str) -> Operand:
    """Return a block-sparse operand seen from its other side: transposed pattern and values."""
    xp = common_namespace(function, bsr=bsr.data)
    with on_device(bsr.data):
        pattern, order = bsr.pattern.transposed()
        data = xp.empty((*bsr.data.shape[:-2], *pattern.blocksize), bsr.data.dtype)
        if data.size:
            engine_module(xp, "convert", function).transpose_blocks(
                data.reshape(-1, *pattern.blocksize),
                bsr.data.reshape(-1, *bsr.data.shape[-2:]),
                order,
            )
    return Operand(pattern, data)


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
    from_the_right: bool = False,
) -> Any:
    """Do the product from either side: ``dense @ bsr`` is ``(bsr.T @ dense.T).T``."""
    check_sparse(function, "bsr", bsr)
    dense = as_array(dense, function, "dense")
    dtype = bsr.data.dtype
    check_operand_dtype(function, "bsr", dtype)
    check_operand_dtype(function, "dense", dense.dtype)
    check_same_dtype(function, "dense", dense.dtype, dtype)
    check_config(function, config)
    if dense.ndim == 0:
        raise bad_value(function, "dense", "at least one dimension", "a scalar")
    side = Side(dense.ndim == 1, from_the_right)
    dense = side.inward(dense)
    m, k = reversed(bsr.pattern.shape) if from_the_right else bsr.pattern.shape
    if dense.shape[-2] != k:
        expected = f"shape (*batch, M, {k})" if from_the_right else f"shape (*batch, {k}, N)"
        raise bad_value(function, "dense", expected, side.shape(tuple(dense.shape)))
    input = optional_array(input, function, "input")
    alphas = {
        "left_alpha": optional_array(left_alpha, function, "left_alpha"),
        "right_alpha": optional_array(right_alpha, function, "right_alpha"),
    }
    out = optional_out(out, function)
    xp = common_namespace(function, bsr=bsr.data, dense=dense, input=input, **alphas, out=out)
    batch = broadcast_shape(function, "dense", bsr.pattern.batch_shape, tuple(dense.shape[:-2]))
    shape = (*batch, m, dense.shape[-1])
    result_dtype = resolve_out_dtype(function, dtype, out, out_dtype)
    side.check(function, shape, input, out)
    input = side.inward(input)
    epilogue = prepare_epilogue(
        function,
        dtype=dtype,
        out_dtype=result_dtype,
        shape=shape,
        input=input,
        beta=beta,
        alpha=alpha,
        alphas=alphas,
        activation=activation,
        swapped=from_the_right,
        no_product=bsr.pattern.nnzb == 0,
    )
    with on_device(bsr.data):
        if out is None:
            result = side.empty(shape, result_dtype, xp)
        else:
            operands = {"bsr": bsr.data, "dense": dense, **alphas}
            result = side.inward(out)
            prepare_out(function, result, shape, result_dtype, xp, input=input, operands=operands)
        if result.size:
            engine_module(xp, "addmm", function).bsr_addmm(
                result,
                bsr.pattern,
                bsr.data,
                dense,
                epilogue,
                transposed=from_the_right,
                allow_tf32=bool(allow_tf32),
                config=config,
            )
    return side.outward(result) if out is None else out
