"""The Hopper product of 2:4 blocks: its tiles, and blocks that groups of rows lack."""

import ml_dtypes
import numpy as np
import pytest

import sparsegpu as sg
from addmm_cases import LAYOUTS
from covering import covered
from path_contract import SemiStructuredBlocksPath, assert_exact, wide
from semi_structured_cases import BF16, INT8, SINGLE
from sparsegpu.engines.cuda.paths import bsr_semi_structured_addmm_sm90
from sparsegpu.testing import random_values
from tile_cases import tile_of

BLOCKS = {
    "bfloat16": [(64, 64), (64, 192), (128, 128), (192, 64), (256, 256)],
    "float16": [(64, 128)],
    "int8": [(64, 128), (128, 256)],
    "float32": [(64, 32), (128, 96)],
}
# Columns and stages of a tile, slices of a block that come together, and the band.
SINGLE_SLICES = [(64, 8, 1, 0), (128, 3, 1, 16), (256, 2, 1, 8), (256, 4, 1, 0)]
PAIRS_OF_SLICES = [(128, 3, 2, 0), (128, 5, 2, 8), (256, 2, 2, 16), (256, 4, 2, 0)]


class TestPath(SemiStructuredBlocksPath):
    NAME, SOURCE = "wgmma_sp", "bsr_semi_structured_addmm_sm90"
    CASES = [(dtype, block) for dtype, blocks in BLOCKS.items() for block in blocks]
    LAYOUTS, COLUMNS = LAYOUTS, [5, 264, 72]
    KEYWORDS = {"allow_tf32": True}
    REFUSED = [("float16", (32, 32), 40, {})]
    FIELDS = [{"tile_n": 48}, {"no_such_field": 1}]

    @pytest.mark.parametrize(
        ("blocksize", "tile"),
        [
            *((size, tile) for size in ((64, 64), (128, 128)) for tile in SINGLE_SLICES),
            *((size, tile) for size in ((64, 128), (128, 128)) for tile in PAIRS_OF_SLICES),
        ],
    )
    def test_every_tile(self, engine, rng, blocksize, tile):
        """More tiles than thread blocks, and twice, so that every stage is filled many times."""
        counts = (2048 // blocksize[0], 1024 // blocksize[1])
        how = {"counts": counts, "density": 0.3, "small_integers": True}
        sparse, a = self.operand(engine, rng, ("bfloat16", blocksize), **how)
        x = random_values(rng, (1024, 3000), "bfloat16", small_integers=True)
        dense, fields = (
            engine.array(x),
            dict(zip(("tile_n", "stages", "slices_per_copy", "raster_band"), tile)),
        )
        for _ in range(2):
            out = self.multiply(engine, sparse, dense, fields=fields, out_dtype="float32")
            assert_exact(engine, out, wide(a) @ wide(x))

    @pytest.mark.parametrize("group_similar_rows", [0, 1])
    def test_groups_of_two_rows(self, engine, rng, group_similar_rows):
        """A warpgroup passes over long stretches of entries in which it has no block."""
        a = np.zeros((7 * 64, 64 * 64), np.float16)
        values = random_values(rng, (64, 64), "float16", small_integers=True)
        values.reshape(-1, 4)[:, 1::2] = 0
        rows = [range(64), [], range(40), range(20, 64), [3], range(64), [63]]
        for i, columns in enumerate(rows):
            for j in columns:
                a[i * 64 : i * 64 + 64, j * 64 : j * 64 + 64] = values
        sparse = sg.bsr_array(engine.array(a), blocksize=(64, 64)).semi_structured()
        x = random_values(rng, (4096, 300), "float16", small_integers=True)
        fields = {"group_similar_rows": group_similar_rows}
        out = self.multiply(engine, sparse, engine.array(x), fields=fields, out_dtype="float32")
        assert_exact(engine, out, wide(a) @ wide(x))

    @pytest.mark.parametrize("blocksize", [(64, 64), (192, 64)])
    def test_long_rows_are_cut(self, engine, rng, blocksize):
        bm, bk = blocksize
        a = np.zeros((bm * 40, bk * 300), np.float32)
        kept = random_values(rng, (bm, bk * 300), np.float32, small_integers=True)
        kept.reshape(-1, 4)[:, :2] = 0
        a[5 * bm : 6 * bm] = kept
        a[:, :bk] = kept[0, 2]
        a.reshape(-1, 4)[:, :2] = 0
        sparse = sg.bsr_array(engine.array(a.astype(BF16)), blocksize=blocksize).semi_structured()
        x = random_values(rng, (bk * 300, 520), BF16, small_integers=True)
        dense, cut = engine.array(x), ("bsr_addmm_sm90_reduce",)
        out = self.multiply(engine, sparse, dense, cut, out_dtype="float32")
        assert_exact(engine, out, wide(a) @ wide(x))

    def test_a_call_is_kept_to_be_repeated(self, engine, rng):
        """On what the memory holds by then."""
        sparse, a = self.operand(engine, rng, ("bfloat16", (128, 128)), small_integers=True)
        x = engine.array(random_values(rng, (a.shape[1], 256), "bfloat16", small_integers=True))
        out = engine.xp.empty((len(a), 256), np.float32)
        for _ in range(3):
            x *= ml_dtypes.bfloat16(-1)
            self.multiply(engine, sparse, x, out=out)
            assert_exact(engine, out, wide(a) @ wide(engine.host(x)))
        assert [len(w.calls) for w in sparse.pattern.kept.values()] == [1]

    def test_another_product_s_path_is_unknown(self, engine, rng):
        sparse, a = self.operand(engine, rng, ("float16", (64, 64)))
        x = engine.array(random_values(rng, (a.shape[1], 40), "float16"))
        with pytest.raises(ValueError, match=r"config\['path'\].*'wgmma_sp', 'mma_sp', 'simt'"):
            sg.bsr_matmul(sparse, x, config={"path": "wgmma"})


@covered(
    dtype=[BF16, INT8, SINGLE],
    blocksize=[(64, 128), (128, 128), (192, 256)],
    n=[1, 64, 100, 4096],
)
def test_tile_fits(dtype, blocksize, n):
    tile = tile_of(bsr_semi_structured_addmm_sm90, dtype, blocksize, n, allow_tf32=True)
    assert tile.defines["STAGES"] >= 3 and tile.shared_memory <= 227 * 1024
    assert tile.rows * tile.slice_m == 128 and tile.slices * 128 >= blocksize[0]


@covered(dtype=[BF16, INT8], blocksize=[(32, 128), (96, 128), (64, 32), (64, 96)])
def test_blocks_that_are_not_for_it(dtype, blocksize):
    assert tile_of(bsr_semi_structured_addmm_sm90, dtype, blocksize, 4096) is None


@pytest.mark.parametrize(("dtype", "bm"), [("bf16", 128), ("bf16", 64), ("s8", 128), ("s8", 64)])
@pytest.mark.parametrize("slices", [1, 2])
def test_products_follow_each_other(compiler_log, dtype, bm, slices):
    """Where the compiler would wait for every product, it says so: C7510 to C7519."""
    layout = "rows" if dtype == "bf16" else "columns"
    defines = {"T": dtype, "OUT": "bf16", "DENSE": layout, "STORE": "rows", "EPILOGUE": "identity"}
    defines |= {"ACT": "none", "BM": bm, "BK": 256, "INDEX": "s32", "SPLIT_K": 0}
    tile = {"TILE_N": 256, "STAGES": 4, "RASTER_BAND": 16, "SLICES_PER_COPY": slices}
    assert "C751" not in compiler_log(TestPath.SOURCE, "90a", defines | tile)
