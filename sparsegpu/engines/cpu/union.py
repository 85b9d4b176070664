"""Values over the union of two block patterns, and over what they have in common, row by row.

The union is kept with the two patterns while both live, as on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd, prod
from typing import NamedTuple

import numpy as np

from ..._arrays import index_dtype
from ...pattern import Pattern
from ._jit import frozen, jit
from ._threads import even_spans, for_each, pieces, spans

#: Multiply-adds that take as long as a step of a merge, whose branches are not foreseen.
_STEP = 16


class Union(NamedTuple):
    """The union of two patterns, or what they have in common.

    Attributes
    ----------
    pattern : Pattern
        Canonical.
    of_left, of_right : array (nnzb,)
        The number of each block in the left and in the right pattern; -1 where it stores none.
    """

    pattern: Pattern
    of_left: np.ndarray
    of_right: np.ndarray


def combine(
    left: Pattern, a: np.ndarray, right: Pattern, b: np.ndarray, sign: int, function: str
) -> tuple[Pattern, np.ndarray]:
    """Return the union of two canonical patterns without a batch, and ``a + sign * b`` over it.

    Blocks of one size and one float or complex dtype of at least 32 bits; ``sign`` is 1 or -1.
    """
    del function  # without a batch nothing is refused
    union = _kept("union", left, right)
    positions = union.of_left, union.of_right
    return union.pattern, _each_block(union.pattern, _add, positions, (a, b), sign)


def side_by_side(
    left: Pattern, a: np.ndarray, right: Pattern, b: np.ndarray, function: str
) -> tuple[Pattern, np.ndarray, np.ndarray]:
    """Return the union as `combine` does, and over it ``a`` and ``b``, with zeros elsewhere.

    Of any dtype.
    """
    del function
    pattern, *both = _kept("union", left, right)
    # Copied as integers: numba does not know every dtype.
    word = np.dtype(f"u{gcd(8, a.itemsize * prod(left.blocksize))}")
    x, y = (
        _each_block(pattern, _place, (of,), (blocks,), word=word)
        for of, blocks in zip(both, (a, b), strict=True)
    )
    return pattern, x, y


def multiply(
    left: Pattern, a: np.ndarray, right: Pattern, b: np.ndarray
) -> tuple[Pattern, np.ndarray]:
    """Return the blocks that two patterns have in common, and ``a * b`` over them.

    Of operands as `combine` has them.
    """
    pattern, *both = _kept("common", left, right)
    return pattern, _each_block(pattern, _multiply, both, (a, b))


def _each_block(
    pattern: Pattern,
    loop: Callable,
    positions: Sequence[np.ndarray],
    blocks: tuple[np.ndarray, ...],
    *numbers: int,
    word: np.dtype | None = None,
) -> np.ndarray:
    """Return the values that ``loop`` writes, block by block, from those at some positions.

    ``word``: the dtype as which values are read and written, by default their own.
    """
    out = np.empty(pattern.data_shape, blocks[0].dtype)
    word, n = word or out.dtype, len(out)
    area = prod(pattern.blocksize) * out.itemsize // word.itemsize
    seen = out.reshape(-1).view(word).reshape(n, area)
    flat = [frozen(np.ascontiguousarray(x).reshape(-1).view(word)) for x in blocks]

    def some(span: tuple[int, int]) -> None:
        taken = slice(*span)
        loop(seen[taken], *(frozen(of[taken]) for of in positions), *flat, *numbers)

    for_each(some, even_spans(n, pieces(out.size)), out.size)
    return out


def _kept(kind: str, left: Pattern, right: Pattern) -> Union:
    """Return the "union" of two patterns, or what they have in "common"."""
    found: Union = left.memo_with(kind, right, lambda: _found(left, right, union=kind == "union"))
    return found


def _found(left: Pattern, right: Pattern, *, union: bool) -> Union:
    rows, columns = left.block_shape
    wide = np.promote_types(left._indices.dtype, right._indices.dtype)
    fields = [
        frozen(x.astype(wide, copy=False)) for p in (left, right) for x in (p._indptr, p._indices)
    ]
    ends, cost = left._indptr[1:] + right._indptr[1:], _STEP * (left.nnzb + right.nnzb)
    rows_at_once = spans(ends, max(rows, 1), pieces(cost))
    counts = np.zeros(rows + 1, np.int64)
    for_each(lambda span: _count(counts, *fields, *span), rows_at_once, cost)
    if union:
        counts[1:] = np.diff(left._indptr) + np.diff(right._indptr) - counts[1:]
    starts = counts.cumsum()
    n = int(starts[-1])
    dtype = index_dtype(max(n, rows, columns))
    indices, indptr = np.empty(n, dtype), starts.astype(dtype)
    of_left, of_right = np.empty((2, n), index_dtype(max(left.nnzb, right.nnzb)))
    results = indices, of_left, of_right, frozen(indptr)
    for_each(lambda span: _fill(*results, *fields, *span, union), rows_at_once, cost)
    pattern = Pattern(indptr, indices, left.shape, left.blocksize, check=False, copy=False)
    pattern.note("order", (True, True))
    pattern.follow(left, right)
    return Union(pattern, of_left, of_right)


@jit()
def _count(common, a_ptr, a_indices, b_ptr, b_indices, first, last):
    """Write to ``common[row + 1]`` how many blocks of a row both store."""
    for row in range(np.uintp(first), np.uintp(last)):
        i, a_end = np.uintp(a_ptr[row]), np.uintp(a_ptr[row + np.uintp(1)])
        j, b_end = np.uintp(b_ptr[row]), np.uintp(b_ptr[row + np.uintp(1)])
        n = 0
        while i < a_end and j < b_end:
            x, y = a_indices[i], b_indices[j]
            n += x == y
            i += np.uintp(x <= y)
            j += np.uintp(y <= x)
        common[row + np.uintp(1)] = n


@jit()
def _fill(
    indices, of_a, of_b, starts, a_ptr, a_indices, b_ptr, b_indices, first, last, union
):  # fmt: skip
    """Write the blocks of rows, and which ones of the two they are."""
    one = np.uintp(1)
    for row in range(np.uintp(first), np.uintp(last)):
        n = np.uintp(starts[row])
        i, a_end = np.uintp(a_ptr[row]), np.uintp(a_ptr[row + one])
        j, b_end = np.uintp(b_ptr[row]), np.uintp(b_ptr[row + one])
        while i < a_end or j < b_end:
            in_a = i < a_end and (j == b_end or a_indices[i] <= b_indices[j])
            in_b = j < b_end and (i == a_end or b_indices[j] <= a_indices[i])
            if union or (in_a and in_b):
                indices[n] = a_indices[i] if in_a else b_indices[j]
                of_a[n] = np.int64(i) if in_a else -1
                of_b[n] = np.int64(j) if in_b else -1
                n += one
            i += np.uintp(in_a)
            j += np.uintp(in_b)


@jit()
def _add(out, of_a, of_b, a, b, sign):
    size, total, zero = np.uintp(out.shape[1]), out.reshape(-1), out.dtype.type(0)
    for t in range(np.uintp(len(of_a))):
        o, x, y = t * size, np.uintp(of_a[t]) * size, np.uintp(of_b[t]) * size
        if of_b[t] < 0:
            for i in range(size):
                total[o + i] = a[x + i]
        elif of_a[t] < 0 and sign > 0:
            for i in range(size):
                total[o + i] = b[y + i]
        elif of_a[t] < 0:
            for i in range(size):
                total[o + i] = zero - b[y + i]  # of 0 not -0
        elif sign > 0:
            for i in range(size):
                total[o + i] = a[x + i] + b[y + i]
        else:
            for i in range(size):
                total[o + i] = a[x + i] - b[y + i]


@jit()
def _place(out, of, blocks):
    size, placed = np.uintp(out.shape[1]), out.reshape(-1)
    for t in range(np.uintp(len(of))):
        o, x = t * size, np.uintp(of[t]) * size
        if of[t] < 0:
            for i in range(size):
                placed[o + i] = 0
        else:
            for i in range(size):
                placed[o + i] = blocks[x + i]


@jit()
def _multiply(out, of_a, of_b, a, b):
    size, product = np.uintp(out.shape[1]), out.reshape(-1)
    for t in range(np.uintp(len(of_a))):
        o, x, y = t * size, np.uintp(of_a[t]) * size, np.uintp(of_b[t]) * size
        for i in range(size):
            product[o + i] = a[x + i] * b[y + i]
