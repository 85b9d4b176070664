"""Sparse times sparse, a block row of the result at a time (Gustavson, ACM TOMS 4 (1978))."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..._arrays import accumulator_dtype, index_dtype
from ...pattern import Pattern
from .._pairs import Plan, plan_of_pairs
from ._jit import frozen, jit
from ._operands import widen
from ._threads import for_each, pieces, spans
from .scatter_mm import clear, scatter_mm

#: Blocks of up to this many rows and columns are compiled for their size, once each: loops of a
#: few steps take half the time unrolled.
_UNROLLED = 4
#: Columns of a block from which a product runs along them (measured): shorter rows take dot
#: products, of blocks that are 2x3 a tenth of the time.
_LONG = 8


def plan(
    left: Pattern,
    right: Pattern,
    batch: tuple[int, ...],
    exact: bool,
    function: str,
    argument: str,
) -> Plan:
    """Return the pattern of the result; of a batch, and for ``exact`` sums of int8, the pairs."""
    if batch or exact:
        return plan_of_pairs(left, right, batch, function, argument)
    (m, _), (_, n), bm, bn = left.shape, right.shape, left.blocksize[0], right.blocksize[1]
    columns = right.block_shape[1]
    patterns = _arrays(left, right)
    cut, cost = _spans(left, right)
    starts = np.zeros(left.block_shape[0] + 1, np.int64)
    for_each(lambda span: _count(starts[1:], *span, columns, *patterns), cut, cost)
    np.cumsum(starts, out=starts)
    nnzb = int(starts[-1])
    wide = index_dtype(max(nnzb, *left.block_shape, columns))
    indices = np.empty(nnzb, wide)
    for_each(lambda span: _columns(indices, starts, *span, columns, *patterns), cut, cost)
    made = Pattern(starts.astype(wide), indices, (m, n), (bm, bn), check=False, copy=False)
    return Plan(made, 0, None)


def spgemm(
    out: np.ndarray,
    plan: Plan,
    left: Pattern,
    a: np.ndarray,
    right: Pattern,
    b: np.ndarray,
    *,
    config: dict[str, Any] | None = None,
) -> None:
    """Write the blocks of ``a @ b``."""
    if plan.parts is not None:
        clear(out)
        scatter_mm(*(x.reshape(-1, *x.shape[-2:]) for x in (out, a, b)), *plan.parts)
        return
    bm, bk, bn = *a.shape[1:], b.shape[2]
    size = (0,) * bm if bm == bk == bn and bm <= _UNROLLED else ()
    blocks = frozen(widen(a)), frozen(widen(b))
    compute = accumulator_dtype(a.dtype)
    sums = out if out.dtype == compute else np.empty(out.shape, compute)
    sums.fill(0)
    indices, starts = (frozen(x) for x in (plan.pattern._indices, plan.pattern._indptr))
    columns, patterns = right.block_shape[1], _arrays(left, right)
    cut, cost = _spans(left, right)
    for_each(
        lambda span: _sum(sums, indices, starts, *span, columns, *patterns, *blocks, size),
        cut,
        cost,
    )
    if sums is not out:
        with np.errstate(all="ignore"):
            out[...] = sums


def _arrays(left: Pattern, right: Pattern) -> tuple[np.ndarray, ...]:
    """Return the index arrays of both patterns as the loops take them."""
    return tuple(frozen(x) for p in (left, right) for x in (p._indptr, p._indices))


def _spans(left: Pattern, right: Pattern) -> tuple[list[tuple[int, int]], int]:
    """Return the spans of block rows that threads share, and what all of them cost."""
    pairs = np.zeros(left.nnzb + 1, np.int64)
    np.cumsum(np.diff(right._indptr)[left._indices], out=pairs[1:])
    cost = int(pairs[-1]) * prod(left.blocksize) * right.blocksize[1]
    return spans(pairs[left._indptr[1:]], left.block_shape[0], pieces(cost)), cost


@jit()
def _count(counts, first, last, columns, a_ptr, a_columns, b_ptr, b_columns):
    """Write how many blocks the rows first..last of the result have."""
    seen = np.full(columns, -1, np.int64)
    for i in range(first, last):
        n = 0
        for p in range(a_ptr[i], a_ptr[i + 1]):
            k = a_columns[p]
            for q in range(b_ptr[k], b_ptr[k + 1]):
                j = b_columns[q]
                if seen[j] != i:
                    seen[j] = i
                    n += 1
        counts[i] = n


@jit()
def _columns(indices, starts, first, last, columns, a_ptr, a_columns, b_ptr, b_columns):
    """Write the block columns of the rows first..last, ascending."""
    seen = np.full(columns, -1, np.int64)
    for i in range(first, last):
        found, n = indices[starts[i] : starts[i + 1]], 0
        for p in range(a_ptr[i], a_ptr[i + 1]):
            k = a_columns[p]
            for q in range(b_ptr[k], b_ptr[k + 1]):
                j = b_columns[q]
                if seen[j] != i:
                    seen[j] = i
                    found[n] = j
                    n += 1
        found.sort()


@jit(fastmath={"contract"})
def _sum(
    sums, indices, starts, first, last, columns, a_ptr, a_columns, b_ptr, b_columns, a, b, size
):
    """Add up the rows first..last; ``size`` has bm = bk = bn elements, or none for any size."""
    bm, bk, bn, s = a.shape[1], a.shape[2], b.shape[2], np.uintp(len(size))
    m, d, n = np.uintp(bm), np.uintp(bk), np.uintp(bn)
    if len(size) > 0:
        m = d = n = s
    place = np.empty(columns, np.int64)
    flat_a, flat_b, flat = a.reshape(-1), b.reshape(-1), sums.reshape(-1)
    for i in range(first, last):
        for g in range(starts[i], starts[i + 1]):
            place[indices[g]] = g
        for p in range(a_ptr[i], a_ptr[i + 1]):
            k = a_columns[p]
            for q in range(b_ptr[k], b_ptr[k + 1]):
                g = place[b_columns[q]]
                if len(size) == 0 and bn >= _LONG:
                    total = flat[g * bm * bn : (g + 1) * bm * bn]
                    _add_product(total, flat_a[p * bm * bk :], flat_b[q * bk * bn :], bm, bk, bn)
                    continue
                o, x, y = np.uintp(g) * m * n, np.uintp(p) * m * d, np.uintp(q) * d * n
                for r in range(m):
                    for c in range(n):
                        element = flat[o + r * n + c]
                        for t in range(d):
                            element += flat_a[x + r * d + t] * flat_b[y + t * n + c]
                        flat[o + r * n + c] = element


@jit(fastmath={"contract"})
def _add_product(out, a, b, bm, bk, bn):
    """Add the product of two blocks, four steps of depth at a time, along the columns."""
    for r in range(bm):
        row = out[r * bn : r * bn + bn]
        k = 0
        while k + 4 <= bk:
            a0, a1, a2, a3 = a[r * bk + k], a[r * bk + k + 1], a[r * bk + k + 2], a[r * bk + k + 3]
            b0, b1 = b[k * bn :], b[(k + 1) * bn :]
            b2, b3 = b[(k + 2) * bn :], b[(k + 3) * bn :]
            for c in range(bn):
                row[c] += a0 * b0[c] + a1 * b1[c] + a2 * b2[c] + a3 * b3[c]
            k += 4
        while k < bk:
            a0, b0 = a[r * bk + k], b[k * bn :]
            for c in range(bn):
                row[c] += a0 * b0[c]
            k += 1
