"""``A @ x`` of a few columns on the host, which takes a short way around checks and plans."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import sparsegpu
from covering import covered
from sparsegpu.engines.cpu.short_product import ShortProduct, most_columns
from sparsegpu.testing import random_blocks, random_values

pytest.importorskip("numba")


@covered(
    dtype=["float32", "float64", "complex64", "complex128"],
    blocksize=[(1, 1), (3, 3), (6, 6), (7, 7), (8, 2), (5, 12), (16, 16)],
    columns=[1, 3, 8, 40],
    density=[0, 0.3],
)
def test_a_short_product_has_the_bits_of_a_call(dtype, blocksize, columns, density, rng):
    shape = 11 * blocksize[0], 7 * blocksize[1]
    blocks = random_blocks(rng, shape, blocksize, dtype=dtype, density=density, shuffled=True)
    A = sparsegpu.bsr_array(blocks, shape=shape)
    x = random_values(rng, (shape[1], columns), dtype)
    out, product = np.full((shape[0], columns), np.nan, dtype), ShortProduct(A.pattern, A.dtype)
    assert most_columns(A.pattern, A.dtype) >= columns
    product(out, A.data, x)
    np.testing.assert_array_equal(out, sparsegpu.bsr_matmul(A, x))


@covered(
    dtype=["float32", "complex128"], blocksize=[(1, 1), (3, 2), (7, 7), (5, 12)], density=[0, 0.3]
)
def test_a_vector_from_the_left(dtype, blocksize, density, rng):
    shape = 11 * blocksize[0], 7 * blocksize[1]
    blocks = random_blocks(rng, shape, blocksize, dtype=dtype, density=density, shuffled=True)
    A = sparsegpu.bsr_array(blocks, shape=shape)
    x = random_values(rng, (shape[0],), dtype)
    assert most_columns(A.pattern, A.dtype, transposed=True) == 1
    np.testing.assert_array_equal(x @ A, sparsegpu.dense_bsr_matmul(x, A))
    for wrong in (np.ones(shape[0] + 1, dtype), np.ones((shape[0] + 1, 1), dtype)):
        with pytest.raises(ValueError, match=r"^bsr_array @: argument 'other': expected shape"):
            wrong @ A


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "float32"])
def test_no_columns(dtype):
    A = sparsegpu.bsr_array(np.eye(2).astype(sparsegpu.testing.dtype_of(dtype)), blocksize=(1, 1))
    product = A @ np.zeros((2, 0), A.dtype)
    assert product.shape == (2, 0)


def laid_out(x, how):
    """Return a vector of the same values."""
    match how:
        case "backwards":
            return x[::-1].copy()[::-1]
        case "read-only":
            x.flags.writeable = False
        case "columns":
            return np.stack([x, -x, x, x, x], axis=1)
        case "columns of a larger array":
            return np.stack([x, -x, x], axis=1)[:, 1:]
        case "unaligned":
            memory = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype)
            memory[...] = x
            return memory
    return x


@covered(
    dtype=["float16", "float32", "float64", "int8", "complex128"],
    shape=[(6, 9), (3, 0), (0, 6), (30, 60)],
    how=[
        "contiguous",
        "backwards",
        "read-only",
        "unaligned",
        "columns",
        "columns of a larger array",
    ],
)
def test_operator_and_function_give_the_same_bits(dtype, shape, how, rng):
    blocks = random_blocks(rng, shape, (3, 3), dtype=dtype, shuffled=True, duplicates=True)
    A = sparsegpu.bsr_array(blocks, shape=shape)
    x = laid_out(random_values(rng, (shape[1],), dtype), how)
    for values in (A.data, -A.data):
        A.data = values
        out, expected = A @ x, sparsegpu.bsr_matmul(A, x)
        assert out.dtype == expected.dtype and out.flags.writeable
        np.testing.assert_array_equal(out, expected)
    with sparsegpu.use_engine("reference"):
        np.testing.assert_array_equal(A @ x, sparsegpu.bsr_matmul(A, x))
    A.data[...] = 0
    assert not (A @ x).any()


def test_values_that_lie_apart(rng):
    wide = rng.standard_normal((4, 3, 6))
    A = sparsegpu.bsr_array((wide[..., ::2], [0, 1, 0, 2], [0, 2, 4]), shape=(6, 9))
    assert np.shares_memory(A.data, wide)
    for x in (np.ones(9), np.ones((9, 3))):
        np.testing.assert_array_equal(A @ x, sparsegpu.bsr_matmul(A, x))


def test_matrices_of_a_batch(rng):
    A = sparsegpu.bsr_array(rng.standard_normal((2, 6, 9)) * np.eye(6, 9), blocksize=(3, 3))
    for x in (np.ones(9), np.ones((9, 2)), np.ones((2, 9, 2))):
        np.testing.assert_array_equal(A @ x, np.matmul(A.toarray(), x))


def test_several_threads_compute_large_products(rng):
    A = sparsegpu.bsr_array(np.ones((2048, 2048), np.float32), blocksize=(8, 8))
    assert most_columns(A.pattern, A.dtype) == 0
    np.testing.assert_array_equal(A @ np.ones(2048, np.float32), np.full(2048, 2048))


def test_the_operator_refuses_what_the_function_does(rng):
    A = sparsegpu.bsr_array(random_blocks(rng, (6, 9), (3, 3), dtype="float64"), shape=(6, 9))
    x = np.ones(9)
    assert (A @ x).shape == (6,)
    for wrong in (np.ones(8), np.ones((8, 2)), np.ones((2, 9))):
        with pytest.raises(ValueError, match=r"^bsr_array @: argument 'other': expected shape"):
            A @ wrong
    assert (A @ np.ones((2, 9, 3))).shape == (2, 6, 3) and (A @ np.ones((9, 0))).shape == (6, 0)
    with sparsegpu.use_engine("cuda"), pytest.raises(TypeError, match="arrays for the engine"):
        A @ x
    with warnings.catch_warnings(action="ignore"):  # deprecated since NumPy 2.5, but possible
        A.data.dtype = "uint64"  # the caller's own array, changed behind our back
    with pytest.raises(TypeError, match=r"^bsr_array @: argument 'self'"):
        A @ x.view("uint64")
