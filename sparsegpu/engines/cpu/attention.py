"""Attention over the positions that a block pattern stores, a strip of a head at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..._epilogue import store
from ..._score import Score
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
    score: Score,
    sinks: np.ndarray | None,
    *,
    allow_tf32: bool = False,
    config: dict[str, Any] | None = None,
) -> None:
    """Write ``softmax(scale * query @ key.T + mask) @ value`` over the stored positions.

    out is (*B, H, L, Ev), query (*B, H, L, E), key (*B, Hkv, S, E), value (*B, Hkv, S, Ev):
    query head h reads key head ``h // (H // Hkv)``. ``pattern`` is canonical; it and
    ``mask_data`` (bool or float) broadcast over (*B, H), as do sinks. `_score` says what is done
    to a score. At any time a thread holds the scores of a strip of block rows, stored as the
    pattern stores its blocks: (blocks, bm, bk).

    ``allow_tf32`` and ``config`` have no effect.
    """
    del allow_tf32, config
    heads = score.heads
    bm, bk = pattern.blocksize
    group = heads[-1] // max(key.shape[-3], 1)
    query = np.broadcast_to(query, heads + query.shape[-2:])
    key = np.broadcast_to(key, heads[:-1] + key.shape[-3:])
    value = np.broadcast_to(value, heads[:-1] + value.shape[-3:])
    indptr = np.broadcast_to(pattern._indptr, heads + pattern._indptr.shape[-1:])
    indices = np.broadcast_to(pattern._indices, heads + pattern._indices.shape[-1:])
    mask_data = np.broadcast_to(mask_data, heads + mask_data.shape[-3:])

    def strip(item: tuple[tuple[int, ...], int, int]) -> None:
        head, first, last = item
        kv_head = (*head[:-1], head[-1] // group)
        rows = slice(first * bm, last * bm)
        ends = indptr[head][first : last + 1].astype(np.int64)
        stored = slice(ends[0], ends[-1])
        row = np.repeat(np.arange(last - first, dtype=indices.dtype), np.diff(ends))
        block = Blocks(frozen(ends - ends[0]), frozen(row), frozen(indices[head][stored]))
        q = (row[:, None, None].astype(np.int64) + first) * bm + np.arange(bm)[:, None]
        k = block.column.astype(np.int64)[:, None, None] * bk + np.arange(bk)

        scores = dots(query[head][rows], key[kv_head], block.row, block.column, bm, bk)
        attended = score.logits(scores, head, mask_data[head][stored], q, k)
        sink = None if sinks is None else np.broadcast_to(sinks, heads)[head]
        row_lse = _softmax(scores, block, sink)
        if lse is not None:
            lse[head][rows] = row_lse
        excluded = ~score.dropout(scores, head, attended, q, k)
        np.copyto(scores, 0, where=excluded)
        weights = widen(scores.astype(value.dtype))
        store(weighted(weights, value[kv_head], block, excluded), out[head][rows])

    scores = pattern.nnzb * bm * bk
    cost = scores * (query.shape[-1] + value.shape[-1])
    items = []
    for head in np.ndindex(heads):
        cut = strips(indptr[head], scores, cost)
        items += [(head, *span) for span in cut]
    for_each(strip, items, cost * len(items))


def strips(ends: np.ndarray, scores: int, cost: float) -> list[tuple[int, int]]:
    """Cut the block rows that end there, of so many scores and multiply-adds, into strips."""
    count = len(ends) - 1
    return spans(ends[1:], count, max(scores // _SCORES, pieces(cost)))


class Blocks(NamedTuple):
    """The blocks of a strip: ``ends`` of its block rows, and row and column of each block."""

    ends: np.ndarray
    row: np.ndarray
    column: np.ndarray


def dots(
    left: np.ndarray, right: np.ndarray, rows: np.ndarray, columns: np.ndarray, bm: int, bk: int
) -> np.ndarray:
    """Return ``left @ right.T`` at the blocks in these block rows and columns, (blocks, bm, bk)."""
    flat_left, left_ld = real_rows(left)
    flat_right, right_ld = real_rows(right)
    acc = np.zeros((len(rows), bm, bk), flat_left.dtype)
    depth = left.shape[1]
    dot_blocks(
        acc.reshape(-1), rows, columns, bm, bk, flat_left, left_ld, flat_right, right_ld, depth
    )
    return acc


def _softmax(scores: np.ndarray, block: Blocks, sink: np.ndarray | None) -> np.ndarray:
    """Replace scores by weights, in place; return the log-sum-exp of each row."""
    top = np.empty((len(block.ends) - 1) * scores.shape[1], scores.dtype)
    total = np.empty_like(top)
    subtract_maximum(scores, block.ends, top, 0.0)  # nothing to attend to: exp(-inf - 0) = 0
    np.exp(scores, out=scores)
    divide_by_sum(scores, block.ends, total)
    if sink is not None:
        top = np.where(total == 0, -np.inf, top)
        highest = np.maximum(top, sink)
        highest = np.where(highest == -np.inf, 0, highest)
        attended = total * np.exp(top - highest)
        total = attended + np.exp(sink - highest)
        share = attended / np.where(total == 0, 1, total)
        scores *= share.reshape(-1, scores.shape[1])[block.row][..., None].astype(scores.dtype)
        top = highest
    return np.log(total) + top


def weighted(
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
