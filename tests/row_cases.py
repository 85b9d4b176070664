"""Block-sparse operands whose rows have chosen lengths."""

import numpy as np

from sparsegpu.testing import dense_from_blocks, random_values


def rows_of(engine, rng, lengths, columns, blocksize, dtype="float32", *, small_integers=True):
    """Return a matrix of rows (*batch, rows) of so many blocks, dense, and (data, indices, indptr).

    Blocks are unsorted and repeated.
    """
    lengths = np.asarray(lengths)
    ends = np.cumsum(lengths, axis=-1)
    indptr = np.concatenate([np.zeros_like(ends[..., :1]), ends], axis=-1).astype(np.int32)
    indices = rng.integers(0, columns, (*lengths.shape[:-1], ends.max())).astype(np.int32)
    data = random_values(rng, (*indices.shape, *blocksize), dtype, small_integers=small_integers)
    shape = (lengths.shape[-1] * blocksize[0], columns * blocksize[1])
    triple = data, indices, indptr
    bsr = engine.bsr(triple, shape)
    return bsr, dense_from_blocks(*triple, shape), triple


def skewed(rng, rows, longest):
    """Row lengths of every kind: empty, short, one of ``longest``."""
    lengths = rng.integers(0, 6, rows)
    lengths[rng.integers(0, rows, rows // 3)] = 0
    lengths[rows // 2] = longest
    return lengths
