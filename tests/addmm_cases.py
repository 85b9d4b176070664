"""Operands of the BSR product's tests, their layouts, and which of them go together."""

import numpy as np

import sparsegpu
from sparsegpu import bsr_addmm, bsr_matmul
from sparsegpu.testing import (
    assert_within_bound,
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
        self.bsr = sparsegpu.bsr_array(tuple(engine.array(a) for a in triple), shape=shape)
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
    return array


def ragged_operand(engine, rng, blocksize, dtype="float32", rows=5, columns=7, **keywords):
    """Return an operand with groups that lack rows, empty rows, repeated and unsorted blocks."""
    shape = (blocksize[0] * rows, blocksize[1] * columns)
    return Operand(engine, rng, shape, blocksize, dtype, **keywords)


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


def check_epilogue(
    engine,
    rng,
    bsr,
    dense,
    out_dtype,
    order="C",
    *,
    kernels,
    dtype="bfloat16",
    n=136,
    bias_columns=1,
    activation="silu",
    **keywords,
):
    """Multiply ``bsr``, of values ``dense``, with all that an epilogue can have."""
    m, k = dense.shape
    x = random_values(rng, (k, n), dtype)
    bias = random_values(rng, (m, bias_columns), dtype)
    alphas = {
        "left_alpha": random_values(rng, (m,), "float32"),
        "right_alpha": random_values(rng, (n,), "float32"),
    }
    on_device = {name: engine.array(value) for name, value in alphas.items()}
    operands = engine.array(bias), bsr, engine.array(x)
    out = blank(engine, (m, n), out_dtype, order)
    how = {"beta": 0.5, "alpha": 2, "activation": activation}
    with engine.runs(*kernels):
        result = bsr_addmm(*operands, out=out, **how, **on_device, **keywords)
    assert result is out
    how["allow_tf32"] = keywords.get("allow_tf32", False)
    assert_within_bound(engine.host(out), dense, x, input=bias, dtype=dtype, **how, **alphas)


def check_batches(
    engine, rng, blocksize, *, kernels, dtype="bfloat16", n=72, layout="rows", **keywords
):
    """Multiply batches by batches and by single operands, either way."""
    shape = (blocksize[0] * 5, blocksize[1] * 6)
    dense, x = small(rng, (3, *shape), dtype), small(rng, (3, shape[1], n), dtype)
    out_dtype = "int32" if dtype == "int8" else "float32"
    batched = sparsegpu.bsr_array(engine.array(dense), blocksize=blocksize)
    single = sparsegpu.bsr_array(engine.array(dense[0]), blocksize=blocksize)
    wide, sums = dense.astype(np.float64), x.astype(np.float64)
    for bsr, right, expected in [
        (batched, x, wide @ sums),
        (batched, x[1], wide @ sums[1]),
        (single, x, wide[0] @ sums),
        (single, x[:, None], wide[0] @ sums[:, None]),
    ]:
        with engine.runs(*kernels):
            right = laid_out(engine, right, layout)
            out = bsr_matmul(bsr, right, out_dtype=out_dtype, **keywords)
        np.testing.assert_array_equal(engine.host(out), expected)
