"""The Hopper 2:4 product: its tile, and the dtypes, layouts, batches and outputs that it serves."""

import numpy as np
import pytest
from sparsegpu.engines.cuda.runtime.sparse_tile import sparse_tile

import sparsegpu as sg
from addmm_cases import ORDERS, aligned_rows, blank, laid_out
from semi_structured_cases import BF16, FP8, HALF, INT8, SINGLE, exact_product, operand, sum_dtype
from sparsegpu.engines.cuda.paths._fields import Fields
from sparsegpu.testing import assert_within_bound, random_values

KERNEL = "semi_structured_addmm_sm90"
PATH = {"path": "wgmma_sp"}
TILES = [
    (64, 8, 1),
    (128, 3, 1),
    (128, 7, 2),
    (256, 2, 2),
    (256, 4, 1),
    (256, 4, 2),
    (256, 5, 2),
]
LAYOUTS = {1: ["columns"], 2: ["rows", "columns"], 4: ["columns"]}  # that are read as they lie
SHAPES = [(32, 64, 17), (160, 192, 264), (416, 704, 520), (1024, 320, 72)]


@pytest.mark.parametrize("itemsize", [1, 2, 4])
@pytest.mark.parametrize("n", [17, 64, 100, 256, 4096])
@pytest.mark.parametrize("m", [32, 256, 384, 4096, 4224])
def test_tile_fits(itemsize, m, n):
    tile = sparse_tile(itemsize, (m, 4096, n), 132)
    assert tile.stages >= 3 and tile.shared_memory <= 227 * 1024


@pytest.mark.parametrize("n", [17, 64, 100, 4096])
def test_int8_outputs_fill_strips(n):
    tile = sparse_tile(1, (512, 4096, n), 132, bytes_out=True)
    assert tile.tile_n % 128 == 0
    with pytest.raises(ValueError, match=r"config\['tile_n'\].*128, 256, got 64"):
        sparse_tile(1, (512, 4096, n), 132, Fields({"tile_n": 64}, "here"), bytes_out=True)


@pytest.mark.parametrize("itemsize", [1, 2, 4])
def test_pairs_of_thread_blocks(itemsize):
    """Where much of `dense` is brought, and a tile that is not there takes no time."""
    pairs = [(8192, 8192, 8192), (1024, 8192, 4096), (4224, 8192, 4096 + 256)]
    alone = [(4224, 8192, 4096), (1024, 4096, 256), (16384, 2**16, 64)]
    assert {sparse_tile(itemsize, shape, 132).cluster for shape in pairs} == {2}
    assert {sparse_tile(itemsize, shape, 132).cluster for shape in alone} == {1}


@pytest.mark.parametrize("tile", [(4, 2), (5, 1)], ids=str)
@pytest.mark.parametrize("dtype", ["bf16", "s8", "e4m3", "f32"])
def test_products_follow_each_other(compiler_log, dtype, tile):
    """Where the compiler would wait for every product, it says so: C7510 to C7519."""
    layout = "rows" if dtype == "bf16" else "columns"
    out = "f32" if dtype == "f32" else "bf16"
    defines = {"T": dtype, "OUT": out, "DENSE": layout, "STORE": "rows", "EPILOGUE": "identity"}
    defines |= {"ACT": "none", "TILE_N": 256, "CLUSTER": 2}
    defines |= dict(zip(("STAGES", "STRIPS"), tile, strict=True))
    assert "C751" not in compiler_log(KERNEL, "90a", defines)


@pytest.mark.parametrize("itemsize", [1, 2, 4])
def test_stages(itemsize):
    """One more where outputs need but one strip; the barriers fit behind it."""
    tiles = [sparse_tile(itemsize, (8192, 8192, 8192), 132, plain=plain) for plain in (False, True)]
    assert [(tile.stages, tile.strips) for tile in tiles] == [(4, 2), (5, 1)]


