"""The Hopper product of 16-bit floats, int8 and TF32, whose row groups share tiles of dense."""

import numpy as np
import pytest

import sparsegpu
from addmm_cases import LAYOUTS, ORDERS, blank, laid_out
from covering import covered
from path_contract import BsrPath, FromTheRight, ManyTiles, assert_exact, wide
from sparsegpu import bsr_addmm, bsr_matmul, dense_bsr_matmul, int_bsr_addmm
from sparsegpu.engines.cuda.paths import bsr_addmm_sm90
from sparsegpu.testing import random_values
from tile_cases import tile_of

BLOCKS = [(16, 16), (16, 128), (32, 32), (32, 64), (48, 80), (64, 16), (64, 64), (64, 128)]
TALL_BLOCKS = [(80, 16), (96, 48), (128, 32), (128, 128), (144, 64), (192, 16), (256, 256)]
INT8_BLOCKS = [
    (16, 32), (32, 32), (48, 96), (64, 64), (64, 128), (128, 128), (144, 64), (256, 256)
]  # fmt: skip
TF32_BLOCKS = [(16, 8), (16, 16), (32, 32), (48, 24), (64, 16), (64, 64), (128, 32), (144, 40)]


class TestPath(BsrPath, FromTheRight, ManyTiles):
    NAME, SOURCE = "wgmma", "bsr_addmm_sm90"
    CASES = [
        *(("bfloat16", size) for size in BLOCKS),
        *(("float16", size) for size in TALL_BLOCKS),
        *(("int8", size) for size in INT8_BLOCKS),
        *(("float32", size) for size in TF32_BLOCKS),
    ]
    # wgmma takes int8 and TF32 with k contiguous only; no swizzle is as wide as other blocks.
    RIGHT = [("float16", (16, 16)), ("bfloat16", (32, 64)), ("float16", (64, 64))]
    RIGHT += [("float16", (16, 128)), ("bfloat16", (128, 32))]
    MANY = [("float16", size) for size in [(16, 16), (32, 32), (64, 64), (128, 128)]]
    MANY += [("int8", size) for size in [(32, 32), (64, 64), (128, 128)]]
    MANY_COLUMNS = 4096
    LAYOUTS, COLUMNS = ["aligned", "columns", "rows", *LAYOUTS[2:], "skewed"], [24, 17, 100, 520]
    KEYWORDS = {"allow_tf32": True}
    REFUSED = [
        ("bfloat16", (24, 24), 64, {}),
        ("bfloat16", (64, 64), 16, {}),
        ("float32", (64, 64), 48, {"allow_tf32": False}),
    ]

    def copied(self, dtype, layout, columns):
        if dtype in {"int8", "float32"}:
            return () if layout == "columns" else ("dense_lines",)
        return () if layout in {"rows", "columns", "aligned"} else ("dense_lines",)

    @pytest.mark.parametrize("size", [(16, 16), (32, 32), (64, 64), (128, 128)])
    def test_nothing_stored_in_whole_tiles(self, engine, rng, size):
        """Tiles without an entry, first, last and between others, get their bias."""
        dense = np.zeros((1024, 512), np.float32)
        dense[128:192, 64:256] = random_values(rng, (64, 192), "float32", small_integers=True)
        dense[640:700, :16] = 1
        bsr = sparsegpu.bsr_array(engine.array(dense).astype("bfloat16"), blocksize=size)
        x = random_values(rng, (512, 1000), "bfloat16", small_integers=True)
        bias = random_values(rng, (1024, 1), "bfloat16", small_integers=True)
        given = engine.array(bias), bsr, engine.array(x)
        with engine.runs(self.SOURCE):
            out = bsr_addmm(*given, out_dtype="float32", **self.keywords())
        assert_exact(engine, out, dense @ wide(x) + wide(bias))

    @covered(n=[17, 67, 255, 521], size=[(16, 16), (64, 64), (128, 128)])
    def test_unaligned_rows_of_odd_lengths(self, engine, rng, size, n):
        """Packed rows of dense and out, which begin at any element."""
        sparse, a = self.operand(engine, rng, ("bfloat16", size), small_integers=True)
        x = random_values(rng, (a.shape[1], n), "bfloat16", small_integers=True)
        out = engine.xp.empty((len(a), n), "float32")
        self.multiply(engine, sparse, engine.array(x), ("dense_lines",), out=out)
        assert_exact(engine, out, wide(a) @ wide(x))

    @covered(size=[(16, 16), (64, 64)], by=["rows", "columns"])
    def test_operands_and_outputs_that_run_backwards(self, engine, rng, size, by):
        """Negative strides, along which the copy engine does not go: rows, columns, batches."""
        sparse, a = self.operand(engine, rng, ("bfloat16", size), small_integers=True)
        x = random_values(rng, (2, a.shape[1], 136), "bfloat16", small_integers=True)
        expected = wide(a) @ wide(x)
        dense = engine.array(x[::-1].copy())[::-1]
        memory = laid_out(engine, np.full(expected.shape, np.nan, "float32"), by)
        for axis in range(3):
            out = engine.xp.flip(memory, axis)
            out[...] = np.nan
            with engine.runs("bsr_addmm"):
                bsr_matmul(sparse, dense, out=out)
            assert_exact(engine, out, expected)

    @pytest.mark.parametrize(("dtype", "other"), [("int8", "bsr_addmm"), ("float32", "_sm80")])
    def test_blocks_that_lie_transposed_are_left_to_others(self, engine, rng, dtype, other):
        sparse, a = self.operand(engine, rng, (dtype, (64, 64)), small_integers=True)
        y = random_values(rng, (48, len(a)), dtype, small_integers=True)
        with pytest.raises(ValueError, match=r"config\['path'\].*not for 'wgmma'"):
            dense_bsr_matmul(engine.array(y), sparse, **self.keywords())
        with engine.runs("bsr_addmm_sm80" if other == "_sm80" else other):
            out = dense_bsr_matmul(engine.array(y), sparse, allow_tf32=True)
        assert_exact(engine, out, wide(y) @ wide(a))


