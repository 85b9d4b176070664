"""Index lists of `ops.scatter_mm` for a pattern: the formulas of `ops.scatter_indices`."""

from __future__ import annotations

import numpy as np

from ...pattern import Pattern


def filled_rows(pattern: Pattern) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the block rows that have blocks: ascending, with most blocks first, and their end."""
    counts = np.diff(pattern._indptr)
    rows = np.flatnonzero(counts).astype(np.int64, copy=False)
    most_first = rows[np.argsort(-counts[rows], kind="stable")]
    return rows, most_first, int(rows[-1]) + 1 if rows.size else 0


def index_lists(
    pattern: Pattern,
    rows: tuple[np.ndarray, np.ndarray, int] | None,
    indices_format: str,
    n: int,
    split_n: int,
    batch_size: int,
) -> tuple[tuple[np.ndarray, np.ndarray, int], tuple[np.ndarray, ...]]:
    """Return `filled_rows`, those given or else found now, and the arrays of a format.

    The lists are for others of ``n`` columns.
    """
    rows = rows or filled_rows(pattern)
    filled = rows[1] if indices_format == "bsr_strided_mm_compressed" else rows[0]
    (ms, ks), ns, nnzb = pattern.blocksize, n // split_n, pattern.nnzb
    indptr = pattern._indptr.astype(np.int64)
    splits = np.arange(split_n, dtype=np.int64)
    # Of each stored block: its place in the list of products, for the first split and the others.
    p = np.arange(nnzb, dtype=np.int64)
    start, end = indptr[pattern._rows], indptr[pattern._rows + 1]
    place = (p + (split_n - 1) * start)[:, None] + splits * (end - start)[:, None]

    def entries(values: np.ndarray) -> np.ndarray:
        """Return values (nnzb, 1 or SPLIT_N) of block and split, at their places in the list."""
        made = np.empty((nnzb * split_n,), np.int64)
        made[place] = values
        return made

    column = pattern._indices.astype(np.int64)[:, None]
    counts = indptr[filled + 1] - indptr[filled]
    starts = (split_n * indptr[filled])[:, None] + splits * counts[:, None]
    if indices_format == "scatter_mm":
        batch = np.arange(batch_size, dtype=np.int64)[:, None]
        inner = pattern.block_shape[1] * split_n
        q = batch * inner + entries(column * split_n + splits)
        p_list = np.broadcast_to(entries(p[:, None]), q.shape)
        starts = starts.ravel() + batch * (nnzb * split_n)
        last = [nnzb * split_n * batch_size]
        return rows, (np.append(starts, last), np.stack([p_list.ravel(), q.ravel()], axis=1))
    r_offsets = (filled[:, None] * (ms * n) + splits * ns).ravel()
    q_offsets = entries(column * (ks * n) + splits * ns)
    if indices_format == "bsr_strided_mm_compressed":
        return rows, (indptr, r_offsets, q_offsets)
    p_offsets = entries(p[:, None])
    return rows, (np.append(starts, nnzb * split_n), r_offsets, p_offsets, q_offsets)
