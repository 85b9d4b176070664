"""The 16-bit product whose row groups share tiles of dense, on tensor cores from 8.0 on."""

import numpy as np
import pytest

import sparsegpu
from addmm_cases import LAYOUTS, Operand, check_batches, check_epilogue, laid_out, small
from sparsegpu import bsr_array, bsr_matmul, dense_bsr_matmul
from sparsegpu.engines.cuda.runtime.group_tile import group_tile

PATH = {"path": "groups"}
SOURCE = "bsr_addmm_groups"
WHOLE = [(16, 16), (8, 8), (32, 32), (32, 64), (64, 64), (128, 128), (24, 40), (16, 128), (256, 64)]
ODD = [(3, 3), (6, 6), (5, 13), (23, 23), (33, 20), (1, 9), (130, 70), (200, 100)]

on_gpu = pytest.mark.gpu


def operand(engine, rng, blocksize, dtype="bfloat16", rows=7, columns=9, **keywords):
    """Return an operand with groups that lack rows, empty rows, repeated and unsorted blocks."""
    shape = (blocksize[0] * rows, blocksize[1] * columns)
    return Operand(engine, rng, shape, blocksize, dtype, **keywords)


@pytest.mark.parametrize("blocksize", [*WHOLE, *ODD, (256, 256)])
@pytest.mark.parametrize("by_row", [True, False])
@pytest.mark.parametrize("n", [72, 104, 4096])
def test_tile_fits_the_smallest_gpu(blocksize, by_row, n):
    bm, bk = blocksize
    tile = group_tile(blocksize, n, by_row)
    assert tile.strip_bytes <= tile.shared_memory <= 99 * 1024 and tile.stages >= 2
    assert tile.parts * tile.slice_m >= bm and tile.group * tile.slice_m <= 128
    assert tile.step_k % 8 == tile.slice_m % 8 == 0
    assert tile.steps == 1 or tile.step_k >= bk
    assert tile.steps * tile.group <= 64
    assert tile.warps_m == 1 or (tile.group == 1 and tile.slice_m % (8 * tile.warps_m) == 0)
    assert tile.tile_n % (16 * tile.warps_n) == 0


@pytest.mark.parametrize("room", [99, 163, 227])
@pytest.mark.parametrize("blocksize", [(16, 16), (64, 64), (128, 128), (200, 100)])
def test_tile_leaves_room_for_its_neighbours(blocksize, room):
    """As many thread blocks as registers are shared out to find shared memory, too."""
    tile = group_tile(blocksize, 4096, True, room * 1024)
    assert tile.resident * (tile.shared_memory + 1024) <= (room + 1) * 1024


@on_gpu
@pytest.mark.parametrize("blocksize", [*WHOLE, *ODD])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("n", [72, 264])
def test_exact_on_small_integers(cuda_engine, rng, blocksize, layout, n):
    a = operand(cuda_engine, rng, blocksize)
    x = small(rng, (a.dense.shape[1], n), "bfloat16")
    with cuda_engine.runs(SOURCE):
        out = bsr_matmul(a.bsr, laid_out(cuda_engine, x, layout), config=PATH, out_dtype="float32")
    np.testing.assert_array_equal(cuda_engine.host(out), a.dense @ x.astype(a.dense.dtype))


@on_gpu
@pytest.mark.parametrize("blocksize", [(16, 16), (6, 6), (23, 23), (64, 32), (128, 128)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_from_the_right(cuda_engine, rng, blocksize, layout):
    a = operand(cuda_engine, rng, blocksize, "float16")
    y = small(rng, (72, a.dense.shape[0]), "float16")
    with cuda_engine.runs(SOURCE):
        out = dense_bsr_matmul(laid_out(cuda_engine, y, layout), a.bsr, config=PATH)
    expected = y.astype(a.dense.dtype) @ a.dense
    np.testing.assert_array_equal(cuda_engine.host(out), expected.astype(out.dtype))


@on_gpu
@pytest.mark.parametrize("blocksize", [(16, 16), (23, 23), (128, 64)])
@pytest.mark.parametrize("out_dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("order", ["C", "F", "strided"])
def test_epilogue_and_outputs(cuda_engine, rng, blocksize, out_dtype, order):
    a = operand(cuda_engine, rng, blocksize, small_integers=False)
    how = {"kernels": [SOURCE], "config": PATH}
    check_epilogue(cuda_engine, rng, a.bsr, a.dense, out_dtype, order, **how)


@on_gpu
@pytest.mark.parametrize("blocksize", [(16, 16), (20, 20)])
def test_batches(cuda_engine, rng, blocksize):
    check_batches(cuda_engine, rng, blocksize, kernels=[SOURCE], config=PATH)


@on_gpu
@pytest.mark.parametrize("blocksize", [(20, 20), (6, 6), (16, 48)])
def test_what_the_pattern_lacks_is_not_read(cuda_engine, rng, blocksize):
    """NaN in rows of dense that meet no block, next to those that do."""
    bm, bk = blocksize
    data = small(rng, (2, bm, bk), "float16")
    indices, indptr = np.array([1, 3], np.int32), np.array([0, 0, 2], np.int32)
    x = np.full((5 * bk, 72), np.nan, np.float16)
    for c in indices:
        x[c * bk : (c + 1) * bk] = small(rng, (bk, 72), "float16")
    triple = tuple(cuda_engine.array(array) for array in (data, indices, indptr))
    a = bsr_array(triple, shape=(2 * bm, 5 * bk))
    with cuda_engine.runs(SOURCE):
        out = cuda_engine.host(bsr_matmul(a, cuda_engine.array(x), config=PATH))
    np.testing.assert_array_equal(out[:bm], 0)
    np.testing.assert_array_equal(out[bm:], data[0] @ x[bk : 2 * bk] + data[1] @ x[3 * bk : 4 * bk])


@on_gpu
@pytest.mark.parametrize("blocksize", [(16, 16), (8, 8), (23, 23), (64, 64), (128, 128)])
def test_long_rows_and_many_tiles(cuda_engine, rng, blocksize):
    rows, columns = 1536 // blocksize[0], 1024 // blocksize[1]
    a = operand(cuda_engine, rng, blocksize, "float16", rows, columns, density=0.2)
    x = small(rng, (a.dense.shape[1], 1024), "float16")
    dense = cuda_engine.array(x)
    with cuda_engine.runs(SOURCE):
        first = bsr_matmul(a.bsr, dense, config=PATH, out_dtype="float32")
        second = bsr_matmul(a.bsr, dense, config=PATH, out_dtype="float32")
    np.testing.assert_array_equal(cuda_engine.host(first), a.dense @ x.astype(np.float64))
    assert (first == second).all()


@on_gpu
def test_other_values_in_the_same_place(cuda_engine, rng):
    """Padded blocks are made anew at every call."""
    a = operand(cuda_engine, rng, (6, 6), "float16")
    x = small(rng, (a.dense.shape[1], 72), "float16")
    dense = cuda_engine.array(x)
    once = cuda_engine.host(bsr_matmul(a.bsr, dense, config=PATH))
    a.bsr.data[...] = 2 * a.bsr.data
    with sparsegpu.use_engine(cuda_engine.name):
        twice = cuda_engine.host(bsr_matmul(a.bsr, dense, config=PATH))
    np.testing.assert_array_equal(twice, 2 * once)
