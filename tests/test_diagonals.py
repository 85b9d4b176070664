"""Matrices of diagonals, and the blocks of a diagonal, held against SciPy and dense NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import sparsegpu as sg
from covering import covered
from operator_cases import check, make


@covered(dtype=["float64", "float16", "int8", "complex64"], blocksize=[(2, 2), (3, 1), (1, 4)])
def test_of_blocks(engine, rng, dtype, blocksize):
    bm, bk = blocksize
    shape, offsets = (4 * bm, 5 * bk), [2, -1, 0]
    diagonals = [rng.integers(-4, 5, (n, bm, bk)).astype(dtype) for n in (3, 3, 4)]
    a = sg.diags([engine.array(d) for d in diagonals], offsets, shape)
    a.check_format()
    expected = np.zeros(shape, dtype)
    for k, blocks in zip(offsets, diagonals):
        for n, block in enumerate(blocks):
            i, j = n + max(-k, 0), n + max(k, 0)
            expected[i * bm : (i + 1) * bm, j * bk : (j + 1) * bk] = block
    assert a.blocksize == blocksize and a.nnzb == 10 and a.has_canonical_format
    check(engine, a, expected)
    for k, blocks in zip(offsets, diagonals):
        np.testing.assert_array_equal(engine.host(a.diagonal_blocks(k)), blocks)


@covered(blocksize=[(1, 1), (2, 3)], dtype=[None, "float32"])
def test_of_elements(engine, rng, blocksize, dtype):
    lengths = {0: 6, 3: 6, -2: 4, 8: 1}
    diagonals = [rng.integers(-4, 5, n).astype("float64") for n in lengths.values()]
    given = [engine.array(d) for d in diagonals]
    ours = sg.diags(given, list(lengths), (6, 9), dtype=dtype, blocksize=blocksize)
    theirs = sp.diags(diagonals, list(lengths), (6, 9), dtype=dtype)
    assert ours.blocksize == blocksize
    check(engine, ours, theirs.toarray())


def test_one_diagonal(engine, rng):
    values = rng.integers(-4, 5, 4).astype("float32")
    for given in ((engine.array(values), 1), ([engine.array(values)], [1])):
        check(engine, sg.diags(*given), np.diag(values, 1))
    blocks = rng.integers(-4, 5, (3, 2, 2)).astype("float32")
    a = sg.diags(engine.array(blocks), -1)
    assert a.shape == (8, 8)
    np.testing.assert_array_equal(engine.host(a.diagonal_blocks(-1)), blocks)


def test_lists_and_repeated_values():
    for one in (sg.diags([1.0, 2, 3]), sg.diags([[1.0, 2, 3]], [0])):
        np.testing.assert_array_equal(one.toarray(), np.diag([1.0, 2, 3]))
    laplace = sg.diags([[-1.0], [2.0], [-1.0]], [-1, 0, 1], (6, 6), blocksize=(3, 3))
    expected = sp.diags([-1.0, 2.0, -1.0], [-1, 0, 1], (6, 6)).toarray()
    np.testing.assert_array_equal(laplace.toarray(), expected)
    for given in ([-1.0, 2.0, -1.0], np.array([-1.0, 2.0, -1.0])):  # as SciPy has it
        numbers = sg.diags(given, [-1, 0, 1], shape=(6, 6), dtype="float32")
        np.testing.assert_array_equal(numbers.toarray(), expected)
    block = np.arange(4.0).reshape(1, 2, 2)
    repeated = sg.diags([block], [1], (6, 8))
    np.testing.assert_array_equal(repeated.diagonal_blocks(1), np.tile(block, (3, 1, 1)))
    assert sg.diags(np.zeros((0, 2, 3))).shape == (0, 0)
    assert sg.diags([np.ones(2), np.ones(1, "complex64")], [0, 1]).dtype == np.complex128


@covered(batch=[(), (2,), (2, 3)], duplicates=[False, True], k=[-1, 0, 2, 7])
def test_blocks_of_a_diagonal(engine, rng, batch, duplicates, k):
    a, dense = make(engine, rng, dtype="float64", batch=batch, duplicates=duplicates and not batch)
    with engine.runs(None if a.has_canonical_format or k > 4 else "bsr_sum_blocks"):
        got = a.diagonal_blocks(k)
    blocks = dense.reshape(*batch, 4, 3, 5, 4).swapaxes(-3, -2)
    n = max(0, min(4 + min(k, 0), 5 - max(k, 0)))
    i = np.arange(n) + max(-k, 0)
    np.testing.assert_array_equal(engine.host(got), blocks[..., i, i + k, :, :])


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: sg.diags([np.ones(3)], [0, 1]), ValueError, "'diagonals': expected 2 diagonals"),
        (lambda: sg.diags([np.ones(3)], [0.5]), TypeError, "'offsets': expected an integer"),
        (lambda: sg.diags([np.ones(3), np.ones(2)], [0, 0]), ValueError, "'offsets': .* once"),
        (lambda: sg.diags([np.ones(3), np.ones(5)], [0, 1]), ValueError, "got 5"),
        (lambda: sg.diags([np.ones(3)], [4], (3, 3)), ValueError, r"in -2\.\.2, got 4"),
        (lambda: sg.diags([np.ones((3, 2))], [0]), ValueError, r"or blocks \(n, bm, bk\)"),
        (
            lambda: sg.diags([np.ones((3, 2, 2)), np.ones(2)], [0, 1]),
            ValueError,
            r"diagonals of \(2, 2\) like the first, got shape \(2,\)",
        ),
        (
            lambda: sg.diags([np.ones((3, 2, 2))], [0], blocksize=(1, 1)),
            ValueError,
            r"'blocksize': expected \(2, 2\)",
        ),
        (lambda: sg.diags([np.ones(3)], [0], (3, 4), blocksize=(2, 2)), ValueError, "divides"),
        (lambda: sg.diags(["a"], [0]), TypeError, "'diagonals'"),
        (lambda: sg.diags([1, -2], [0, 1], (3, 3)), TypeError, "got int64; say which .* dtype="),
    ],
)
def test_errors(call, error, match):
    with pytest.raises(error, match=rf"^diags: argument {match}" if "'" in match else match):
        call()
