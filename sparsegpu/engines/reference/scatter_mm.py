"""Products of blocks, added where an index list says: the formulas of `ops.scatter_mm`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._arrays import accumulator_dtype
from ..._epilogue import Epilogue, apply_epilogue


def clear(accumulators: np.ndarray) -> None:
    """Write zeros, which the first sums are added to."""
    accumulators.fill(0)


@np.errstate(all="ignore")
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
    compute = accumulator_dtype(blocks.dtype)
    for r in range(len(c_offsets) - 1):
        total = np.zeros(accumulators.shape[1:], compute)
        for p, q in pq[c_offsets[r] : c_offsets[r + 1]]:
            total += blocks[p].astype(compute) @ others[q].astype(compute)
        add(accumulators[r], total)


@np.errstate(all="ignore")
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
    for i in range(len(r_offsets)):
        g = slice(c_indices[i], c_indices[i + 1])
        _add_tile(accumulators, blocks, others, r_offsets[i], p_offsets[g], q_offsets[g], split_n)


@np.errstate(all="ignore")
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
    ns = n_columns // split_n
    for r in r_offsets:
        r0, r1 = divmod(r, n_columns)
        m, n = r0 // ms, r1 // ns
        c0, c1 = c_indices[m], c_indices[m + 1]
        first = n * c1 + (split_n - n) * c0
        q = q_offsets[first : first + c1 - c0]
        _add_tile(accumulators, blocks, others, r, range(c0, c1), q, split_n)


def _add_tile(
    accumulators: np.ndarray,
    blocks: np.ndarray,
    others: np.ndarray,
    r: int,
    p_list: np.ndarray | range,
    q_list: np.ndarray,
    split_n: int,
) -> None:
    """Add ``sum of blocks[p] @ others[b, q0:q0+Ks, q1:q1+Ns]`` to the tile at offset ``r``."""
    compute = accumulator_dtype(blocks.dtype)
    _, ms, ks = blocks.shape
    n_columns = accumulators.shape[-1]
    ns = n_columns // split_n
    r0, r1 = divmod(r, n_columns)
    others = for_every_batch(others, accumulators)
    total = np.zeros((*accumulators.shape[:-2], ms, ns), compute)
    for p, q in zip(p_list, q_list):
        q0, q1 = divmod(q, n_columns)
        total += blocks[p].astype(compute) @ others[..., q0 : q0 + ks, q1 : q1 + ns].astype(compute)
    add(accumulators[..., r0 : r0 + ms, r1 : r1 + ns], total)


def for_every_batch(others: np.ndarray, accumulators: np.ndarray) -> np.ndarray:
    """Return ``others`` repeated (as a view) over the batches of the accumulators."""
    return np.broadcast_to(others, accumulators.shape[:-2] + others.shape[-2:])


def add(accumulator: np.ndarray, total: np.ndarray) -> None:
    """Add a sum in place, rounding once; integers saturate."""
    apply_epilogue(total, Epilogue(1, 1, accumulator), accumulator)
