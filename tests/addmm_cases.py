"""Operands of the BSR product's tests, their layouts, and which of them go together."""

import numpy as np

from sparsegpu.testing import (
    dense_from_blocks,
    random_blocks,
    random_values,
)

DTYPES = ["float16", "bfloat16", "float32", "float64", "int8", "complex64", "complex128"]
LAYOUTS = ["rows", "columns", "strided", "backwards"]
ORDERS = ["C", "F", "strided", "skewed"]  # of an output; there is "skewed F", too


class Operand:
    """A block-sparse operand of an engine, and its dense values on the host."""

    def __init__(self, engine, rng, shape, blocksize, dtype="float32", **keywords):
        keywords = {"density": 0.4, "duplicates": True, "small_integers": True, **keywords}
        triple = random_blocks(rng, shape, blocksize, dtype=dtype, **keywords)
        self.dense = dense_from_blocks(*triple, shape)
        self.bsr = engine.bsr(triple, shape)
        self.data, self.indices, self.indptr = triple


def small(rng, shape, dtype="float32"):
    return random_values(rng, shape, dtype, small_integers=True)


def laid_out(engine, array, layout):
    """Return an engine's array of equal values in a layout; NaN lies between its lines."""
    if layout == "columns":
        turned = np.ascontiguousarray(array.swapaxes(-1, -2))
        return engine.array(turned).swapaxes(-1, -2)
    if layout in {"aligned", "skewed"}:  # rows that begin at 16 bytes, whatever their width, or not
        *batch, rows, columns = array.shape
        piece = 16 // array.itemsize
        first = int(layout == "skewed")
        whole = (*batch, rows, -(-columns // piece) * piece + first)
        apart = np.full(whole, 99 if array.dtype.kind == "i" else np.nan).astype(array.dtype)
        apart[..., first : first + columns] = array
        return engine.array(apart)[..., first : first + columns]
    array = engine.array(np.ascontiguousarray(array))
    if layout == "strided":
        rows, columns = array.shape
        sparse = engine.xp.zeros((3 * rows, 2 * columns), array.dtype)[::3, ::2]
        sparse[...] = array
        return sparse
    if layout == "backwards":
        return engine.xp.ascontiguousarray(array[::-1, ::-1])[::-1, ::-1]
    if layout == "upside down":  # rows as any others, the last of which comes first
        rows = engine.xp.empty(array.shape, array.dtype)[::-1]
        rows[...] = array
        return rows
    return array


def blank(engine, shape, dtype, order):
    """Return an output to be written, in one of ``ORDERS``, in memory full of NaN.

    The rows of "skewed" begin anywhere, and so do the columns of "skewed F".
    """
    (m, n), dtype = shape, np.dtype(dtype)
    if order.endswith("F"):
        return blank(engine, (n, m), dtype, order[:-2] or "C").T
    nothing = 77 if dtype.kind == "i" else np.nan
    whole = engine.xp.full((2 * m, 2 * n + 1), nothing, "float32").astype(dtype)
    if order == "strided":
        return whole[::2, : 2 * n : 2]
    if order == "skewed":
        return whole[:m, 1 : n + 1]
    return whole.ravel()[: m * n].reshape(m, n)
