"""Batches of many dimensions: how the cuda engine merges them, and every operation on them."""

from __future__ import annotations

import struct
from itertools import product
from math import prod

import numpy as np
import pytest
import scipy.special

import sparsegpu
from covering import covered
from sparsegpu.engines.cuda.runtime.view import (
    MAX_BATCH_DIMS,
    batch_dims,
    matrix_view,
    merged_batch,
    vector_view,
)
from sparsegpu.testing import assert_close, softmax_bound

SHAPE = (2, 3, 1, 2, 2, 3)


class OnDevice:
    """What a view reads of a CuPy array, over a NumPy one."""

    class data:
        ptr = 0

    def __init__(self, array: np.ndarray):
        self.shape, self.strides = array.shape, array.strides
        self.itemsize, self.ndim = array.itemsize, array.ndim


def offsets(array: np.ndarray, batch: tuple[int, ...], behind: int) -> list[int]:
    """Return where a kernel finds each matrix of the batch: `batch_offset` of common/view.cuh."""
    view = (matrix_view if behind == 2 else vector_view)(OnDevice(array), batch)
    strides = struct.unpack("<Q6q", view)[3:]
    sizes = struct.unpack("<4i", batch_dims(batch))
    return [
        sum(i * s for i, s in zip(np.unravel_index(b, sizes), strides)) for b in range(prod(batch))
    ]


def expected(array: np.ndarray, behind: int) -> list[int]:
    whole = np.broadcast_to(array, SHAPE + array.shape[array.ndim - behind :])
    strides = whole.strides[: len(SHAPE)]
    return [
        sum(i * s for i, s in zip(b, strides)) // array.itemsize
        for b in product(*map(range, SHAPE))
    ]


LAYOUTS = {
    "contiguous": np.zeros((*SHAPE, 4, 5)),
    "broadcast": np.zeros((4, 5)),
    "stride 0": np.broadcast_to(np.zeros((4, 5)), (*SHAPE, 4, 5)),
    "inner": np.zeros((2, 3, 4, 5)),
    "outer": np.zeros((2, 3, 1, 1, 1, 1, 4, 5)),
    "strided": np.zeros((*SHAPE, 8, 5), np.float32)[..., ::2, ::-1],
    "reversed": np.zeros((*SHAPE, 4, 5))[:, ::-1],
    "transposed": np.zeros((3, 2, 2, 1, 3, 2, 4, 5)).transpose(5, 4, 3, 2, 1, 0, 6, 7),
}


@covered(other=LAYOUTS, first=LAYOUTS)
def test_every_matrix_is_found_whatever_is_merged(first, other):
    pair = LAYOUTS[first], LAYOUTS[other]
    batch = merged_batch(SHAPE, *((a, 2) for a in pair), (None, 1))
    assert prod(batch) == prod(SHAPE)
    if sum(n > 1 for n in batch) > MAX_BATCH_DIMS:
        assert "transposed" in {first, other}
        with pytest.raises(NotImplementedError, match="5 dimensions larger than 1"):
            matrix_view(OnDevice(pair[0]), batch)
        return
    for array in pair:
        assert offsets(array, batch, 2) == expected(array, 2)


def test_what_is_merged():
    def merged(*layouts):
        return merged_batch(SHAPE, *((LAYOUTS[name], 2) for name in layouts))

    assert merged("contiguous", "broadcast", "strided") == (1, 1, 1, 1, 1, 72)
    assert merged("contiguous", "inner") == (1, 1, 1, 12, 1, 6)
    assert merged("contiguous", "outer") == (1, 6, 1, 1, 1, 12)
    assert merged("reversed") == (2, 3, 1, 1, 1, 12)
    few = (2, 1, 3, 4)
    assert merged_batch(few, (np.zeros((*few, 1, 1)), 2)) is few
    lengths = np.zeros((*SHAPE, 7))
    batch = merged_batch(SHAPE, (lengths, 1), (LAYOUTS["inner"], 2))
    assert offsets(lengths, batch, 1) == expected(lengths, 1)
    huge = np.broadcast_to(np.zeros((1, 1)), (1, 2**16, 1, 2**15, 2, 1, 1))
    assert merged_batch(huge.shape[:-2], (huge, 2)) == (1, 2**16, 1, 1, 2**16)


