"""16-bit BSR @ few columns on Hopper: clusters of thread blocks share row tiles."""

import numpy as np
import pytest

from covering import covered
from path_contract import BsrPath
from row_cases import rows_of
from sparsegpu import bsr_matmul
from sparsegpu.engines.cuda.paths import bsr_addmm_skinny_sm90
from sparsegpu.engines.cuda.paths._cluster_work import cluster_work
from sparsegpu.testing import random_values
from tile_cases import tile_of

BLOCKS = [(64, 64), (128, 64), (64, 128), (192, 256)]


class TestPath(BsrPath):
    NAME, SOURCE = "skinny_wgmma", "bsr_addmm_skinny_sm90"
    CASES = [*(("bfloat16", size) for size in BLOCKS), ("float16", (64, 64))]
    LAYOUTS, COLUMNS = ["aligned", "columns"], [1, 8, 16, 24, 64, 72, 100, 128, 40]
    REFUSED = [("bfloat16", (32, 64), 64, {}), ("float32", (64, 64), 64, {})]

    @covered(rows=[1, 60, 120, 300], n=[16, 128])
    def test_rows_of_every_length(self, engine, rng, rows, n):
        """Of no block, of one, of so many that stages are filled again and columns looked up."""
        lengths = rng.integers(0, 5, rows)
        lengths[0], lengths[-1] = 150, 37
        if rows > 2:
            lengths[1], lengths[2] = 0, 1
        for repeat in (1, 6):
            bsr, dense, _ = rows_of(engine, rng, np.tile(lengths, repeat), 9, (64, 64), "float16")
            x = random_values(rng, (576, n), "float16", small_integers=True)
            given = engine.array(x)
            outs = [self.multiply(engine, bsr, given, out_dtype="float32") for _ in range(2)]
            np.testing.assert_array_equal(engine.host(outs[0]), dense @ x.astype(np.float64))
            assert (outs[0] == outs[1]).all()

    @pytest.mark.parametrize("cluster, row_tiles", [(1, 1), (2, 1), (2, 2), (4, 2), (8, 2), (8, 4)])
    @pytest.mark.parametrize("n, tile_n", [(128, 64), (72, 32), (64, 64), (128, 128), (40, 16)])
    def test_every_share_of_a_cluster(self, engine, rng, cluster, row_tiles, n, tile_n):
        bsr, dense, _ = rows_of(engine, rng, [9, 0, 30, 1, 2, 5, 3], 6, (128, 64), "float16")
        x = random_values(rng, (384, n), "float16", small_integers=True)
        fields = {"cluster": cluster, "rows_per_cluster": row_tiles, "tile_n": tile_n, "stages": 2}
        out = self.multiply(engine, bsr, engine.array(x), fields=fields, out_dtype="float32")
        np.testing.assert_array_equal(engine.host(out), dense @ x.astype(np.float64))

    def test_chosen_by_itself(self, engine, rng):
        sparse, a = self.operand(engine, rng, ("bfloat16", (64, 64)))
        x = engine.array(random_values(rng, (a.shape[1], 32), "bfloat16"))
        with engine.runs(self.SOURCE):
            bsr_matmul(sparse, x)

    @pytest.mark.parametrize("cluster, row_tiles", [(1, 1), (2, 1), (4, 1), (4, 2), (8, 2), (8, 4)])
    @pytest.mark.parametrize("blocksize", BLOCKS)
    def test_shares_are_all_steps_once(self, engine, rng, cluster, row_tiles, blocksize):
        (bm, bk), lengths = blocksize, [3, 0, 40, 1, 2, 0, 7, 7, 12]
        a, _, _ = rows_of(engine, rng, lengths, 9, blocksize, "float16")
        with engine.runs("bsr_cluster_work"):
            shares = cluster_work(a.pattern, cluster, row_tiles)
        words = engine.host(shares).reshape(-1, cluster, 32)
        starts, parts = np.cumsum([0, *lengths]), bk // 64
        column_of = engine.host(a.indices)
        seen = {}
        for of_cluster in words:
            for rank, share in enumerate(of_cluster):
                row_tile, steps, packed, base = share[:4].tolist()
                part, count = packed & 0xFFFF, packed >> 16
                begin = int(share[4:6].view(np.int64)[0])
                if count == 0:
                    assert steps == 0
                    continue
                assert base + part == rank and base + count <= cluster
                row = row_tile // (bm // 64)
                done = seen.get(row_tile, 0)
                assert begin == starts[row] * parts + done  # in the order of the steps
                seen[row_tile] = done + steps
                here = np.arange(begin, begin + min(steps, 26))
                np.testing.assert_array_equal(
                    share[6 : 6 + len(here)], column_of[here // parts] * parts + here % parts
                )
                assert steps in {lengths[row] * parts // count, lengths[row] * parts // count + 1}
        assert seen == {t: lengths[t // (bm // 64)] * parts for t in range(len(lengths) * bm // 64)}


@covered(row_tiles=[1, 64, 66, 67, 132, 133, 10**6], columns=[1, 16, 17, 64, 65, 128])
def test_clusters_fit(row_tiles, columns):
    tile = tile_of(bsr_addmm_skinny_sm90, "float16", (64, 64), columns, m=64 * row_tiles)
    assert tile.tile_n <= 128 and tile.defines["STAGES"] >= 2
    assert tile.shared_memory + 1024 <= 228 * 1024
    assert tile.cluster == 1 or row_tiles * tile.cluster <= 2 * 132 * tile.rows_per_cluster
