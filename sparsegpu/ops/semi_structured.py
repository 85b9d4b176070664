"""2:4 @ dense with a fused epilogue."""

from __future__ import annotations

from typing import Any

from ._product import WITHOUT_INPUT, Options, linear
from ._product_24 import addmm, check_semi_structured


def semi_structured_addmm(
    input: Any,
    sparse: Any,
    dense: Any,
    *,
    alpha: Any = 1,
    beta: Any = 1,
    left_alpha: Any = None,
    right_alpha: Any = None,
    activation: str | None = None,
    out: Any = None,
    out_dtype: Any = None,
    allow_tf32: bool = False,
    config: dict | None = None,
) -> Any:
    """Multiply a 2:4 by a dense matrix, scale, add and activate in one pass.

    ::

        out = act( beta * input
                   + left_alpha[:, None] * (alpha * (sparse @ dense)) * right_alpha[None, :] )

    Parameters
    ----------
    input : array that broadcasts to ``out``, or None
    sparse : SemiStructuredArray (M, K)
    dense : array (*B, K, N) or (K,)
        Same dtype as ``sparse``; any N, any strides. ``sparse`` serves every batch.
    alpha, beta, left_alpha, right_alpha, activation, out, out_dtype, allow_tf32
        As in `bsr_addmm`.
    config : dict, optional
        ``{"path": name, field: value, ...}``: the kernel path and fields of its tile
        (docs/paths.md lists them; an unknown one is a ValueError on every engine). None:
        chosen by shapes and dtype. It has no effect on the host. For an operand of backend
        "cusparselt": an algorithm, as `tune` returns it.

    Returns
    -------
    array (*B, M, N), or (*B, M) for a 1-D ``dense``

    Raises
    ------
    ValueError
        Shapes that do not fit; ``out`` overlapping an operand; a sparse ``dense``.
    TypeError
        Mixed dtypes or array libraries.
    NotImplementedError
        Backend "cusparselt": 16-bit operands with more in the epilogue than alpha, relu and a
        bias (M, 1) or a full ``input`` of their dtype; float32 without ``allow_tf32``; int8 with
        K / 2 of more than 131,071 and a ``config`` (without one the native kernels multiply).
        Such long int8 rows in a CUDA graph's capture, whatever the backend.

    Notes
    -----
    Sparse tensor cores: PTX ISA, ``mma.sp`` and ``wgmma.mma_async.sp``.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsegpu import SemiStructuredArray, semi_structured_addmm
    >>> A = SemiStructuredArray.from_dense(np.tile(np.float32([2, 0]), (32, 8)))
    >>> semi_structured_addmm(np.ones((32, 1), np.float32), A, np.ones((16, 3), np.float32))[0]
    array([17., 17., 17.], dtype=float32)
    """
    return addmm(
        "semi_structured_addmm",
        input,
        sparse,
        dense,
        Options(
            beta, alpha, left_alpha, right_alpha, activation, out, out_dtype, allow_tf32, config
        ),
    )


def semi_structured_matmul(
    sparse: Any,
    dense: Any,
    *,
    alpha: Any = 1,
    beta: Any = 0,
    left_alpha: Any = None,
    right_alpha: Any = None,
    activation: str | None = None,
    out: Any = None,
    out_dtype: Any = None,
    allow_tf32: bool = False,
    config: dict | None = None,
) -> Any:
    """Return ``sparse @ dense``: `semi_structured_addmm` without ``input``, with its keywords.

    Parameters
    ----------
    sparse : SemiStructuredArray (M, K)
    dense : array (*B, K, N) or (K,)
    alpha, beta, left_alpha, right_alpha, activation, out, out_dtype, allow_tf32, config
        As in `semi_structured_addmm`; there is
        nothing for ``beta`` to scale.

    Returns
    -------
    array (*B, M, N), or (*B, M) for a 1-D ``dense``

    Raises
    ------
    ValueError, TypeError
        As `semi_structured_addmm`.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsegpu import SemiStructuredArray, semi_structured_matmul
    >>> A = SemiStructuredArray.from_dense(np.tile(np.float32([2, 0]), (32, 8)))
    >>> semi_structured_matmul(A, np.ones(16, np.float32), alpha=0.5)[:2]
    array([8., 8.], dtype=float32)
    """
    options = Options(
        beta, alpha, left_alpha, right_alpha, activation, out, out_dtype, allow_tf32, config
    )
    return addmm("semi_structured_matmul", None, sparse, dense, options)


