"""Gradients of attention: each is written once, in one order, whatever the number of threads."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..._epilogue import store
from ..._score import Score
from ...pattern import Pattern
from ..reference.attention_backward import delta_of, finite_or_zero, sinks_gradient
from ._jit import frozen
from ._threads import for_each
from .attention import Blocks, dots, strips, weighted


@np.errstate(all="ignore")
def attention_backward(
    gradients: tuple[Any, Any, Any, Any, Any],
    grad: np.ndarray,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    pattern: Pattern,
    mask_data: np.ndarray,
    out: np.ndarray,
    lse: np.ndarray,
    grad_lse: np.ndarray | None,
    score: Score,
    sinks: np.ndarray | None,
    *,
    allow_tf32: bool = False,
    config: dict[str, Any] | None = None,
) -> None:
    """Write the gradients of query, key, value, mask and sinks; None is not wanted.

    The formulas, and the arguments, are the reference's. The gradient of query walks the block
    rows of the pattern, those of key and value its block columns, each strip computing its weights
    again from lse. A strip adds up all heads that read its matrix before it writes.
    """
    del allow_tf32, config  # they choose among kernels
    call = _Call(grad, query, key, value, pattern, mask_data, lse, score)
    call.delta = delta_of(grad, out, grad_lse, lse.dtype)
    of_query, of_key, of_value, of_mask, of_sinks = gradients
    by_rows, by_columns = _rows(pattern, score.heads), _columns(pattern, score.heads)
    call.walk(by_rows, {"query": of_query})
    if of_key.shape[:-2] == of_value.shape[:-2]:
        call.walk(by_columns, {"key": of_key, "value": of_value})
    else:
        call.walk(by_columns, {"key": of_key})
        call.walk(by_columns, {"value": of_value})
    if of_mask is not None:
        call.mask_gradient(by_rows, of_mask)
    if of_sinks is not None:
        assert sinks is not None
        store(sinks_gradient(sinks, lse, call.delta), of_sinks)


class _Walk(NamedTuple):
    """The blocks of each head in some order; arrays are (*B, H, ...).

    ``axis`` is 0 for block rows and 1 for block columns, in which the blocks are grouped: group i
    has the blocks ``ends[i]..ends[i + 1]``. ``row`` and ``column`` say where they are, ``stored``
    which of the pattern's blocks they are.
    """

    axis: int
    ends: np.ndarray
    row: np.ndarray
    column: np.ndarray
    stored: np.ndarray


def _rows(pattern: Pattern, heads: tuple[int, ...]) -> _Walk:
    stored = np.arange(pattern.nnzb)
    parts = pattern._indptr, pattern._rows, pattern._indices, stored
    return _Walk(0, *(np.broadcast_to(a, (*heads, a.shape[-1])) for a in parts))


def _columns(pattern: Pattern, heads: tuple[int, ...]) -> _Walk:
    transposed, order = pattern.transposed()
    stored = order.reshape(pattern._indices.shape) % max(pattern.nnzb, 1)
    parts = transposed._indptr, transposed._indices, transposed._rows, stored
    return _Walk(1, *(np.broadcast_to(a, (*heads, a.shape[-1])) for a in parts))


class _Pairs(NamedTuple):
    """Queries and keys of some blocks, (blocks, bm, bk): weights, gradients and what counts."""

    weights: np.ndarray
    dlogit: np.ndarray
    dacc: np.ndarray
    attended: np.ndarray
    kept: np.ndarray


class _Call:
    """What the passes of one call share."""

    delta: np.ndarray

    def __init__(self, grad, query, key, value, pattern, mask_data, lse, score):
        heads = score.heads
        self.grad, self.lse, self.score, self.pattern = grad, lse, score, pattern
        self.query = np.broadcast_to(query, heads + query.shape[-2:])
        self.key, self.value = (np.broadcast_to(a, heads[:-1] + a.shape[-3:]) for a in (key, value))
        self.mask = np.broadcast_to(mask_data, heads + mask_data.shape[-3:])
        self.group = heads[-1] // max(key.shape[-3], 1)
        self.scores = pattern.nnzb * pattern.blocksize[0] * pattern.blocksize[1]
        self.cost = 3 * self.scores * (query.shape[-1] + value.shape[-1])

    def kv(self, head: tuple[int, ...]) -> tuple[int, ...]:
        return (*head[:-1], head[-1] // self.group)

    def pairs(self, head: tuple[int, ...], walk: _Walk, span: slice) -> _Pairs:
        """Return what is known of the blocks of a head that a walk meets in a span."""
        bm, bk = self.pattern.blocksize
        row, column = frozen(walk.row[head][span]), frozen(walk.column[head][span])
        q = row.astype(np.int64)[:, None, None] * bm + np.arange(bm)[:, None]
        k = column.astype(np.int64)[:, None, None] * bk + np.arange(bk)
        kv, score = self.kv(head), self.score
        p = dots(self.query[head], self.key[kv], row, column, bm, bk)
        derivative = score.derivative(p)
        attended = score.logits(p, head, self.mask[head][walk.stored[head][span]], q, k)
        p -= finite_or_zero(self.lse[head][q])
        np.exp(p, out=p)
        weights = p.copy()
        kept = score.dropout(weights, head, attended, q, k)
        np.copyto(weights, 0, where=~kept)
        dlogit = dots(self.grad[head], self.value[kv], row, column, bm, bk)
        dlogit *= weights
        np.copyto(dlogit, 0, where=~kept)
        dlogit -= p * self.delta[head][q]
        np.copyto(dlogit, 0, where=~attended)
        dacc = dlogit * derivative
        np.copyto(dacc, 0, where=~attended)  # there the derivative may be NaN
        return _Pairs(weights, dlogit, dacc, attended, kept)

    def walk(self, walk: _Walk, gradients: dict[str, np.ndarray]) -> None:
        """Write gradients of operands that broadcast alike and whose blocks a walk groups."""
        size = self.pattern.blocksize[walk.axis]
        own = next(iter(gradients.values())).shape[:-2]
        readers = _readers(own, self.score.heads)

        def strip(item: tuple[tuple[int, ...], int, int]) -> None:
            owner, first, last = item
            rows = slice(first * size, last * size)
            totals = {
                name: np.zeros((rows.stop - rows.start, g.shape[-1]), self.lse.dtype)
                for name, g in gradients.items()
            }
            for head in readers[owner]:
                ends = walk.ends[head][first : last + 1].astype(np.int64)
                span = slice(ends[0], ends[-1])
                pairs = self.pairs(head, walk, span)
                places = walk.row[head][span], walk.column[head][span]
                group, other = places[walk.axis] - first, places[1 - walk.axis]
                block = Blocks(frozen(ends - ends[0]), frozen(group), frozen(other))
                for name, total in totals.items():
                    total += self.product(name, head, pairs, block)
            for name, total in totals.items():
                store(total, gradients[name][owner][rows])

        items = []
        for owner, heads in readers.items():
            cut = strips(walk.ends[heads[0]], self.scores, self.cost)
            items += [(owner, *span) for span in cut]
        for_each(strip, items, self.cost * self.lse[..., 0].size)

    def product(self, name: str, head: tuple[int, ...], pairs: _Pairs, block: Blocks) -> np.ndarray:
        """Return what one head adds to a gradient."""
        if name == "query":
            return weighted(pairs.dacc, self.key[self.kv(head)], block, ~pairs.attended)
        weights, rows, counts = (
            (pairs.dacc, self.query[head], pairs.attended)
            if name == "key"
            else (pairs.weights, self.grad[head], pairs.kept)
        )
        transposed = np.ascontiguousarray(weights.swapaxes(-1, -2))
        return weighted(transposed, rows, block, ~counts.swapaxes(-1, -2))

    def mask_gradient(self, walk: _Walk, gradient: np.ndarray) -> None:
        """Write the gradient of the mask's stored elements."""
        readers = _readers(gradient.shape[:-3], self.score.heads)

        def some_blocks(item: tuple[tuple[int, ...], slice]) -> None:
            owner, span = item
            total = np.zeros(gradient[owner][span].shape, self.lse.dtype)
            for head in readers[owner]:
                total += self.pairs(head, walk, span).dlogit
            store(total, gradient[owner][span])

        cut = strips(np.arange(self.pattern.nnzb + 1), self.scores, self.cost)
        items = [(owner, slice(*span)) for owner in readers for span in cut]
        for_each(some_blocks, items, self.cost * self.lse[..., 0].size)


def _readers(
    own: tuple[int, ...], heads: tuple[int, ...]
) -> dict[tuple[int, ...], list[tuple[int, ...]]]:
    """Return which heads of (*B, H) read each matrix of an operand of batch shape ``own``.

    It broadcasts, or has fewer heads, each for a group of them.
    """
    readers: dict[tuple[int, ...], list[tuple[int, ...]]] = {o: [] for o in np.ndindex(own)}
    for head in np.ndindex(heads):
        place = head[len(heads) - len(own) :]
        sizes = heads[len(heads) - len(own) :]
        readers[tuple(i * n // size for i, n, size in zip(place, own, sizes))].append(head)
    return readers
