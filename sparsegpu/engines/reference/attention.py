"""Attention over the positions that a block pattern stores."""

from __future__ import annotations

import numpy as np

from ..._epilogue import store
from ..._philox import dropout_keep
from ...pattern import Pattern


@np.errstate(invalid="ignore", over="ignore")
def attention(
    out: np.ndarray,
    lse: np.ndarray | None,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    pattern: Pattern,
    mask_data: np.ndarray,
    *,
    scale: float,
    is_causal: bool,
    dropout_p: float,
    seed: int,
) -> None:
    """Write ``softmax(scale * query @ key.T + mask) @ value`` over the stored positions.

    out is (*B, H, L, Ev), query (*B, H, L, E), key (*B, Hkv, S, E), value (*B, Hkv, S, Ev):
    query head h reads key head ``h // (H // Hkv)``. ``pattern`` is canonical; it and
    ``mask_data`` (bool or float) broadcast over (*B, H). One block row of one head at a time.
    """
    heads = out.shape[:-2]
    bm, bk = pattern.blocksize
    group = heads[-1] // max(key.shape[-3], 1)
    query = np.broadcast_to(query, heads + query.shape[-2:])
    key = np.broadcast_to(key, heads[:-1] + key.shape[-3:])
    value = np.broadcast_to(value, heads[:-1] + value.shape[-3:])
    indptr = np.broadcast_to(pattern._indptr, heads + pattern._indptr.shape[-1:])
    indices = np.broadcast_to(pattern._indices, heads + pattern._indices.shape[-1:])
    mask_data = np.broadcast_to(mask_data, heads + mask_data.shape[-3:])
    for number, (*b, h) in enumerate(np.ndindex(heads)):
        kv_head, head = (*b, h // group), (*b, h)
        for i in range(pattern.block_shape[0]):
            rows = slice(i * bm, (i + 1) * bm)
            stored = slice(indptr[head][i], indptr[head][i + 1])
            columns = (indices[head][stored, None].astype(np.int64) * bk + np.arange(bk)).ravel()
            mask = mask_data[head][stored].swapaxes(0, 1).reshape(bm, len(columns))
            q = np.arange(rows.start, rows.stop)[:, None]
            allowed = mask if mask.dtype == bool else mask != -np.inf
            if is_causal:
                allowed = allowed & (columns <= q)
            bias = None if mask.dtype == bool else mask
            weights, row_lse = _softmax(
                query[head][rows], key[kv_head][columns], scale, bias, allowed
            )
            if dropout_p > 0:
                length, width = pattern.shape
                score = (number * length + q) * width + columns
                allowed = allowed & dropout_keep(score, seed, dropout_p)
                weights = weights / weights.dtype.type(1 - dropout_p)
            store(_weighted(weights, value[kv_head][columns], allowed), out[head][rows])
            if lse is not None:
                lse[head][rows] = row_lse


def _softmax(
    query: np.ndarray,
    key: np.ndarray,
    scale: float,
    bias: np.ndarray | None,
    allowed: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights (rows, columns) of one block row, and their log-sum-exp (rows,)."""
    compute = np.dtype(np.float64 if query.dtype == np.float64 else np.float32).type
    scores = compute(scale) * (query.astype(compute) @ key.astype(compute).T)
    if bias is not None:
        scores = scores + bias.astype(compute)
    scores = np.where(allowed, scores, compute(-np.inf))
    top = scores.max(axis=1, keepdims=True, initial=-np.inf)
    top = np.where(top == -np.inf, 0, top)  # a row that attends to nothing: exp(-inf - 0) = 0
    e = np.exp(scores - top)
    total = e.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = np.log(total) + top
    return e / np.where(total == 0, 1, total), lse[:, 0]


def _weighted(weights: np.ndarray, value: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Return ``weights @ value`` over the kept positions, the weights rounded to value's dtype.

    What is not kept is left out, not multiplied by zero: a NaN there does not propagate.
    """
    rounded = np.where(kept, weights, 0).astype(value.dtype).astype(weights.dtype)
    wide = value.astype(weights.dtype)
    if np.isfinite(wide).all():
        return rounded @ wide
    return np.stack([w[keep] @ wide[keep] for w, keep in zip(rounded, kept)])
