"""What every path of scattered products promises."""

import numpy as np
import pytest

import sparsegpu as sg
from path_contract import SUMS, assert_exact, wide
from scatter_cases import FORMATS, on
from sparsegpu._arrays import dtype_of
from sparsegpu.engines.cuda.paths._scatter import ScatterFacts
from sparsegpu.testing import dense_from_blocks, random_blocks, random_values
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

    @pytest.mark.parametrize("name", FORMATS)
    def test_accumulators_of_any_strides(self, engine, rng, name):
        """Columns, and with holes, where nothing is written; one matrix of others for all."""
        for case in (self.CASES[0], self.CASES[-1]):
            blocks, others, lists, shape = hand_made(rng, name, *case)
            others = others if name == FORMATS[0] else others[1]
            start = random_values(rng, shape, SUMS.get(case[0], case[0]), small_integers=True)
            exact, _ = loop(blocks, others, lists, start)
            operands = engine.array(blocks), engine.array(others), on(engine, lists)
            count, m, n = shape
            by_columns = engine.xp.full((count, n, m), 7, start.dtype)
            holes = engine.xp.full((count, 2 * m, 3 * n + 1), 7, start.dtype)
            for memory, sums in (
                (by_columns, by_columns.swapaxes(1, 2)),
                (holes, holes[::-1, ::2, 1::3]),
            ):
                sums[...] = engine.array(start)
                with engine.runs(self.SOURCE):
                    how = {"accumulators": sums, "config": {"path": self.NAME}}
                    assert sg.scatter_mm(*operands, **how) is sums
                assert_exact(engine, sums, exact)
                sums[...] = 7
                assert (engine.host(memory) == 7).all()

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

    @pytest.mark.parametrize("name", FORMATS[1:])
    def test_tiles_that_are_repeated(self, engine, rng, name):
        """They add up, whichever products the lists have for each."""
        for case in self.CASES:
            output = SUMS.get(case[0], case[0])
            blocks, others, lists, shape = hand_made(rng, name, *case)
            name, starts, r_offsets, *between, meta = lists
            r_offsets = np.concatenate([r_offsets, r_offsets[:2]])
            if name == "bsr_strided_mm":
                starts = np.concatenate([starts, starts[-1] + [2, 3]])
                between = [np.concatenate([x, x[:3]]) for x in between]
            lists = name, starts, r_offsets, *between, meta
            start = random_values(rng, shape, output, small_integers=True)
            exact, _ = loop(blocks, others, lists, start)
            result = self.add(engine, blocks, others, lists, start)
            np.testing.assert_array_equal(result, exact.astype(start.dtype))

    @pytest.mark.parametrize("duplicates", [False, True])
    def test_a_whole_product(self, engine, rng, duplicates):
        """By `bsr_scatter_mm`, with lists and without; ``out`` is overwritten."""
        dtype, blocksize, ns, split = self.CASES[0]
        shape = 5 * blocksize[0], 4 * blocksize[1]
        how = {"density": 0.8, "duplicates": duplicates, "small_integers": True}
        triple = random_blocks(rng, shape, blocksize, dtype=dtype, **how)
        a = engine.bsr(triple, shape)
        x = random_values(rng, (2, shape[1], ns * split), dtype, small_integers=True)
        expected = wide(dense_from_blocks(*triple, shape)) @ wide(x)
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

    def test_zero_sizes(self, engine, rng):
        """With lists made here and a caller's own."""
        (dtype, (ms, ks), ns, split), config = self.CASES[0], {"path": self.NAME}
        for rows, inner, n, batch in (
            (0, 2, ns * split, ()),
            (2, 0, ns * split, ()),
            (2, 2, 0, ()),
            (2, 2, ns * split, (0,)),
        ):
            shape = rows * ms, inner * ks
            a = engine.bsr(random_blocks(rng, shape, (ms, ks), dtype=dtype, density=0.5), shape)
            other = engine.array(random_values(rng, (*batch, shape[1], n), dtype))
            for name in FORMATS:
                lists = sg.bsr_scatter_mm_indices_data(a, other, name, SPLIT_N=split)
                for given in (lists, (*lists,)):
                    with sg.use_engine(engine.name):
                        out = sg.bsr_scatter_mm(a, other, given, config=config)
                    assert out.shape == (*batch, shape[0], n) and not engine.host(out).any()

    @pytest.mark.parametrize("name", FORMATS)
    def test_more_than_two_to_the_31_values(self, engine, rng, room, name):
        """Of the result and of the others, with lists that reach as far."""
        halves = [case for case in self.CASES if case[0] == "float16"]
        (dtype, (ms, ks), ns, _), split, inner = (halves or self.CASES)[0], 5, 3
        if engine.on_gpu:
            split = 2**31 // (3 * ms * ns) + 1
            inner = max(inner, 2**31 // (ks * ns * split) + 1)
        # Tiles are copied there and back.
        room(engine, 6 * 2**31 * dtype_of(dtype).itemsize)
        shape = 3 * ms, inner * ks
        data = random_values(rng, (4, ms, ks), dtype, small_integers=True)
        triple = data, np.array([0, inner - 1, inner - 1, 1], np.int32), np.array([0, 2, 2, 4])
        a = engine.bsr(triple, shape)
        other = engine.xp.zeros((shape[1], ns * split), dtype_of(dtype))
        assert not engine.on_gpu or min(shape[0] * ns * split, other.size) > 2**31
        lists, expected = sg.bsr_scatter_mm_indices_data(a, other, name, SPLIT_N=split), {}
        for tile in (0, split // 2, split - 1):
            x = random_values(rng, (shape[1], ns), dtype, small_integers=True)
            other[:, tile * ns : (tile + 1) * ns] = engine.array(x)
            expected[tile] = wide(dense_from_blocks(*triple, shape)) @ wide(x)
        with engine.runs(self.SOURCE):
            out = sg.bsr_scatter_mm(a, other, lists, config={"path": self.NAME})
        for tile, exact in expected.items():
            assert_exact(engine, out[:, tile * ns : (tile + 1) * ns], exact)
        written = sum(map(np.count_nonzero, expected.values()))
        assert int(engine.xp.count_nonzero(out)) == written  # zeros elsewhere

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
