"""Elements, or blocks, ``(data, (row, column))`` as a `bsr_array`, held against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from sparsegpu import bsr_array


def elements(rng, dtype="float64", n=40):
    """Return elements of a (12, 20) matrix, some of them repeated."""
    row, column = rng.integers(0, 12, n), rng.integers(0, 20, n)
    row[-5:], column[-5:] = row[:5], column[:5]
    return rng.integers(0, 5, n).astype(dtype), (row, column)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "int8", "bool", "complex64"])
@pytest.mark.parametrize("form", [tuple, list, np.stack])
def test_elements(engine, rng, dtype, form):
    from sparsegpu._arrays import dtype_of

    values, positions = elements(rng)
    values = values.astype(dtype_of(dtype))
    given = form(engine.array(x) for x in positions) if form is not np.stack else None
    given = engine.array(np.stack(positions)) if given is None else tuple(given)
    a = bsr_array((engine.array(values), given), shape=(12, 20), blocksize=(3, 4))
    a.check_format()
    assert a.has_canonical_format and a.dtype == values.dtype
    of_scipy = values.astype("float32") if dtype == "bfloat16" else values
    expected = sp.coo_array((of_scipy, positions), shape=(12, 20)).toarray()
    np.testing.assert_array_equal(engine.host(a.toarray()), expected.astype(values.dtype))


def test_shape_and_blocksize_are_optional(rng):
    values, (row, column) = elements(rng)
    a = bsr_array((values, (row, column)))
    assert a.shape == sp.coo_array((values, (row, column))).shape
    full = sp.coo_array(np.kron(np.eye(3), np.ones((2, 2))))
    b = bsr_array((full.data, (full.row, full.col)))
    assert b.blocksize == sp.csr_array(full).tobsr().blocksize == (2, 2)
    c = bsr_array(([1.0, 2.0], ([0, 1], [1, 1])), blocksize=(2, 1), dtype="float32")
    assert c.dtype == np.float32 and c.toarray().tolist() == [[0, 1], [0, 2]]
    assert bsr_array(([], ([], [])), shape=(4, 6), blocksize=(2, 3)).nnzb == 0


@pytest.mark.parametrize(
    ("arg", "keywords", "error", "match"),
    [
        (([1.0], ([4], [0])), dict(shape=(4, 4)), ValueError, r"'row': .*0\.\.3, got 4"),
        (([1.0], ([0], [-1])), dict(shape=(4, 4)), ValueError, r"'column': .*0\.\.3, got -1"),
        (([1.0], ([-1], [0])), {}, ValueError, "'row': .* got -1"),
        (([1.0], ([0, 1], [0, 1])), {}, ValueError, r"'row': expected shape \(1,\), as of data"),
        (([1.0], ([0.5], [0])), {}, TypeError, "'row': expected an integer dtype, got float64"),
        (([1.0], ([0], [0], [0])), {}, ValueError, r"'arg': expected \(data, \(row, column\)\)"),
        (([[1.0]], ([0], [0])), {}, ValueError, r"'data': expected elements, shape \(n,\)"),
        (([], ([], [])), {}, ValueError, "'shape': expected .* no elements"),
        (([1], ([0], [0])), {}, TypeError, "'arg': .* got int64; say which one with dtype="),
        (([1.0], ([0], [0])), dict(shape=(2, 4, 4)), ValueError, "'shape': .* of one matrix"),
        (
            ([1.0], ([2], [2])),
            dict(blocksize=(2, 2)),
            ValueError,
            r"'blocksize': .* divides the shape \(3, 3\)",
        ),
    ],
)
def test_bad_elements(arg, keywords, error, match):
    with pytest.raises(error, match=f"^bsr_array: argument {match}"):
        bsr_array(arg, **keywords)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "bool", "complex64"])
def test_blocks(engine, rng, dtype):
    """Repeated ones are summed; the oracle adds their elements one by one."""
    row, column = rng.integers(0, 4, 30), rng.integers(0, 5, 30)
    blocks = rng.integers(0, 3, (30, 3, 2)).astype(dtype)
    given = engine.array(blocks), (engine.array(row), engine.array(column))
    a = bsr_array(given, shape=(12, 10))
    a.check_format()
    dense = np.zeros((12, 10), complex)
    for i, j, block in zip(row, column, blocks):
        dense[3 * i : 3 * i + 3, 2 * j : 2 * j + 2] += block
    assert a.blocksize == (3, 2) and a.has_canonical_format
    expected = dense if blocks.dtype.kind == "c" else dense.real
    np.testing.assert_array_equal(engine.host(a.toarray()), expected.astype(dtype))
    smallest = bsr_array(given, dtype="float32" if dtype == "float16" else None)
    assert smallest.shape == (3 * (row.max() + 1), 2 * (column.max() + 1))
    assert smallest.dtype == ("float32" if dtype == "float16" else dtype)


def test_bad_blocks():
    blocks = np.ones((1, 2, 2))
    with pytest.raises(ValueError, match=r"^bsr_array: argument 'row': expected block rows in 0"):
        bsr_array((blocks, ([2], [0])), shape=(4, 4))
    with pytest.raises(ValueError, match=r"^bsr_array: argument 'column': .* got -1"):
        bsr_array((blocks, ([0], [-1])))
    with pytest.raises(ValueError, match=r"^bsr_array: argument 'blocksize': expected \(2, 2\)"):
        bsr_array((blocks, ([0], [0])), blocksize=(4, 4))
    with pytest.raises(ValueError, match=r"^bsr_array: argument 'shape': expected multiples"):
        bsr_array((blocks, ([0], [0])), shape=(5, 4))
    with pytest.raises(TypeError, match=r"^bsr_array: argument 'row': expected an integer dtype"):
        bsr_array((blocks, ([0.5], [0])))
