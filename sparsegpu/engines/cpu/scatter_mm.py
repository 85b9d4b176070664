"""Products of blocks, added where an index list says.

The three formats describe the same thing: targets (tiles of the accumulators), each the sum of
terms (a block times a tile of ``others``). Their lists are rewritten for `_kernels.multiply`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..._arrays import accumulator_dtype
from ..reference.scatter_mm import add, for_every_batch
from ..reference.scatter_mm import clear as clear
from ._jit import frozen
from ._kernels import multiply
from ._operands import parts, real_accumulator, real_blocks, real_rows
from ._threads import for_each, pieces, spans

#: Elements of the sums that are computed at a time.
_ACCUMULATOR = 1 << 18


class Terms(NamedTuple):
    """What is summed: target t has the terms ``ends[t]..ends[t + 1]``.

    Term g is ``blocks[block[g]]`` times the tile of the others that starts at row ``row[g]`` and
    column ``column[g]``.
    """

    ends: np.ndarray
    block: np.ndarray
    row: np.ndarray
    column: np.ndarray


def scatter_mm(
    accumulators: np.ndarray,
    blocks: np.ndarray,
    others: np.ndarray,
    c_offsets: np.ndarray,
    pq: np.ndarray,
    *,
    config: Any = None,
    meta: Any = None,
) -> None:
    """Add ``blocks[p] @ others[q]`` to ``accumulators[r]``, (p, q) = pq[c_offsets[r]:...].

    ``config`` and ``meta`` have no effect on the host, here and below.
    """
    ks, ns = others.shape[1:]
    block, other = pq.T
    terms = Terms(c_offsets, block, other * ks, np.zeros_like(other))

    def put(first: int, last: int, total: np.ndarray) -> None:
        add(accumulators[first:last], total)

    _sum_terms(blocks, others.reshape(-1, ns), terms, ns, put)


def bsr_strided_mm(
    accumulators: np.ndarray,
    blocks: np.ndarray,
    others: np.ndarray,
    c_indices: np.ndarray,
    r_offsets: np.ndarray,
    p_offsets: np.ndarray,
    q_offsets: np.ndarray,
    split_n: int,
    *,
    config: Any = None,
    meta: Any = None,
) -> None:
    """Add block products to tiles of (*B, M, N); offsets are ``row * N + column``."""
    terms = Terms(c_indices, p_offsets, *np.divmod(q_offsets, accumulators.shape[-1]))
    _add_tiles(accumulators, blocks, others, terms, r_offsets, split_n)


def bsr_strided_mm_compressed(
    accumulators: np.ndarray,
    blocks: np.ndarray,
    others: np.ndarray,
    c_indices: np.ndarray,
    r_offsets: np.ndarray,
    q_offsets: np.ndarray,
    split_n: int,
    *,
    config: Any = None,
    meta: Any = None,
) -> None:
    """Do the same with ``c_indices`` = indptr: a tile's blocks are those of its block row."""
    ms, n_columns = blocks.shape[1], accumulators.shape[-1]
    r0, r1 = np.divmod(r_offsets, n_columns)
    m, n = r0 // ms, r1 // (n_columns // split_n)
    c0, c1 = c_indices[m], c_indices[m + 1]
    starts = np.concatenate([[0], np.cumsum(c1 - c0)])
    step = np.arange(starts[-1]) - np.repeat(starts[:-1], c1 - c0)  # i in `ops.scatter_mm`
    block = np.repeat(c0, c1 - c0) + step
    q = q_offsets[np.repeat(n * c1 + (split_n - n) * c0, c1 - c0) + step]
    terms = Terms(starts, block, *np.divmod(q, n_columns))
    _add_tiles(accumulators, blocks, others, terms, r_offsets, split_n)


def _add_tiles(
    accumulators: np.ndarray,
    blocks: np.ndarray,
    others: np.ndarray,
    terms: Terms,
    r_offsets: np.ndarray,
    split_n: int,
) -> None:
    """Add the sum of each target's terms to the tile at its offset, in every batch."""
    ms, n_columns = blocks.shape[1], accumulators.shape[-1]
    ns = n_columns // split_n
    r0, r1 = np.divmod(r_offsets, n_columns)
    others = for_every_batch(others, accumulators)
    on_grid = (
        accumulators.shape[-2] % ms == 0
        and not ((r0 % ms).any() or (r1 % ns).any())
        and len(np.unique(r_offsets)) == len(r_offsets)
    )
    for b in np.ndindex(accumulators.shape[:-2]):
        put = partial(_put_at, accumulators[b], r0, r1, on_grid)
        _sum_terms(blocks, others[b], terms, ns, put, threads=on_grid)


def _put_at(
    matrix: np.ndarray,
    r0: np.ndarray,
    r1: np.ndarray,
    on_grid: bool,
    first: int,
    last: int,
    total: np.ndarray,
) -> None:
    """Add ``total`` to the tiles first..last, which start at rows ``r0`` and columns ``r1``."""
    _, ms, ns = total.shape
    if on_grid:  # no tile overlaps another
        grid = matrix.reshape(len(matrix) // ms, ms, -1, ns).swapaxes(1, 2)
        place = r0[first:last] // ms, r1[first:last] // ns
        tiles = grid[place]
        add(tiles, total)
        grid[place] = tiles
        return
    for t in range(first, last):
        add(matrix[r0[t] : r0[t] + ms, r1[t] : r1[t] + ns], total[t - first])


def _sum_terms(
    blocks: np.ndarray,
    others: np.ndarray,
    terms: Terms,
    ns: int,
    put: Callable[[int, int, np.ndarray], None],
    *,
    threads: bool = True,
) -> None:
    """Call ``put(first, last, sums)`` for the targets, some at a time."""
    real = parts(blocks.dtype)
    dense, ld = real_rows(others)
    source = terms.row * (real * ld) + terms.column * real
    _, ms, _ = blocks.shape

    def targets(span: tuple[int, int]) -> None:
        first, last = span
        total = np.zeros((last - first, ms, ns), accumulator_dtype(blocks.dtype))
        stored = slice(terms.ends[first], terms.ends[last])
        used, block = np.unique(terms.block[stored], return_inverse=True)
        ends = terms.ends[first : last + 1] - stored.start
        multiply(
            real_accumulator(total),
            frozen(np.arange(last - first) * (ms * ns * real)),
            ns * real,
            frozen(ends[:-1]),
            frozen(ends[1:]),
            frozen(block),
            frozen(source[stored]),
            1,
            0,
            ld,
            real_blocks(blocks[used]),
            dense,
            ns * real,
        )
        put(first, last, total)

    cost = len(terms.block) * blocks[0].size * ns if len(blocks) else 0
    most = max(_ACCUMULATOR // max(ms * ns, 1), 1)
    cut = spans(terms.ends[1:], most, pieces(cost))
    for_each(targets, cut, cost if threads else 0)
