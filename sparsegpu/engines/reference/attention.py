"""Attention over the positions that a block pattern stores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ..._epilogue import store
from ..._score import Score
from ...pattern import Pattern


@np.errstate(all="ignore")
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
    to a score. One block row of one head at a time.

    ``allow_tf32`` and ``config`` have no effect.
    """
    del allow_tf32, config
    query, key, value = over_heads(score.heads, query, key, value)
    for row in block_rows(score.heads, pattern, mask_data):
        logits = scores(query[row.head][row.rows], key[row.head][row.columns])
        attended = score.logits(logits, row.head, row.mask, row.queries, row.columns)
        sink = None if sinks is None else np.broadcast_to(sinks, score.heads)[row.head]
        weights, row_lse = _softmax(logits, sink)
        kept = score.dropout(weights, row.head, attended, row.queries, row.columns)
        weights = np.where(kept, weights, 0).astype(value.dtype).astype(weights.dtype)
        store(over_kept(weights, value[row.head][row.columns], kept), out[row.head][row.rows])
        if lse is not None:
            lse[row.head][row.rows] = row_lse


class BlockRow(NamedTuple):
    """A block row of one head's mask.

    Attributes
    ----------
    head : tuple of int
        Of (*B, H).
    stored : slice
        Its blocks.
    rows : slice
        Its queries.
    queries : array (bm, 1)
        Their positions.
    columns : array (n,)
        Positions of the keys of its blocks.
    mask : array (bm, n)
    """

    head: tuple[int, ...]
    stored: slice
    rows: slice
    queries: np.ndarray
    columns: np.ndarray
    mask: np.ndarray


def block_rows(
    heads: tuple[int, ...], pattern: Pattern, mask_data: np.ndarray
) -> Iterator[BlockRow]:
    """Yield every block row of every head."""
    bm, bk = pattern.blocksize
    indptr = np.broadcast_to(pattern._indptr, heads + pattern._indptr.shape[-1:])
    indices = np.broadcast_to(pattern._indices, heads + pattern._indices.shape[-1:])
    mask_data = np.broadcast_to(mask_data, heads + mask_data.shape[-3:])
    for head in np.ndindex(heads):
        for i in range(pattern.block_shape[0]):
            stored = slice(indptr[head][i], indptr[head][i + 1])
            columns = (indices[head][stored, None].astype(np.int64) * bk + np.arange(bk)).ravel()
            mask = mask_data[head][stored].swapaxes(0, 1).reshape(bm, len(columns))
            rows = slice(i * bm, (i + 1) * bm)
            yield BlockRow(
                head, stored, rows, np.arange(rows.start, rows.stop)[:, None], columns, mask
            )


def over_heads(heads: tuple[int, ...], *operands: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return operands (*B, heads of their own, length, width), repeated over (*B, H)."""

    def repeated(operand: np.ndarray) -> np.ndarray:
        own, *matrix = operand.shape[-3:]
        operand = np.broadcast_to(operand, (*heads[:-1], own, *matrix))
        group = heads[-1] // max(own, 1)
        return operand if group == 1 else operand.repeat(group, axis=-3)

    return tuple(map(repeated, operands))


def scores(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return ``left @ right.T`` in the accumulator's dtype."""
    compute = np.dtype(np.float64 if left.dtype == np.float64 else np.float32).type
    return left.astype(compute) @ right.astype(compute).T


def _softmax(logits: np.ndarray, sink: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights (rows, columns) of one block row, and their log-sum-exp (rows,)."""
    highest = -np.inf if sink is None else sink
    top = logits.max(axis=1, keepdims=True, initial=highest)
    top = np.where(top == -np.inf, 0, top)  # a row that attends to nothing: exp(-inf - 0) = 0
    e = np.exp(logits - top)
    total = e.sum(axis=1, keepdims=True)
    if sink is not None:
        total = total + np.exp(sink - top)
    lse = np.log(total) + top
    return e / np.where(total == 0, 1, total), lse[:, 0]


def over_kept(weights: np.ndarray, values: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Return ``weights @ values`` over the kept positions.

    What is not kept is left out, not multiplied by zero: a NaN there does not propagate.
    """
    wide = values.astype(weights.dtype)
    if not len(weights) or np.isfinite(wide).all():
        return np.where(kept, weights, 0) @ wide
    return np.stack([w[keep] @ wide[keep] for w, keep in zip(weights, kept)])