def multiplied(engine, sparse, dense, **keywords):
    with engine.runs(KERNEL):
        return sg.semi_structured_matmul(sparse, dense, allow_tf32=True, **keywords)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [BF16, HALF, SINGLE, INT8], ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_exact_on_small_integers(hopper, rng, dtype, shape):
    m, k, n = shape
    sparse, a = operand(hopper, rng, (m, k), dtype, small_integers=True)
    x = random_values(rng, (k, n), dtype, small_integers=True)
    out_dtype = sum_dtype(dtype)
    for layout in LAYOUTS[dtype.itemsize]:
        given = aligned_rows(hopper, x) if layout == "rows" else laid_out(hopper, x, layout)
        out = multiplied(hopper, sparse, given, config=PATH, out_dtype=out_dtype)
        np.testing.assert_array_equal(hopper.host(out).astype(np.float64), exact_product(a, x))


@pytest.mark.gpu
@pytest.mark.parametrize("n", [17, 64, 120, 200])
@pytest.mark.parametrize("order", ["rows", "columns"])
def test_int8_outputs(hopper, rng, n, order):
    sparse, a = operand(hopper, rng, (160, 192), INT8, small_integers=True)
    x = random_values(rng, (192, n), INT8, small_integers=True)
    out = hopper.xp.empty((160, n) if order == "rows" else (n, 160), dtype=INT8)
    out = out if order == "rows" else out.T
    dense = laid_out(hopper, x, "columns")
    multiplied(hopper, sparse, dense, config=PATH, out=out)
    expected = np.clip(exact_product(a, x), -128, 127)
    np.testing.assert_array_equal(hopper.host(out), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("dtype", [BF16, INT8], ids=str)
def test_every_tile(hopper, rng, dtype, tile):
    """More tiles than thread blocks, and twice, so that every stage is filled many times.

    Of nine tiles below each other the last has none beside it in its cluster.
    """
    m, k, n = 1056, 832, 3000
    sparse, a = operand(hopper, rng, (m, k), dtype, small_integers=True)
    x = laid_out(hopper, random_values(rng, (k, n), dtype, small_integers=True), "columns")
    config = PATH | dict(zip(("tile_n", "stages", "cluster"), tile, strict=True))
    out_dtype = sum_dtype(dtype)
    expected = exact_product(a, hopper.host(x))
    for _ in range(2):
        out = multiplied(hopper, sparse, x, config=config, out_dtype=out_dtype)
        np.testing.assert_array_equal(hopper.host(out).astype(np.float64), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["columns", "rows", "strided"])
def test_e4m3(hopper, rng, layout):
    a = random_values(rng, (544, 256), "float32", small_integers=True)
    a.reshape(-1, 4)[:, 1::2] = 0
    x = random_values(rng, (256, 200), "float32", small_integers=True)
    sparse = sg.to_semi_structured(a.astype(FP8)).to_device()
    dense = laid_out(hopper, x.astype(FP8).view(np.uint8), layout)
    copied = () if layout == "columns" else ("dense_lines",)
    with hopper.runs(KERNEL, *copied):
        out = sg.scaled_mm(
            sparse, dense, 1.0, 1.0, dense_dtype="float8_e4m3fn", out_dtype=np.float32
        )
    np.testing.assert_array_equal(hopper.host(out), a @ x)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [BF16, HALF, SINGLE, INT8], ids=str)
@pytest.mark.parametrize("layout", ["rows", "strided", "backwards"])
@pytest.mark.parametrize("shape", [(544, 192, 141), (32, 64, 72)])
def test_what_cannot_be_read_as_it_lies_is_copied(hopper, rng, dtype, layout, shape):
    m, k, n = shape
    sparse, a = operand(hopper, rng, (m, k), dtype, small_integers=True)
    x = random_values(rng, (k, n), dtype, small_integers=True)
    dense = laid_out(hopper, x, layout)
    copied = () if dtype.itemsize == 2 and layout == "rows" and n % 8 == 0 else ("dense_lines",)
    out_dtype = sum_dtype(dtype)
    for _ in range(2):
        with hopper.runs(KERNEL, *copied):
            out = sg.semi_structured_matmul(
                sparse, dense, allow_tf32=True, out_dtype=out_dtype, config=PATH
            )
        np.testing.assert_array_equal(hopper.host(out).astype(np.float64), exact_product(a, x))


