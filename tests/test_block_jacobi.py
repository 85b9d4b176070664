"""The inverses of diagonal blocks as a preconditioner."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import sparsegpu
from solver_cases import banded_blocks, on
from sparsegpu import bsr_array, linalg


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("size", [1, 2, 3, 16, 64])
def test_it_inverts_the_diagonal_blocks(engine, rng, dtype, size):
    a, dense = banded_blocks(rng, dtype, blocks=5, size=size)
    n = 5 * size
    block = np.arange(n) // size
    diagonal = np.where(block[:, None] == block, dense, 0).astype(np.complex128)
    with sparsegpu.use_engine(engine.name):
        M = linalg.block_jacobi(on(engine, a))
        assert M.shape == (n, n) and M.dtype == dtype
        for x in (rng.standard_normal(n), rng.standard_normal((n, 3))):
            x = x.astype(dtype)
            y = engine.host(M @ engine.array(x))
            # A diagonally dominant block: as near as a solve with it is.
            slack = 50 * n * np.finfo(dtype).eps * np.linalg.cond(diagonal)
            expected = np.linalg.solve(diagonal, x)
            assert abs(y - expected).max() <= slack * abs(expected).max()
            adjoint = engine.host(M.H @ engine.array(x))
            expected = np.linalg.solve(diagonal.conj().T, x)
            assert abs(adjoint - expected).max() <= slack * abs(expected).max()


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_repeated_unsorted_and_missing_blocks(engine, dtype):
    data = np.array([[[1]], [[7]], [[3]], [[5]]], dtype)
    a = bsr_array((data, np.array([0, 1, 0, 1]), np.array([0, 3, 4])), shape=(2, 2))
    with sparsegpu.use_engine(engine.name):
        M = linalg.block_jacobi(on(engine, a))
        product = engine.host(M @ engine.array(np.ones(2, dtype)))
        assert np.allclose(product, [0.25, 0.2], rtol=np.finfo(dtype).eps)


def test_it_takes_out_what_couples_a_block(engine, rng):
    """Blocks of very different sizes: with their inverses it takes few iterations."""
    a, dense = banded_blocks(rng, blocks=40, size=3)
    scale = np.repeat(10.0 ** rng.integers(-3, 4, 40), 3)
    a = bsr_array(dense * scale[:, None] * scale, blocksize=(3, 3))
    b = rng.standard_normal(120)
    counts = []
    with sparsegpu.use_engine(engine.name):
        device = on(engine, a)
        for M in (None, linalg.block_jacobi(device)):
            history = []
            linalg.cg(device, engine.array(b), M=M, rtol=1e-8, residuals=history)
            counts.append(len(history))
    assert counts[1] * 5 < counts[0]


def test_unknowns_of_other_units_are_not_singular(engine):
    """A stiffness of 1e11 beside a permittivity of 1e-10: the condition is that of the units."""
    units = np.array([2.0**37, 2.0**-33])
    block = np.array([[2.0, 1.0], [1.0, 3.0]]) * units[:, None] * units
    with sparsegpu.use_engine(engine.name):
        M = linalg.block_jacobi(bsr_array(engine.array(block), blocksize=(2, 2)))
        x = engine.host(M @ engine.array(np.array([3.0, 4.0]) * units))
    assert np.allclose(x * units, [1, 1], rtol=1e-12)


def test_singular_blocks_are_named(engine):
    dense = np.eye(8)
    dense[4:6, 4:6] = [[0.1, 0.2], [0.3, 0.6]]  # singular, not in binary fractions
    message = r"^block_jacobi: argument 'A': .* got block \(2, 2\) singular$"
    with sparsegpu.use_engine(engine.name):
        for block in (dense[4:6, 4:6], np.ones((2, 2)), np.zeros((2, 2))):
            dense[4:6, 4:6] = block
            with pytest.raises(ValueError, match=message):
                linalg.block_jacobi(bsr_array(engine.array(dense), blocksize=(2, 2)))
        dense[6, 6] = np.nan
        with pytest.raises(ValueError, match=r"block \(2, 2\) singular, and 1 more$"):
            linalg.block_jacobi(bsr_array(engine.array(dense), blocksize=(2, 2)))


@pytest.mark.parametrize(
    ("a", "error", "match"),
    [
        (np.eye(4), TypeError, "a bsr_array"),
        (bsr_array(np.ones((2, 4, 4)), blocksize=(2, 2)), ValueError, "a batch"),
        (bsr_array(np.ones((4, 6)), blocksize=(2, 2)), ValueError, "a square matrix"),
        (bsr_array(np.ones((4, 4)), blocksize=(2, 1)), ValueError, "square blocks .* got 2 x 1"),
        (bsr_array(np.ones((65, 65)), blocksize=(65, 65)), ValueError, "up to 64 x 64"),
        (bsr_array(np.eye(4, dtype="int8"), blocksize=(2, 2)), TypeError, "float32, float64"),
        (bsr_array(np.eye(4, dtype="float16"), blocksize=(2, 2)), TypeError, "astype"),
    ],
)
def test_bad_input(a, error, match):
    with pytest.raises(error, match=rf"^block_jacobi: argument 'A': expected .*{match}"):
        linalg.block_jacobi(a)


def test_without_scipy(monkeypatch):
    a = bsr_array(np.eye(4), blocksize=(2, 2))
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    with pytest.raises(ImportError, match=r"^block_jacobi: SciPy is not installed; pip install"):
        linalg.block_jacobi(a)