@pytest.fixture
def operands(rng, engine):
    """A batch of six dimensions of small integers, as (bsr, dense)."""
    values = rng.integers(-3, 4, (*SHAPE, 8, 8)).astype(np.float32)
    bsr = sparsegpu.bsr_array(values, blocksize=(4, 4), check=True)
    dense = rng.integers(-3, 4, (*SHAPE, 8, 5)).astype(np.float32)
    if engine.on_gpu:
        bsr = bsr.to_device()
    return values, bsr, dense, engine.array(dense)


def test_products(engine, operands):
    values, bsr, dense, there = operands
    bias = engine.array(np.arange(5, dtype=np.float32)[None])
    scale = np.arange(1, 1 + np.prod((2, 3, 8))).reshape(2, 3, 8).astype(np.float32)
    with engine.runs("bsr_addmm"):
        plain = sparsegpu.bsr_matmul(bsr, there)
        scaled = sparsegpu.bsr_addmm(bias, bsr, there, left_alpha=engine.array(scale))
    np.testing.assert_array_equal(engine.host(plain), values @ dense)
    fused = scale[..., None] * (values @ dense) + np.arange(5)
    np.testing.assert_array_equal(engine.host(scaled), fused)
    with engine.runs("bsr_scatter"):
        np.testing.assert_array_equal(engine.host(bsr.toarray()), values)


def test_sampled_products_and_softmax(engine, operands):
    _, bsr, dense, there = operands
    with engine.runs("bsr_sampled_addmm"):
        result = sparsegpu.sampled_addmm(bsr, there, there.swapaxes(-1, -2), beta=0)
    product_ = dense @ dense.swapaxes(-1, -2)
    with engine.runs("bsr_softmax"):
        weights = sparsegpu.bsr_softmax(result)
    blocks = product_.reshape(*SHAPE, 2, 4, 2, 4).swapaxes(-2, -3).reshape(*SHAPE, 4, 4, 4)
    np.testing.assert_array_equal(engine.host(result.data), blocks)
    # Both blocks of a row side by side: (*SHAPE, block row, row, stored).
    rows, got = (
        x.reshape(*SHAPE, 2, 2, 4, 4).swapaxes(-3, -2).reshape(*SHAPE, 2, 4, 8)
        for x in (blocks, engine.host(weights.data))
    )
    exact = scipy.special.softmax(rows.astype(np.float64), axis=-1)
    assert_close(got, exact, softmax_bound(rows, exact))


def test_two_of_four(engine, rng):
    weight = np.tile(np.float32([2, 0]), (32, 8))
    dense = rng.integers(-3, 4, (*SHAPE, 16, 3)).astype(np.float32)
    sparse = sparsegpu.SemiStructuredArray.from_dense(engine.array(weight))
    with engine.runs("semi_structured_addmm"):
        result = sparsegpu.semi_structured_matmul(sparse, engine.array(dense))
    np.testing.assert_array_equal(engine.host(result), weight @ dense)


def test_attention(engine, rng):
    mask = sparsegpu.causal(8, 4, xp=engine.xp)
    q, k, v = (engine.array(rng.standard_normal((*SHAPE, 8, 4)).astype("f4")) for _ in range(3))
    with engine.runs("bsr_attention_simt"):
        whole = sparsegpu.scaled_dot_product_attention(q, k, v, mask)
        one = sparsegpu.scaled_dot_product_attention(q[1, 2], k[1, 2], v[1, 2], mask)
    np.testing.assert_array_equal(engine.host(whole)[1, 2], engine.host(one))
