"""The Hopper 2:4 product with few columns: clusters of thread blocks split k."""

import numpy as np
import pytest

import sparsegpu as sg
from addmm_cases import LAYOUTS, laid_out
from covering import covered
from path_contract import SemiStructuredPath, assert_exact, wide
from semi_structured_cases import check_e4m3
from sparsegpu.engines.cuda.paths import semi_structured_addmm_skinny_sm90
from sparsegpu.testing import random_values
from tile_cases import tile_of

SHAPES = [(160, 192), (32, 64), (1056, 1216)]


class TestPath(SemiStructuredPath):
    NAME, SOURCE = "wgmma_sp_skinny", "semi_structured_addmm_skinny_sm90"
    CASES = [(t, shape) for shape in SHAPES for t in ("bfloat16", "float16", "float32", "int8")]
    LAYOUTS, COLUMNS = ["aligned", *LAYOUTS, "skewed"], [1, 5, 8, 16, 17, 64, 128, 100]
    KEYWORDS = {"allow_tf32": True}
    REFUSED = [("float32", (64, 64), 40, {"allow_tf32": False})]
    FIELDS = [{"tile_n": 48}, {"cluster": 3}, {"stages": 1}, {"tile_m": 128}]

    @pytest.mark.parametrize("cluster", [1, 2, 4, 8])
    @pytest.mark.parametrize(
        "tile_n, stages", [(16, 2), (16, 9), (32, 3), (64, 5), (128, 2), (128, 4)]
    )
    @pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
    def test_every_tile(self, engine, rng, dtype, cluster, tile_n, stages):
        """Twice, several panels of columns, and stages that are filled many times."""
        sparse, a = self.operand(engine, rng, (dtype, (288, 4160)), small_integers=True)
        x = random_values(rng, (4160, 200), dtype, small_integers=True)
        by = "rows" if dtype == "bfloat16" and cluster % 4 else "columns"
        fields = {"tile_n": tile_n, "cluster": cluster, "stages": stages}
        dense, how = laid_out(engine, x, by), {"fields": fields, "out_dtype": self.sums(dtype)}
        for _ in range(2):
            assert_exact(engine, self.multiply(engine, sparse, dense, **how), wide(a) @ wide(x))

    @pytest.mark.parametrize("by", ["rows", "columns"])
    def test_e4m3(self, engine, rng, by):
        check_e4m3(engine, rng, (96, 256, 20), by, self.SOURCE)

    def test_batches_that_are_one_matrix(self, engine, rng):
        sparse, a = self.operand(engine, rng, ("bfloat16", (160, 192)), small_integers=True)
        x = random_values(rng, (192, 33), "bfloat16", small_integers=True)
        dense = engine.xp.broadcast_to(engine.array(x), (2, 3, *x.shape))
        out = self.multiply(engine, sparse, dense, out_dtype="float32")
        assert_exact(engine, out, np.broadcast_to(wide(a) @ wide(x), out.shape))

    def test_nothing_is_multiplied_by_zero(self, engine, rng):
        """Here, and not by another path: `alpha` changes nothing about who serves."""
        sparse, _ = self.operand(engine, rng, ("float16", (64, 128)))
        nan = engine.xp.full((128, 24), np.nan, np.float16)
        bias = engine.xp.arange(64, dtype=np.float16)[:, None]
        with engine.runs(self.SOURCE):
            out = sg.semi_structured_addmm(bias, sparse, nan, alpha=0)
        assert (out == bias).all()

    def test_vectors_and_layers(self, engine, rng):
        """1-D operands and both sides: where columns of the result are rows of the caller's."""
        sparse, a = self.operand(engine, rng, ("bfloat16", (256, 512)), small_integers=True)
        x = random_values(rng, (512,), "bfloat16", small_integers=True)
        y = random_values(rng, (7, 512), "bfloat16", small_integers=True)
        with engine.runs(self.SOURCE):
            out = sg.semi_structured_matmul(sparse, engine.array(x), out_dtype=np.float32)
            layer = sg.semi_structured_linear(engine.array(y), sparse, out_dtype=np.float32)
        assert_exact(engine, out, wide(a) @ wide(x))
        assert_exact(engine, layer, wide(y) @ wide(a).T)


@covered(
    dtype=["int8", "float16", "float32"],
    columns=[1, 16, 17, 64, 65, 128, 200],
    row_tiles=[1, 8, 64, 132, 10**6],
)
def test_tile_fits(dtype, columns, row_tiles):
    how = {"m": 128 * row_tiles, "k": 8192, "allow_tf32": True}
    tile = tile_of(semi_structured_addmm_skinny_sm90, dtype, (1, 1), columns, **how)
    assert tile.defines["STAGES"] >= 2 and tile.shared_memory <= 227 * 1024
    assert tile.cluster == 1 or row_tiles <= 2 * 132
