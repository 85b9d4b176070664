"""What every path of scattered products promises."""

import numpy as np
import pytest

import sparsegpu as sg
from path_contract import assert_exact, wide
from scatter_cases import FORMATS, on
from sparsegpu._arrays import dtype_of
from sparsegpu.engines.cuda.paths._scatter import ScatterFacts
from sparsegpu.testing import random_values
from test_scatter_mm import check_sums, loop


def facts(dtype, blocksize, columns=64, **more):
    """Return what a tile is chosen by."""
    more = {"form": "pairs", **more}
    return ScatterFacts(dtype=dtype_of(dtype), blocksize=blocksize, columns=columns, **more)


def hand_made(rng, name, dtype, block, ns, split=1, *, small=True):
    """Return blocks, others, lists and the accumulators' shape: empty, long and repeated lists."""
    (ms, ks), n = block, ns * split
    blocks = random_values(rng, (7, ms, ks), dtype, small_integers=small)
    counts = np.array([3, 0, 5, 1])
    starts = np.concatenate([[0], np.cumsum(counts)])
    if name == "scatter_mm":
        others = random_values(rng, (4, ks, ns), dtype, small_integers=small)
        pq = np.stack([rng.integers(0, 7, starts[-1]), rng.integers(0, 4, starts[-1])], 1)
        return blocks, others, (name, starts, pq), (4, ms, ns)
    others = random_values(rng, (2, 4 * ks, n + -n % 8), dtype, small_integers=small)[..., :n]
    tiles = rng.permutation(4 * split)[:4]
    r_offsets = tiles // split * ms * n + tiles % split * ns
    if name == "bsr_strided_mm":
        lists, count = (starts, r_offsets, rng.integers(0, 7, starts[-1])), starts[-1]
    else:
        lists, count = (np.array([0, 2, 2, 6, 7]), r_offsets), 7 * split
    rows, columns = rng.integers(0, 3 * ks + 1, count), rng.integers(0, n - ns + 1, count)
    columns -= columns % 8 * rng.integers(0, 2, count)  # some at multiples of 16 bytes
    return blocks, others, (name, *lists, rows * n + columns, {"SPLIT_N": split}), (2, 4 * ms, n)


