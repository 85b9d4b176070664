"""Linear combinations of vectors and dot products, in one pass over memory.

A pass goes through spans of rows, and within a span through strips that stay in the L1 cache: all
updates and dot products of a strip are done before the next one is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from ..._math import ceil_div
from .._solver_steps import Step, after_pass
from ._jit import jit
from ._threads import for_each

#: Elements of a span and of a strip. Both are fixed, as the order of the sums depends on them.
SPAN, STRIP = 1 << 16, 1 << 10
#: The number of vectors of a compiled pass is a multiple of this.
_VECTORS = 4
#: Rows of a tall matrix that a thread takes, multiply-adds of a product that OpenBLAS gives to one
#: thread, and the fewest rows for which that is worth a call.
_TALL, _BLAS_ALONE, _FEW_ROWS = 1 << 14, 1 << 18, 32


def prepare(
    scalars: np.ndarray,
    updates: Sequence[tuple[np.ndarray, Sequence[tuple[int | None, np.ndarray]]]],
    dots: Sequence[tuple[int, np.ndarray, np.ndarray]],
    active: np.ndarray | None = None,
    step: Step | None = None,
) -> Callable[[], None]:
    """Return a pass over vectors: linear combinations, then dot products of what they became.

    As `engines.reference.vector.prepare` says.
    """
    vectors: list[np.ndarray] = []

    def number(vector: np.ndarray) -> int:
        for i, known in enumerate(vectors):
            if known is vector:
                return i
        vectors.append(vector)
        return len(vectors) - 1

    n, r = (updates[0][0] if updates else dots[0][1]).shape
    program = []  # target, vector, row of its coefficient or -1, whether it is the last term, how
    for target, terms in updates:
        own = [term for term in terms if term[1] is target]
        in_place = r == 1 and len(own) == 1
        if in_place:
            terms = own + [term for term in terms if term[1] is not target]
        for t, (row, vector) in enumerate(terms):
            last = t == len(terms) - 1
            program.append(
                (number(target), number(vector), -1 if row is None else row, last, in_place)
            )
    steps = np.array(program, np.int64).reshape(-1, 5)
    pairs = np.array([(number(u), number(v)) for _, u, v in dots], np.int64).reshape(-1, 2)
    rows = np.array([row for row, _, _ in dots], np.int64)
    # Padded, so that most passes are one signature, which is compiled once.
    everything = (*vectors, *(vectors[0],) * (-len(vectors) % _VECTORS))
    most = max(SPAN // max(r, 1), 1)
    spans = range(0, n, most)
    single = len(spans) == 1
    sums = scalars[None] if single else np.empty((len(spans), len(dots), r), scalars.dtype)
    to_rows = rows if single else np.arange(len(rows))
    cost = n * r * (len(program) + len(dots))
    go = np.ones(r, bool) if active is None else active
    after = None if step is None else compiled_after(step.name)

    def span(first: int) -> None:
        last = min(first + most, n)
        _span(everything, first, last, scalars, steps, pairs, sums[first // most], to_rows, go)

    def run() -> None:
        if not r:
            return
        if single:
            span(0)
        else:
            for_each(span, spans, cost)
            if len(rows):
                scalars[rows] = sums.sum(axis=0)
        if after is not None and step is not None:
            after(scalars, *step.columns)

    return run


def gram(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return ``left^H @ right`` of tall matrices (n, p) and (n, q): all dot products."""
    (n, p), q = left.shape, right.shape[1]
    sums = np.zeros((max(ceil_div(n, _TALL), 1), p, q), np.result_type(left, right))

    def add(first: int, last: int) -> None:
        sums[first // _TALL] += left[first:last].conj().T @ right[first:last]

    _by_rows(add, n, p * q)
    return sums.sum(axis=0)


def combine(tall: np.ndarray, coefficients: np.ndarray, out: np.ndarray) -> None:
    """Write ``tall @ coefficients`` to out, of matrices (n, p) and (p, q)."""

    def multiply(first: int, last: int) -> None:
        np.matmul(tall[first:last], coefficients, out=out[first:last])

    _by_rows(multiply, len(tall), coefficients.size)


def _by_rows(work: Callable[[int, int], None], n: int, products: int) -> None:
    """Do ``work(first, last)``, so many multiply-adds a row, for n rows.

    Some rows at a time, few enough for BLAS to stay in the thread that calls it: OpenBLAS's threads
    wait for each other at every product, for milliseconds where others use the cores. Ours take
    spans of many products.
    """
    few = _BLAS_ALONE // max(products, 1)
    if few < _FEW_ROWS:
        few = _TALL

    def span(begin: int) -> None:
        end = min(begin + _TALL, n)
        for first in range(begin, end, few):
            work(first, min(first + few, end))

    for_each(span, range(0, n, _TALL), n * products)


@cache
def compiled_after(name: str) -> Callable:
    """Return `_solver_steps.after_pass`, compiled."""
    return after_pass(name, jit(error_model="numpy"))


@jit(fastmath={"contract"})
def _span(vectors, first, last, scalars, steps, of_dots, sums, to_rows, active):
    """Run a program on rows ``first..last``; put its dot products in some rows of ``sums``.

    A strip of rows is one run of memory, along which factors and ``active`` repeat: inner loops
    do not know how many columns there are. A combination is made in ``value`` and copied, because
    LLVM does not vectorise a loop whose target may be one of its sources; of one column in place,
    where the target is the first term and no other.
    """
    r = vectors[0].shape[1]
    rows = min(max(STRIP // r, 1), last - first)
    value = np.empty(rows * r, vectors[0].dtype)
    scale = np.ones((len(steps), rows * r if r > 1 else 1), vectors[0].dtype)
    go = np.empty(rows * r, np.bool_)
    for j in range(r):
        go[j::r] = active[j]
        for s in range(len(steps)):
            if steps[s, 2] >= 0:
                scale[s, j::r] = scalars[steps[s, 2], j]
    every = active.all()
    totals = np.zeros((len(of_dots), rows * r if r > 1 else 0), sums.dtype)
    for row in to_rows:
        sums[row] = 0
    for start in range(first, last, rows):
        stop = min(start + rows, last)
        count = (stop - start) * r
        begun = False
        for s in range(len(steps)):
            if r == 1 and not every:
                break
            source = vectors[steps[s, 1]][start:stop].reshape(-1)
            target = vectors[steps[s, 0]][start:stop].reshape(-1)
            in_place = steps[s, 4] == 1
            if in_place and begun:
                add_multiple(target, scale[s, 0], source)
            elif in_place:
                if steps[s, 2] >= 0:
                    for i in range(count):
                        target[i] *= scale[s, 0]
            elif begun and r == 1:
                add_multiple(value, scale[s, 0], source)
            elif begun:
                add_products(value, scale[s], source)
            elif r == 1:
                multiply(value, scale[s, 0], source)
            else:
                multiply_each(value, scale[s], source)
            begun = steps[s, 3] == 0
            if begun or in_place:
                continue
            if every:
                target[:] = value[:count]
            else:
                for i in range(count):
                    if go[i]:
                        target[i] = value[i]
        for d in range(len(of_dots)):
            u = vectors[of_dots[d, 0]][start:stop].reshape(-1)
            v = vectors[of_dots[d, 1]][start:stop].reshape(-1)
            if r == 1:
                sums[to_rows[d], 0] += dot(sums.dtype.type(0), u, v)
            else:
                add_dots(totals[d], u, v)
    if r > 1:
        for d in range(len(of_dots)):
            for j in range(r):
                sums[to_rows[d], j] = totals[d, j::r].sum()


@jit(fastmath={"contract"})
def multiply(value, c, source):
    for i in range(len(source)):
        value[i] = c * source[i]


@jit(fastmath={"contract"})
def add_multiple(value, c, source):
    for i in range(len(source)):
        value[i] += c * source[i]


@jit(fastmath={"contract"})
def multiply_each(value, c, source):
    for i in range(len(source)):
        value[i] = c[i] * source[i]


@jit(fastmath={"contract"})
def add_products(value, c, source):
    for i in range(len(source)):
        value[i] += c[i] * source[i]


@jit(fastmath={"contract", "reassoc"})
def dot(total, u, v):
    """Return the dot product; LLVM may sum it in several parts, the same in every run."""
    for i in range(len(u)):
        total += u[i].conjugate() * v[i]
    return total


@jit(fastmath={"contract"})
def add_dots(totals, u, v):
    for i in range(len(u)):
        totals[i] += u[i].conjugate() * v[i]
