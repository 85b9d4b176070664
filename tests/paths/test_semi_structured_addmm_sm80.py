"""The 2:4 product on tensor cores from 8.0 on: its tiles, and what it copies before."""

from addmm_cases import LAYOUTS, laid_out
from covering import covered
from path_contract import SemiStructuredLinesPath, assert_exact, wide
from semi_structured_cases import BF16, FP8, INT8, SINGLE
from sparsegpu.engines.cuda.paths import semi_structured_addmm_sm80
from sparsegpu.testing import random_values
from tile_cases import tile_of

DTYPES = ["bfloat16", "float16", "float32", "int8"]
TILES = [(128, 16), (64, 32), (128, 32), (64, 64), (128, 64), (64, 128), (128, 128)]


class TestPath(SemiStructuredLinesPath):
    NAME, SOURCE = "mma_sp", "semi_structured_addmm_sm80"
    CASES = [
        *((dtype, (96, 320)) for dtype in DTYPES),
        ("float16", (32, 64)),
        *((dtype, (160, 192)) for dtype in DTYPES),
    ]
    LAYOUTS, COLUMNS = [*LAYOUTS, "skewed", "aligned"], [9, 141, 40]
    KEYWORDS = {"allow_tf32": True}
    REFUSED = [("float32", (32, 64), 40, {"allow_tf32": False})]
    FIELDS = [{"tile_n": 48}, {"tile_m": 32}]

    @covered(dtype=DTYPES, tile=TILES)
    def test_every_tile(self, engine, rng, dtype, tile):
        """Ragged tiles, slices that are not full, and more of them than there are stages."""
        sparse, a = self.operand(engine, rng, (dtype, (288, 832)), small_integers=True)
        x = random_values(rng, (832, 200), dtype, small_integers=True)
        how = {"fields": dict(zip(("tile_m", "tile_n"), tile)), "out_dtype": self.sums(dtype)}
        for layout in ("rows", "columns"):
            out = self.multiply(engine, sparse, laid_out(engine, x, layout), **how)
            assert_exact(engine, out, wide(a) @ wide(x))

    def test_more_batches_than_a_copy_takes(self, engine, rng):
        """Five dimensions that cannot be merged are read as they lie."""
        sparse, a = self.operand(engine, rng, ("float16", (64, 128)), small_integers=True)
        x = random_values(rng, (2, 1, 2, 1, 2, 128, 24), "float16", small_integers=True)
        dense = engine.array(x).swapaxes(0, 4)[..., ::2]
        out = self.multiply(engine, sparse, dense, out_dtype="float32")
        assert_exact(engine, out, wide(a) @ wide(x).swapaxes(0, 4)[..., ::2])


@covered(dtype=[BF16, SINGLE, INT8, FP8], tiles=[1, 64], n=[1, 17, 64, 65, 128, 4096])
def test_tiles_fit_the_smallest_gpu(dtype, tiles, n):
    device = {"capability": (8, 9), "multiprocessors": 128, "allow_tf32": True}
    tile = tile_of(semi_structured_addmm_sm80, dtype, (1, 1), n, m=128 * tiles, **device)
    assert tile.shared_memory <= 99 * 1024
    large = dtype != FP8 and tiles * n >= 128 * 256
    assert tile.tile_n <= (128 if large else 64)
    assert tile.tile_n == 128 or not large
