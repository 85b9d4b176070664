"""Gradients of attention over the positions that a block pattern stores."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .._arrays import as_array, common_namespace
from .._checks import bad_type, bad_value, check_flags
from ..engines import check_config, engine_module
from ..engines.cuda.runtime.replay import Call
from ._attention import check_operands, checked_score, lse_dtype, mask_operand
from ._common import on_device, optional_array


class AttentionGradients(NamedTuple):
    """Gradients of attention's operands.

    Attributes
    ----------
    query, key, value : arrays
        Of their operand's shape and dtype, summed over what it broadcasts over.
    mask : float32 bsr_array or None
        What the stored elements' scores are worth, with the mask's pattern (columns ascending,
        without duplicates) and batch shape; None unless ``mask_gradient``.
    sinks : array or None
        None without sinks.
    """

    query: Any
    key: Any
    value: Any
    mask: Any
    sinks: Any


def scaled_dot_product_attention_backward(
    grad: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    out: Any,
    lse: Any,
    *,
    grad_lse: Any = None,
    scale: float | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    seed: int | None = None,
    softcap: float | None = None,
    slopes: Any = None,
    sinks: Any = None,
    mask_gradient: bool = False,
    allow_tf32: bool = False,
    config: dict[str, Any] | None = None,
) -> AttentionGradients:
    """Return the gradients of `scaled_dot_product_attention`, for an autodiff of one's own.

    They are those of ``sum(grad * out) + sum(grad_lse * lse)``. What is not attended has no
    gradient, and shows in none. The same bits every run.

    Parameters
    ----------
    grad : array (*B, H, L, Ev)
        Gradient of ``out``, of the operands' dtype.
    query, key, value, mask, scale, is_causal, dropout_p, softcap, slopes, sinks
        As in the forward call; of one head, in two dimensions, what belongs to the result, too.
    out : array (*B, H, L, Ev)
        What that call returned, of the operands' dtype.
    lse : array (*B, H, L)
        What it returned with ``return_lse=True``.
    grad_lse : array (*B, H, L), optional
        Gradient of ``lse``, of its dtype; None for 0.
    seed : int
        The forward call's, with dropout.
    mask_gradient : bool
        Compute the gradient of what the mask adds to the scores, too.
    allow_tf32 : bool
        Let float32 operands be rounded to TF32 where tensor cores then multiply them. The gradient
        of the mask stays in float32.
    config : dict, optional
        ``{"path": name, field: value, ...}``: the kernel path of the first three gradients on the
        GPU, and fields of its tile (docs/paths.md lists them). No effect on the CPU.

    Returns
    -------
    AttentionGradients
        ``(query, key, value, mask, sinks)``. Slopes get no gradient.

    Raises
    ------
    ValueError
        Shapes that do not fit; ``dropout_p``, ``seed`` or ``softcap`` out of range; dropout
        without a seed; arrays on two GPUs; a ``config`` that the operands or the device cannot
        have.
    TypeError
        Mixed dtypes or array libraries; ``out`` or ``lse`` of another dtype than the forward
        call's; a ``config`` that is no dict.

    Notes
    -----
    Weights are computed again from ``lse``, so that no score matrix is kept. The gradient of
    query walks the pattern, those of key and value its transpose. Source: Dao,
    "FlashAttention-2", 2023, algorithm 2.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> mask = sparsegpu.bsr_array(np.eye(4, dtype=bool).repeat(2, 1), blocksize=(2, 4))
    >>> q, k, v = np.zeros((1, 4, 8)), np.zeros((1, 8, 8)), np.arange(8.0).reshape(1, 8, 1)
    >>> out, lse = sparsegpu.scaled_dot_product_attention(q, k, v, mask, return_lse=True)
    >>> gradients = sparsegpu.scaled_dot_product_attention_backward(
    ...     np.ones((1, 4, 1)), q, k, v, mask, out, lse
    ... )
    >>> gradients.value.ravel()
    array([0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
    """
    function = "scaled_dot_product_attention_backward"
    grad, query = as_array(grad, function, "grad"), as_array(query, function, "query")
    key, value = as_array(key, function, "key"), as_array(value, function, "value")
    given, mask = mask, mask_operand(function, mask)
    out, lse = as_array(out, function, "out"), as_array(lse, function, "lse")
    if query.ndim == 2 and key.ndim == value.ndim == 2:
        grad_lse = optional_array(grad_lse, function, "grad_lse")
        for name, array in (("grad", grad), ("out", out)):
            if array.ndim != 2:
                raise bad_value(function, name, "two dimensions (L, Ev)", tuple(array.shape))
        for name, array in (("lse", lse), ("grad_lse", grad_lse)):
            if array is not None and array.ndim != 1:
                raise bad_value(function, name, "one dimension (L,)", tuple(array.shape))
        found = scaled_dot_product_attention_backward(
            grad[None],
            query[None],
            key[None],
            value[None],
            given,
            out[None],
            lse[None],
            grad_lse=None if grad_lse is None else grad_lse[None],
            scale=scale,
            is_causal=is_causal,
            dropout_p=dropout_p,
            seed=seed,
            softcap=softcap,
            slopes=slopes,
            sinks=sinks,
            mask_gradient=mask_gradient,
            allow_tf32=allow_tf32,
            config=config,
        )
        query, key, value = (gradient.squeeze(0) for gradient in found[:3])
        return AttentionGradients(query, key, value, found.mask, found.sinks)
    grad_lse = optional_array(grad_lse, function, "grad_lse")
    slopes = optional_array(slopes, function, "slopes")
    sinks = optional_array(sinks, function, "sinks")
    arrays = (grad, query, key, value, mask.changing, out, lse, grad_lse, slopes, sinks)
    how = None if config is None else repr(config)
    settings = (
        *(scale, is_causal, dropout_p, seed, softcap),
        *(mask_gradient, allow_tf32, how, mask.serial),
    )
    call = Call(function, mask.pattern, arrays, settings)
    replayed = call.replay()
    if replayed is not None:
        return _result(given, mask.pattern, replayed, mask_gradient, sinks is not None)
    mask.check(function)
    flags = {"is_causal": is_causal, "mask_gradient": mask_gradient, "allow_tf32": allow_tf32}
    check_flags(function, **flags)
    check_config(function, config, function)
    xp = common_namespace(
        function,
        grad=grad,
        query=query,
        key=key,
        value=value,
        mask=mask.array,
        out=out,
        lse=lse,
        grad_lse=grad_lse,
        slopes=slopes,
        sinks=sinks,
    )
    heads = check_operands(function, query, key, value, mask, slopes, sinks)
    length, (width, value_width) = query.shape[-2], (query.shape[-1], value.shape[-1])
    of_rows = (*heads, length)
    for name, array in (("grad", grad), ("out", out)):
        _check_like_forward(function, name, array, (*of_rows, value_width), query.dtype)
    for name, array in (("lse", lse), ("grad_lse", grad_lse)):
        if array is not None:
            _check_like_forward(function, name, array, of_rows, lse_dtype(query.dtype))
    score = checked_score(
        function,
        query,
        heads,
        key.shape[-2],
        scale=scale,
        softcap=softcap,
        slopes=slopes,
        is_causal=is_causal,
        dropout_p=dropout_p,
        seed=seed,
    )
    if seed is None and score.dropout_p > 0:
        raise bad_value(function, "seed", "the forward call's, as there is dropout", seed)
    with on_device(query, mask.pattern, call):
        pattern, mask_data = mask.canonical(function)
        gradients = [xp.empty(a.shape, a.dtype) for a in (query, key, value)]
        if mask_gradient:
            gradients.append(xp.empty(pattern.data_shape, np.float32))
        if sinks is not None:
            gradients.append(xp.empty(sinks.shape, sinks.dtype))
        result = _result(given, pattern, gradients, mask_gradient, sinks is not None)
        if pattern.nnzb == 0 or lse.size == 0:
            for gradient in gradients:
                gradient.fill(0)
            if sinks is not None and grad_lse is not None:  # lse is the sink
                result.sinks[...] = _of_sinks_alone(xp, sinks, grad_lse)
            return result
        dq, dk, dv = gradients[:3]
        if width == 0:  # as a zero column
            query, key, dq, dk = (xp.zeros((*a.shape[:-1], 1), a.dtype) for a in (query, key) * 2)
        if value_width == 0:
            columns = (grad, value, out, value)
            grad, value, out, dv = (xp.zeros((*a.shape[:-1], 1), a.dtype) for a in columns)
        engine_module(xp, "attention_backward", function).attention_backward(
            (dq, dk, dv, None if result.mask is None else result.mask.data, result.sinks),
            grad,
            query,
            key,
            value,
            pattern,
            mask_data,
            out,
            lse,
            grad_lse,
            score,
            sinks,
            allow_tf32=bool(allow_tf32),
            config=config,
        )
        if width and value_width and mask_data is mask.data:
            call.keep(*gradients)
    return result


def _result(
    mask: Any, pattern: Any, gradients: list[Any], mask_gradient: bool, sinks: bool
) -> AttentionGradients:
    query, key, value, *others = gradients
    of_sinks = others.pop() if sinks else None
    of_mask = mask._with(pattern, others.pop()) if mask_gradient else None
    return AttentionGradients(query, key, value, of_mask, of_sinks)


def _check_like_forward(
    function: str, name: str, array: Any, shape: tuple[int, ...], dtype: np.dtype
) -> None:
    """Refuse what cannot be, or belong to, the forward call's results."""
    if array.dtype != dtype:
        raise bad_type(function, name, f"dtype {dtype}, as the forward call has it", array.dtype)
    if tuple(array.shape) != shape:
        raise bad_value(function, name, f"shape {shape}", tuple(array.shape))


def _of_sinks_alone(xp: Any, sinks: Any, grad_lse: Any) -> Any:
    """Return the gradient of sinks where no query attends to anything."""
    sums = grad_lse.sum(axis=-1)
    if sinks.ndim < sums.ndim:
        sums = sums.sum(axis=tuple(range(sums.ndim - sinks.ndim)))
    return xp.where(sinks == -np.inf, 0, sums)
