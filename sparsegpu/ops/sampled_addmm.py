"""Dense @ dense at the stored blocks of a pattern."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .._arrays import as_array, common_namespace, is_complex
from .._checks import bad_type, bad_value, broadcast_shape, check_flags, check_scalar
from .._epilogue import Epilogue
from ..engines import check_config, engine_module
from ..engines.cuda.runtime.replay import Call
from ._canonical import check_out_pattern, distinct_blocks, distinct_pattern
from ._common import (
    check_operand_dtype,
    check_same_dtype,
    check_sparse,
    on_device,
    prepare_out,
    resolve_out_dtype,
)
from ._long_sums import MOST, add_slices, may_be_long

_INT32 = np.dtype(np.int32)


def sampled_addmm(
    input: Any,
    mat1: Any,
    mat2: Any,
    *,
    beta: Any = 1,
    alpha: Any = 1,
    out: Any = None,
    allow_tf32: bool = False,
    config: dict[str, Any] | None = None,
) -> Any:
    """Multiply two dense matrices, computing only the blocks that ``input`` stores.

    ::

        values = beta * input.data + alpha * (mat1 @ mat2)     at the stored blocks

    Parameters
    ----------
    input : bsr_array (*B, M, N)
        A bool one gives the pattern only: its values are not read, ``beta`` must be 0 and the
        result has mat1's dtype. Duplicate blocks are summed first.
    mat1 : array (*B, M, K)
    mat2 : array (*B, K, N)
        One dtype, any strides; batch shapes broadcast.
    beta, alpha : number
        ``beta == 0`` does not read ``input``'s values.
    out : bsr_array, optional
        With ``input``'s pattern. Its dtype is the output dtype (for int8 operands int32, int8
        or a float); its values may be ``input``'s own memory.
    allow_tf32 : bool
        Float32 may be multiplied as TF32 by tensor cores; on the GPU only.
    config : dict, optional
        ``{"path": name, field: value, ...}``: the kernel path to use on the GPU, and fields of its
        tile, as `tune` returns it. By default what `tune` has found for similar products.

    Returns
    -------
    bsr_array
        With ``input``'s pattern (repeated over the batch when only the matrices are batched)
        and mat1's dtype; int32 for int8 matrices and an int32 ``input``. ``out`` when given.

    Raises
    ------
    ValueError
        Shapes that do not fit; a bool ``input`` with ``beta != 0``; ``out`` with another
        pattern; a ``config`` that the operands or the device cannot have.
    TypeError
        Mixed dtypes or array libraries; a ``config`` that is no dict.

    Notes
    -----
    As ``torch.sparse.sampled_addmm``, for blocks.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> where = sparsegpu.bsr_array(np.eye(4, dtype=bool), blocksize=(2, 2))
    >>> sparsegpu.sampled_addmm(where, np.ones((4, 3)), np.ones((3, 4)), beta=0).toarray()
    array([[3., 3., 0., 0.],
           [3., 3., 0., 0.],
           [0., 0., 3., 3.],
           [0., 0., 3., 3.]])
    """
    function = "sampled_addmm"
    check_sparse(function, "input", input)
    mat1, mat2 = as_array(mat1, function, "mat1"), as_array(mat2, function, "mat2")
    dtype = mat1.dtype
    if out is not None:
        check_sparse(function, "out", out)
    out_data = None if out is None else out.data
    own_pattern = out is None or out.pattern is input.pattern  # else its indices are to be compared
    arrays, how = (input.data, mat1, mat2, out_data), None if config is None else repr(config)
    settings = (beta, alpha, own_pattern, allow_tf32, how)
    call = Call(function, input.pattern, arrays, settings, out_data)
    replayed = call.replay()
    if replayed is not None:
        if out is not None:
            return out
        (values,) = replayed
        return input._with(input.pattern.broadcast_to(values.shape[:-3]), values)
    check_flags(function, allow_tf32=allow_tf32)
    check_config(function, config, function)
    check_operand_dtype(function, "mat1", dtype)
    check_operand_dtype(function, "mat2", mat2.dtype)
    check_same_dtype(function, "mat2", mat2.dtype, dtype)
    complex_allowed = is_complex(dtype)
    alpha = check_scalar(function, "alpha", alpha, complex_allowed=complex_allowed)
    beta = check_scalar(function, "beta", beta, complex_allowed=complex_allowed)
    xp = common_namespace(function, input=input.data, mat1=mat1, mat2=mat2, out=out_data)
    inner = _check_shapes(function, input.pattern.shape, mat1, mat2)
    result_dtype = _result_dtype(function, input.data.dtype, dtype, out_data)
    if input.data.dtype.kind == "b" and beta != 0:
        raise bad_value(function, "beta", "0 with a bool input (its values are not read)", beta)
    batch = broadcast_shape(
        function, "mat1", tuple(mat1.shape[:-2]), tuple(mat2.shape[:-2]), input.pattern.batch_shape
    )
    with on_device(mat1, input.pattern, call):
        if beta == 0:
            pattern, data = distinct_pattern(input.pattern, function, "input"), None
        else:
            pattern, data = distinct_blocks(input, function, "input")
        own_pattern = own_pattern and pattern is input.pattern
        pattern = pattern.broadcast_to(batch)
        if out is not None:
            check_out_pattern(function, out, pattern)
        result = prepare_out(
            function,
            out_data,
            (*batch, pattern.nnzb, *pattern.blocksize),
            result_dtype,
            xp,
            input=input.data,
            operands={"mat1": mat1, "mat2": mat2},
        )
        if result.size:
            compute = partial(
                engine_module(xp, "sampled_addmm", function).sampled_addmm,
                allow_tf32=bool(allow_tf32),
                config=config,
            )
            if may_be_long(dtype, inner, 1) and alpha != 0:

                def product(part: Any, k0: int, k1: int) -> None:
                    compute(part, pattern, None, mat1[..., k0:k1], mat2[..., k0:k1, :], 1, 0)

                epilogue = Epilogue(alpha, beta, data)
                add_slices(product, result, inner, MOST, epilogue, xp)
            else:
                compute(result, pattern, data, mat1, mat2, alpha if inner else 0, beta)
                if own_pattern:
                    # The operand keeps only the latest patterns that it was broadcast to.
                    call.keep(result, reads=None if pattern is input.pattern else pattern)
    return out if out is not None else input._with(pattern, result)


def _check_shapes(function: str, shape: tuple[int, int], mat1: Any, mat2: Any) -> int:
    """Refuse matrices whose product is not of the pattern's shape; return the inner size."""
    m, n = shape
    if mat1.ndim < 2 or mat1.shape[-2] != m:
        raise bad_value(function, "mat1", f"shape (*batch, {m}, K)", tuple(mat1.shape))
    k = mat1.shape[-1]
    if mat2.ndim < 2 or tuple(mat2.shape[-2:]) != (k, n):
        raise bad_value(function, "mat2", f"shape (*batch, {k}, {n})", tuple(mat2.shape))
    return k


def _result_dtype(function: str, stored: np.dtype, dtype: np.dtype, out: Any) -> np.dtype:
    """Return the output dtype; ``stored`` is that of input's values."""
    if out is not None:
        result = resolve_out_dtype(function, dtype, out, None)
    else:
        result = _INT32 if dtype == np.int8 and stored == _INT32 else dtype
    allowed = {dtype, result} | ({_INT32} if dtype == np.int8 else set())
    if stored.kind != "b" and stored not in allowed:
        names = " or ".join(sorted(d.name for d in allowed))
        raise bad_type(function, "input", f"dtype {names} (or bool for the pattern)", stored)
    return result
