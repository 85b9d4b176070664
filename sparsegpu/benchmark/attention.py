"""Attention and its gradients: operands, the calls, and checks at drawn queries and keys.

``size`` of a case is (queries, keys, features) of a head, ``batch`` its heads; all heads share one
mask. Exact results are computed in float64 for few rows, from the definition.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from types import ModuleType
from typing import Any

import numpy as np

import sparsegpu as sg

from .._arrays import dtype_of
from .._philox import dropout_keep
from ..testing import ATTENTION_TOLERANCE, assert_close, to_host
from ..tuning.operands import random_array
from .case import Case
from .check import fraction_used, stripes
from .patterns import block_pattern
from .workload import Arrays, Workload

_SEED = 7  # of dropout
_ROWS = 24  # queries that are checked, of the first and of the last head
#: Products of a stored score, in multiples of its features: scores and sums; for gradients the
#: scores again, those of the weights, and three sums.
_PRODUCTS = {"attention": 2, "attention gradients": 5}
OPERATIONS = tuple(_PRODUCTS)


@dataclass(eq=False)
class AttentionWorkload(Workload):
    """Attention over a mask that all heads share.

    Attributes
    ----------
    query, key, value : arrays (heads, L, E), (key heads, S, E), (key heads, S, E)
    mask : BlockMask
    known : list
        What the results must be, once it has been computed (`exact`).
    """

    query: Any
    key: Any
    value: Any
    mask: sg.BlockMask
    known: list[Any]

    def __post_init__(self) -> None:
        pattern = self.mask.get().pattern  # host arrays, for the checks
        self._starts, self._columns = pattern.indptr, pattern.indices

    @property
    def causal(self) -> bool:
        return self.case.pattern == "causal"

    @property
    def tolerance(self) -> float:
        """What results may differ by."""
        return ATTENTION_TOLERANCE["tf32" if self.case.tf32 else self.case.dtype]

    @property
    def stored(self) -> int:
        """Scores of all heads."""
        (m, k, _), (bm, bk) = self.case.shape, self.case.block
        if self.causal:
            of_head = k * (2 * m - k + 1) // 2 if m > k else m * (m + 1) // 2
        else:
            of_head = len(self._columns) * bm * bk
        return self.query.shape[0] * of_head

    @property
    def flops(self) -> int:
        return 2 * _PRODUCTS[self.case.operation] * self.stored * self.query.shape[-1]

    def keys_of(self, query: int) -> np.ndarray:
        """Return the keys that a query sees."""
        bm, bk = self.case.block
        first, last = self._starts[query // bm : query // bm + 2]
        blocks = self._columns[first:last].astype(np.int64)
        keys = (blocks[:, None] * bk + np.arange(bk)).ravel()
        return keys[keys <= query] if self.causal else keys

    def heads(self) -> list[tuple[int, int]]:
        """Return the heads that are checked, each with its key head."""
        return [(h, h // self.case.group) for h in sorted({0, self.query.shape[0] - 1})]

    def weights(self, queries: np.ndarray, keys: np.ndarray, seen: Any = True) -> np.ndarray:
        """Return the weights of some queries for keys, of which each sees all or those ``seen``."""
        scores = np.where(seen, queries @ keys.T / np.sqrt(queries.shape[1]), -np.inf)
        powers = np.exp(scores - scores.max(axis=1, initial=-np.inf, keepdims=True))
        return powers / np.maximum(powers.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)

    def exact(self) -> list[Any]:
        """Return what the results of each checked head must be, for all cases on these operands."""
        if not self.known:
            self.known += [self._exact(*heads) for heads in self.heads()]
        return self.known

    @abstractmethod
    def _exact(self, head: int, kv: int) -> Any:
        """Return what the results of a head with its key head must be, at drawn places."""


class Forward(AttentionWorkload):
    """The forward call, which writes to an array of its own."""

    def error(self) -> float:
        """Compare drawn queries of the first and of the last head."""
        (out,) = self.results()
        if not bool((out == out).all()):
            raise AssertionError("NaN in the result: elements were not written")
        worst = 0.0
        for (head, _), (queries, exact) in zip(self.heads(), self.exact(), strict=True):
            got = to_host(out[head][self.mask._xp.asarray(queries)])
            bound = self.tolerance * (1 + np.abs(exact))
            assert_close(got, exact, bound)
            worst = max(worst, fraction_used(got, exact, bound))
        return worst

    def _exact(self, head: int, kv: int) -> tuple[np.ndarray, np.ndarray]:
        """Return drawn queries, and the rows of the result that are theirs."""
        length = self.query.shape[1]
        queries = stripes(length, np.random.default_rng(head), _ROWS)
        rows = []
        for i in queries:
            seen = self.keys_of(int(i))
            keys = self.mask._xp.asarray(seen)
            q, k, v = (
                _wide(a) for a in (self.query[head, i], self.key[kv][keys], self.value[kv][keys])
            )
            weights, p = self.weights(q[None], k)[0], self.case.dropout
            if p:
                number = (head * length + int(i)) * self.key.shape[1] + seen
                weights = weights * dropout_keep(number, _SEED, p) / (1 - p)
            rows.append(weights @ v)
        return queries, np.stack(rows)


@dataclass(eq=False)
class Backward(AttentionWorkload):
    """The backward call.

    Attributes
    ----------
    grad : array (heads, L, E)
    """

    grad: Any

    def results(self) -> Arrays:
        found = self.call()
        return found.query, found.key, found.value

    def error(self) -> float:
        """Compare drawn queries, and the keys of a drawn block, of the first and the last head."""
        results, worst = self.results(), 0.0
        for (head, kv), exact in zip(self.heads(), self.exact(), strict=True):
            for found, (places, values, sizes) in zip(results, exact, strict=True):
                matrix = found[head if found.shape[0] == self.query.shape[0] else kv]
                got = to_host(matrix[self.mask._xp.asarray(places)])
                bound = 2 * self.tolerance * sizes
                assert_close(got, values, bound)
                worst = max(worst, fraction_used(got, values, bound))
        return worst

    def _exact(self, head: int, kv: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Return rows of each gradient: places, exact values, sums of absolute products."""
        rng = np.random.default_rng(head)
        (bm, bk), length, scale = self.case.block, self.query.shape[1], self.query.shape[2] ** -0.5
        k, v = _wide(self.key[kv]), _wide(self.value[kv])
        queries = stripes(length, rng, _ROWS)
        block = int(self._columns[rng.integers(len(self._columns) * 3 // 4, len(self._columns))])
        places = block * bk + np.arange(bk)
        rows = np.repeat(np.arange(length // bm), np.diff(self._starts))
        of_query = np.zeros((2, len(queries), k.shape[1]))
        of_key, of_value = np.zeros((2, bk, k.shape[1])), np.zeros((2, bk, v.shape[1]))
        for h in range(kv * self.case.group, (kv + 1) * self.case.group):
            q, g = _wide(self.query[h]), _wide(self.grad[h])
            for row in rows[self._columns == block]:  # all queries of a block row together
                mine = row * bm + np.arange(bm)
                keys = self.keys_of(int(mine[-1]))
                seen = keys <= mine[:, None] if self.causal else True
                found = self._through(q[mine], k[keys], v[keys], g[mine], seen)
                inside = keys // bk == block
                at = keys[inside] - places[0]
                weights, dscores, sizes = (part[:, inside].T for part in found)
                of_key[:, at] += dscores @ q[mine] * scale, sizes @ np.abs(q[mine]) * scale
                of_value[:, at] += weights @ g[mine], weights @ np.abs(g[mine])
            if h == head:
                for n, i in enumerate(queries):
                    keys = self.keys_of(int(i))
                    _, dscores, sizes = self._through(q[[i]], k[keys], v[keys], g[[i]])
                    of_query[0, n] = scale * (dscores @ k[keys])[0]
                    of_query[1, n] = scale * (sizes @ np.abs(k[keys]))[0]
        return [(queries, *of_query), (places, *of_key), (places, *of_value)]

    def _through(
        self, q: Any, k: Any, v: Any, g: Any, seen: Any = True
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return queries' weights, what their scores change the loss by, and their sizes."""
        weights = self.weights(q, k, seen)
        dweights, large = g @ v.T, np.abs(g) @ np.abs(v).T
        return (
            weights,
            weights * (dweights - (weights * dweights).sum(axis=1, keepdims=True)),
            weights * (large + (weights * large).sum(axis=1, keepdims=True)),
        )


@lru_cache(maxsize=1)
def _drawn(case: Case, xp: ModuleType) -> tuple[tuple[Any, Any, Any], sg.BlockMask, list[Any]]:
    """Draw a case's query, key and value, and its mask; the list is `AttentionWorkload.known`."""
    (m, k, n), dtype, heads = case.shape, dtype_of(case.dtype), case.batch
    query = random_array(xp, (heads, m, n), dtype, 1)
    key, value = (random_array(xp, (heads // case.group, k, n), dtype, seed) for seed in (2, 3))
    return (query, key, value), make_mask(case, xp), []


def make_attention(case: Case, xp: ModuleType) -> AttentionWorkload:
    """Return a case's workload; cases that differ only in path or tile share their operands."""
    plain = replace(case, path="", fields=(), peers=(), peers_of="", dropout=0.0, tf32=False)
    operands, mask, known = _drawn(plain, xp)
    of_mask = mask.kind, mask.bits, mask.indices, mask.indptr
    given: dict[str, Any] = case.config | {"allow_tf32": case.tf32}
    if case.dropout:
        given |= {"dropout_p": case.dropout, "seed": _SEED}
        known = []  # what it must be is another
    if case.operation == "attention":
        out = xp.empty_like(operands[0])
        call: Callable[[], Any] = partial(
            sg.scaled_dot_product_attention, *operands, mask, out=out, **given
        )
        return Forward(case, call, mask.kind, (*operands, *of_mask), *operands, mask, known)
    grad = random_array(xp, operands[0].shape, dtype_of(case.dtype), 4)
    out, lse = sg.scaled_dot_product_attention(*operands, mask, return_lse=True)
    call = partial(
        sg.scaled_dot_product_attention_backward, grad, *operands, mask, out, lse, **given
    )
    read = (grad, *operands, out, lse, *of_mask)
    return Backward(case, call, mask.kind, read, *operands, mask, known, grad)


def make_mask(case: Case, xp: ModuleType) -> sg.BlockMask:
    """Draw a case's mask."""
    m, k, _ = case.shape
    if case.pattern == "causal":
        triangle = sg.causal((m, k), case.block, compact=True, xp=xp)
        assert isinstance(triangle, sg.BlockMask)
        return triangle
    (bm, bk), rng = case.block, np.random.default_rng(0)
    indptr, indices = block_pattern(case.pattern, (m // bm, k // bk), case.density, rng)
    whole = xp.broadcast_to(xp.ones((len(indices), 1, 1), bool), (len(indices), bm, bk))
    arrays = whole, xp.asarray(indices), xp.asarray(indptr)
    return sg.BlockMask.from_bsr(sg.bsr_array(arrays, shape=(m, k), check=False))


def _wide(array: Any) -> np.ndarray:
    return to_host(array).astype(np.float64)
