"""The Hopper 2:4 product with few columns: how k is split, and every dtype, layout and output."""

import numpy as np
import pytest

import sparsegpu as sg
from addmm_cases import ORDERS, blank, laid_out
from semi_structured_cases import BF16, FP8, HALF, INT8, SINGLE, exact_product, operand, sum_dtype
from sparsegpu.engines.cuda.runtime.skinny_sparse_tile import skinny_sparse_tile
from sparsegpu.testing import assert_within_bound, random_values

KERNEL = "semi_structured_addmm_skinny_sm90"
PATH = {"path": "wgmma_sp_skinny"}
DTYPES = [BF16, HALF, SINGLE, INT8]
COLUMNS = [1, 5, 8, 16, 17, 64, 100, 128]


@pytest.mark.parametrize("itemsize", [1, 2, 4])
@pytest.mark.parametrize("columns", [1, 16, 17, 64, 65, 128, 200])
@pytest.mark.parametrize("row_tiles", [1, 8, 64, 132, 10**6])
def test_tile_fits(itemsize, columns, row_tiles):
    tile = skinny_sparse_tile(itemsize, columns, row_tiles, 64, 132)
    assert tile.stages >= 2 and tile.shared_memory <= 227 * 1024
    assert tile.cluster == 1 or row_tiles <= 2 * 132


def multiplied(engine, sparse, dense, **keywords):
    with engine.runs(KERNEL):
        return sg.semi_structured_matmul(sparse, dense, allow_tf32=True, **keywords)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(32, 64), (160, 192), (1056, 1216)])
@pytest.mark.parametrize("layout", ["rows", "columns", "strided", "backwards"])
def test_exact_on_small_integers(hopper, rng, dtype, shape, layout):
    sparse, a = operand(hopper, rng, shape, dtype, small_integers=True)
    for n in COLUMNS:
        x = random_values(rng, (shape[1], n), dtype, small_integers=True)
        dense = laid_out(hopper, x, layout)
        out = multiplied(hopper, sparse, dense, out_dtype=sum_dtype(dtype))
        np.testing.assert_array_equal(hopper.host(out).astype(np.float64), exact_product(a, x))


@pytest.mark.gpu
@pytest.mark.parametrize("cluster", [1, 2, 4, 8])
@pytest.mark.parametrize("tile_n, stages", [(16, 2), (16, 9), (32, 3), (64, 5), (128, 2), (128, 4)])
@pytest.mark.parametrize("dtype", [BF16, INT8], ids=str)
def test_every_tile(hopper, rng, dtype, cluster, tile_n, stages):
    """Twice, several panels of columns, and stages that are filled many times."""
    m, k, n = 288, 4160, 200
    sparse, a = operand(hopper, rng, (m, k), dtype, small_integers=True)
    x = laid_out(hopper, random_values(rng, (k, n), dtype, small_integers=True), "columns")
    if dtype == BF16 and cluster % 4:
        x = hopper.xp.ascontiguousarray(x)
    config = PATH | {"tile_n": tile_n, "cluster": cluster, "stages": stages}
    expected = exact_product(a, hopper.host(x))
    for _ in range(2):
        out = multiplied(hopper, sparse, x, config=config, out_dtype=sum_dtype(dtype))
        np.testing.assert_array_equal(hopper.host(out).astype(np.float64), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_e4m3(hopper, rng, layout):
    a = random_values(rng, (96, 256), "float32", small_integers=True)
    a.reshape(-1, 4)[:, 1::2] = 0
    x = random_values(rng, (256, 20), "float32", small_integers=True)
    sparse = sg.to_semi_structured(a.astype(FP8)).to_device()
    dense = laid_out(hopper, x.astype(FP8).view(np.uint8), layout)
    with hopper.runs(KERNEL):
        out = sg.scaled_mm(
            sparse, dense, 1.0, 1.0, dense_dtype="float8_e4m3fn", out_dtype=np.float32
        )
    np.testing.assert_array_equal(hopper.host(out), a @ x)


@pytest.mark.gpu
@pytest.mark.parametrize("order", [*ORDERS, "skewed F"])
@pytest.mark.parametrize("n", [1, 24, 77, 128])
@pytest.mark.parametrize(
    "dtype, out_dtype",
    [(BF16, BF16), (HALF, "float32"), (INT8, "float16"), (INT8, "int8")],
    ids=str,
)
def test_epilogue_and_outputs(hopper, rng, dtype, out_dtype, n, order):
    sparse, a = operand(hopper, rng, (224, 320), dtype)
    x = random_values(rng, (320, n), dtype)
    side = np.int32 if dtype == INT8 else dtype
    bias = random_values(rng, (224, 1), dtype).astype(side)
    left, right = (random_values(rng, (size,), "float32") for size in (224, n))
    out = blank(hopper, (224, n), out_dtype, order)
    keywords = {"alpha": 0.01, "beta": 0.5, "activation": "gelu"}
    with hopper.runs(KERNEL):
        result = sg.semi_structured_addmm(
            hopper.array(bias),
            sparse,
            hopper.array(x),
            left_alpha=hopper.array(left),
            right_alpha=hopper.array(right),
            out=out,
            **({"out_dtype": out_dtype} if dtype == INT8 else {}),
            **keywords,
        )
    assert result is out
    alphas = {"left_alpha": left, "right_alpha": right}
    assert_within_bound(hopper.host(out), a, x, input=bias, dtype=dtype, **keywords, **alphas)


@pytest.mark.gpu
@pytest.mark.parametrize("n", [16, 40])
def test_input_is_not_read_where_beta_is_zero(hopper, rng, n):
    sparse, a = operand(hopper, rng, (64, 128), HALF, small_integers=True)
    x = random_values(rng, (128, n), HALF, small_integers=True)
    nan = hopper.xp.full((64, n), np.nan, np.float16)
    with hopper.runs(KERNEL):
        out = sg.semi_structured_addmm(nan, sparse, hopper.array(x), beta=0)
    np.testing.assert_array_equal(hopper.host(out).astype(np.float64), exact_product(a, x))


@pytest.mark.gpu
def test_nothing_is_multiplied_by_zero(hopper, rng):
    sparse, _ = operand(hopper, rng, (64, 128), HALF)
    nan = hopper.xp.full((128, 24), np.nan, np.float16)
    bias = hopper.xp.arange(64, dtype=np.float16)[:, None]
    with hopper.runs(KERNEL):
        out = sg.semi_structured_addmm(bias, sparse, nan, alpha=0)
    assert (out == bias).all()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [BF16, INT8], ids=str)
