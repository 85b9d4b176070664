"""Gradients of attention over the positions that a block pattern stores."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._epilogue import store
from ..._score import Score
from ...pattern import Pattern
from .attention import block_rows, over_heads, over_kept, scores


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

    With the weights p, and z = 1 / (1 - dropout_p) where dropout keeps a weight, else 0::

        delta  = rowsum(grad * out) - grad_lse
        dlogit = p * (z * (grad @ value.T) - delta)
        dvalue = (p * z).T @ grad
        dquery = (dlogit * dlogit/dacc) @ key        dkey  = (dlogit * dlogit/dacc).T @ query
        dmask  = dlogit                              dsink = -sum over queries of p_sink * delta

    each summed over what its operand broadcasts over. Arguments as in `attention.attention`;
    grad and out are (*B, H, L, Ev), lse and grad_lse (*B, H, L).
    """
    del allow_tf32, config  # they choose among kernels
    heads, (bm, bk) = score.heads, pattern.blocksize
    query, key, value = over_heads(heads, query, key, value)
    dquery, dkey, dvalue = (np.zeros(a.shape, lse.dtype) for a in (query, key, value))
    dmask = np.zeros((*heads, pattern.nnzb, bm, bk), lse.dtype)
    delta = delta_of(grad, out, grad_lse, lse.dtype)
    for row in block_rows(heads, pattern, mask_data):
        rows: Any = (*row.head, row.rows)
        columns: Any = (*row.head, row.columns)
        stored: Any = (*row.head, row.stored)
        logits = scores(query[rows], key[columns])
        derivative = score.derivative(logits)
        attended = score.logits(logits, row.head, row.mask, row.queries, row.columns)
        p = np.exp(logits - finite_or_zero(lse[rows])[:, None])
        pz = p.copy()
        kept = score.dropout(pz, row.head, attended, row.queries, row.columns)
        dweight = np.where(kept, pz * scores(grad[rows], value[columns]), 0)
        dlogit = np.where(attended, dweight - p * delta[rows][:, None], 0)
        dacc = dlogit * derivative
        dquery[rows] = over_kept(dacc, key[columns], attended)
        dkey[columns] += over_kept(dacc.T, query[rows], attended.T)
        dvalue[columns] += over_kept(pz.T, grad[rows], kept.T)
        dmask[stored] = dlogit.reshape(bm, -1, bk).swapaxes(0, 1)
    for gradient, wide in zip(gradients, (dquery, dkey, dvalue)):
        own = gradient.shape[-3]
        groups = wide.reshape(*heads[:-1], own, heads[-1] // max(own, 1), *wide.shape[-2:])
        store(_summed_to(gradient.shape, groups.sum(axis=-3)), gradient)
    _, _, _, of_mask, of_sinks = gradients
    if of_mask is not None:
        store(_summed_to(of_mask.shape, dmask), of_mask)
    if of_sinks is not None:
        assert sinks is not None
        store(sinks_gradient(sinks, lse, delta), of_sinks)


def delta_of(
    grad: np.ndarray, out: np.ndarray, grad_lse: np.ndarray | None, compute: np.dtype
) -> np.ndarray:
    """Return ``rowsum(grad * out) - grad_lse``, (*B, H, L)."""
    delta = (grad.astype(compute) * out.astype(compute)).sum(axis=-1)
    return delta if grad_lse is None else delta - grad_lse


def finite_or_zero(lse: np.ndarray) -> np.ndarray:
    """Return lse, 0 for -inf: a query that attends to nothing has ``exp(-inf - 0) = 0``."""
    return np.where(lse == -np.inf, 0, lse)


def sinks_gradient(sinks: np.ndarray, lse: np.ndarray, delta: np.ndarray) -> np.ndarray:
    """Return the gradient of sinks (H,) or (*B, H), whose weight is ``exp(sink - lse)``."""
    weights = np.exp(sinks[..., None] - finite_or_zero(lse))
    return _summed_to(sinks.shape, -(weights * delta).sum(axis=-1))


def _summed_to(shape: tuple[int, ...], wide: np.ndarray) -> np.ndarray:
    """Return the sum over the axes that ``shape`` lacks or has 1 of."""
    wide = wide.sum(axis=tuple(range(wide.ndim - len(shape))))
    repeated = tuple(d for d, n in enumerate(shape) if n == 1 and wide.shape[d] != 1)
    return wide.sum(axis=repeated, keepdims=True)
