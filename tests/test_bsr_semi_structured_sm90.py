"""The Hopper product of 2:4 blocks: its tile, and the blocks, layouts and outputs it serves."""

import ml_dtypes
import numpy as np
import pytest
from sparsegpu.engines.cuda.runtime.sparse_blocks_tile import sparse_blocks_tile

import sparsegpu as sg
from addmm_cases import ORDERS, blank, laid_out
from semi_structured_cases import BF16, HALF, INT8, SINGLE, Blocks, exact_product, sum_dtype
from sparsegpu.testing import assert_within_bound, random_values

KERNEL = "bsr_semi_structured_addmm_sm90"
PATH = {"path": "wgmma_sp"}
BLOCKS = {
    BF16: [(64, 64), (64, 192), (128, 128), (192, 64), (256, 256)],
    HALF: [(64, 128)],
    INT8: [(64, 128), (128, 256)],
    SINGLE: [(64, 32), (128, 96)],
}
# Columns and stages of a tile, slices of a block that come together, and the band.
SINGLE_SLICES = [(64, 8, 1, 0), (128, 3, 1, 16), (256, 2, 1, 8), (256, 4, 1, 0)]
PAIRS_OF_SLICES = [(128, 3, 2, 0), (128, 5, 2, 8), (256, 2, 2, 16), (256, 4, 2, 0)]
CASES = [(dtype, block) for dtype, blocks in BLOCKS.items() for block in blocks]


@pytest.mark.parametrize("dtype", [BF16, INT8, SINGLE], ids=str)
@pytest.mark.parametrize("blocksize", [(64, 128), (128, 128), (192, 256)])
@pytest.mark.parametrize("n", [1, 64, 100, 4096])
def test_tile_fits(dtype, blocksize, n):
    tile = sparse_blocks_tile(dtype, blocksize, n)
    assert tile.stages >= 3 and tile.shared_memory <= 227 * 1024
    assert tile.rows * tile.slice_m == 128 and tile.slices * 128 >= blocksize[0]


@pytest.mark.parametrize("dtype", [BF16, INT8], ids=str)
@pytest.mark.parametrize("blocksize", [(32, 128), (96, 128), (64, 32), (64, 96)])
def test_blocks_that_are_not_for_it(dtype, blocksize):
    assert sparse_blocks_tile(dtype, blocksize, 4096) is None


@pytest.mark.parametrize(("dtype", "bm"), [("bf16", 128), ("bf16", 64), ("s8", 128), ("s8", 64)])
@pytest.mark.parametrize("together", [1, 2])
def test_products_follow_each_other(compiler_log, dtype, bm, together):
    """Where the compiler would wait for every product, it says so: C7510 to C7519."""
    layout = "rows" if dtype == "bf16" else "columns"
    defines = {"T": dtype, "OUT": "bf16", "DENSE": layout, "STORE": "rows", "EPILOGUE": "identity"}
    defines |= {"ACT": "none", "BM": bm, "BK": 256, "INDEX": "s32", "SPLIT_K": 0}
    tile = {"TILE_N": 256, "STAGES": 4, "RASTER_BAND": 16, "SLICES_PER_COPY": together}
    assert "C751" not in compiler_log(KERNEL, "90a", defines | tile)


