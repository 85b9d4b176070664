"""BSR @ dense with a fused epilogue."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._checks import bad_value
from ._blocks_24 import check_sparse_blocks, is_sparse_blocks
from ._bsr_product import addmm
from ._common import (
    check_same_dtype,
    check_sparse,
    not_sparse,
)
from ._product import (
    Options,
    linear,
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
    bsr : bsr_array or BsrSemiStructuredArray (*B, M, K)
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
        Of float16, bfloat16 and float32 operands any of the three; of int8 operands int32
        (default), int8 (saturating) or a float.
    allow_tf32 : bool
        Let float32 products use TF32 tensor cores.
    config : dict, optional
        From `sparsegpu.tune`, or ``{"path": name, field: value, ...}``: the kernel path and fields
        of its tile (docs/paths.md lists them; an unknown one is a ValueError on every engine).
        ``{"path": "model"}`` asks for the model's choice, whatever was tuned. None: what was
        measured best for similar products, else the model's choice. It has no effect on the
        host.

    Returns
    -------
    array (*B, M, N), or (*B, M) for a 1-D ``dense``

    Raises
    ------
    ValueError
        Shapes that do not fit; ``out`` overlapping an operand; a ``config`` that the operands or
        the GPU cannot have.
    TypeError
        Mixed dtypes or array libraries.

    Notes
    -----
    What is not stored counts as zero. On a GPU, 16-bit block rows of fewer than 64 rows share
    tiles of ``dense``, and operands of which most is stored are multiplied as dense matrices:
    there an infinity or NaN in ``dense`` may appear, as NaN, in rows that have no block for it
    (zero times infinity). ``config={"path": "mma"}`` never does that.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.bsr_array(np.diag([1.0, 2, 3, 4]), blocksize=(2, 2))
    >>> sparsegpu.bsr_addmm(np.ones((4, 1)), A, np.ones((4, 3)), beta=10)[:, 0]
    array([11., 12., 13., 14.])
    """
    return addmm(
        "bsr_addmm",
        input,
        bsr,
        dense,
        Options(
            beta, alpha, left_alpha, right_alpha, activation, out, out_dtype, allow_tf32, config
        ),
    )