def dense_semi_structured_matmul(
    dense: Any,
    sparse: Any,
    *,
    input: Any = None,
    alpha: Any = 1,
    beta: Any = 0,
    left_alpha: Any = None,
    right_alpha: Any = None,
    activation: str | None = None,
    out: Any = None,
    out_dtype: Any = None,
    allow_tf32: bool = False,
    config: dict | None = None,
) -> Any:
    """Return ``dense @ sparse``, the other side, with the keywords of `semi_structured_addmm`.

    Computed as ``(sparse.T @ dense.T).T`` with the transposed half, which is built and kept when
    the operand does not hold it yet.

    Parameters
    ----------
    dense : array (*B, M, K) or (K,)
    sparse : SemiStructuredArray (K, N)
    input : array that broadcasts to the result, optional
    alpha, beta, left_alpha, right_alpha, activation, out, out_dtype, allow_tf32, config
        As in `semi_structured_addmm`; ``left_alpha``
        (*B, M), ``right_alpha`` (*B, N) and ``out`` (*B, M, N) belong to the result, and ``beta``
        is 0 by default.

    Returns
    -------
    array (*B, M, N), or (*B, N) for a 1-D ``dense``

    Raises
    ------
    ValueError, TypeError
        As `semi_structured_addmm`.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsegpu import SemiStructuredArray
    >>> from sparsegpu.ops.semi_structured import dense_semi_structured_matmul
    >>> A = SemiStructuredArray.from_dense(np.tile(np.float32([2, 0]), (32, 8)))
    >>> dense_semi_structured_matmul(np.ones(32, np.float32), A)[:4]
    array([64.,  0., 64.,  0.], dtype=float32)
    """
    function = "dense_semi_structured_matmul"
    options = Options(
        beta, alpha, left_alpha, right_alpha, activation, out, out_dtype, allow_tf32, config
    )
    return addmm(
        function, input, sparse, dense, options, stored_transposed=True, from_the_right=True
    )


def matmul(function: str, sparse: Any, dense: Any, *, from_the_right: bool = False) -> Any:
    """Do what the operator ``@`` does; its operands are 'self' and 'other' in messages."""
    return addmm(
        function,
        None,
        sparse,
        dense,
        WITHOUT_INPUT,
        names=("self", "other"),
        stored_transposed=from_the_right,
        from_the_right=from_the_right,
    )


def semi_structured_linear(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    alpha: Any = 1,
    beta: Any = 1,
    left_alpha: Any = None,
    right_alpha: Any = None,
    activation: str | None = None,
    out: Any = None,
    out_dtype: Any = None,
    allow_tf32: bool = False,
    config: dict | None = None,
) -> Any:
    """Return ``x @ weight.T + bias``: a linear layer with a 2:4 weight.

    Parameters
    ----------
    x : array (*, K)
    weight : SemiStructuredArray (M, K)
    bias : array (M,), optional
        Of the operands' or the output's dtype (int8: int32 too).
    alpha, beta, left_alpha, right_alpha, activation, out, out_dtype, allow_tf32, config
        As in `semi_structured_addmm`; ``left_alpha``
        (*) scales the rows of x, ``right_alpha`` (M,) the columns of the result.

    Returns
    -------
    array (*, M)

    Raises
    ------
    ValueError, TypeError
        As `semi_structured_addmm`.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsegpu import SemiStructuredArray, semi_structured_linear
    >>> weight = SemiStructuredArray.from_dense(np.tile(np.float32([2, 0]), (32, 8)))
    >>> x = np.ones((2, 3, 16), np.float32)
    >>> semi_structured_linear(x, weight, np.full(32, -20, np.float32), activation="relu").max()
    np.float32(0.0)
    """
    function = "semi_structured_linear"
    options = Options(
        beta, alpha, left_alpha, right_alpha, activation, out, out_dtype, allow_tf32, config
    )
    check_semi_structured(function, "weight", weight)
    return linear(function, x, weight, bias, options, addmm)