@pytest.mark.parametrize("n", [16, 33])
def test_batches_of_dense(hopper, rng, dtype, n):
    sparse, a = operand(hopper, rng, (160, 192), dtype, small_integers=True)
    x = random_values(rng, (2, 3, 192, n), dtype, small_integers=True)
    cases = [
        (hopper.array(x), x),
        (hopper.array(x[0]), x[0]),
        (hopper.xp.ascontiguousarray(hopper.array(x).swapaxes(-1, -2)).swapaxes(-1, -2), x),
        (hopper.xp.broadcast_to(hopper.array(x[0, 0]), x.shape), np.broadcast_to(x[0, 0], x.shape)),
    ]
    for dense, values in cases:
        out = multiplied(hopper, sparse, dense, out_dtype=np.float32)
        np.testing.assert_array_equal(hopper.host(out).astype(np.float64), exact_product(a, values))


@pytest.mark.gpu
def test_vectors_and_layers(hopper, rng):
    """1-D operands and both sides: where columns of the result are rows of the caller's."""
    sparse, a = operand(hopper, rng, (256, 512), BF16, small_integers=True)
    x = random_values(rng, (512,), BF16, small_integers=True)
    y = random_values(rng, (7, 512), BF16, small_integers=True)
    out = multiplied(hopper, sparse, hopper.array(x), out_dtype=np.float32)
    np.testing.assert_array_equal(hopper.host(out), exact_product(a, x))
    with hopper.runs(KERNEL):
        out = sg.semi_structured_linear(hopper.array(y), sparse, out_dtype=np.float32)
    np.testing.assert_array_equal(hopper.host(out), exact_product(y, a.T))


@pytest.mark.gpu
@pytest.mark.parametrize("n", [16, 17])
def test_nan_beyond_the_operands_does_not_come_in(hopper, rng, n):
    """What lies beside a ragged operand in memory is not multiplied."""
    sparse, a = operand(hopper, rng, (32, 96), HALF, small_integers=True)
    x = random_values(rng, (96, n), HALF, small_integers=True)
    wide = hopper.xp.full((160, 64), np.nan, np.float16)
    wide[:96, :n] = hopper.array(x)
    out = multiplied(hopper, sparse, wide[:96, :n], out_dtype=np.float32)
    np.testing.assert_array_equal(hopper.host(out).astype(np.float64), exact_product(a, x))


@pytest.mark.gpu
@pytest.mark.parametrize("n", [24, 21])
def test_again_and_in_a_graph(hopper, rng, n):
    """With and without a copy of ``dense``, on values that are new each time."""
    cp = hopper.xp
    sparse, a = operand(hopper, rng, (96, 256), HALF, small_integers=True)
    x = [random_values(rng, (256, n), HALF, small_integers=True) for _ in range(3)]
    dense, out = hopper.array(x[0]), cp.empty((96, n), np.float16)
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    with stream:
        for _ in range(2):
            multiplied(hopper, sparse, dense, out=out)
        stream.begin_capture()
        multiplied(hopper, sparse, dense, out=out)
        graph = stream.end_capture()
        for values in x:
            dense.set(values, stream)
            out.fill(np.nan)
            graph.launch(stream)
            stream.synchronize()
            np.testing.assert_array_equal(
                hopper.host(out).astype(np.float64), exact_product(a, values)
            )


@pytest.mark.gpu
def test_what_cannot_be(hopper, rng):
    sparse, _ = operand(hopper, rng, (64, 64), SINGLE)
    x = laid_out(hopper, random_values(rng, (64, 40), SINGLE), "columns")
    with pytest.raises(ValueError, match=r"config\['path'\].*not for 'wgmma_sp_skinny'"):  # IEEE
        sg.semi_structured_matmul(sparse, x, config=PATH)
    for field in ({"tile_n": 48}, {"cluster": 3}, {"stages": 1}, {"tile_m": 128}):
        name = next(iter(field))
        with pytest.raises(ValueError, match=rf"semi_structured.*config\['{name}'\]"):
            sg.semi_structured_matmul(sparse, x, allow_tf32=True, config=PATH | field)