def bsr_matmul(
    bsr: Any,
    dense: Any,
    *,
    beta: Any = 0,
    alpha: Any = 1,
    left_alpha: Any = None,
    right_alpha: Any = None,
    activation: str | None = None,
    out: Any = None,
    out_dtype: Any = None,
    allow_tf32: bool = False,
    config: dict | None = None,
) -> Any:
    """Return ``bsr @ dense``: `bsr_addmm` without ``input``, with its keywords.

    Parameters
    ----------
    bsr : bsr_array or BsrSemiStructuredArray (*B, M, K)
    dense : array (*B, K, N) or (K,)
    beta, alpha, left_alpha, right_alpha, activation, out, out_dtype, allow_tf32, config
        As in `bsr_addmm`; there is nothing for
        ``beta`` to scale.

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
    options = Options(
        beta, alpha, left_alpha, right_alpha, activation, out, out_dtype, allow_tf32, config
    )
    return addmm("bsr_matmul", None, bsr, dense, options)


def int_bsr_addmm(
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
    """int8 `bsr_addmm` with an exact int32 result by default.

    Parameters
    ----------
    input : array that broadcasts to ``out``, or None
        int8, int32 or of the output's dtype.
    bsr : int8 bsr_array or BsrSemiStructuredArray (*B, M, K)
    dense : int8 array (*B, K, N) or (K,)
    beta, alpha, left_alpha, right_alpha, activation, out, out_dtype, allow_tf32, config
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
    NotImplementedError
        Rows of more than 131,071 stored products in a CUDA graph's capture.

    Notes
    -----
    Sums never wrap. Rows of more than 131,071 stored products, which may leave int32, are summed
    in pieces and the pieces added in int64; the result is clipped to int32, or scaled and rounded
    to another dtype, once.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.bsr_array(np.full((2, 2), 100, np.int8), blocksize=(2, 2))
    >>> sparsegpu.int_bsr_addmm(None, A, np.full((2, 1), 100, np.int8)).ravel()
    array([20000, 20000], dtype=int32)
    """
    function = "int_bsr_addmm"
    options = Options(
        beta, alpha, left_alpha, right_alpha, activation, out, out_dtype, allow_tf32, config
    )
    if is_sparse_blocks(bsr):
        check_sparse_blocks(function, "bsr", bsr)
        values = bsr.packed
    else:
        check_sparse(function, "bsr", bsr)
        values = bsr.data
    check_same_dtype(function, "bsr", values.dtype, np.dtype(np.int8))
    return addmm(function, input, bsr, dense, options)


def dense_bsr_matmul(
    dense: Any,
    bsr: Any,
    *,
    input: Any = None,
    beta: Any = 0,
    alpha: Any = 1,
    left_alpha: Any = None,
    right_alpha: Any = None,
    activation: str | None = None,
    out: Any = None,
    out_dtype: Any = None,
    allow_tf32: bool = False,
    config: dict | None = None,
) -> Any:
    """Return ``dense @ bsr``, the other side, with the keywords of `bsr_addmm`.

    Parameters
    ----------
    dense : array (*B, M, K) or (K,)
    bsr : bsr_array (*B, K, N)
    input : array that broadcasts to the result, optional
    beta, alpha, left_alpha, right_alpha, activation, out, out_dtype, allow_tf32, config
        As in `bsr_addmm`; ``left_alpha`` (*B, M),
        ``right_alpha`` (*B, N) and ``out`` (*B, M, N) belong to the result, and ``beta`` is 0 by
        default.

    Returns
    -------
    array (*B, M, N), or (*B, N) for a 1-D ``dense``

    Raises
    ------
    ValueError, TypeError
        As `bsr_addmm`.
    NotImplementedError
        A BsrSemiStructuredArray, whose blocks are not 2:4 when transposed: use ``bsr.tobsr()``.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.bsr_array(np.diag([1.0, 2, 3, 4]), blocksize=(2, 2))
    >>> sparsegpu.dense_bsr_matmul(np.ones(4), A)
    array([1., 2., 3., 4.])
    """
    function = "dense_bsr_matmul"
    options = Options(
        beta, alpha, left_alpha, right_alpha, activation, out, out_dtype, allow_tf32, config
    )
    return addmm(function, input, bsr, dense, options, from_the_right=True, transposed=True)


def bsr_linear(
    x: Any,
    weight: Any,
    bias: Any = None,
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
    """Return ``x @ weight.T + bias``: a linear layer with a block-sparse weight.

    The weight is multiplied as it is stored: nothing is transposed.

    Parameters
    ----------
    x : array (*, K)
    weight : bsr_array or BsrSemiStructuredArray (M, K)
    bias : array (M,), optional
        Of the operands' or the output's dtype (int8: int32 too).
    beta, alpha, left_alpha, right_alpha, activation, out, out_dtype, allow_tf32, config
        As in `bsr_addmm`; ``left_alpha`` (*) scales
        the rows of x, ``right_alpha`` (M,) the columns of the result.

    Returns
    -------
    array (*, M)

    Raises
    ------
    ValueError, TypeError
        As `bsr_addmm`; a batched ``weight``.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> weight = sparsegpu.bsr_array(np.diag([1.0, 2, 3, 4]), blocksize=(2, 2))
    >>> sparsegpu.bsr_linear(np.ones((2, 4)), weight, np.array([0.0, -5, 0, 0]), activation="relu")
    array([[1., 0., 3., 4.],
           [1., 0., 3., 4.]])
    """
    function = "bsr_linear"
    options = Options(
        beta, alpha, left_alpha, right_alpha, activation, out, out_dtype, allow_tf32, config
    )
    if not hasattr(weight, "pattern"):
        raise not_sparse(function, "weight", weight)
    if weight.pattern.batch_shape:
        raise bad_value(function, "weight", "one matrix (2-D)", f"a batch {weight.shape}")
    return linear(function, x, weight, bias, options, addmm)