@pytest.mark.gpu
def test_copies_of_batches_share_the_workspace_of_the_operand(hopper, rng):
    sparse, a = operand(hopper, rng, (512, 192), INT8)
    x = random_values(rng, (2, 3, 192, 152), INT8)
    dense = hopper.array(x)
    first = multiplied(hopper, sparse, dense)
    other = hopper.array(x[:, :, ::-1].copy())  # of the same size
    with hopper.runs(KERNEL, "dense_lines", peak_bytes=hopper.nbytes(first)):
        second = sg.semi_structured_matmul(sparse, other)
    with hopper.runs(KERNEL, "dense_lines", peak_bytes=hopper.nbytes(first)):
        again = sg.semi_structured_matmul(sparse, dense)
    np.testing.assert_array_equal(hopper.host(first), exact_product(a, x))
    np.testing.assert_array_equal(hopper.host(again), exact_product(a, x))
    np.testing.assert_array_equal(hopper.host(second), exact_product(a, x[:, :, ::-1]))


@pytest.mark.gpu
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("out_dtype", [HALF, SINGLE], ids=str)
@pytest.mark.parametrize("dtype", [BF16, INT8], ids=str)
def test_outputs_of_many_tiles_are_exact(hopper, rng, dtype, out_dtype, order):
    """Small results are numbers of float16, too."""
    m, k, n = 1120, 64, 1032
    sparse, a = operand(hopper, rng, (m, k), dtype, small_integers=True)
    x = random_values(rng, (k, n), dtype, small_integers=True)
    for cluster in (1, 2):
        out = blank(hopper, (m, n), out_dtype, order)
        config = PATH | {"cluster": cluster}
        multiplied(hopper, sparse, laid_out(hopper, x, "columns"), config=config, out=out)
        np.testing.assert_array_equal(hopper.host(out), exact_product(a, x))


@pytest.mark.gpu
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", [HALF, INT8], ids=str)
def test_outputs(hopper, rng, dtype, order):
    sparse, a = operand(hopper, rng, (96, 320), dtype)
    x = random_values(rng, (320, 136), dtype)
    bias = random_values(rng, (96, 1), dtype).astype(np.int32 if dtype == INT8 else dtype)
    out = blank(hopper, (96, 136), HALF, order)
    with hopper.runs(KERNEL):
        sg.semi_structured_addmm(
            hopper.array(bias),
            sparse,
            laid_out(hopper, x, "columns"),
            alpha=0.01,
            activation="gelu",
            out=out,
            out_dtype=np.float16,
        )
    assert_within_bound(
        hopper.host(out), a, x, alpha=0.01, beta=1, input=bias, activation="gelu", dtype=dtype
    )


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [BF16, INT8], ids=str)
def test_batches_of_dense(hopper, rng, dtype):
    sparse, a = operand(hopper, rng, (160, 192), dtype, small_integers=True)
    x = random_values(rng, (3, 88, 192), dtype, small_integers=True).swapaxes(-1, -2)
    dense = hopper.array(x.swapaxes(-1, -2)).swapaxes(-1, -2)
    out = multiplied(hopper, sparse, dense, config=PATH, out_dtype=np.float32)
    expected = np.stack([exact_product(a, matrix) for matrix in x])
    np.testing.assert_array_equal(hopper.host(out).astype(np.float64), expected)


@pytest.mark.gpu
def test_nan_beyond_the_operands_does_not_come_in(hopper, rng):
    """What lies beside a ragged operand in memory is not multiplied."""
    sparse, a = operand(hopper, rng, (32, 96), HALF, small_integers=True)
    x = random_values(rng, (96, 72), HALF, small_integers=True)
    wide = hopper.xp.full((128, 128), np.nan, np.float16)
    wide[:96, :72] = hopper.array(x)
    out = multiplied(hopper, sparse, wide[:96, :72], config=PATH, out_dtype=np.float32)
    np.testing.assert_array_equal(hopper.host(out).astype(np.float64), exact_product(a, x))


@pytest.mark.gpu
def test_what_cannot_be(hopper, rng):
    sparse, _ = operand(hopper, rng, (64, 64), SINGLE)
    x = laid_out(hopper, random_values(rng, (64, 40), SINGLE), "columns")
    with pytest.raises(ValueError, match=r"config\['path'\].*not for 'wgmma_sp'"):  # IEEE
        sg.semi_structured_matmul(sparse, x, config=PATH)
    with pytest.raises(ValueError, match=r"semi_structured.*config\['tile_n'\]"):
        sg.semi_structured_matmul(sparse, x, allow_tf32=True, config=PATH | {"tile_n": 48})
