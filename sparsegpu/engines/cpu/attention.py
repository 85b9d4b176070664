"""Attention where a block pattern says who may look at whom, a block row of a head at a time."""

from __future__ import annotations

import numpy as np

from ..._epilogue import store
from ..._philox import dropout_keep
from ...pattern import Pattern
from ._jit import frozen
from ._kernels import dot_blocks, multiply
from ._operands import NO_TERMS, compute_dtype, widen
from ._threads import for_each


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
    ``mask_data`` (bool or float) broadcast over (*B, H). At any time a thread holds the scores
    of one block row, stored as the pattern stores it: (blocks, bm, bk).
    """
    heads = out.shape[:-2]
    bm, bk = pattern.blocksize
    length, width = pattern.shape
    group = heads[-1] // max(key.shape[-3], 1)
    query = np.broadcast_to(query, heads + query.shape[-2:])
    key = np.broadcast_to(key, heads[:-1] + key.shape[-3:])
    value = np.broadcast_to(value, heads[:-1] + value.shape[-3:])
    indptr = np.broadcast_to(pattern.indptr, heads + pattern.indptr.shape[-1:])
    indices = np.broadcast_to(pattern.indices, heads + pattern.indices.shape[-1:])
    mask_data = np.broadcast_to(mask_data, heads + mask_data.shape[-3:])

    def block_row(item: tuple[int, tuple[int, ...], int]) -> None:
        number, head, i = item
        kv_head = (*head[:-1], head[-1] // group)
        rows = slice(i * bm, (i + 1) * bm)
        stored = slice(indptr[head][i], indptr[head][i + 1])
        q = np.arange(rows.start, rows.stop)[:, None]
        columns = indices[head][stored].astype(np.int64)[:, None, None] * bk + np.arange(bk)
        keys, values = (widen(x[kv_head][columns.ravel()]) for x in (key, value))
        scores = _scores(widen(query[head][rows]), keys, len(columns), bk)
        scores *= scores.dtype.type(scale)
        excluded = _mask(scores, mask_data[head][stored])
        if is_causal:
            excluded = excluded | (q < columns)
        np.copyto(scores, -np.inf, where=excluded)
        row_lse = _softmax(scores)
        if lse is not None:
            lse[head][rows] = row_lse
        if dropout_p > 0:
            score = (number * length + q) * width + columns
            scores /= scores.dtype.type(1 - dropout_p)
            excluded = excluded | ~dropout_keep(score, seed, dropout_p)
        np.copyto(scores, 0, where=excluded)
        weights = widen(scores.astype(value.dtype))
        store(_weighted(weights, values, excluded), out[head][rows])

    items = [
        (number, head, i)
        for number, head in enumerate(np.ndindex(heads))
        for i in range(pattern.block_shape[0])
    ]
    stored = pattern.nnzb * bm * bk * len(items) // max(pattern.block_shape[0], 1)
    for_each(block_row, items, stored * (query.shape[-1] + value.shape[-1]))


def _scores(query: np.ndarray, keys: np.ndarray, blocks: int, bk: int) -> np.ndarray:
    """Return ``query @ keys.T`` as (blocks, bm, bk)."""
    bm, depth = query.shape
    scores = np.zeros((blocks, bm, bk), compute_dtype(query.dtype))
    dot_blocks(
        scores.reshape(-1),
        frozen(np.zeros(blocks, np.int64)),
        frozen(np.arange(blocks)),
        bm,
        bk,
        frozen(query.reshape(-1)),
        depth,
        frozen(keys.reshape(-1)),
        depth,
        depth,
    )
    return scores


def _mask(scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Add a floating mask; return what it or a bool one excludes."""
    if mask.dtype == bool:
        return ~mask
    mask = mask.astype(scores.dtype)
    scores += mask
    return mask == -np.inf


def _softmax(scores: np.ndarray) -> np.ndarray:
    """Turn scores (blocks, bm, bk) into weights; return their log-sum-exp (bm,)."""
    top = scores.max(axis=(0, 2), initial=-np.inf)
    top[top == -np.inf] = 0  # a row that attends to nothing: exp(-inf - 0) = 0
    scores -= top[:, None]
    np.exp(scores, out=scores)
    total = scores.sum(axis=(0, 2))
    lse = np.log(total) + top
    total[total == 0] = 1
    scores /= total[:, None]
    return lse


def _weighted(weights: np.ndarray, values: np.ndarray, excluded: np.ndarray) -> np.ndarray:
    """Return the sum over blocks of ``weights[p] @ values[p * bk:(p + 1) * bk]``.

    What is excluded is left out, not multiplied by zero: a NaN there does not show.
    """
    blocks, bm, bk = weights.shape
    width = values.shape[1]
    acc = np.zeros((bm, width), weights.dtype)
    if not np.isfinite(values).all():
        for r in range(bm):
            kept = ~excluded[:, r].ravel()
            acc[r] = weights[:, r].ravel()[kept] @ values[kept]
        return acc
    one = frozen(np.zeros(1, np.int64))
    multiply(
        acc.reshape(-1),
        one,
        width,
        one,
        frozen(np.full(1, blocks)),
        NO_TERMS,
        frozen(np.arange(blocks)),
        bk * width,
        0,
        width,
        frozen(weights),
        frozen(values.reshape(-1)),
        width,
    )
    return acc
