"""The definition of the conversions, held against loops over single elements."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsegpu._arrays import accumulator_dtype, dtype_of
from sparsegpu.engines.reference import convert
from sparsegpu.pattern import Pattern
from sparsegpu.testing import random_blocks, random_values

DTYPES = [
    "bool",
    "int8",
    "int32",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]


def elements(pattern, data):
    """Yield ``(batch, row, column, value)`` of every stored element, in stored order."""
    bm, bk = pattern.blocksize
    for b in np.ndindex(pattern.batch_shape):
        for i in range(pattern.block_shape[0]):
            for p in range(pattern.indptr[b][i], pattern.indptr[b][i + 1]):
                for r in range(bm):
                    for c in range(bk):
                        column = pattern.indices[b][p] * bk + c
                        yield b, i * bm + r, column, data[b][p][r, c]


def dense_by_loop(pattern, data):
    """Sums in accumulator precision, in stored order; bool: or; int8 saturating."""
    total = np.zeros(pattern.batch_shape + pattern.shape, accumulator_dtype(data.dtype))
    for b, row, column, value in elements(pattern, data):
        place = (*b, row, column)
        if data.dtype == bool:
            total[place] |= value
        else:
            total[place] += total.dtype.type(value)
    if data.dtype == np.int8:
        total = total.clip(-128, 127)
    return total.astype(data.dtype)


def random_pattern(rng, shape, blocksize, dtype, **keywords):
    keywords["small_integers"] = dtype == "int32"  # whose sums may overflow otherwise
    data, indices, indptr = random_blocks(rng, shape, blocksize, dtype=dtype, **keywords)
    return Pattern(indptr, indices, shape, blocksize), data


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [(), (2, 2)])
@pytest.mark.parametrize("density", [0, 0.4, 2])
def test_there_and_back(rng, dtype, batch, density):
    pattern, data = random_pattern(
        rng, (6, 12), (2, 3), dtype, density=density, duplicates=density > 1, batch=batch
    )
    expected = dense_by_loop(pattern, data)
    dense = np.full(expected.shape, 1, data.dtype)
    convert.scatter_blocks(dense, pattern, data)
    np.testing.assert_array_equal(dense, expected)
    back = np.empty_like(data)
    convert.gather_blocks(back, pattern, dense)
    for (b, r, c, value), (*_, got) in zip(elements(pattern, data), elements(pattern, back)):
        assert got == dense[(*b, r, c)]
        assert density > 1 or got == value


@pytest.mark.parametrize("dtype", DTYPES)
def test_duplicates_are_summed(rng, dtype):
    pattern, data = random_pattern(rng, (6, 12), (2, 3), dtype, density=2, duplicates=True)
    canonical, order, starts = pattern.canonical()
    out = np.empty((canonical.nnzb, 2, 3), data.dtype)
    convert.sum_blocks(out, data, order, starts)
    expected = dense_by_loop(pattern, data)
    for (*_, value), (b, r, c, _) in zip(elements(canonical, out), elements(canonical, out)):
        assert value == expected[(*b, r, c)]


def test_sums_round_once_and_saturate():
    order, starts = np.arange(3), np.array([0, 3])
    halves = np.array([1, 2**-9, 2**-9], ml_dtypes.bfloat16).reshape(3, 1, 1)
    out = np.empty((1, 1, 1), ml_dtypes.bfloat16)
    convert.sum_blocks(out, halves, order, starts)
    assert out[0, 0, 0] == 1.0  # 1 + 2**-8 is a tie, to even
    convert.sum_blocks(out, halves * ml_dtypes.bfloat16(1.5), order, starts)
    assert out[0, 0, 0] == 1.5 + 2**-7  # rounding after every addition would leave 1.5
    bytes_ = np.array([100, 100, -30], np.int8).reshape(3, 1, 1)
    total = np.empty((1, 1, 1), np.int8)
    convert.sum_blocks(total, bytes_, order, starts)
    assert total[0, 0, 0] == 127  # 170, and no wrap on the way


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["C", "F", "reversed", "sliced"])
def test_mask_and_gather_of_any_strides(rng, dtype, layout):
    dense = random_values(rng, (3, 12, 10), dtype, small_integers=True)
    dense[rng.random(dense.shape) < 0.85] = 0
    dense = {
        "C": dense,
        "F": dense.swapaxes(1, 2).copy().swapaxes(1, 2),
        "reversed": dense[:, ::-1, ::-1],
        "sliced": np.repeat(dense, 2, axis=2)[..., ::2],
    }[layout]
    mask = convert.block_mask(dense, (4, 5))
    expected = np.zeros((3, 3, 2), bool)
    for b, r, c in np.ndindex(dense.shape):
        expected[b, r // 4, c // 5] |= dense[b, r, c] != 0
    np.testing.assert_array_equal(mask, expected)
    # One pattern for the batch of matrices.
    pattern = Pattern(np.array([0, 2, 2, 3]), np.array([1, 0, 1]), (12, 10), (4, 5))
    out = np.empty((3, 3, 4, 5), dense.dtype)
    convert.gather_blocks(out, pattern, dense)
    for p, (i, j) in enumerate([(0, 1), (0, 0), (2, 1)]):
        np.testing.assert_array_equal(out[:, p], dense[:, 4 * i : 4 * i + 4, 5 * j : 5 * j + 5])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_nan_is_a_value_and_minus_zero_is_none(dtype):
    dense = np.array([[-0.0, np.nan, np.inf, 0.0]], dtype_of(dtype))
    assert convert.block_mask(dense, (1, 1)).tolist() == [[False, True, True, False]]


def test_transpose(rng):
    blocks = random_values(rng, (5, 2, 3), "float32")
    order = np.array([3, 0, 4, 1, 2])
    out = np.empty((5, 3, 2), np.float32)
    convert.transpose_blocks(out, blocks, order)
    for t in range(5):
        np.testing.assert_array_equal(out[t], blocks[order[t]].T)


@pytest.mark.parametrize("shape", [(0, 9), (6, 0), (0, 0)])
def test_zero_sizes(shape):
    pattern = Pattern(np.zeros(shape[0] // 2 + 1, int), np.zeros(0, int), shape, (2, 3))
    dense, nothing = np.empty(shape), np.empty((0, 2, 3))
    convert.scatter_blocks(dense, pattern, nothing)
    convert.gather_blocks(nothing, pattern, dense)
    assert convert.block_mask(dense, (2, 3)).shape == (shape[0] // 2, shape[1] // 3)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    blocks=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    blocksize=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    density=st.floats(0, 2),
    seed=st.integers(0, 2**20),
)
def test_any_shape(blocks, blocksize, density, seed):
    rng = np.random.default_rng(seed)
    shape = blocks[0] * blocksize[0], blocks[1] * blocksize[1]
    pattern, data = random_pattern(
        rng, shape, blocksize, "float32", density=density, duplicates=True
    )
    dense = np.empty(shape, np.float32)
    convert.scatter_blocks(dense, pattern, data)
    np.testing.assert_array_equal(dense, dense_by_loop(pattern, data))
