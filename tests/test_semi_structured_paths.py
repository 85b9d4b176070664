"""The 2:4 products of every device: what their tiles need, and the operands that they serve."""

import numpy as np
import pytest

import sparsegpu as sg
from addmm_cases import laid_out
from semi_structured_cases import (
    BF16,
    FP8,
    HALF,
    INT8,
    KERNEL,
    SINGLE,
    exact_product,
    operand,
    sum_dtype,
)
from sparsegpu.engines.cuda.semi_structured import product_config
from sparsegpu.testing import random_values

TILES = [(128, 16), (64, 32), (128, 32), (64, 64), (128, 64), (64, 128), (128, 128)]


@pytest.mark.parametrize("dtype", [BF16, SINGLE, INT8, FP8], ids=str)
@pytest.mark.parametrize("tiles", [1, 64])
@pytest.mark.parametrize("n", [1, 17, 64, 65, 128, 4096])
def test_tiles_fit_the_smallest_gpu(dtype, tiles, n):
    device = {"capability": (8, 9), "processors": 128, "allow_tf32": True}
    choice = product_config(dtype, tiles, n, "columns", **device)
    assert choice.shared_memory <= 99 * 1024
    wide = dtype != FP8 and tiles * n >= 128 * 256
    assert choice.tile_n <= (128 if wide else 64)
    assert choice.tile_n == 128 or not wide


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [BF16, HALF, SINGLE, INT8], ids=str)
@pytest.mark.parametrize("tile", TILES)
def test_every_tile(cuda_engine, rng, dtype, tile):
    """Ragged tiles, slices that are not full, and more of them than there are stages."""
    sparse, a = operand(cuda_engine, rng, (288, 832), dtype, small_integers=True)
    x = random_values(rng, (832, 200), dtype, small_integers=True)
    config = {"path": "mma_sp", "tile_m": tile[0], "tile_n": tile[1]}
    how = {"config": config, "allow_tf32": True, "out_dtype": sum_dtype(dtype)}
    for layout in ("rows", "columns"):
        with cuda_engine.runs(f"{KERNEL}_sm80"):
            out = sg.semi_structured_matmul(sparse, laid_out(cuda_engine, x, layout), **how)
        np.testing.assert_array_equal(cuda_engine.host(out), exact_product(a, x))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [BF16, HALF, SINGLE, INT8], ids=str)
@pytest.mark.parametrize("path", ["simt", "mma_sp"])
@pytest.mark.parametrize("layout", ["rows", "columns", "strided", "backwards"])
@pytest.mark.parametrize("shape", [(32, 64, 9), (96, 320, 40), (160, 192, 141)])
def test_every_layout(cuda_engine, rng, dtype, path, layout, shape):
    """mma.sp reads columns and 16-bit rows as they lie; else they are copied to columns."""
    m, k, n = shape
    sparse, a = operand(cuda_engine, rng, (m, k), dtype, small_integers=True)
    x = random_values(rng, (k, n), dtype, small_integers=True)
    dense = laid_out(cuda_engine, x, layout)
    pieces = layout == "columns" or (layout == "rows" and n % 8 == 0 and dtype.itemsize == 2)
    copied = ("dense_lines",) if path == "mma_sp" and not pieces else ()
    source = f"{KERNEL}_{'simt' if path == 'simt' else 'sm80'}"
    how = {"config": {"path": path}, "allow_tf32": True, "out_dtype": sum_dtype(dtype)}
    for _ in range(2):
        with cuda_engine.runs(source, *copied):
            out = sg.semi_structured_matmul(sparse, dense, **how)
        np.testing.assert_array_equal(cuda_engine.host(out), exact_product(a, x))
        dense[...] = -dense  # the second call repeats the first, on other values
        x = -x


@pytest.mark.gpu
def test_more_batches_than_a_copy_takes(cuda_engine, rng):
    """Five dimensions that cannot be merged are read as they lie."""
    sparse, a = operand(cuda_engine, rng, (64, 128), HALF, small_integers=True)
    x = random_values(rng, (2, 1, 2, 1, 2, 128, 24), HALF, small_integers=True)
    dense = cuda_engine.array(x).swapaxes(0, 4)[..., ::2]
    how = {"config": {"path": "mma_sp"}, "out_dtype": np.float32}
    with cuda_engine.runs(f"{KERNEL}_sm80"):
        out = sg.semi_structured_matmul(sparse, dense, **how)
    expected = exact_product(a, x.swapaxes(0, 4)[..., ::2])
    np.testing.assert_array_equal(cuda_engine.host(out), expected)
