"""The cuda engine's choice among the kernels of the BSR product, and what each must take."""

import numpy as np
import pytest
from sparsegpu.engines.cuda.runtime.config import bsr_addmm_config, simt_tile

import sparsegpu
from addmm_cases import LAYOUTS, Operand, laid_out, small
from sparsegpu import bsr_matmul, dense_bsr_matmul
from sparsegpu.engines.cuda.paths._fields import ConfigError


@pytest.mark.gpu
@pytest.mark.parametrize("path", ["simt", "mma"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "float32"])
@pytest.mark.parametrize(("blocksize", "n"), [((11, 13), 5), ((24, 8), 40), ((130, 64), 136)])
def test_both_general_paths_serve_any_block(cuda_engine, rng, path, dtype, blocksize, n):
    bm, bk = blocksize
    shape = (bm * 2, bk * max(3, 64 // bk))
    a = Operand(cuda_engine, rng, shape, blocksize, dtype)
    source = {"simt": "bsr_addmm_simt", "mma": "bsr_addmm_sm80"}[path]
    for layout in LAYOUTS:
        x = small(rng, (shape[1], n), dtype)
        operand = laid_out(cuda_engine, x, layout)
        with cuda_engine.runs(source):
            out = bsr_matmul(a.bsr, operand, allow_tf32=True, config={"path": path})
        product = a.dense @ x.astype(a.dense.dtype)
        np.testing.assert_array_equal(cuda_engine.host(out), product.astype(out.dtype))
        y = small(rng, (n, shape[0]), dtype)
        operand = laid_out(cuda_engine, y, layout)
        with cuda_engine.runs(source):
            out = dense_bsr_matmul(operand, a.bsr, allow_tf32=True, config={"path": path})
        product = y.astype(a.dense.dtype) @ a.dense
        np.testing.assert_array_equal(cuda_engine.host(out), product.astype(out.dtype))


@pytest.mark.gpu
def test_operands_that_are_not_aligned(cuda_engine, rng):
    """Views that start in the middle of 16 bytes."""
    a = Operand(cuda_engine, rng, (32, 64), (16, 16), "float16")
    x = small(rng, (64, 40), "float16")
    memory = cuda_engine.array(np.zeros(1 + x.size, np.float16))
    memory[1:] = cuda_engine.array(x.ravel())
    blocks = cuda_engine.array(np.zeros(3 + a.data.size, np.float16))
    blocks[3:] = cuda_engine.array(a.data.ravel())
    bsr, dense = a.bsr.with_data(blocks[3:].reshape(a.data.shape)), memory[1:].reshape(x.shape)
    with cuda_engine.runs("bsr_addmm_sm80"):
        right = bsr_matmul(bsr, dense, config={"path": "mma"})
        left = dense_bsr_matmul(dense[:32, :32], bsr, config={"path": "mma"})
    wide = x.astype(np.float64)
    np.testing.assert_array_equal(cuda_engine.host(right), a.dense @ wide)
    np.testing.assert_array_equal(cuda_engine.host(left), wide[:32, :32] @ a.dense)


@pytest.mark.gpu
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dtype", "bk"), [("int8", 32), ("float32", 16), ("float16", 32)])
def test_what_would_be_put_together_of_elements_is_copied(cuda_engine, rng, dtype, bk, layout):
    """Where a block column has two blocks or more; here it has three."""
    a = Operand(cuda_engine, rng, (96, 4 * bk), (32, bk), dtype, density=1.0, duplicates=False)
    x = small(rng, (4 * bk, 48), dtype)
    operand = laid_out(cuda_engine, x, layout)
    kept = layout == "columns" or (layout == "rows" and dtype != "int8")
    for _ in range(2):
        with cuda_engine.runs("bsr_addmm_sm80", *(() if kept else ("dense_lines",))):
            out = bsr_matmul(a.bsr, operand, allow_tf32=True, config={"path": "mma"})
        product = a.dense @ x.astype(a.dense.dtype)
        np.testing.assert_array_equal(cuda_engine.host(out), product.astype(out.dtype))
        operand[...] = -operand  # the second call repeats the first, on other values
        x = -x


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_by_way_of_a_dense_matrix(cuda_engine, rng, dtype):
    a = Operand(cuda_engine, rng, (96, 64), (24, 16), dtype, duplicates=False)
    x = small(rng, (64, 40), dtype)
    dense, out = cuda_engine.array(x), cuda_engine.array(np.full((96, 40), np.nan).astype(dtype))
    for _ in range(2):
        with cuda_engine.runs("bsr_scatter"):
            bsr_matmul(a.bsr, dense, out=out, config={"path": "dense"})
        wide = x.astype(a.dense.dtype)
        np.testing.assert_array_equal(cuda_engine.host(out), (a.dense @ wide).astype(out.dtype))
        dense[...] = -dense  # the second call repeats the first, on other values
        x = -x
    with pytest.raises(ValueError, match=r"config\['path'\].*not for 'dense'"):
        bsr_matmul(a.bsr, dense, activation="relu", config={"path": "dense"})


@pytest.mark.gpu
def test_a_dense_matrix_in_a_graph(cuda_engine, rng):
    a = Operand(cuda_engine, rng, (96, 64), (24, 16), "float16", duplicates=False)
    x = cuda_engine.array(small(rng, (64, 40), "float16"))
    out = cuda_engine.xp.empty((96, 40), "float16")
    cuda_engine.xp.cuda.Device().synchronize()
    stream = cuda_engine.xp.cuda.Stream(non_blocking=True)
    with stream:
        bsr_matmul(a.bsr, x, out=out, config={"path": "dense"})
        stream.begin_capture()
        bsr_matmul(a.bsr, x, out=out, config={"path": "dense"})
        graph = stream.end_capture()
        x[...] = -x
        out.fill(np.nan)
        graph.launch(stream)
        expected = a.dense @ cuda_engine.host(x).astype(a.dense.dtype)
        np.testing.assert_array_equal(cuda_engine.host(out), expected.astype(out.dtype))


@pytest.mark.gpu
def test_dense_blocks_are_left_to_cublas(cuda_engine, rng):
    """Where nearly all blocks are stored; never where blocks lie at one place."""
    from sparsegpu.engines.cuda.runtime.launch import runs_here

    if not runs_here("bsr_addmm_sm90"):
        pytest.skip("the break-even densities are those of compute capability 9.0")
    xp = cuda_engine.xp
    full = sparsegpu.bsr_array(xp.ones((2048, 2048), "float16"), blocksize=(16, 16))
    x = xp.ones((2048, 2048), "float16")
    with cuda_engine.runs("bsr_scatter"):
        assert (full @ x == 2048).all()
    indices = xp.zeros_like(full.indices)
    twice = sparsegpu.bsr_array((full.data, indices, full.indptr), shape=full.shape)
    with cuda_engine.runs("bsr_addmm_sm90"):
        assert (twice @ x == 2048).all()


def test_simt_tiles_are_whole():
    for rows in (1, 2, 4, 5, 16, 17, 64, 256):
        for columns in (1, 2, 16, 17, 64, 4096):
            tile = simt_tile(rows, columns)
            assert tile.threads % 32 == 0 and tile.threads <= 1024
            assert tile.lanes in {1, 2, 4, 8, 16, 32} and tile.tile_k >= tile.lanes
            assert 16 * tile.tile_k * (tile.tile_m + tile.tile_n + 3) <= 48 * 1024  # complex128


@pytest.mark.parametrize("dtype", ["float16", "int8", "float32"])
@pytest.mark.parametrize("dense", ["rows", "columns", "bytes", "strided"])
@pytest.mark.parametrize("transposed", [False, True])
def test_mma_tiles_fit_the_smallest_gpu(dtype, dense, transposed):
    for bm in (8, 16, 24, 32, 48, 64, 100, 128, 256):
        for n in (8, 32, 33, 64, 65, 4096):
            config = bsr_addmm_config(
                np.dtype(dtype),
                (bm, 48),
                n,
                dense=dense,
                data_aligned=True,
                transposed=transposed,
                allow_tf32=True,
            )
            d = config.defines
            assert config.source == "bsr_addmm_sm80"
            assert config.threads == 32 * d["WARPS_M"] * d["WARPS_N"]
            assert config.tile_m % (16 * d["WARPS_M"]) == config.tile_n % (16 * d["WARPS_N"]) == 0
            assert config.shared_memory <= 99 * 1024


def test_an_mma_tile_has_a_thread_for_each_term_of_a_slice():
    def config_of(dtype, warps_n):
        config = {"path": "mma", "tile_m": 16, "tile_n": 32, "warps_n": warps_n}
        return bsr_addmm_config(
            np.dtype(dtype), (16, 64), 32, dense="strided", data_aligned=False, config=config
        )

    assert config_of("float16", 1).threads == 32
    assert config_of("int8", 2).threads == 64
    with pytest.raises(ConfigError, match="warps_n"):
        config_of("int8", 1)


def test_choice_of_path():
    def source(dtype, blocksize, n, **keywords):
        keywords = {"dense": "rows", "data_aligned": True, **keywords}
        return bsr_addmm_config(np.dtype(dtype), blocksize, n, **keywords).source

    assert source("float16", (16, 16), 64) == "bsr_addmm_sm80"
    assert source("float16", (4, 4), 64) == "bsr_addmm_simt"
    assert source("float16", (16, 16), 1) == "bsr_addmm_simt"
    assert source("float32", (16, 16), 64) == "bsr_addmm_f32"
    assert source("float32", (16, 16), 64, allow_tf32=True) == "bsr_addmm_sm80"
    assert source("float64", (16, 16), 64) == "bsr_addmm_f64"
    assert source("float16", (16, 16), 64, config={"path": "simt"}) == "bsr_addmm_simt"
    with pytest.raises(ValueError, match=r"config\['path'\].*'simt' for complex64"):
        source("complex64", (16, 16), 64, config={"path": "mma"})
    with pytest.raises(ValueError, match=r"config\['path'\].*one of 'simt', 'fma', .*'wgmma'"):
        source("float16", (16, 16), 64, config={"path": "fast"})


def test_more_tiles_than_a_grid_has_room_for():
    def source(block_rows, **keywords):
        config = bsr_addmm_config(
            np.dtype("int8"),
            (20, 16),
            40,
            dense="columns",
            data_aligned=True,
            block_rows=block_rows,
            **keywords,
        )
        assert config.tile_m >= 20 and config.tile_n >= 40  # a block row is one tile
        return config.source

    assert source(2**31 - 1) == source(2**31 - 1, config={"path": "mma"}) == "bsr_addmm_sm80"
    assert source(2**31) == source(2**31, config={"path": "simt"}) == "bsr_addmm_simt"
    with pytest.raises(ConfigError, match=r"config\['path'\].*more tiles than a grid has room"):
        source(2**31, config={"path": "mma"})
