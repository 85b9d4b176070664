"""Operands with long rows for `test_long_sums.py`, and what NumPy says of their sums."""

import numpy as np

import sparsegpu
from sparsegpu.testing import to_host

MOST = 131_071  # products of two int8 of which int32 holds the sum, whatever they are
LARGEST, SMALLEST = 2**31 - 1, -(2**31)


def bsr(engine, data, indices, indptr, k):
    """Return a matrix with ``k`` columns on an engine."""
    bm = data.shape[-2]
    arrays = tuple(
        engine.array(np.ascontiguousarray(a)) for a in (data, np.int32(indices), np.int32(indptr))
    )
    return sparsegpu.bsr_array(arrays, shape=((np.shape(indptr)[-1] - 1) * bm, k))


def full_row(engine, products=1 << 18, value=-128, bm=2, bk=256):
    """Return one block row with so many stored columns, all of one value."""
    count = products // bk
    data = np.full((count, bm, bk), value, np.int8)
    return bsr(engine, data, np.arange(count), [0, count], products)


class Ragged:
    """A matrix with empty, short and long block rows, of unsorted and repeated blocks.

    Attributes
    ----------
    array : bsr_array
    dense : int64 array (M, K), or (batch, M, K)
        Repeated blocks are summed: beyond int8.
    """

    def __init__(self, engine, rng, lengths=(3, 0, 2100, 1, 5, 2600), block=(3, 64), columns=160):
        counts = np.asarray(lengths)
        batch, (rows,), (bm, bk) = counts.shape[:-1], counts.shape[-1:], block
        nnzb = int(counts.sum(axis=-1).max())
        data = random_int8(rng, (*batch, nnzb, bm, bk))
        indices = rng.integers(0, columns, (*batch, nnzb))
        indptr = np.zeros((*batch, rows + 1), np.int64)
        indptr[..., 1:] = np.cumsum(counts, axis=-1)
        self.dense = np.zeros((*batch, rows, columns, bm, bk), np.int64)
        for b in np.ndindex(batch):
            place = np.repeat(np.arange(rows), counts[b]), indices[b]
            np.add.at(self.dense[b], place, data[b].astype(np.int64))
        self.dense = self.dense.swapaxes(-3, -2).reshape(*batch, rows * bm, columns * bk)
        self.array = bsr(engine, data, indices, indptr, columns * bk)


def ones(engine, k, n=1, value=-128):
    """Return a dense operand of one value."""
    return engine.array(np.full((k, n), value, np.int8))


def random_int8(rng, shape):
    """Return values of int8, most of them so small that long sums of their products leave int32."""
    usual, any_at_all = (rng.integers(-128, high, shape) for high in (-120, 128))
    return np.where(rng.random(shape) < 0.97, usual, any_at_all).astype(np.int8)


def product(a, b):
    """Return the exact product as int64: float64 holds every sum that occurs here."""
    return (to_host(a).astype(np.float64) @ to_host(b).astype(np.float64)).astype(np.int64)


def rounded(exact, dtype):
    """Return exact values (int64 or float64) rounded to a dtype once; integers saturate."""
    dtype = sparsegpu._arrays.dtype_of(dtype)
    if dtype.kind == "i":
        info = np.iinfo(dtype)
        whole = exact if exact.dtype.kind == "i" else np.rint(exact)
        return np.clip(whole, info.min, info.max).astype(dtype)
    exact = exact.astype(np.float64)
    if dtype.name == "bfloat16":  # ml_dtypes would round to float32 before
        mantissa, exponent = np.frexp(exact)
        exact = np.ldexp(np.rint(mantissa * 2**8), exponent - 8)
    with np.errstate(over="ignore"):
        return exact.astype(dtype)


def assert_equal(engine, out, exact, dtype=None):
    """Assert that ``out`` is ``exact`` rounded once, to the bit."""
    dtype = out.dtype if dtype is None else np.dtype(dtype)
    assert out.dtype == dtype
    np.testing.assert_array_equal(engine.host(out), rounded(exact, dtype))
