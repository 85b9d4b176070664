"""The Hopper product: its tile, and every block, layout, batch and epilogue that it serves."""

import numpy as np
import pytest

import sparsegpu
from addmm_cases import Operand, laid_out, small
from sparsegpu import bsr_addmm, bsr_matmul, dense_bsr_matmul
from sparsegpu.engines.cuda.runtime.hopper_tile import hopper_tile
from sparsegpu.testing import assert_within_bound, random_values

PATH = {"path": "wgmma"}
BLOCKS = [(16, 16), (16, 128), (32, 32), (32, 64), (48, 80), (64, 16), (64, 64), (64, 128)]
TALL_BLOCKS = [(80, 16), (96, 48), (128, 32), (128, 128), (144, 64), (192, 16), (256, 256)]


@pytest.fixture
def hopper(cuda_engine):
    from sparsegpu.engines.cuda.runtime.launch import runs_here

    if not runs_here("bsr_addmm_sm90"):
        pytest.skip("wgmma needs compute capability 9.0")
    return cuda_engine


def operand(engine, rng, blocksize, dtype="bfloat16", rows=5, columns=7, **keywords):
    """Return an operand with groups that lack rows, empty rows, repeated and unsorted blocks."""
    shape = (blocksize[0] * rows, blocksize[1] * columns)
    return Operand(engine, rng, shape, blocksize, dtype, **keywords)


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
    assert hopper_tile(np.dtype("float32"), (64, 64), 256, False) is None


@pytest.mark.gpu
@pytest.mark.parametrize("blocksize", [*BLOCKS, *TALL_BLOCKS])
@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("n", [24, 100, 200, 520])
def test_exact_on_small_integers(hopper, rng, blocksize, layout, n):
    a = operand(hopper, rng, blocksize)
    x = small(rng, (a.dense.shape[1], n), "bfloat16")
    dense = laid_out(hopper, x, layout)
    if layout == "rows":  # a ragged width in rows that still begin at multiples of 16 bytes
        wide = hopper.xp.empty((x.shape[0], -(-n // 8) * 8), dense.dtype)[:, :n]
        wide[...] = dense
        dense = wide
    with hopper.runs("bsr_addmm_sm90"):
        out = bsr_matmul(a.bsr, dense, config=PATH, out_dtype="float32")
    np.testing.assert_array_equal(hopper.host(out), a.dense @ x.astype(a.dense.dtype))


@pytest.mark.gpu
@pytest.mark.parametrize("blocksize", [(16, 16), (32, 64), (64, 64), (16, 128), (128, 32)])
@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("n", [24, 104, 520])
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
@pytest.mark.parametrize("blocksize", [(16, 16), (64, 64), (128, 128)])
@pytest.mark.parametrize("out_dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("order", ["C", "F", "strided"])
def test_epilogue_and_outputs(hopper, rng, blocksize, out_dtype, order):
    a = operand(hopper, rng, blocksize, small_integers=False)
    (m, k), n, xp = a.dense.shape, 136, hopper.xp
    x = random_values(rng, (k, n), "bfloat16")
    bias = random_values(rng, (m, 1), "bfloat16")
    left, right = (random_values(rng, (size,), "float32") for size in (m, n))
    out = hopper.array(np.full((2 * m, 2 * n), np.nan, "float32")).astype(np.dtype(out_dtype))
    out = out[::2, ::2] if order == "strided" else xp.asarray(out[:m, :n], order=order).copy(order)
    keywords = {"beta": 0.5, "alpha": 2, "activation": "silu"}
    alphas = {"left_alpha": left, "right_alpha": right}
    with hopper.runs("bsr_addmm_sm90"):
        result = bsr_addmm(
            hopper.array(bias),
            a.bsr,
            hopper.array(x),
            out=out,
            config=PATH,
            **keywords,
            **{name: hopper.array(value) for name, value in alphas.items()},
        )
    assert result is out
    assert_within_bound(hopper.host(out), a.dense, x, input=bias, **keywords, **alphas)


@pytest.mark.gpu
@pytest.mark.parametrize("blocksize", [(16, 16), (64, 64)])
def test_batches(hopper, rng, blocksize):
    shape = (blocksize[0] * 5, blocksize[1] * 6)
    dense = random_values(rng, (3, *shape), "bfloat16", small_integers=True)
    batched = sparsegpu.bsr_array(hopper.array(dense), blocksize=blocksize)
    x = small(rng, (3, shape[1], 72), "bfloat16")
    wide = dense.astype(np.float64)
    cases = [
        (batched, x, wide @ x.astype(np.float64)),
        (batched, x[1], wide @ x[1].astype(np.float64)),
        (sparsegpu.bsr_array(hopper.array(dense[0]), blocksize=blocksize), x, None),
        (sparsegpu.bsr_array(hopper.array(dense[0]), blocksize=blocksize), x[:, None], None),
    ]
    for bsr, operand_, expected in cases:
        if expected is None:
            expected = wide[0] @ operand_.astype(np.float64)
        with hopper.runs("bsr_addmm_sm90"):
            out = bsr_matmul(bsr, hopper.array(operand_), config=PATH, out_dtype="float32")
        np.testing.assert_array_equal(hopper.host(out), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("blocksize", [(16, 16), (32, 32), (64, 64), (128, 128)])
def test_more_tiles_than_thread_blocks(hopper, rng, blocksize):
    """Each thread block takes several tiles, some of them without a block, in long rings."""
    a = operand(
        hopper, rng, blocksize, "float16", 2048 // blocksize[0], 1024 // blocksize[1], density=0.2
    )
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
