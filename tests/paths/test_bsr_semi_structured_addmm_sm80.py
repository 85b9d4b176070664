"""The product of 2:4 blocks on tensor cores from 8.0 on."""

import pytest

from addmm_cases import LAYOUTS
from path_contract import SemiStructuredBlocksPath, assert_exact, wide
from sparsegpu.testing import assert_within_bound, random_values

# A product's smallest blocks; those below are of several, for all heights of tiles.
LEAST = {"float16": (32, 32), "bfloat16": (32, 32), "float32": (32, 16), "int8": (16, 64)}


class TestPath(SemiStructuredBlocksPath):
    NAME, SOURCE = "mma_sp", "bsr_semi_structured_addmm_sm80"
    CASES = [(t, (n * bm, 3 * bk)) for t, (bm, bk) in LEAST.items() for n in (2, 1, 5)]
    LAYOUTS, COLUMNS = [*LAYOUTS, "skewed"], [88, 136, 20]
    KEYWORDS = {"allow_tf32": True}
    REFUSED = [("float32", (64, 64), 40, {"allow_tf32": False})]

    @pytest.mark.parametrize("n", [88, 136])
    def test_wide_tiles(self, engine, rng, case, n):
        dtype, _ = case
        sparse, a = self.operand(engine, rng, case, small_integers=True)
        x = random_values(rng, (a.shape[1], n), dtype, small_integers=True)
        how = {"fields": {"tile_n": 128}, "out_dtype": self.sums(dtype)}
        assert_exact(
            engine, self.multiply(engine, sparse, engine.array(x), **how), wide(a) @ wide(x)
        )

    def test_ieee_float32_is_left_to_simt(self, engine, rng):
        sparse, a = self.operand(engine, rng, ("float32", (64, 64)))
        x = random_values(rng, (a.shape[1], 40), "float32")
        with engine.runs("bsr_semi_structured_addmm_simt"):
            out = sparse @ engine.array(x)
        assert_within_bound(engine.host(out), a, x)