def multiplied(engine, sparse, dense, **keywords):
    with engine.runs(KERNEL):
        return sg.bsr_matmul(sparse, dense, allow_tf32=True, **keywords)


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "blocksize"), CASES, ids=str)
@pytest.mark.parametrize("layout", ["rows", "columns", "strided"])
def test_exact_on_small_integers(hopper, rng, dtype, blocksize, layout):
    how = {"small_integers": True, "duplicates": True}
    case = Blocks(hopper, rng, blocksize, dtype, (5, 7), **how)
    for n in (5, 264):
        x = random_values(rng, (case.dense.shape[1], n), dtype, small_integers=True)
        given = laid_out(hopper, x, layout)
        out = multiplied(hopper, case.sparse, given, out_dtype=sum_dtype(dtype), config=PATH)
        np.testing.assert_array_equal(hopper.host(out), exact_product(case.dense, x))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("blocksize", "tile"),
    [
        *((blocksize, tile) for blocksize in ((64, 64), (128, 128)) for tile in SINGLE_SLICES),
        *((blocksize, tile) for blocksize in ((64, 128), (128, 128)) for tile in PAIRS_OF_SLICES),
    ],
)
def test_every_tile(hopper, rng, blocksize, tile):
    """More tiles than thread blocks, and twice, so that every stage is filled many times."""
    counts = (2048 // blocksize[0], 1024 // blocksize[1])
    case = Blocks(hopper, rng, blocksize, BF16, counts, density=0.3, small_integers=True)
    x = random_values(rng, (1024, 3000), BF16, small_integers=True)
    dense, expected = hopper.array(x), exact_product(case.dense, x)
    config = PATH | dict(zip(("tile_n", "stages", "together", "band"), tile, strict=True))
    for _ in range(2):
        out = multiplied(hopper, case.sparse, dense, config=config, out_dtype=np.float32)
        np.testing.assert_array_equal(hopper.host(out), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("reorder", [0, 1])
def test_groups_of_two_rows(hopper, rng, reorder):
    """A warpgroup passes over long stretches of entries in which it has no block."""
    a = np.zeros((7 * 64, 64 * 64), np.float16)
    values = random_values(rng, (64, 64), HALF, small_integers=True)
    values.reshape(-1, 4)[:, 1::2] = 0
    for i, columns in enumerate([range(64), [], range(40), range(20, 64), [3], range(64), [63]]):
        for j in columns:
            a[i * 64 : i * 64 + 64, j * 64 : j * 64 + 64] = values
    sparse = sg.bsr_array(hopper.array(a), blocksize=(64, 64)).semi_structured()
    x = random_values(rng, (4096, 300), HALF, small_integers=True)
    config = PATH | {"reorder": reorder}
    out = multiplied(hopper, sparse, hopper.array(x), config=config, out_dtype=np.float32)
    np.testing.assert_array_equal(hopper.host(out), exact_product(a, x))


@pytest.mark.gpu
@pytest.mark.parametrize("blocksize", [(64, 64), (192, 64)])
def test_long_rows_are_cut(hopper, rng, blocksize):
    bm, bk = blocksize
    a = np.zeros((bm * 40, bk * 300), np.float32)
    kept = random_values(rng, (bm, bk * 300), np.float32, small_integers=True)
    kept.reshape(-1, 4)[:, :2] = 0
    a[5 * bm : 6 * bm] = kept
    a[:, :bk] = kept[0, 2]
    a.reshape(-1, 4)[:, :2] = 0
    a = a.astype(BF16)
    sparse = sg.bsr_array(hopper.array(a), blocksize=blocksize).semi_structured()
    x = random_values(rng, (bk * 300, 520), BF16, small_integers=True)
    with hopper.runs(KERNEL, "bsr_addmm_sm90_reduce"):
        out = sg.bsr_matmul(sparse, hopper.array(x), out_dtype=np.float32, config=PATH)
    np.testing.assert_array_equal(hopper.host(out), exact_product(a, x))


@pytest.mark.gpu
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", [HALF, INT8], ids=str)
def test_outputs(hopper, rng, dtype, order):
    case = Blocks(hopper, rng, (64, 128), dtype, (3, 4))
    x = random_values(rng, (512, 136), dtype)
    bias = random_values(rng, (192, 1), dtype).astype(np.int32 if dtype == INT8 else dtype)
    out = blank(hopper, (192, 136), HALF, order)
    how = {"alpha": 0.01, "activation": "gelu"}
    with hopper.runs(KERNEL):
        given = laid_out(hopper, x, "columns")
        sg.bsr_addmm(hopper.array(bias), case.sparse, given, out=out, out_dtype=np.float16, **how)
    assert_within_bound(hopper.host(out), case.dense, x, beta=1, input=bias, dtype=dtype, **how)


@pytest.mark.gpu
def test_batches(hopper, rng):
    many = Blocks(hopper, rng, (64, 64), BF16, batch=(3,), small_integers=True)
    one = Blocks(hopper, rng, (64, 64), BF16, small_integers=True)
    x = random_values(rng, (3, 256, 72), BF16, small_integers=True)
    for case, given in ((one, x), (many, x), (many, x[1]), (one, x[:, None])):
        out = multiplied(hopper, case.sparse, hopper.array(given), out_dtype=np.float32)
        np.testing.assert_array_equal(hopper.host(out), exact_product(case.dense, given))


@pytest.mark.gpu
def test_tf32_is_within_its_bound(hopper, rng):
    case = Blocks(hopper, rng, (64, 64), SINGLE)
    x = random_values(rng, (256, 72), SINGLE)
    out = multiplied(hopper, case.sparse, hopper.array(x))
    assert_within_bound(hopper.host(out), case.dense, x, allow_tf32=True)


@pytest.mark.gpu
def test_a_call_is_repeated(hopper, rng):
    """The same call again launches what it launched, on what the memory holds by then."""
    case = Blocks(hopper, rng, (128, 128), BF16, small_integers=True)
    x = hopper.array(random_values(rng, (512, 256), BF16, small_integers=True))
    out = hopper.xp.empty((384, 256), np.float32)
    for _ in range(3):
        x *= ml_dtypes.bfloat16(-1)
        multiplied(hopper, case.sparse, x, out=out)
        np.testing.assert_array_equal(hopper.host(out), exact_product(case.dense, hopper.host(x)))
    assert [len(w.calls) for w in case.sparse.pattern.kept.values()] == [1]


@pytest.mark.gpu
def test_what_cannot_be(hopper, rng):
    case = Blocks(hopper, rng, (32, 32), HALF)
    x = hopper.array(random_values(rng, (128, 40), HALF))
    with pytest.raises(ValueError, match=r"config\['path'\].*not for 'wgmma_sp'"):
        sg.bsr_matmul(case.sparse, x, config=PATH)
    with pytest.raises(ValueError, match=r"config\['path'\].*'wgmma_sp', 'mma_sp', 'simt'"):
        sg.bsr_matmul(case.sparse, x, config={"path": "wgmma"})
    with pytest.raises(ValueError, match=r"config\['stages'\]"):
        sg.bsr_matmul(case.sparse, x, config={"path": "simt", "stages": 2})
    larger = Blocks(hopper, rng, (64, 64), HALF)
    y = hopper.array(random_values(rng, (256, 40), HALF))
    with pytest.raises(ValueError, match=r"config\['tile_n'\]"):
        sg.bsr_matmul(larger.sparse, y, config=PATH | {"tile_n": 48})
