"""The BSR product at full precision on the GPU: float32 by multiply-adds, float64 tensor cores."""

import numpy as np
import pytest

from addmm_cases import LAYOUTS, Operand, laid_out, small
from sparsegpu import bsr_addmm, bsr_array, bsr_matmul, dense_bsr_matmul
from sparsegpu.engines.cuda.runtime.config import bsr_addmm_config
from sparsegpu.engines.cuda.runtime.float_tile import float_tile
from sparsegpu.testing import assert_within_bound, random_values

SOURCES = {"float32": "bsr_addmm_f32", "float64": "bsr_addmm_f64"}

dtypes = pytest.mark.parametrize("dtype", SOURCES)
on_gpu = pytest.mark.gpu


@on_gpu
@dtypes
@pytest.mark.parametrize(
    ("blocksize", "n"),
    [((16, 16), 64), ((32, 32), 260), ((64, 16), 136), ((128, 24), 140), ((40, 20), 72)],
)
def test_small_integers_are_exact(cuda_engine, rng, dtype, blocksize, n):
    """Unsorted and duplicate blocks, empty rows, panels that N does not fill."""
    shape = (blocksize[0] * 3, blocksize[1] * 5)
    a = Operand(cuda_engine, rng, shape, blocksize, dtype)
    x = small(rng, (shape[1], n), dtype)
    with cuda_engine.runs(SOURCES[dtype]):
        out = bsr_matmul(a.bsr, cuda_engine.array(x))
    np.testing.assert_array_equal(cuda_engine.host(out), a.dense @ x)


@on_gpu
@dtypes
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("blocksize", "n"), [((23, 23), 37), ((48, 36), 65), ((9, 50), 96)])
def test_any_layout_of_odd_sizes(cuda_engine, rng, dtype, blocksize, n, layout):
    shape = (blocksize[0] * 2, blocksize[1] * 4)
    a = Operand(cuda_engine, rng, shape, blocksize, dtype)
    x = small(rng, (shape[1], n), dtype)
    result = laid_out(cuda_engine, np.full((shape[0], n), np.nan, dtype), layout)
    with cuda_engine.runs(SOURCES[dtype]):
        out = bsr_matmul(a.bsr, laid_out(cuda_engine, x, layout), out=result)
    assert out is result
    np.testing.assert_array_equal(cuda_engine.host(out), a.dense @ x)


@on_gpu
@dtypes
@pytest.mark.parametrize(("blocksize", "n"), [((32, 32), 64), ((16, 40), 37), ((23, 24), 96)])
def test_a_transposed_operand_where_it_lies(cuda_engine, rng, dtype, blocksize, n):
    shape = (blocksize[0] * 4, blocksize[1] * 3)
    a = Operand(cuda_engine, rng, shape, blocksize, dtype)
    x = small(rng, (n, shape[0]), dtype)
    with cuda_engine.runs(SOURCES[dtype]):
        out = dense_bsr_matmul(cuda_engine.array(x), a.bsr)
    np.testing.assert_array_equal(cuda_engine.host(out), x @ a.dense)


@on_gpu
@dtypes
def test_unaligned_blocks_and_rows(cuda_engine, rng, dtype):
    """Blocks that start in the middle of 16 bytes, and rows of dense that do."""
    a = Operand(cuda_engine, rng, (64, 64), (32, 16), dtype)
    x = small(rng, (64, 66), dtype)
    blocks = cuda_engine.array(np.zeros(1 + a.data.size, dtype))
    blocks[1:] = cuda_engine.array(a.data.ravel())
    with cuda_engine.runs(SOURCES[dtype]):
        out = bsr_matmul(
            a.bsr.with_data(blocks[1:].reshape(a.data.shape)), cuda_engine.array(x)[:, 1:]
        )
    np.testing.assert_array_equal(cuda_engine.host(out), a.dense @ x[:, 1:])


@on_gpu
@dtypes
def test_within_the_bound(cuda_engine, rng, dtype):
    shape = (64, 32 * 40)
    a = Operand(cuda_engine, rng, shape, (32, 32), dtype, small_integers=False)
    x = random_values(rng, (shape[1], 96), dtype)
    bias = random_values(rng, (shape[0], 1), dtype)
    with cuda_engine.runs(SOURCES[dtype]):
        out = bsr_addmm(cuda_engine.array(bias), a.bsr, cuda_engine.array(x), beta=-2, alpha=0.5)
    assert_within_bound(cuda_engine.host(out), a.dense, x, alpha=0.5, beta=-2, input=bias)


