"""Operands and hand-made index lists of `scatter_mm`'s tests."""

import numpy as np

from sparsegpu.testing import random_values

FORMATS = ["scatter_mm", "bsr_strided_mm", "bsr_strided_mm_compressed"]


def random_case(rng, name, dtype, *, small=False, aligned=True):
    """Blocks, others and hand-made lists with empty, repeated and unordered entries.

    With ``aligned=False`` the strided formats have tiles off the grid, some of them twice.
    """
    ms, ks, ns, split = 3, 5, 4, 3
    if name == "scatter_mm":
        counts = rng.integers(0, 4, 6)
        c_offsets = np.concatenate([[0], np.cumsum(counts)])
        pq = np.stack([rng.integers(0, 7, c_offsets[-1]), rng.integers(0, 4, c_offsets[-1])], 1)
        lists = (name, c_offsets, pq)
        others = random_values(rng, (4, ks, ns), dtype, small_integers=small)
        shape = (6, ms, ns)
    else:
        n, m, k = split * ns, 4 * ms, 4 * ks
        others = random_values(rng, (2, k, n), dtype, small_integers=small)
        shape = (2, m, n)
        tiles = rng.permutation(4 * split)[:9]
        r_offsets = tiles // split * ms * n + tiles % split * ns
        if not aligned:
            # Three bands, each of two tiles that stand anywhere in it.
            rows = np.repeat(np.arange(3) * ms + rng.integers(0, m - 3 * ms + 1), 2)
            left = rng.integers(0, n - 2 * ns + 1, 3)
            columns = np.stack([left, rng.integers(left + ns, n - ns + 1)], 1).ravel()
            r_offsets = rng.permutation(rows * n + columns)
            r_offsets = np.concatenate([r_offsets, r_offsets[::2]])
        if name == "bsr_strided_mm":
            c_indices = np.concatenate([[0], np.cumsum(rng.integers(0, 4, len(r_offsets)))])
            count = c_indices[-1]
            p_offsets = rng.integers(0, 7, count)
        else:
            c_indices = np.array([0, 2, 2, 6, 7])
            count = 7 * split
        rows, columns = rng.integers(0, k - ks + 1, count), rng.integers(0, n - ns + 1, count)
        meta = {"SPLIT_N": split}
        lists = (name, c_indices, r_offsets, rows * n + columns, meta)
        if name == "bsr_strided_mm":
            lists = (name, c_indices, r_offsets, p_offsets, rows * n + columns, meta)
    return random_values(rng, (7, ms, ks), dtype, small_integers=small), others, lists, shape


def on(engine, lists):
    return tuple(engine.array(x) if isinstance(x, np.ndarray) else x for x in lists)
