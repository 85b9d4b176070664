"""Attention over the positions that a block pattern stores."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays import as_array, common_namespace
from .._checks import bad_value, check_flags
from ..engines import check_config, engine_module
from ..engines.cuda.runtime.replay import Call
from ._attention import check_operands, checked_score, lse_dtype, mask_operand
from ._common import (
    on_device,
    optional_array,
    optional_out,
    prepare_out,
    resolve_out_dtype,
)


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    seed: int | None = None,
    return_lse: bool = False,
    softcap: float | None = None,
    slopes: Any = None,
    sinks: Any = None,
    out: Any = None,
    allow_tf32: bool = False,
    config: dict[str, Any] | None = None,
) -> Any:
    """Attend to the stored positions of a block-sparse mask.

    ::

        out = softmax(scale * query @ key.T + mask) @ value     over the stored positions

    What the pattern does not store is neither computed nor read. A query that may attend to
    nothing gets zeros, and lse = -inf (with ``sinks``, its sink).

    Parameters
    ----------
    query : array (*B, H, L, E)
    key : array (*B, Hkv, S, E)
    value : array (*B, Hkv, S, Ev)
        One dtype of float16, bfloat16, float32 and float64; H a multiple of Hkv (query head h
        reads key head ``h // (H // Hkv)``); any strides; batch shapes broadcast. Or of one head,
        (L, E), (S, E) and (S, Ev): then ``out`` is (L, Ev) and lse (L,).
    mask : bsr_array or BlockMask (L, S), or batched with a shape that broadcasts to (*B, H)
        Bool values say which stored elements may be attended; floating ones (of the operands'
        dtype or float32) are added to the scaled scores, -inf meaning not attended. Duplicate
        blocks are summed first.
    scale : float, optional
        Default ``1 / sqrt(E)``.
    is_causal : bool
        Keep key j <= query i only, aligned top-left.
    dropout_p : float in 0..1
        Probability of dropping a weight; kept ones are divided by ``1 - dropout_p``. Normaliser
        and lse are taken before it.
    seed : int, optional
        64-bit key of Philox4x32-10, whose counter is the score's linear index: every engine drops
        the same weights. None draws one from NumPy's default generator.
    return_lse : bool
        Return ``(out, lse)``, lse the natural logarithm of each query's normaliser.
    softcap : float above 0, optional
        ``softcap * tanh(x / softcap)`` takes the place of each scaled score x.
    slopes : array (H,) or (*B, H), optional
        ``slopes[h] * (j - i)`` is added to the score of query i and key j (ALiBi). float32
        (float64 for float64 operands).
    sinks : array (H,) or (*B, H), optional
        One more logit of each head in the normaliser, without a value. Dtype as of ``slopes``.
    out : array (*B, H, L, Ev), optional
        Any strides; float16, bfloat16 and float32 interchangeably, float64 for float64 operands.
    allow_tf32 : bool
        Let float32 operands, and the weights, be rounded to TF32 where tensor cores then multiply
        them.
    config : dict, optional
        ``{"path": name, field: value, ...}``: the kernel path to use on the GPU, and fields of its
        tile (docs/paths.md lists them). By default what `tune` has found for similar calls, else
        the first path that serves. No effect on the CPU.

    Returns
    -------
    out : array (*B, H, L, Ev)
        Of the operands' dtype; ``out`` when given.
    lse : array (*B, H, L)
        float32 (float64 for float64); only with ``return_lse``.

    Raises
    ------
    ValueError
        Shapes that do not fit; ``dropout_p``, ``seed`` or ``softcap`` out of range; ``out`` that
        overlaps an operand; arrays on two GPUs; a ``config`` that the operands or the device
        cannot have.
    TypeError
        Mixed dtypes or array libraries; a mask neither bool nor floating; ``out`` of a dtype that
        is not offered; a ``config`` that is no dict.

    Notes
    -----
    Computed in float32 for 16-bit operands; weights are rounded to the operands' dtype before
    they are multiplied by ``value``. The order is scale, softcap, slopes, mask, causality,
    dropout. Source: Dao, "FlashAttention-2", 2023; dropout: Salmon et al., SC 2011; slopes:
    Press, Smith and Lewis, "Train short, test long", ICLR 2022.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> mask = sparsegpu.bsr_array(np.eye(4, dtype=bool).repeat(2, 1), blocksize=(2, 4))
    >>> q, k, v = np.zeros((1, 4, 8)), np.zeros((1, 8, 8)), np.arange(8.0).reshape(1, 8, 1)
    >>> sparsegpu.scaled_dot_product_attention(q, k, v, mask).ravel()
    array([0.5, 2.5, 4.5, 6.5])
    """
    function = "scaled_dot_product_attention"
    query, key = as_array(query, function, "query"), as_array(key, function, "key")
    value = as_array(value, function, "value")
    if query.ndim == 2 and key.ndim == value.ndim == 2:
        seen = optional_out(out, function)
        if seen is not None and seen.ndim != 2:
            raise bad_value(function, "out", "two dimensions (L, Ev)", tuple(seen.shape))
        result = scaled_dot_product_attention(
            query[None],
            key[None],
            value[None],
            mask,
            scale=scale,
            is_causal=is_causal,
            dropout_p=dropout_p,
            seed=seed,
            return_lse=return_lse,
            softcap=softcap,
            slopes=slopes,
            sinks=sinks,
            out=None if seen is None else seen[None],
            allow_tf32=allow_tf32,
            config=config,
        )
        if return_lse:
            return (result[0].squeeze(0) if out is None else out, result[1].squeeze(0))
        return result.squeeze(0) if out is None else out
    mask = mask_operand(function, mask)
    slopes = optional_array(slopes, function, "slopes")
    sinks = optional_array(sinks, function, "sinks")
    given, out = out, optional_out(out, function)
    arrays = (query, key, value, mask.changing, slopes, sinks, out)
    how = None if config is None else repr(config)
    settings = (
        scale,
        is_causal,
        dropout_p,
        seed,
        return_lse,
        softcap,
        allow_tf32,
        how,
        mask.serial,
    )
    # lse is always new: with it, a caller's `out` is known by its place among the arrays.
    call = Call(function, mask.pattern, arrays, settings, None if return_lse else out)
    replayed = call.replay()
    if replayed is not None:
        result = replayed[0] if out is None else given
        return (result, replayed[-1]) if return_lse else result
    mask.check(function)
    check_flags(function, is_causal=is_causal, return_lse=return_lse, allow_tf32=allow_tf32)
    check_config(function, config, function)
    operands = {
        "query": query,
        "key": key,
        "value": value,
        "mask": mask.array,
        "slopes": slopes,
        "sinks": sinks,
    }
    xp = common_namespace(function, **operands, out=out)
    heads = check_operands(function, query, key, value, mask, slopes, sinks)
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
    drawn = seed is None and score.dropout_p != 0  # the seed is another in every call
    dtype, width = query.dtype, query.shape[-1]
    length, value_width = query.shape[-2], value.shape[-1]
    out_dtype = resolve_out_dtype(function, dtype, out, None)
    with on_device(query, mask.pattern, call):
        out = prepare_out(
            function, out, (*heads, length, value_width), out_dtype, xp, operands=operands
        )
        pattern, mask_data = mask.canonical(function)
        lse = xp.empty((*heads, length), lse_dtype(dtype)) if return_lse else None
        if pattern.nnzb == 0:
            out.fill(0)
            if lse is not None:
                lse[...] = -np.inf if sinks is None else sinks[..., None]
        elif out.size or (lse is not None and lse.size):
            target = out
            if width == 0:  # scores are 0, as those of a zero column
                query, key = (xp.zeros((*a.shape[:-1], 1), dtype) for a in (query, key))
            if value_width == 0:  # only lse is asked for
                value = xp.zeros((*value.shape[:-1], 1), dtype)
                target = xp.empty((*heads, length, 1), dtype)
            engine_module(xp, "attention", function).attention(
                target,
                lse,
                query,
                key,
                value,
                pattern,
                mask_data,
                score,
                sinks,
                allow_tf32=bool(allow_tf32),
                config=config,
            )
            if width and value_width and not drawn and mask_data is mask.data:
                new = (out,) if given is None else ()
                call.keep(*new, *(() if lse is None else (lse,)))
    result = out if given is None else given
    return (result, lse) if return_lse else result
