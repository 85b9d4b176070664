"""What the CPU engine computes of two patterns beside what the reference engine does."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import sparsegpu
from covering import covered
from sparsegpu._arrays import CONTAINER_DTYPES
from sparsegpu.testing import random_blocks

pytest.importorskip("numba")

OPERATIONS = {
    "+": operator.add,
    "-": operator.sub,
    "multiply": lambda a, b: a.multiply(b),
    "!=": operator.ne,
    "maximum": lambda a, b: a.maximum(b),
}


def two(rng, dtype, blocksize, counts=(7, 11), densities=(0.5, 0.3)):
    """Return two matrices with blocks in common, blocks of their own, and rows without."""
    shape = counts[0] * blocksize[0], counts[1] * blocksize[1]
    how = {"dtype": dtype, "small_integers": True, "duplicates": True}
    return [
        sparsegpu.bsr_array(random_blocks(rng, shape, blocksize, density=d, **how), shape=shape)
        for d in densities
    ]


@covered(
    dtype=CONTAINER_DTYPES,
    blocksize=[(1, 1), (3, 3), (2, 4), (5, 7)],
    densities=[(0.5, 0.3), (1, 0.1), (0.2, 0), (0, 0)],
    name=list(OPERATIONS),
)
def test_same_as_the_reference(dtype, blocksize, densities, name, rng):
    if (name == "-" and dtype.kind == "b") or (name == "maximum" and dtype.kind == "c"):
        pytest.skip("not defined")
    a, b = two(rng, dtype, blocksize, densities=densities)
    out = OPERATIONS[name](a, b)
    with sparsegpu.use_engine("reference"):
        expected = OPERATIONS[name](a, b)
    assert out.dtype == expected.dtype and out.has_canonical_format
    for part in ("indptr", "indices"):
        np.testing.assert_array_equal(getattr(out, part), getattr(expected, part))
    assert out.data.tobytes() == expected.data.tobytes()


@pytest.mark.parametrize("name", ["+", "multiply", "!="])
def test_the_same_patterns_again_share_their_union(name, rng):
    a, b = two(rng, "float32", (2, 3))
    a, b = a.sum_duplicates() or a, b.sum_duplicates() or b
    first, again = OPERATIONS[name](a, b), OPERATIONS[name](a.with_data(-a.data), b)
    assert first.pattern is again.pattern


@pytest.mark.parametrize("name", ["+", "multiply", "maximum"])
def test_several_threads(name, rng):
    """Large enough to be cut into spans of rows and of blocks."""
    a, b = two(rng, "float64", (16, 16), counts=(300, 200), densities=(0.3, 0.2))
    out, (x, y) = OPERATIONS[name](a, b), (a.toarray(), b.toarray())
    expected = {"+": np.add, "multiply": np.multiply, "maximum": np.maximum}[name](x, y)
    np.testing.assert_array_equal(out.toarray(), expected)


def test_infinities_and_signs_of_zero_stay(rng):
    a, b = two(rng, "complex64", (2, 2))
    for x in (a, b):
        x.data[...] = rng.choice([np.inf, -np.inf, np.nan, -0.0, 1], x.data.shape)
    for name in ("+", "-", "multiply"):
        out = OPERATIONS[name](a, b)
        with sparsegpu.use_engine("reference"), np.errstate(all="ignore"):
            expected = OPERATIONS[name](a, b)
        np.testing.assert_array_equal(out.toarray(), expected.toarray())
