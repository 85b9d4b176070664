"""Operands of small integers for the operators' tests, and exact comparison."""

from __future__ import annotations

import numpy as np

from sparsegpu import bsr_array, testing

FLOATS = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
NUMBERS = [*FLOATS, "int8", "int32"]


def make(engine, rng, shape=(12, 20), blocksize=(3, 4), *, batch=(), duplicates=False, **keywords):
    """Return a bsr_array of small integers and its dense matrix in the same dtype."""
    keywords.setdefault("density", 0.5)
    parts = testing.random_blocks(
        rng, shape, blocksize, batch=batch, duplicates=duplicates, small_integers=True, **keywords
    )
    a = bsr_array(tuple(engine.array(p) for p in parts), shape=shape)
    return a, testing.dense_from_blocks(*parts, shape).astype(parts[0].dtype)


def check(engine, result, expected, dtype=None):
    """Exact comparison, dtype too."""
    if isinstance(result, bsr_array):
        result.check_format()
        with engine.runs("bsr_scatter" if all(result.shape) else None):
            result = result.toarray()
    result, expected = engine.host(result), np.asarray(expected)
    assert result.dtype == (expected.dtype if dtype is None else dtype)
    np.testing.assert_array_equal(result, expected)
