"""The Hopper product: its tile, and every block, layout, batch and epilogue that it serves."""

import numpy as np
import pytest

import sparsegpu
from addmm_cases import (
    ORDERS,
    aligned_rows,
    alternating,
    check_batches,
    check_epilogue,
    laid_out,
    ragged_operand,
    small,
)
from sparsegpu import bsr_addmm, bsr_matmul, dense_bsr_matmul
from sparsegpu.engines.cuda.runtime.hopper_tile import hopper_tile

PATH = {"path": "wgmma"}
BLOCKS = [(16, 16), (16, 128), (32, 32), (32, 64), (48, 80), (64, 16), (64, 64), (64, 128)]
TALL_BLOCKS = [(80, 16), (96, 48), (128, 32), (128, 128), (144, 64), (192, 16), (256, 256)]


def operand(engine, rng, blocksize, dtype="bfloat16", **keywords):
    return ragged_operand(engine, rng, blocksize, dtype, **keywords)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("blocksize", [*BLOCKS, *TALL_BLOCKS])
@pytest.mark.parametrize("n", [17, 64, 100, 256, 4096])
def test_tile_fits(blocksize, n, transposed):
    tile = hopper_tile(np.dtype("float16"), blocksize, n, transposed)
    bm, bk = blocksize
    if tile is None:
        assert transposed and bm % 64 and bm not in {16, 32}
        return
    assert tile.stages >= 3 and tile.shared_memory <= 227 * 1024
    assert tile.rows * tile.slice_m <= 128 and bk % tile.step_k == 0
    assert tile.slices * 128 >= bm
    assert 2 * max(tile.step_k, tile.box_m if transposed else 0) in {32, 64, 128}


@pytest.mark.parametrize("blocksize", [(8, 16), (16, 24), (20, 20), (1, 1)])
def test_tile_refuses(blocksize):
    assert hopper_tile(np.dtype("float16"), blocksize, 256, False) is None
    assert hopper_tile(np.dtype("float64"), (64, 64), 256, False) is None
    assert hopper_tile(np.dtype("float32"), (64, 4), 256, False) is None
    assert hopper_tile(np.dtype("int8"), blocksize, 256, False) is None
    assert hopper_tile(np.dtype("int8"), (64, 48), 256, False) is None


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("blocksize", "layout", "n"),
    alternating([*BLOCKS, *TALL_BLOCKS], ["rows", "columns"], [24, 200, 100, 520]),
)
def test_exact_on_small_integers(hopper, rng, blocksize, layout, n):
    a = operand(hopper, rng, blocksize)
    x = small(rng, (a.dense.shape[1], n), "bfloat16")
    dense = aligned_rows(hopper, x) if layout == "rows" else laid_out(hopper, x, layout)
    with hopper.runs("bsr_addmm_sm90"):
        out = bsr_matmul(a.bsr, dense, config=PATH, out_dtype="float32")
    np.testing.assert_array_equal(hopper.host(out), a.dense @ x.astype(a.dense.dtype))


def skewed_rows(engine, x, first=0, apart=None):
    """Return x in rows that begin anywhere: `first` elements in, `apart` elements apart."""
    k, n = x.shape[-2:]
    apart = n if apart is None else apart
    wide = engine.xp.full((*x.shape[:-2], k * apart + first + 16), 7, x.dtype)
    rows = wide[..., first : first + k * apart].reshape(*x.shape[:-2], k, apart)[..., :n]
    rows[...] = engine.array(x)
    return rows


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("blocksize", "out_dtype", "width"),
    alternating(
        [(16, 16), (32, 64), (48, 64), (64, 64), (128, 128)],
        ["bfloat16", "float32"],
        [(17, 0, 17), (67, 3, 68), (255, 1, 255), (128, 5, 129), (521, 0, 521)],
    ),
)
def test_rows_that_begin_anywhere(hopper, rng, blocksize, out_dtype, width):
    n, first, apart = width
    a = operand(hopper, rng, blocksize)
    x = small(rng, (a.dense.shape[1], n), "bfloat16")
    out = skewed_rows(hopper, np.zeros((a.dense.shape[0], n), np.dtype(out_dtype)), first, apart)
    memory = out.base.view("uint8")
    around = memory.copy()
    with hopper.runs("bsr_addmm_sm90", "dense_lines"):
        bsr_matmul(a.bsr, skewed_rows(hopper, x, first, apart), out=out, config=PATH)
    expected = a.dense @ x.astype(a.dense.dtype)
    np.testing.assert_array_equal(hopper.host(out), expected.astype(out.dtype))
    out[...] = 0
    assert (memory == around).all()  # nothing else was written