# -- int8: sums of any bytes in int32, and what becomes of them ------------------------------------


PATH = {"path": TestPath.NAME}


def any_bytes(engine, rng, blocksize, n):
    """Return an operand, a matrix and their exact product."""
    a, dense = TestPath().operand(engine, rng, ("int8", blocksize), duplicates=True)
    x = random_values(rng, (dense.shape[1], n), "int8")
    return a, x, dense @ x.astype(np.int64)


@pytest.mark.gpu
@pytest.mark.parametrize("blocksize", [(64, 64), (64, 128), (128, 128), (192, 64), (256, 256)])
@pytest.mark.parametrize("n", [17, 48, 100, 128, 200, 528])
def test_int8_rows_are_transposed_in_shared_memory(hopper, rng, blocksize, n):
    a, x, product = any_bytes(hopper, rng, blocksize, n)
    with hopper.runs("bsr_addmm_sm90"):
        out = bsr_matmul(a, laid_out(hopper, x, "aligned"), config=PATH | {"transpose_in_smem": 1})
    np.testing.assert_array_equal(hopper.host(out), product)


def test_which_int8_is_transposed_in_shared_memory():
    def transposes(blocksize, density, dtype="int8"):
        return tile_of(bsr_addmm_sm90, dtype, blocksize, 4096, density=density).transpose_in_smem

    assert transposes((64, 64), 0.1) and transposes((128, 128), 0.1)
    assert not transposes((64, 64), 0.25)  # a copy is transposed once, and read by many blocks
    assert not transposes((32, 64), 0.1) and not transposes((64, 32), 0.1)
    assert not transposes((64, 64), 0.1, "float16")


