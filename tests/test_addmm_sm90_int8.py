"""The Hopper product of int8: k contiguous, sums in int32, outputs of every type."""

import numpy as np
import pytest

import sparsegpu
from addmm_cases import (
    ORDERS,
    aligned_rows,
    alternating,
    blank,
    check_batches,
    laid_out,
    ragged_operand,
)
from sparsegpu import bsr_addmm, bsr_matmul, dense_bsr_matmul, int_bsr_addmm
from sparsegpu.engines.cuda.runtime.hopper_tile import hopper_tile
from sparsegpu.testing import assert_within_bound, random_values

PATH = {"path": "wgmma"}
BLOCKS = [(16, 32), (32, 32), (48, 96), (64, 64), (64, 128), (128, 128), (144, 64), (256, 256)]


@pytest.mark.parametrize("blocksize", BLOCKS)
@pytest.mark.parametrize("n", [17, 64, 100, 256, 4096])
def test_int8_tile_fits(blocksize, n):
    tile = hopper_tile(np.dtype("int8"), blocksize, n, False)
    assert tile.stages >= 3 and tile.shared_memory <= 227 * 1024
    assert tile.step_k in {32, 64, 128} and blocksize[1] % tile.step_k == 0
    assert tile.tile_n % 128 == 0  # a strip of int8 outputs
    assert hopper_tile(np.dtype("int8"), blocksize, n, True) is None


def int8_operands(engine, rng, blocksize, n, **keywords):
    """Return an operand and a matrix of any bytes, and their product, exact."""
    a = ragged_operand(engine, rng, blocksize, "int8", small_integers=False, **keywords)
    x = random_values(rng, (a.dense.shape[1], n), "int8")
    product = a.dense.astype(np.float64) @ x.astype(np.float64)  # all sums are below 2**53
    return a, x, product.astype(np.int64)


@pytest.mark.gpu
@pytest.mark.parametrize("blocksize", BLOCKS)
@pytest.mark.parametrize("layout", ["rows", "columns", "strided", "backwards"])
@pytest.mark.parametrize("n", [17, 24, 100, 128, 528])
def test_int8_sums_are_exact(hopper, rng, blocksize, layout, n):
    """Ragged widths in rows that begin at multiples of 16 bytes, of 4, and anywhere."""
    a, x, product = int8_operands(hopper, rng, blocksize, n)
    kernels = ["bsr_addmm_sm90"]
    if layout != "columns":
        kernels.append("dense_lines")
    with hopper.runs(*kernels):
        out = bsr_matmul(a.bsr, laid_out(hopper, x, layout), config=PATH)
    assert out.dtype == np.int32
    np.testing.assert_array_equal(hopper.host(out), product)


@pytest.mark.gpu
@pytest.mark.parametrize("blocksize", [(64, 64), (64, 128), (128, 128), (192, 64), (256, 256)])
@pytest.mark.parametrize("n", [17, 48, 100, 128, 200, 528])
def test_int8_rows_are_turned_in_shared_memory(hopper, rng, blocksize, n):
    a, x, product = int8_operands(hopper, rng, blocksize, n)
    with hopper.runs("bsr_addmm_sm90"):
        out = bsr_matmul(a.bsr, aligned_rows(hopper, x), config=PATH | {"turns": 1})
    np.testing.assert_array_equal(hopper.host(out), product)


def test_who_turns_int8():
    def turns(blocksize, density, dtype="int8"):
        tile = hopper_tile(np.dtype(dtype), blocksize, 4096, False, density=density)
        return tile.turns

    assert turns((64, 64), 0.1) and turns((128, 128), 0.1)
    assert not turns((64, 64), 0.25)  # a copy is turned once, and read by many blocks
    assert not turns((32, 64), 0.1) and not turns((64, 32), 0.1)
    assert not turns((64, 64), 0.1, "float16")


