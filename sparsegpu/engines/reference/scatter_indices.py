"""Index lists of `ops.scatter_mm` for a pattern: the formulas of `ops.scatter_indices`."""

from __future__ import annotations

import numpy as np

from ...pattern import Pattern


def index_lists(
    pattern: Pattern, indices_format: str, n: int, split_n: int, batch_size: int
) -> tuple[tuple[np.ndarray, ...], int]:
    """Return the arrays of a format, and where the block rows that have blocks end.

    The lists are for others of ``n`` columns.
    """
    counts = np.diff(pattern._indptr)
    filled = np.flatnonzero(counts).astype(np.int64, copy=False)
    rows_end = int(filled[-1]) + 1 if filled.size else 0
    if indices_format == "bsr_strided_mm_compressed":  # most blocks first
        filled = filled[np.argsort(-counts[filled], kind="stable")]
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
    lengths = indptr[filled + 1] - indptr[filled]
    starts = (split_n * indptr[filled])[:, None] + splits * lengths[:, None]
    if indices_format == "scatter_mm":
        batch = np.arange(batch_size, dtype=np.int64)[:, None]
        inner = pattern.block_shape[1] * split_n
        q = batch * inner + entries(column * split_n + splits)
        p_list = np.broadcast_to(entries(p[:, None]), q.shape)
        starts = starts.ravel() + batch * (nnzb * split_n)
        last = [nnzb * split_n * batch_size]
        return (np.append(starts, last), np.stack([p_list.ravel(), q.ravel()], axis=1)), rows_end
    r_offsets = (filled[:, None] * (ms * n) + splits * ns).ravel()
    q_offsets = entries(column * (ks * n) + splits * ns)
    if indices_format == "bsr_strided_mm_compressed":
        return (indptr, r_offsets, q_offsets), rows_end
    p_offsets = entries(p[:, None])
    return (np.append(starts, nnzb * split_n), r_offsets, p_offsets, q_offsets), rows_end
