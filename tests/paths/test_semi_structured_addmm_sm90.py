"""The Hopper 2:4 product: its tiles, what it copies before, and outputs of many tiles."""

import numpy as np
import pytest

import sparsegpu as sg
from addmm_cases import LAYOUTS, ORDERS, blank, laid_out
from covering import covered
from path_contract import SemiStructuredLinesPath, assert_exact, wide
from semi_structured_cases import check_e4m3
from sparsegpu.engines.cuda.paths import semi_structured_addmm_sm90
from sparsegpu.testing import random_values
from tile_cases import tile_of

TILES = [(64, 8, 1), (128, 3, 1), (128, 7, 2), (256, 2, 2), (256, 4, 1), (256, 4, 2), (256, 5, 2)]
SHAPES = [(160, 192), (32, 64), (416, 704), (1024, 320)]


class TestPath(SemiStructuredLinesPath):
    NAME, SOURCE = "wgmma_sp", "semi_structured_addmm_sm90"
    CASES = [(t, shape) for shape in SHAPES for t in ("bfloat16", "float16", "float32", "int8")]
    LAYOUTS, COLUMNS = ["aligned", *LAYOUTS, "skewed"], [17, 72, 264, 520, 136]
    KEYWORDS = {"allow_tf32": True}
    REFUSED = [("float32", (64, 64), 40, {"allow_tf32": False})]
    FIELDS = [{"no_such_field": 1}, {"tile_n": 48}]

    @covered(n=[17, 64, 120, 200], to=["C", "F"])
    def test_int8_outputs(self, engine, rng, n, to):
        sparse, a = self.operand(engine, rng, ("int8", (160, 192)), small_integers=True)
        x = random_values(rng, (192, n), "int8", small_integers=True)
        out = engine.xp.empty((160, n), dtype="int8", order=to)
        self.multiply(engine, sparse, laid_out(engine, x, "columns"), out=out)
        assert_exact(engine, out, np.clip(wide(a) @ wide(x), -128, 127))

    @covered(tile=TILES, dtype=["bfloat16", "int8"])
    def test_every_tile(self, engine, rng, dtype, tile):
        """More tiles than thread blocks, and twice, so that every stage is filled many times.

        Of nine tiles below each other the last has none beside it in its cluster.
        """
        sparse, a = self.operand(engine, rng, (dtype, (1056, 832)), small_integers=True)
        x = random_values(rng, (832, 3000), dtype, small_integers=True)
        dense, fields = (
            laid_out(engine, x, "columns"),
            dict(zip(("tile_n", "stages", "cluster"), tile)),
        )
        for _ in range(2):
            how = {"fields": fields, "out_dtype": self.sums(dtype)}
            assert_exact(engine, self.multiply(engine, sparse, dense, **how), wide(a) @ wide(x))

    @pytest.mark.parametrize("by", ["columns", "rows", "strided"])
    def test_e4m3(self, engine, rng, by):
        copied = () if by == "columns" else ("dense_lines",)
        check_e4m3(engine, rng, (544, 256, 200), by, self.SOURCE, *copied)

    def test_copies_of_batches_share_the_workspace_of_the_operand(self, engine, rng):
        sparse, a = self.operand(engine, rng, ("int8", (512, 192)))
        x = random_values(rng, (2, 3, 192, 152), "int8")
        other = x[:, :, ::-1].copy()  # of the same size
        first = sg.semi_structured_matmul(sparse, engine.array(x))
        assert_exact(engine, first, wide(a) @ wide(x))
        for values in (other, x):
            dense = engine.array(values)
            with engine.runs(self.SOURCE, "dense_lines", peak_bytes=engine.nbytes(first)):
                out = sg.semi_structured_matmul(sparse, dense)
            assert_exact(engine, out, wide(a) @ wide(values))

    @covered(to=ORDERS, out_dtype=["float16", "float32"], dtype=["bfloat16", "int8"])
    def test_outputs_of_many_tiles_are_exact(self, engine, rng, dtype, out_dtype, to):
        """Small results are numbers of float16, too."""
        sparse, a = self.operand(engine, rng, (dtype, (1120, 64)), small_integers=True)
        x = random_values(rng, (64, 1032), dtype, small_integers=True)
        for cluster in (1, 2):
            out = blank(engine, (1120, 1032), out_dtype, to)
            dense = laid_out(engine, x, "columns")
            self.multiply(engine, sparse, dense, fields={"cluster": cluster}, out=out)
            assert_exact(engine, out, wide(a) @ wide(x))


DTYPES = ["int8", "float16", "float32"]


def tile_for(dtype, shape, **more):
    m, k, n = shape
    how = {"m": m, "k": k, "allow_tf32": True, **more}
    return tile_of(semi_structured_addmm_sm90, dtype, (1, 1), n, **how)


@covered(dtype=DTYPES, n=[17, 64, 100, 256, 4096], m=[32, 256, 384, 4096, 4224])
def test_tile_fits(dtype, m, n):
    tile = tile_for(dtype, (m, 4096, n))
    assert tile.defines["STAGES"] >= 3 and tile.shared_memory <= 227 * 1024


@pytest.mark.parametrize("n", [17, 64, 100, 4096])
def test_int8_outputs_leave_by_128_columns(n):
    assert tile_for("int8", (512, 4096, n), out_itemsize=1).tile_n % 128 == 0
    with pytest.raises(ValueError, match=r"config\['tile_n'\].*128, 256, got 64"):
        tile_for("int8", (512, 4096, n), out_itemsize=1, config={"path": "wgmma_sp", "tile_n": 64})


@pytest.mark.parametrize("dtype", DTYPES)
def test_pairs_of_thread_blocks(dtype):
    """Where much of `dense` is loaded, and a tile that is not there takes no time."""
    pairs = [(8192, 8192, 8192), (1024, 8192, 4096), (4224, 8192, 4096 + 256)]
    alone = [(4224, 8192, 4096), (1024, 4096, 256), (16384, 2**16, 64)]
    assert {tile_for(dtype, shape).cluster for shape in pairs} == {2}
    assert {tile_for(dtype, shape).cluster for shape in alone} == {1}


@covered(tile=[(4, 2), (5, 1)], dtype=["bf16", "s8", "e4m3", "f32"])
def test_products_follow_each_other(compiler_log, dtype, tile):
    """Where the compiler would wait for every product, it says so: C7510 to C7519."""
    layout = "rows" if dtype == "bf16" else "columns"
    out = "f32" if dtype == "f32" else "bf16"
    defines = {"T": dtype, "OUT": out, "DENSE": layout, "STORE": "rows", "EPILOGUE": "identity"}
    defines |= {"ACT": "none", "TILE_N": 256, "CLUSTER": 2}
    defines |= dict(zip(("STAGES", "STORE_BUFFERS"), tile, strict=True))
    assert "C751" not in compiler_log(TestPath.SOURCE, "90a", defines)


@pytest.mark.parametrize("dtype", DTYPES)
def test_stages(dtype):
    """One more where results need but one store buffer; the barriers fit behind it."""
    tiles = [tile_for(dtype, (8192, 8192, 8192), one_buffer=one) for one in (False, True)]
    found = [(tile.defines["STAGES"], tile.defines["STORE_BUFFERS"]) for tile in tiles]
    assert found == [(4, 2), (5, 1)]
