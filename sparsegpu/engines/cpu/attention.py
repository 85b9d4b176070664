"""Attention over the positions that a block pattern stores, a strip of a head at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..._epilogue import store
from ..._philox import dropout_keep
from ...pattern import Pattern
from ._jit import frozen
from ._kernels import dot_blocks, multiply
from ._operands import NO_TERMS, real_rows, widen
from ._threads import for_each, pieces, spans
from .softmax import divide_by_sum, subtract_maximum

#: Scores in a strip; a single block row may have more.
_SCORES = 1 << 18


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
    of a strip of block rows, stored as the pattern stores its blocks: (blocks, bm, bk).
    """
    heads = out.shape[:-2]
    bm, bk = pattern.blocksize
    length, width = pattern.shape
    group = heads[-1] // max(key.shape[-3], 1)
    query = np.broadcast_to(query, heads + query.shape[-2:])
    key = np.broadcast_to(key, heads[:-1] + key.shape[-3:])
    value = np.broadcast_to(value, heads[:-1] + value.shape[-3:])
    indptr = np.broadcast_to(pattern._indptr, heads + pattern._indptr.shape[-1:])
    indices = np.broadcast_to(pattern._indices, heads + pattern._indices.shape[-1:])
    mask_data = np.broadcast_to(mask_data, heads + mask_data.shape[-3:])

    def strip(item: tuple[int, tuple[int, ...], int, int]) -> None:
        number, head, first, last = item
        kv_head = (*head[:-1], head[-1] // group)
        rows = slice(first * bm, last * bm)
        ends = indptr[head][first : last + 1].astype(np.int64)
        stored = slice(ends[0], ends[-1])
        row = np.repeat(np.arange(last - first, dtype=indices.dtype), np.diff(ends))
        block = Blocks(frozen(ends - ends[0]), frozen(row), frozen(indices[head][stored]))
        q = (row[:, None, None].astype(np.int64) + first) * bm + np.arange(bm)[:, None]
        k = block.column.astype(np.int64)[:, None, None] * bk + np.arange(bk)

        scores = _scores(query[head][rows], key[kv_head], block, bm, bk)
        scores *= scores.dtype.type(scale)
        excluded = _mask(scores, mask_data[head][stored])
        if is_causal:
            excluded = excluded | (q < k)
        np.copyto(scores, -np.inf, where=excluded)
        row_lse = _softmax(scores, block)
        if lse is not None:
            lse[head][rows] = row_lse
        if dropout_p > 0:
            scores /= scores.dtype.type(1 - dropout_p)
            score = (number * length + q) * width + k
            excluded = excluded | ~dropout_keep(score, seed, dropout_p)
        np.copyto(scores, 0, where=excluded)
        weights = widen(scores.astype(value.dtype))
        store(_weighted(weights, value[kv_head], block, excluded), out[head][rows])

    scores = pattern.nnzb * bm * bk
    cost = scores * (query.shape[-1] + value.shape[-1])
    items = []
    for number, head in enumerate(np.ndindex(heads)):
        cut = spans(indptr[head][1:], pattern.block_shape[0], max(scores // _SCORES, pieces(cost)))
        items += [(number, head, *span) for span in cut]
    for_each(strip, items, cost * len(items))


class Blocks(NamedTuple):
    """The blocks of a strip: ``ends`` of its block rows, and row and column of each block."""

    ends: np.ndarray
    row: np.ndarray
    column: np.ndarray


def _scores(query: np.ndarray, key: np.ndarray, block: Blocks, bm: int, bk: int) -> np.ndarray:
    """Return ``query @ key.T`` at the blocks, (blocks, bm, bk)."""
    left, left_ld = real_rows(query)
    right, right_ld = real_rows(key)
    scores = np.zeros((len(block.row), bm, bk), left.dtype)
    depth = query.shape[1]
    flat = scores.reshape(-1)
    dot_blocks(flat, block.row, block.column, bm, bk, left, left_ld, right, right_ld, depth)
    return scores


def _mask(scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Add a floating mask; return what it or a bool one excludes."""
    if mask.dtype == bool:
        return ~mask
    mask = mask.astype(scores.dtype)
    scores += mask
    return mask == -np.inf


def _softmax(scores: np.ndarray, block: Blocks) -> np.ndarray:
    """Replace scores by weights, in place; return the log-sum-exp of each row."""
    top = np.empty((len(block.ends) - 1) * scores.shape[1], scores.dtype)
    total = np.empty_like(top)
    subtract_maximum(scores, block.ends, top, 0.0)  # nothing to attend to: exp(-inf - 0) = 0
    np.exp(scores, out=scores)
    divide_by_sum(scores, block.ends, total)
    return np.log(total) + top


def _weighted(
    weights: np.ndarray, value: np.ndarray, block: Blocks, excluded: np.ndarray
) -> np.ndarray:
    """Return ``weights @ value``, one row for each of the strip.

    What is excluded is left out, not multiplied by zero: a NaN there does not propagate.
    """
    (_, bm, bk), count, width = weights.shape, len(block.ends) - 1, value.shape[1]
    acc = np.zeros((count * bm, width), weights.dtype)
    dense, ld = real_rows(value)
    multiply(
        acc.reshape(-1),
        frozen(np.arange(count) * (bm * width)),
        width,
        block.ends[:-1],
        block.ends[1:],
        NO_TERMS,
        block.column,
        bk * ld,
        0,
        ld,
        frozen(weights),
        dense,
        width,
    )
    finite = np.isfinite(value.astype(dense.dtype, copy=False)).reshape(-1, bk * width).all(axis=1)
    if not finite[block.column].all():
        for i in np.unique(block.row[~finite[block.column]]):
            stored = slice(block.ends[i], block.ends[i + 1])
            k = block.column[stored, None].astype(np.int64) * bk + np.arange(bk)
            for r in range(bm):
                kept = ~excluded[stored, r].ravel()
                acc[i * bm + r] = weights[stored, r].ravel()[kept] @ widen(value[k.ravel()[kept]])
    return acc