@on_gpu
@dtypes
def test_what_the_pattern_lacks_is_not_read(cuda_engine, rng, dtype):
    """NaN in rows of dense that meet no block, and beyond the last term of a block."""
    data = small(rng, (2, 20, 20), dtype)
    indices, indptr = np.array([1, 3], np.int32), np.array([0, 0, 2], np.int32)
    x = np.full((100, 24), np.nan, dtype)
    x[20:40], x[60:80] = small(rng, (20, 24), dtype), small(rng, (20, 24), dtype)
    a = bsr_array(
        tuple(cuda_engine.array(array) for array in (data, indices, indptr)), shape=(40, 100)
    )
    with cuda_engine.runs(SOURCES[dtype]):
        out = cuda_engine.host(bsr_matmul(a, cuda_engine.array(x)))
    np.testing.assert_array_equal(out[:20], 0)
    np.testing.assert_array_equal(out[20:], data[0] @ x[20:40] + data[1] @ x[60:80])


@on_gpu
@dtypes
def test_batches(cuda_engine, rng, dtype):
    """Patterns that differ from batch to batch, and a dense operand that is shared."""
    indices = np.array([[0, 2, 1], [3, 0, 0]], np.int64)
    indptr = np.array([[0, 1, 1, 3], [0, 2, 3, 3]], np.int64)
    data = small(rng, (2, 3, 16, 16), dtype)
    x = small(rng, (64, 48), dtype)
    expected = np.zeros((2, 48, 48), dtype)
    for b in range(2):
        for i in range(3):
            for p in range(indptr[b, i], indptr[b, i + 1]):
                k = 16 * indices[b, p]
                expected[b, 16 * i : 16 * i + 16] += data[b, p] @ x[k : k + 16]
    a = bsr_array(
        tuple(cuda_engine.array(array) for array in (data, indices, indptr)), shape=(2, 48, 64)
    )
    with cuda_engine.runs(SOURCES[dtype]):
        out = bsr_matmul(a, cuda_engine.array(x))
    np.testing.assert_array_equal(cuda_engine.host(out), expected)


@dtypes
@pytest.mark.parametrize("n", [8, 64, 65, 4096])
def test_tiles_fit_the_smallest_gpu(dtype, n):
    itemsize = np.dtype(dtype).itemsize
    for bm in (*range(8, 70), 96, 100, 128, 250, 256):
        for bk in (1, 5, 8, 16, 20, 23, 24, 32, 40, 48, 64, 100, 256):
            tile = float_tile(itemsize, bm, bk, n)
            assert tile.shared_memory <= 99 * 1024 and tile.stages >= 2
            parts = -(-bm // tile.tile_m)
            assert tile.tile_m * parts - bm < max(16, bm)
            assert tile.tile_n % (16 * tile.warps_n) == 0
            assert tile.tile_k % (16 // itemsize) == 0
            if itemsize == 4:
                lanes_m = tile.tile_m // tile.warps_m // tile.thread_m
                assert lanes_m * tile.thread_m * tile.warps_m == tile.tile_m
                assert 32 % lanes_m == 0 and tile.tile_n // tile.warps_n % (32 // lanes_m * 4) == 0
            else:
                assert tile.tile_m % (8 * tile.warps_m) == 0


@dtypes
def test_choice_of_kernel(dtype):
    def choice(blocksize, n, **keywords):
        keywords = {"dense": "rows", "data_aligned": True, **keywords}
        return bsr_addmm_config(np.dtype(dtype), blocksize, n, **keywords)

    assert choice((32, 32), 64).source == SOURCES[dtype]
    assert choice((2, 3), 64).source == choice((32, 32), 7).source == "bsr_addmm_simt"
    assert choice((32, 32), 64, config={"path": "simt"}).source == "bsr_addmm_simt"
    assert choice((32, 32), 63).defines["DENSE"] == "rows"
    assert choice((32, 32), 63, by_column=True).defines["DENSE"] == "columns"
    wrong, right = ("mma", "fma") if dtype == "float32" else ("fma", "mma")
    with pytest.raises(ValueError, match=rf"config\['path'\].*'{right}' or 'simt' for {dtype}"):
        choice((32, 32), 64, config={"path": wrong})