@pytest.mark.gpu
@pytest.mark.parametrize("blocksize", [(32, 32), (128, 128)])
@pytest.mark.parametrize("alpha", [1, 2])
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
    a, x, product = int8_operands(hopper, rng, (64, 64), n)
    wide = hopper.xp.full((x.shape[0], n + 16), 99, "int8")
    for offset in (0, 4, 16):
        dense = wide[:, offset : offset + n - 5]
        dense[...] = hopper.array(x[:, : n - 5])
        with hopper.runs("bsr_addmm_sm90", "dense_lines"):
            out = bsr_matmul(a.bsr, dense, config=PATH)
        np.testing.assert_array_equal(hopper.host(out), product[:, : n - 5])


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("blocksize", "out_dtype", "order"),
    alternating(
        [(16, 32), (128, 128)], ["int8", "int32", "float16", "bfloat16", "float32"], ORDERS
    ),
)
def test_int8_outputs(hopper, rng, blocksize, out_dtype, order):
    a, x, product = int8_operands(hopper, rng, blocksize, 136)
    out = blank(hopper, product.shape, out_dtype, order)
    with hopper.runs("bsr_addmm_sm90"):
        bsr_matmul(a.bsr, hopper.array(x), out=out, config=PATH)
    if out_dtype == "int8":
        expected = np.clip(product, -128, 127)
    elif out_dtype == "int32":
        expected = product
    else:
        with np.errstate(over="ignore"):
            expected = product.astype(np.float32).astype(out.dtype)
    np.testing.assert_array_equal(hopper.host(out), expected)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("blocksize", "n", "activation"),
    [
        *(((64, 64), 300, name) for name in (None, "relu", "silu", "gelu", "gelu_erf")),
        *((size, n, "gelu") for size in ((32, 32), (128, 128)) for n in (48, 256)),
    ],
)
def test_int8_dequantises(hopper, rng, blocksize, n, activation):
    a, x, product = int8_operands(hopper, rng, blocksize, n)
    m = len(product)
    bias = random_values(rng, (m, 1), "float32")
    left, right = (random_values(rng, (size,), "float32") for size in (m, n))
    keywords = {"alpha": 2.0**-12, "beta": 0.5, "activation": activation}
    with hopper.runs("bsr_addmm_sm90"):
        out = bsr_addmm(
            hopper.array(bias),
            a.bsr,
            hopper.array(x),
            left_alpha=hopper.array(left),
            right_alpha=hopper.array(right),
            out_dtype="float32",
            config=PATH,
            **keywords,
        )
    alphas = {"left_alpha": left, "right_alpha": right}
    assert_within_bound(
        hopper.host(out), a.dense, x, input=bias, dtype="int8", **keywords, **alphas
    )


@pytest.mark.gpu
@pytest.mark.parametrize("blocksize", [(32, 32), (64, 64), (128, 128)])
def test_int8_scaled_to_int8_rounds_to_even(hopper, rng, blocksize):
    a, x, product = int8_operands(hopper, rng, blocksize, 200)
    for alpha in (2.0**-6, 2.0**-9, 2.0**-14):
        with hopper.runs("bsr_addmm_sm90"):
            out = bsr_matmul(a.bsr, hopper.array(x), alpha=alpha, out_dtype="int8", config=PATH)
        np.testing.assert_array_equal(
            hopper.host(out), np.clip(np.rint(product * alpha), -128, 127)
        )


@pytest.mark.gpu
@pytest.mark.parametrize("blocksize", [(32, 32), (64, 64), (128, 128)])
@pytest.mark.parametrize("side", ["column", "matrix", "row"])
def test_int8_to_int32_saturates(hopper, rng, blocksize, side):
    a, x, product = int8_operands(hopper, rng, blocksize, 130)
    shape = {"column": (len(product), 1), "matrix": product.shape, "row": product.shape[1:]}[side]
    bias = rng.integers(-(2**31), 2**31, shape).astype(np.int32)
    with hopper.runs("bsr_addmm_sm90"):
        out = int_bsr_addmm(
            hopper.array(bias), a.bsr, hopper.array(x), alpha=3, beta=-1, config=PATH
        )
    expected = 3 * product - bias.astype(np.int64)
    np.testing.assert_array_equal(hopper.host(out), np.clip(expected, -(2**31), 2**31 - 1))


@pytest.mark.gpu
@pytest.mark.parametrize("blocksize", [(32, 32), (64, 64)])
@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_int8_batches(hopper, rng, blocksize, layout):
    how = {"kernels": ["bsr_addmm_sm90"], "dtype": "int8", "layout": layout, "config": PATH}
    check_batches(hopper, rng, blocksize, **how)


@pytest.mark.gpu
@pytest.mark.parametrize("blocksize", [(32, 32), (64, 64), (128, 128)])
def test_int8_more_tiles_than_thread_blocks(hopper, rng, blocksize):
    counts = {"rows": 2048 // blocksize[0], "columns": 1024 // blocksize[1], "density": 0.2}
    a, x, product = int8_operands(hopper, rng, blocksize, 4096, **counts)
    dense = hopper.array(x)
    choices = ({"turns": 0}, {"turns": 1}) if blocksize[0] >= 64 else ({},)
    for chosen in choices:
        with hopper.runs(*["bsr_addmm_sm90", "dense_lines"][: 2 - chosen.get("turns", 0)]):
            out = bsr_matmul(a.bsr, dense, config=PATH | chosen)
        np.testing.assert_array_equal(hopper.host(out), product)


@pytest.mark.gpu
def test_int8_from_the_right_is_left_to_others(hopper, rng):
    """wgmma takes int8 with k contiguous only, and blocks that lie transposed have it apart."""
    a = ragged_operand(hopper, rng, (64, 64), "int8")
    y = random_values(rng, (48, a.dense.shape[0]), "int8")
    with pytest.raises(ValueError, match=r"config\['path'\].*not for 'wgmma'"):
        dense_bsr_matmul(hopper.array(y), a.bsr, config=PATH)
    with hopper.runs("bsr_addmm"):
        out = dense_bsr_matmul(hopper.array(y), a.bsr)
    np.testing.assert_array_equal(hopper.host(out), y.astype(np.int64) @ a.dense.astype(np.int64))
