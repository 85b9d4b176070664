"""What every path of sparse times sparse promises."""

import numpy as np
import pytest

import sparsegpu as sg
from far_values import along, full, of_rows
from path_contract import SUMS, assert_exact, wide
from sparsegpu._arrays import dtype_of
from sparsegpu.engines.cuda import _spgemm_plan
from sparsegpu.engines.cuda.paths._spgemm import SpgemmFacts
from sparsegpu.testing import assert_within_bound, dense_from_blocks, random_blocks, random_values


def facts(dtype, sides, **more):
    """Return what a tile is chosen by."""
    bm, bk, bn = sides
    return SpgemmFacts(
        dtype=dtype_of(dtype), out_dtype=dtype_of(dtype), blocksize=(bm, bk), columns=bn, **more
    )


def blocks(engine, rng, shape, blocksize, **how):
    """Return unsorted blocks, some repeated, and the dense matrix."""
    how = {"density": 0.4, "duplicates": True, "shuffled": True, **how}
    triple = random_blocks(rng, shape, blocksize, **how)
    return engine.bsr(triple, shape), dense_from_blocks(*triple, shape)


def strided(engine, a):
    """Return an equal array whose blocks' elements lie far apart."""
    data = engine.host(a.data)
    return a.with_data(engine.array(np.moveaxis(data, 0, -1).copy()).transpose(2, 0, 1))