class ScatterPath:
    """Each test's launches must hold the path's kernel (on the host there is only one way)."""

    NAME: str
    SOURCE: str
    CASES: list  # (dtype, (Ms, Ks), Ns, SPLIT_N)
    OUTPUTS: list  # (dtype, dtype of the accumulators)
    FIELDS: list = [{}]  # configurations beside the path
    TILES: dict = {}  # TILE_M, TILE_N and GROUP_SIZE of lists, which the path has

    def add(self, engine, blocks, others, lists, start, fields=None):
        """Return, on the host, what the path adds to ``start``."""
        operands = engine.array(blocks), engine.array(others), on(engine, lists)
        config = {"path": self.NAME, **(fields or {})}
        with engine.runs(self.SOURCE):
            out = sg.scatter_mm(*operands, accumulators=engine.array(start.copy()), config=config)
        return engine.host(out)

    def check(self, engine, rng, case, name, output=None, fields=None):
        """Compare with the loops of the contract, exactly."""
        dtype = case[0]
        blocks, others, lists, shape = hand_made(rng, name, *case)
        start = random_values(rng, shape, output or dtype, small_integers=True)
        result = self.add(engine, blocks, others, lists, start, fields)
        exact, _ = loop(blocks, others, lists, start)
        limits = (-128, 127) if start.dtype == np.int8 else (-np.inf, np.inf)
        exact = exact if exact.dtype.kind == "c" else np.clip(exact, *limits)
        np.testing.assert_array_equal(result, exact.astype(start.dtype))

    @pytest.mark.parametrize("name", FORMATS)
    def test_exact_on_small_integers(self, engine, rng, name):
        for case in self.CASES:
            self.check(engine, rng, case, name)

    def test_accumulators(self, engine, rng):
        for i, (dtype, output) in enumerate(self.OUTPUTS):
            case = next(case for case in self.CASES if case[0] == dtype)
            self.check(engine, rng, case, FORMATS[i % 3], output)

    def test_fields(self, engine, rng):
        for i, fields in enumerate(self.FIELDS):
            for case in (self.CASES[0], self.CASES[-1]):
                self.check(engine, rng, case, FORMATS[i % 3], fields=fields)

    @pytest.mark.parametrize("name", FORMATS[1:])
    def test_tiles_of_the_lists(self, engine, rng, name):
        """The lists say the tile, a configuration's fields go before it."""
        for case in (self.CASES[0], self.CASES[-1]):
            blocks, others, lists, shape = hand_made(rng, name, *case)
            lists[-1].update(self.TILES)
            start = random_values(rng, shape, case[0], small_integers=True)
            exact, _ = loop(blocks, others, lists, start)
            if start.dtype == np.int8:
                exact = np.clip(exact, -128, 127)
            for fields in ({}, self.FIELDS[-1]):
                result = self.add(engine, blocks, others, lists, start, fields)
                np.testing.assert_array_equal(result, exact.astype(start.dtype))

    @pytest.mark.parametrize("name", FORMATS)
    def test_within_the_bound_and_the_same_bits_again(self, engine, rng, name):
        """Of both signs, so that sums cancel."""
        for case in self.CASES:
            if case[0] == "int8":
                continue
            blocks, others, lists, shape = hand_made(rng, name, *case, small=False)
            start = random_values(rng, shape, case[0])
            first, again = (self.add(engine, blocks, others, lists, start) for _ in range(2))
            check_sums(first, *loop(blocks, others, lists, start), 5 * case[1][1] + 6)
            np.testing.assert_array_equal(first, again)

    def test_a_whole_product(self, engine, rng):
        """By `bsr_scatter_mm`, with lists and without; ``out`` is overwritten."""
        dtype, blocksize, ns, split = self.CASES[0]
        shape = 5 * blocksize[0], 4 * blocksize[1]
        a = sg.random_bsr(shape, blocksize, 0.4, dtype=dtype, rng=rng, xp=engine.xp)
        a.data[...] = engine.array(random_values(rng, a.data.shape, dtype, small_integers=True))
        x = random_values(rng, (2, shape[1], ns * split), dtype, small_integers=True)
        expected = wide(engine.host(a.toarray())) @ wide(x)
        other, config = engine.array(x), {"path": self.NAME}
        sums = dict(self.OUTPUTS)[dtype]
        for name in (None, *FORMATS):
            lists = None
            if name is not None:
                lists = sg.bsr_scatter_mm_indices_data(a, other, name, SPLIT_N=split)
            out = engine.xp.full((2, shape[0], ns * split), 7, dtype_of(sums))
            with engine.runs(self.SOURCE):
                assert sg.bsr_scatter_mm(a, other, lists, out, config=config) is out
            assert_exact(engine, out, expected)

    def test_refuses_fields_that_it_does_not_have(self, engine, rng):
        blocks, others, lists, _ = hand_made(rng, FORMATS[0], *self.CASES[0])
        operands = engine.array(blocks), engine.array(others), on(engine, lists)
        for fields in ({"nonsense": 1}, {"tile_m": 3.0}):
            (name,) = fields
            with pytest.raises(ValueError, match=rf"config\['{name}'\]"):
                sg.scatter_mm(*operands, config={"path": self.NAME, **fields})

    @pytest.mark.gpu
    def test_in_a_graph_on_a_side_stream(self, cuda_engine, rng):
        """Captured on the second call, and replayed with other values."""
        engine, (dtype, blocksize, ns, split) = cuda_engine, self.CASES[0]
        shape = 5 * blocksize[0], 4 * blocksize[1]
        a = sg.random_bsr(shape, blocksize, 0.4, dtype=dtype, rng=rng, xp=engine.xp)
        x = random_values(rng, (shape[1], ns * split), dtype, small_integers=True)
        other = engine.array(x)
        lists = sg.bsr_scatter_mm_indices_data(a, other, SPLIT_N=split)
        out = engine.xp.zeros((shape[0], ns * split), dtype_of(dict(self.OUTPUTS)[dtype]))

        def add():
            with engine.runs(self.SOURCE):
                how = {"accumulators": out, "config": {"path": self.NAME}}
                return sg.scatter_mm(a.data, other, lists, **how)

        with engine.side_stream() as stream:
            graph = engine.captured(add)
            for factor in (1, -1, 2):
                values = random_values(rng, a.data.shape, dtype, small_integers=True)
                a.data[...] = engine.array(values)
                other[...] = engine.array((factor * x).astype(x.dtype))
                out.fill(1)
                graph.launch(stream)
                stream.synchronize()
                dense = wide(engine.host(a.toarray()))
                assert_exact(engine, out, 1 + dense @ (factor * wide(x)))
