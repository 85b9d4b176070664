"""The Hopper 2:4 product: its tile, and the dtypes, layouts, batches and outputs that it serves."""

import ml_dtypes
import numpy as np
import pytest

import sparsegpu as sg
from addmm_cases import laid_out
from semi_structured_cases import BF16, HALF, INT8, SINGLE, exact_product, operand
from sparsegpu.engines.cuda.runtime import compile as compiler
from sparsegpu.engines.cuda.runtime.sparse_tile import sparse_tile
from sparsegpu.testing import assert_within_bound, random_values

KERNEL = "semi_structured_addmm_sm90"
PATH = {"path": "wgmma_sp"}
TILES = [(64, 8), (128, 3), (128, 7), (256, 2), (256, 4)]
LAYOUTS = {1: ["columns"], 2: ["rows", "columns"], 4: ["columns"]}  # that are read as they lie
SHAPES = [(32, 64, 17), (160, 192, 264), (416, 704, 520), (1024, 320, 72)]


@pytest.mark.parametrize("itemsize", [1, 2, 4])
@pytest.mark.parametrize("n", [17, 64, 100, 256, 4096])
def test_tile_fits(itemsize, n):
    tile = sparse_tile(itemsize, n)
    assert tile.stages >= 3 and tile.shared_memory <= 227 * 1024


@pytest.mark.parametrize("dtype", ["bf16", "s8", "e4m3", "f32"])
def test_products_follow_each_other(monkeypatch, dtype):
    """Where the compiler would wait for every product, it says so: C7510 to C7519."""
    logs, read_resources = [], compiler.read_resources

    def listen(code, name, log):
        logs.append(log)
        return read_resources(code, name, log)

    monkeypatch.setattr(compiler, "read_entry", lambda *_: None)
    monkeypatch.setattr(compiler, "write_entry", lambda *_: None)
    monkeypatch.setattr(compiler, "read_resources", listen)
    layout = "rows" if dtype == "bf16" else "columns"
    out = "f32" if dtype == "f32" else "bf16"
    defines = {"T": dtype, "OUT": out, "DENSE": layout, "STORE": "rows", "EPILOGUE": "identity"}
    compiler.compile_kernel(KERNEL, "90a", defines | {"ACT": "none", "TILE_N": 256, "STAGES": 4})
    assert len(logs) == 1
    assert "C751" not in logs[0]


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
    out_dtype = np.int32 if dtype == INT8 else np.float32
    for layout in LAYOUTS[dtype.itemsize]:
        given = hopper.xp.zeros((k, -(-n // 8) * 8), dtype)[:, :n]  # rows of 16-byte pieces
        given[...] = hopper.array(x)
        if layout == "columns":
            given = laid_out(hopper, x, layout)
        out = multiplied(hopper, sparse, given, config=PATH, out_dtype=out_dtype)
        np.testing.assert_array_equal(hopper.host(out).astype(np.float64), exact_product(a, x))


@pytest.mark.gpu
@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("dtype", [BF16, INT8], ids=str)
def test_every_tile(hopper, rng, dtype, tile):
    """More tiles than thread blocks, and twice, so that every stage is filled many times."""
    m, k, n = 1056, 832, 3000
    sparse, a = operand(hopper, rng, (m, k), dtype, small_integers=True)
    x = laid_out(hopper, random_values(rng, (k, n), dtype, small_integers=True), "columns")
    config = PATH | dict(zip(("tile_n", "stages"), tile, strict=True))
    out_dtype = np.int32 if dtype == INT8 else np.float32
    expected = exact_product(a, hopper.host(x))
    for _ in range(2):
        out = multiplied(hopper, sparse, x, config=config, out_dtype=out_dtype)
        np.testing.assert_array_equal(hopper.host(out).astype(np.float64), expected)


@pytest.mark.gpu
def test_e4m3(hopper, rng):
    fp8 = ml_dtypes.float8_e4m3fn
    a = random_values(rng, (96, 256), "float32", small_integers=True)
    a.reshape(-1, 4)[:, 1::2] = 0
    x = random_values(rng, (256, 200), "float32", small_integers=True)
    sparse = sg.to_semi_structured(a.astype(fp8)).to_device()
    dense = laid_out(hopper, x.astype(fp8).view(np.uint8), "columns")
    with hopper.runs(KERNEL):
        out = sg.scaled_mm(
            sparse, dense, 1.0, 1.0, dense_dtype="float8_e4m3fn", out_dtype=np.float32
        )
    np.testing.assert_array_equal(hopper.host(out), a @ x)


@pytest.mark.gpu
@pytest.mark.parametrize("store", ["rows", "columns", "skewed", "any"])
@pytest.mark.parametrize("dtype", [HALF, INT8], ids=str)
def test_outputs(hopper, rng, dtype, store):
    sparse, a = operand(hopper, rng, (96, 320), dtype)
    x = random_values(rng, (320, 136), dtype)
    bias = random_values(rng, (96, 1), dtype).astype(np.int32 if dtype == INT8 else dtype)
    out = {
        "rows": lambda: hopper.xp.zeros((96, 136), np.float16),
        "columns": lambda: hopper.xp.zeros((136, 96), np.float16).T,
        "skewed": lambda: hopper.xp.zeros((96, 139), np.float16)[:, 1:137],
        "any": lambda: hopper.xp.zeros((192, 272), np.float16)[::2, ::2],
    }[store]()
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
    out = multiplied(hopper, sparse, dense, out_dtype=np.float32)
    expected = np.stack([exact_product(a, matrix) for matrix in x])
    np.testing.assert_array_equal(hopper.host(out).astype(np.float64), expected)


@pytest.mark.gpu
def test_nan_beyond_the_operands_does_not_come_in(hopper, rng):
    """What lies beside a ragged operand in memory is not multiplied."""
    sparse, a = operand(hopper, rng, (32, 96), HALF, small_integers=True)
    x = random_values(rng, (96, 72), HALF, small_integers=True)
    wide = hopper.xp.full((128, 128), np.nan, np.float16)
    wide[:96, :72] = hopper.array(x)
    out = multiplied(hopper, sparse, wide[:96, :72], out_dtype=np.float32)
    np.testing.assert_array_equal(hopper.host(out).astype(np.float64), exact_product(a, x))


@pytest.mark.gpu
def test_what_cannot_be(hopper, rng):
    sparse, _ = operand(hopper, rng, (64, 64), SINGLE)
    x = laid_out(hopper, random_values(rng, (64, 40), SINGLE), "columns")
    with pytest.raises(ValueError, match=r"config\['path'\].*not for 'wgmma_sp'"):  # IEEE
        sg.semi_structured_matmul(sparse, x, config=PATH)
    with pytest.raises(ValueError, match=r"config\['path'\].*not for 'wgmma_sp'"):
        rows = hopper.xp.ascontiguousarray(x)
        sg.semi_structured_matmul(sparse, rows, allow_tf32=True, config=PATH)
    with pytest.raises(ValueError, match=r"semi_structured.*config\['tile_n'\]"):
        sg.semi_structured_matmul(sparse, x, allow_tf32=True, config=PATH | {"tile_n": 48})