class SpgemmPath:
    """Each test's launches must hold the path's kernel (on the host there is only one way)."""

    NAME: str
    SOURCE: str
    CASES: list  # (dtype, (bm, bk, bn))
    OUTPUTS: list  # (dtype, dtype of the result)
    FIELDS: list = [{}]  # configurations beside the path

    def largest(self):
        """Return the case whose results need the fewest blocks and bytes for their values."""
        exact = [case for case in self.CASES if case[0] != "int8"]  # which is cut off at 127
        return max(exact, key=lambda case: case[1][0] * case[1][2] / dtype_of(case[0]).itemsize)

    def operands(self, engine, rng, dtype, sides, counts=(7, 6, 5), **how):
        m, k, n = (count * side for count, side in zip(counts, sides, strict=True))
        a, x = blocks(engine, rng, (m, k), sides[:2], dtype=dtype, **how)
        b, y = blocks(engine, rng, (k, n), sides[1:], dtype=dtype, **how)
        return a, b, x, y

    def multiply(self, engine, a, b, fields=None, **keywords):
        with engine.runs(self.SOURCE):
            return sg.bsr_spgemm(a, b, config={"path": self.NAME, **(fields or {})}, **keywords)

    def test_within_the_bound_and_the_same_bits_again(self, engine, rng):
        for dtype, sides in self.CASES:
            a, b, x, y = self.operands(engine, rng, dtype, sides)
            for fields in self.FIELDS:
                out = self.multiply(engine, a, b, fields)
                assert out.has_canonical_format
                bound = {"dtype": dtype, "terms": 4 * x.shape[1]}
                assert_within_bound(engine.host(out.toarray()), x, y, **bound)
                again = self.multiply(engine, a, b, fields)
                assert (engine.host(out.data) == engine.host(again.data)).all()

    def test_exact_on_small_integers(self, engine, rng):
        """Into ``out``, and for other values of the same patterns."""
        for dtype, out_dtype in self.OUTPUTS:
            sides = next(sides for name, sides in self.CASES if name == dtype)
            a, b, x, y = self.operands(engine, rng, dtype, sides, small_integers=True)
            wide = complex if x.dtype.kind == "c" else np.float64
            expected = x.astype(wide) @ y.astype(wide)
            if out_dtype == "int8":
                expected = np.clip(expected, -128, 127)
            with np.errstate(over="ignore"):
                expected = expected.astype(dtype_of(out_dtype))
            out = self.multiply(engine, a, b, out_dtype=out_dtype)
            assert (engine.host(out.toarray()) == expected).all()
            negative = a.with_data(-a.data)
            if out_dtype != "int8":
                assert self.multiply(engine, negative, b, out=out) is out
                assert (engine.host(out.toarray()) == -expected).all()

    def test_strided_blocks(self, engine, rng):
        for dtype, sides in self.CASES[:2]:
            a, b, _, _ = self.operands(engine, rng, dtype, sides)
            expected = self.multiply(engine, a, b)
            for left, right in ((strided(engine, a), b), (a, strided(engine, b))):
                for _ in range(2):
                    out = self.multiply(engine, left, right)
                    assert (engine.host(out.data) == engine.host(expected.data)).all()

    def test_what_meets_no_block_is_not_read(self, engine, rng):
        dtype, sides = self.CASES[0]
        how = {"density": 0.1, "duplicates": False}
        a, b, _, _ = self.operands(engine, rng, dtype, sides, (7, 12, 5), **how)
        met = np.isin(engine.host(a.indices), engine.host(b.pattern.rows))
        assert not met.all()
        expected = self.multiply(engine, a, b)
        data = engine.host(a.data).copy()
        data[~met] = np.nan
        out = self.multiply(engine, a.with_data(engine.array(data)), b)
        assert (engine.host(out.data) == engine.host(expected.data)).all()

    def test_batches(self, engine, rng):
        dtype, (bm, bk, bn) = self.CASES[0]
        how = {"dtype": dtype, "density": 1, "small_integers": True}
        for left, right in (((2, 3), ()), ((), (3,)), ((2, 1), (3,))):
            x = random_blocks(rng, (2 * bm, 3 * bk), (bm, bk), batch=left, **how)
            y = random_blocks(rng, (3 * bk, 2 * bn), (bk, bn), batch=right, **how)
            a, b = engine.bsr(x, (2 * bm, 3 * bk)), engine.bsr(y, (3 * bk, 2 * bn))
            out = self.multiply(engine, a, b, out_dtype=self.OUTPUTS[0][1])
            x, y = (
                dense_from_blocks(*t, s).astype(complex)
                for t, s in ((x, (2 * bm, 3 * bk)), (y, (3 * bk, 2 * bn)))
            )
            assert (engine.host(out.toarray()) == x @ y).all()

    def test_indices_of_64_bits(self, engine, rng, monkeypatch):
        """Of the patterns, and of the pairs that are listed."""
        more = {"cpu": ["cpu.spgemm"], "cuda": ["cuda._spgemm_plan"]}.get(engine.name, [])
        for module in ("pattern", *(f"engines.{name}" for name in more)):
            chosen = f"sparsegpu.{module}.index_dtype"
            monkeypatch.setattr(chosen, lambda largest: np.dtype(np.int64))
        dtype, sides = self.CASES[0]
        a, b, x, y = self.operands(engine, rng, dtype, sides, small_integers=True)
        assert a.indices.dtype == b.indptr.dtype == np.int64
        out = self.multiply(engine, a, b, out_dtype=self.OUTPUTS[0][1])
        assert out.indices.dtype == out.indptr.dtype == np.int64
        assert_exact(engine, out.toarray(), wide(x) @ wide(y))

    def test_zero_sizes(self, engine, rng):
        """Nothing is multiplied: of sizes, of blocks that are not there, and of ones that miss."""
        (dtype, sides), config = self.CASES[0], {"path": self.NAME}
        for counts, density, batch in (
            ((0, 2, 2), 1, ()),
            ((2, 0, 2), 1, ()),
            ((2, 2, 0), 1, ()),
            ((2, 2, 2), 0, ()),
            ((2, 2, 2), 1, (0,)),
        ):
            how = {"density": density, "duplicates": False, "batch": batch}
            a, b, _, _ = self.operands(engine, rng, dtype, sides, counts, **how)
            with engine.runs(None):
                out = sg.bsr_spgemm(a, b, config=config)
            assert out.shape == (*a.shape[:-1], b.shape[-1]) and out.data.size == 0
        bm, bk, bn = sides
        one = np.array([0], np.int32)
        left = np.ones((1, bm, bk), dtype_of(dtype)), one, np.array([0, 1, 1], np.int32)
        right = np.ones((1, bk, bn), dtype_of(dtype)), one, np.array([0, 0, 1], np.int32)
        a, b = engine.bsr(left, (2 * bm, 2 * bk)), engine.bsr(right, (2 * bk, 2 * bn))
        with sg.use_engine(engine.name):
            out = sg.bsr_spgemm(a, b, config=config)
        assert out.nnzb == 0 and not engine.host(out.toarray()).any()

    def test_more_than_two_to_the_31_values(self, engine, rng, room):
        """Of the right operand and of the result; those of some rows are compared."""
        dtype, (bm, bk, bn) = self.largest()
        rows, inner, columns = (along(engine, side) for side in (bm, bk, bn))
        room(engine, 2 * rows * columns * bm * bn * dtype_of(dtype).itemsize + 2**32)
        b = full(engine, (inner, columns), (bk, bn), dtype)
        places = np.linspace(0, inner - 1, rows).round().astype(np.int32)
        data = random_values(rng, (rows, bm, bk), dtype, small_integers=True)
        parts = data, places, np.arange(rows + 1, dtype=np.int32)
        a = engine.bsr(parts, (rows * bm, inner * bk))
        met = {}
        for i in (0, rows // 2, rows - 1):
            met[i] = random_values(rng, (columns, bk, bn), dtype, small_integers=True)
            of_rows(b)[int(places[i])] = engine.array(met[i])
        out = self.multiply(engine, a, b, out_dtype=dtype)
        assert not engine.on_gpu or out.size > 2**31
        for i, values in met.items():
            assert_exact(engine, of_rows(out)[i], wide(data[i]) @ wide(values))

    def test_a_left_operand_of_more_than_two_to_the_31_values(self, engine, rng, room):
        """Of which the first and the last block of every row meet one."""
        dtype, (bm, bk, bn) = self.largest()
        rows, inner = along(engine, bm), along(engine, bk)
        room(engine, rows * inner * bm * bk * dtype_of(dtype).itemsize + 2**32)
        a = full(engine, (rows, inner), (bm, bk), dtype)
        met = random_values(rng, (rows, 2, bm, bk), dtype, small_integers=True)
        for which, place in enumerate((0, inner - 1)):
            of_rows(a)[:, place] = engine.array(met[:, which])
        data = random_values(rng, (2, bk, bn), dtype, small_integers=True)
        indptr = np.ones(inner + 1, np.int32)
        indptr[0], indptr[-1] = 0, 2
        b = engine.bsr((data, np.zeros(2, np.int32), indptr), (inner * bk, bn))
        out = self.multiply(engine, a, b, out_dtype=SUMS.get(dtype, dtype))
        assert out.nnzb == rows
        exact = (wide(met) @ wide(data)).sum(axis=1)
        assert_exact(engine, out.data, exact)

    def test_pairs_that_are_listed_for_every_product(self, engine, rng, monkeypatch):
        dtype, sides = self.CASES[0]
        a, b, _, _ = self.operands(engine, rng, dtype, sides)
        expected = self.multiply(engine, a, b)
        monkeypatch.setattr(_spgemm_plan, "MOST_BYTES", 8 * 40)
        for _ in range(2):
            out = self.multiply(engine, a, b.with_data(b.data), out=expected.copy())
            assert (engine.host(out.data) == engine.host(expected.data)).all()
        a = sg.bsr_array((a.data, a.indices, a.indptr), shape=a.shape)
        for _ in range(2):
            out = self.multiply(engine, a, b)
            assert (engine.host(out.data) == engine.host(expected.data)).all()

    def test_in_a_graph_on_a_side_stream(self, cuda_engine, rng):
        """Captured on the second call, and replayed with other values."""
        engine, (dtype, sides) = cuda_engine, self.CASES[0]
        a, b, _, _ = self.operands(engine, rng, dtype, sides, small_integers=True)
        out = self.multiply(engine, a, b, out_dtype=self.OUTPUTS[0][1])
        with engine.side_stream() as stream:
            graph = engine.captured(lambda: self.multiply(engine, a, b, out=out))
            for factor in (1, -1, 2):
                a.data[...] = engine.array(random_values(rng, a.data.shape, dtype)) * 0 + factor
                graph.launch(stream)
                stream.synchronize()
                replayed = engine.host(out.data).copy()
                again = self.multiply(engine, a, b, out_dtype=out.dtype)
                assert (replayed == engine.host(again.data)).all()

    def test_refuses_fields_that_it_does_not_have(self, engine, rng):
        dtype, sides = self.CASES[0]
        a, b, _, _ = self.operands(engine, rng, dtype, sides)
        with pytest.raises(ValueError, match=r"config\['nonsense'\]"):
            sg.bsr_spgemm(a, b, config={"path": self.NAME, "nonsense": 1})
