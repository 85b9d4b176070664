"""Attention over the positions that a block pattern stores."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from .._arrays import HALF_DTYPES, as_array, check_dtype_among, common_namespace
from .._checks import (
    bad_type,
    bad_value,
    broadcast_shape,
    check_broadcasts_to,
    check_flags,
    check_scalar,
)
from ..engines import engine_module
from ..engines.cuda.runtime.replay import Call
from ._canonical import canonical_blocks
from ._common import check_same_dtype, check_sparse, is_block_mask, on_device

_DTYPES = (*HALF_DTYPES, np.dtype(np.float32), np.dtype(np.float64))


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
) -> Any:
    """Attend to the stored positions of a block-sparse mask.

    ::

        out = softmax(scale * query @ key.T + mask) @ value     over the stored positions

    What the pattern does not store is neither computed nor read. A query that may attend to
    nothing gets zeros, and lse = -inf.

    Parameters
    ----------
    query : array (*B, H, L, E)
    key : array (*B, Hkv, S, E)
    value : array (*B, Hkv, S, Ev)
        One dtype of float16, bfloat16, float32 and float64; H a multiple of Hkv (query head h
        reads key head ``h // (H // Hkv)``); any strides; batch shapes broadcast.
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

    Returns
    -------
    out : array (*B, H, L, Ev)
        Of the operands' dtype.
    lse : array (*B, H, L)
        float32 (float64 for float64); only with ``return_lse``.

    Raises
    ------
    ValueError
        Shapes that do not fit; ``dropout_p`` or ``seed`` out of range.
    TypeError
        Mixed dtypes or array libraries; a mask neither bool nor floating.

    Notes
    -----
    Computed in float32 for 16-bit operands; weights are rounded to the operands' dtype before
    they are multiplied by ``value``. Source: Dao, "FlashAttention-2", 2023; dropout: Salmon et
    al., SC 2011.

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
    if is_block_mask(mask):
        mask = mask.tobsr()
    check_sparse(function, "mask", mask)
    settings = (scale, is_causal, dropout_p, seed, return_lse)
    call = Call(function, mask.pattern, (query, key, value, mask.data), settings)
    replayed = call.replay()
    if replayed is not None:
        return tuple(replayed) if return_lse else replayed[0]
    check_flags(function, is_causal=is_causal, return_lse=return_lse)
    xp = common_namespace(function, query=query, key=key, value=value, mask=mask.data)
    _check_dtypes(function, query, key, value, mask.data.dtype)
    heads = _check_shapes(function, query, key, value, mask.pattern)
    width = query.shape[-1]
    if scale is None:
        scale = 1 / sqrt(width) if width else 1.0
    scale = float(check_scalar(function, "scale", scale, complex_allowed=False))
    given, (dropout_p, seed) = seed, _check_dropout(function, dropout_p, seed)
    drawn = given is None and dropout_p != 0  # the seed is another in every call
    dtype = query.dtype
    lse_dtype = np.dtype(np.float64 if dtype == np.float64 else np.float32)
    length, value_width = query.shape[-2], value.shape[-1]
    with on_device(query, mask.pattern, call):
        pattern, mask_data = canonical_blocks(mask, function, "mask")
        out = xp.empty((*heads, length, value_width), dtype)
        lse = xp.empty((*heads, length), lse_dtype) if return_lse else None
        if pattern.nnzb == 0:
            out.fill(0)
            if lse is not None:
                lse.fill(-np.inf)
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
                scale=scale,
                is_causal=bool(is_causal),
                dropout_p=0.0 if dropout_p == 1 else dropout_p,
                seed=seed,
            )
            if dropout_p == 1:  # all weights are dropped, and dividing by 1 - p would give NaN
                out.fill(0)
            elif width and value_width and not drawn and mask_data is mask.data:
                call.keep(*((out, lse) if return_lse else (out,)))
    return (out, lse) if return_lse else out


def _check_dtypes(function: str, query: Any, key: Any, value: Any, mask: np.dtype) -> None:
    for name, array in (("query", query), ("key", key), ("value", value)):
        check_dtype_among(function, name, array.dtype, _DTYPES)
        check_same_dtype(function, name, array.dtype, query.dtype)
    allowed = (np.dtype(bool), query.dtype, np.dtype(np.float32))
    if mask not in allowed:
        names = " or ".join(dict.fromkeys(d.name for d in allowed))
        raise bad_type(function, "mask", f"dtype {names}", mask)


def _check_shapes(function: str, query: Any, key: Any, value: Any, pattern: Any) -> tuple[int, ...]:
    """Refuse shapes that do not fit; return (*B, H)."""
    for name, array in (("query", query), ("key", key), ("value", value)):
        if array.ndim < 3:
            expected = "at least three dimensions (*batch, heads, length, width)"
            raise bad_value(function, name, expected, tuple(array.shape))
    h, length, width = query.shape[-3:]
    kv_heads, keys = key.shape[-3:-1]
    if key.shape[-1] != width:
        raise bad_value(function, "key", f"a last dimension of {width}", tuple(key.shape))
    if tuple(value.shape[-3:-1]) != (kv_heads, keys):
        expected = f"shape (*batch, {kv_heads}, {keys}, Ev) like 'key'"
        raise bad_value(function, "value", expected, tuple(value.shape))
    if h != kv_heads and (kv_heads == 0 or h % kv_heads):
        raise bad_value(function, "key", f"a number of heads that divides {h}", kv_heads)
    if pattern.shape != (length, keys):
        raise bad_value(function, "mask", f"shape {(length, keys)}", pattern.shape)
    batch = broadcast_shape(function, "key", *(tuple(a.shape[:-3]) for a in (query, key, value)))
    check_broadcasts_to(function, "mask", pattern.batch_shape, (*batch, h))
    return (*batch, h)


def _check_dropout(function: str, dropout_p: Any, seed: Any) -> tuple[float, int]:
    dropout_p = float(check_scalar(function, "dropout_p", dropout_p, complex_allowed=False))
    if not 0 <= dropout_p <= 1:
        raise bad_value(function, "dropout_p", "a probability in 0..1", dropout_p)
    if seed is None:
        draw = np.random.default_rng().integers(2**64, dtype=np.uint64) if dropout_p else 0
        return dropout_p, int(draw)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise bad_type(function, "seed", "an integer or None", type(seed).__name__)
    if not 0 <= seed < 2**64:
        raise bad_value(function, "seed", "an integer in 0..2**64 - 1", seed)
    return dropout_p, int(seed)