@pytest.mark.gpu
@covered(blocksize=[(64, 64), (128, 128)], transpose=[0, 1])
def test_int8_more_tiles_than_thread_blocks(hopper, rng, blocksize, transpose):
    counts, how = (2048 // blocksize[0], 1024 // blocksize[1]), {"density": 0.2}
    a, dense = TestPath().operand(hopper, rng, ("int8", blocksize), counts, **how)
    x = random_values(rng, (1024, 4096), "int8")
    with hopper.runs(*["bsr_addmm_sm90", "dense_lines"][: 2 - transpose]):
        out = bsr_matmul(a, hopper.array(x), config=PATH | {"transpose_in_smem": transpose})
    np.testing.assert_array_equal(hopper.host(out), wide(dense) @ wide(x))


@pytest.mark.gpu
@covered(blocksize=[(32, 32), (128, 128)], alpha=[1, 2])
def test_int8_sums_beyond_float32(hopper, rng, blocksize, alpha):
    dense = rng.integers(125, 127, (256, 2048), endpoint=True).astype(np.int8)
    x = rng.integers(-127, -125, (2048, 40), endpoint=True).astype(np.int8)
    bsr = sparsegpu.bsr_array(hopper.array(dense), blocksize=blocksize)
    with hopper.runs("bsr_addmm_sm90"):
        out = bsr_matmul(bsr, hopper.array(x), alpha=alpha, config=PATH)
    expected = alpha * (dense.astype(np.int64) @ x.astype(np.int64))
    assert (np.abs(expected) > 2**24).all() and (alpha == 2 or (expected % 2).any())
    np.testing.assert_array_equal(hopper.host(out), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("n", [24, 128])
def test_int8_rows_of_a_wider_matrix(hopper, rng, n):
    """The last piece of a row ends inside sixteen bytes that belong to another matrix."""
    a, x, product = any_bytes(hopper, rng, (64, 64), n)
    whole = hopper.xp.full((x.shape[0], n + 16), 99, "int8")
    for offset in (0, 4, 16):
        dense = whole[:, offset : offset + n - 5]
        dense[...] = hopper.array(x[:, : n - 5])
        with hopper.runs("bsr_addmm_sm90", "dense_lines"):
            out = bsr_matmul(a, dense, config=PATH)
        np.testing.assert_array_equal(hopper.host(out), product[:, : n - 5])


@pytest.mark.gpu
@pytest.mark.parametrize("out_dtype", ["int8", "int32", "float16", "bfloat16", "float32"])
@pytest.mark.parametrize(("blocksize", "order"), [*zip([(16, 32), (128, 128)] * 2, ORDERS)])
def test_int8_outputs(hopper, rng, blocksize, out_dtype, order):
    a, x, product = any_bytes(hopper, rng, blocksize, 136)
    out = blank(hopper, product.shape, out_dtype, order)
    with hopper.runs("bsr_addmm_sm90"):
        bsr_matmul(a, hopper.array(x), out=out, config=PATH)
    if out_dtype == "int8":
        product = np.clip(product, -128, 127)
    with np.errstate(over="ignore"):
        expected = product if "int" in out_dtype else product.astype(np.float32).astype(out.dtype)
    np.testing.assert_array_equal(hopper.host(out), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("blocksize", [(32, 32), (64, 64), (128, 128)])
def test_int8_scaled_to_int8_rounds_to_even(hopper, rng, blocksize):
    a, x, product = any_bytes(hopper, rng, blocksize, 200)
    for alpha in (2.0**-6, 2.0**-9, 2.0**-14):
        with hopper.runs("bsr_addmm_sm90"):
            out = bsr_matmul(a, hopper.array(x), alpha=alpha, out_dtype="int8", config=PATH)
        expected = np.clip(np.rint(product * alpha), -128, 127)
        np.testing.assert_array_equal(hopper.host(out), expected)


@pytest.mark.gpu
@covered(blocksize=[(32, 32), (64, 64), (128, 128)], side=["column", "matrix", "row"])
def test_int8_to_int32_saturates(hopper, rng, blocksize, side):
    a, x, product = any_bytes(hopper, rng, blocksize, 130)
    shape = {"column": (len(product), 1), "matrix": product.shape, "row": product.shape[1:]}[side]
    bias = rng.integers(-(2**31), 2**31, shape).astype(np.int32)
    given = hopper.array(bias), a, hopper.array(x)
    with hopper.runs("bsr_addmm_sm90"):
        out = int_bsr_addmm(*given, alpha=3, beta=-1, config=PATH)
    expected = 3 * product - bias.astype(np.int64)
    np.testing.assert_array_equal(hopper.host(out), np.clip(expected, -(2**31), 2**31 - 1))


# -- the tile --------------------------------------------------------------------------------


@covered(transposed=[False, True], blocksize=[*BLOCKS, *TALL_BLOCKS], n=[17, 64, 100, 256, 4096])
def test_tile_fits(blocksize, n, transposed):
    tile = tile_of(bsr_addmm_sm90, "float16", blocksize, n, transposed=transposed)
    bm, bk = blocksize
    if tile is None:
        assert transposed and bm % 64 and bm not in {16, 32}
        return
    assert tile.defines["STAGES"] >= 3 and tile.shared_memory <= 227 * 1024
    assert tile.rows * min(bm, 128) <= 128 and bk % tile.step_k == 0
    assert tile.slices * 128 >= bm
    assert 2 * max(tile.step_k, tile.box[1]) in {32, 64, 128}


@pytest.mark.parametrize(
    ("dtype", "blocksize"),
    [*(("int8", size) for size in INT8_BLOCKS), *(("float32", size) for size in TF32_BLOCKS)],
)
@pytest.mark.parametrize("n", [17, 64, 100, 256, 4096])
def test_tile_of_other_dtypes_fits(dtype, blocksize, n):
    tile = tile_of(bsr_addmm_sm90, dtype, blocksize, n, allow_tf32=True)
    assert tile.defines["STAGES"] >= 3 and tile.shared_memory <= 227 * 1024
    steps = {32, 64, 128} if dtype == "int8" else {8, 16, 32}
    assert tile.step_k in steps and blocksize[1] % tile.step_k == 0
    assert dtype == "float32" or tile.tile_n % 128 == 0  # a strip of int8 outputs
    assert tile_of(bsr_addmm_sm90, dtype, blocksize, n, transposed=True) is None


@pytest.mark.parametrize(
    ("dtype", "blocksize"),
    [
        *(("float16", size) for size in [(8, 16), (16, 24), (20, 20), (1, 1)]),
        *(("int8", size) for size in [(8, 16), (16, 24), (20, 20), (1, 1), (64, 48)]),
        ("float64", (64, 64)),
        ("float32", (64, 4)),
    ],
)
def test_tile_refuses(dtype, blocksize):
    assert tile_of(bsr_addmm_sm90, dtype, blocksize, 256, allow_tf32=True) is None
