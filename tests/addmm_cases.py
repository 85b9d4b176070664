"""Operands of the BSR product's tests, their layouts, and which of them go together."""

from itertools import product

import sparsegpu
from sparsegpu.testing import dense_from_blocks, random_blocks, random_values

DTYPES = ["float16", "bfloat16", "float32", "float64", "int8", "complex64", "complex128"]
LAYOUTS = ["rows", "columns", "strided", "backwards"]


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


def alternating(*parameters):
    """Return every other combination of the parameters' values; each two values still meet.

    For kernels that take seconds to compile, where a value of one parameter is not expected to
    matter for two others at once.
    """
    numbered = product(*map(enumerate, parameters))
    return [tuple(value for _, value in c) for c in numbered if sum(i for i, _ in c) % 2 == 0]


def laid_out(engine, array, layout):
    """Return an engine's array of equal values in some layout."""
    array = engine.array(array)
    if layout == "columns":
        return engine.xp.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)
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