@pytest.mark.gpu
@pytest.mark.parametrize("blocksize", [(16, 16), (32, 32), (64, 64), (128, 128)])
def test_nothing_stored_in_whole_tiles(hopper, rng, blocksize):
    """Tiles without an entry, first, last and between others, get their bias."""
    dense = np.zeros((1024, 512), np.float32)
    dense[128:192, 64:256] = small(rng, (64, 192), "float32")
    dense[640:700, :16] = 1
    bsr = sparsegpu.bsr_array(hopper.array(dense).astype("bfloat16"), blocksize=blocksize)
    x = small(rng, (512, 1000), "bfloat16")
    bias = small(rng, (1024, 1), "bfloat16")
    with hopper.runs("bsr_addmm_sm90"):
        out = bsr_addmm(hopper.array(bias), bsr, hopper.array(x), config=PATH, out_dtype="float32")
    np.testing.assert_array_equal(hopper.host(out), dense @ x.astype("f4") + bias.astype("f4"))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("blocksize", "layout", "n"),
    alternating(
        [(16, 16), (32, 64), (64, 64), (16, 128), (128, 32)], ["rows", "columns"], [24, 104, 520]
    ),
)
def test_from_the_right(hopper, rng, blocksize, layout, n):
    a = operand(hopper, rng, blocksize, "float16")
    y = small(rng, (n, a.dense.shape[0]), "float16")
    dense = laid_out(hopper, y, layout)
    if layout == "rows" and y.shape[1] % 8:
        pytest.skip("rows that begin anywhere")
    if blocksize[1] % 64 and blocksize[1] not in {16, 32}:
        pytest.skip("no swizzle is as wide as the transposed block")
    with hopper.runs("bsr_addmm_sm90"):
        out = dense_bsr_matmul(dense, a.bsr, config=PATH)
    expected = y.astype(a.dense.dtype) @ a.dense
    np.testing.assert_array_equal(hopper.host(out), expected.astype(out.dtype))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("blocksize", "out_dtype", "order"),
    alternating([(16, 16), (64, 64), (128, 128)], ["bfloat16", "float16", "float32"], ORDERS),
)
def test_epilogue_and_outputs(hopper, rng, blocksize, out_dtype, order):
    a = operand(hopper, rng, blocksize, small_integers=False)
    how = {"kernels": ["bsr_addmm_sm90"], "config": PATH}
    check_epilogue(hopper, rng, a.bsr, a.dense, out_dtype, order, **how)


@pytest.mark.gpu
@pytest.mark.parametrize("blocksize", [(16, 16), (64, 64)])
def test_batches(hopper, rng, blocksize):
    check_batches(hopper, rng, blocksize, kernels=["bsr_addmm_sm90"], config=PATH)


@pytest.mark.gpu
@pytest.mark.parametrize("blocksize", [(16, 16), (32, 32), (64, 64), (128, 128)])
def test_more_tiles_than_thread_blocks(hopper, rng, blocksize):
    """Each thread block takes several tiles, some of them without a block, in long rings."""
    counts = {"rows": 2048 // blocksize[0], "columns": 1024 // blocksize[1], "density": 0.2}
    a = operand(hopper, rng, blocksize, "float16", **counts)
    x = small(rng, (1024, 4096), "float16")
    dense = hopper.array(x)
    with hopper.runs("bsr_addmm_sm90"):
        first = bsr_matmul(a.bsr, dense, config=PATH, out_dtype="float32")
        second = bsr_matmul(a.bsr, dense, config=PATH, out_dtype="float32")
    np.testing.assert_array_equal(hopper.host(first), a.dense @ x.astype(np.float64))
    assert (first == second).all()


@pytest.mark.gpu
def test_refused_where_it_does_not_serve(hopper, rng):
    a = operand(hopper, rng, (24, 24))
    with pytest.raises(ValueError, match=r"config\['path'\].*not for 'wgmma'"):
        bsr_matmul(a.bsr, hopper.array(small(rng, (168, 64), "bfloat16")), config=PATH)


@pytest.mark.gpu
@pytest.mark.parametrize("blocksize", [(16, 16), (64, 64)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_operands_and_outputs_that_run_backwards(hopper, rng, blocksize, order):
    """Negative strides, along which the copy engine does not go: of rows, columns, batches."""
    a = operand(hopper, rng, blocksize)
    x = small(rng, (2, a.dense.shape[1], 136), "bfloat16")
    expected = a.dense @ x.astype(a.dense.dtype)
    dense = hopper.array(x[::-1].copy())[::-1]
    memory = hopper.xp.empty(expected.shape[::-1] if order == "F" else expected.shape, "float32")
    for axis in range(3):
        out = hopper.xp.flip(memory.T if order == "F" else memory, axis)
        out[...] = np.nan
        with hopper.runs("bsr_addmm"):
            bsr_matmul(a.bsr, dense, out=out)
        np.testing.assert_array_equal(hopper.host(out), expected)
