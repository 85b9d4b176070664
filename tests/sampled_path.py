"""What every kernel path of sampled products promises."""

import numpy as np
import pytest

import sparsegpu as sg
from addmm_cases import laid_out
from far_values import along, full, of_rows, smallest, some_rows
from path_contract import OUTPUTS, assert_exact, wide
from sparsegpu._arrays import dtype_of
from sparsegpu.engines.cuda.paths._fields import ConfigError, Fields
from sparsegpu.engines.cuda.paths._sampled import SampledFacts
from sparsegpu.testing import (
    accuracy_bound,
    assert_close,
    dense_from_blocks,
    random_blocks,
    random_values,
)

LAYOUTS = ["rows", "columns", "aligned", "skewed", "strided", "backwards", "upside down"]


def facts(dtype, blocksize, **more):
    """Return what a tile is chosen by."""
    more = {"shape": (4096, 1024, 4096), **more}
    return SampledFacts(dtype=dtype_of(dtype), blocksize=blocksize, **more)


def stored(dense, pattern, engine):
    """Return the stored blocks of ``dense``, by the plainest loop over a pattern."""
    indices, indptr = engine.host(pattern.indices), engine.host(pattern.indptr)
    bm, bn = pattern.blocksize
    batch = indices.shape[:-1]
    out = np.zeros((*batch, indices.shape[-1], bm, bn), dense.dtype)
    for b in np.ndindex(batch):
        matrix = np.broadcast_to(dense, batch + dense.shape[-2:])[b]
        for i in range(indptr.shape[-1] - 1):
            for p in range(indptr[b][i], indptr[b][i + 1]):
                j = indices[b][p]
                out[b][p] = matrix[i * bm : (i + 1) * bm, j * bn : (j + 1) * bn]
    return out


def as_stored(exact, dtype):
    """Return what a result of a dtype holds of exact values."""
    return np.clip(exact, -128, 127) if dtype == "int8" else exact


class SampledPath:
    """Each test's launches must hold the path's kernel (on the host there is only one way)."""

    NAME: str
    SOURCE: str
    MODULE: object
    CASES: list  # (dtype, blocksize)
    FIELDS: list = [{}]  # configurations beside the path
    REFUSED: list = []  # (dtype, blocksize, allow_tf32) that it does not take
    ALLOW_TF32 = True

    def operands(self, engine, rng, case, blocks=(5, 12), inner=72, *, batch=(), **how):
        """Return a BSR array of small integers and matrices, on the host."""
        dtype, (bm, bn) = case
        shape = (blocks[0] * bm, blocks[1] * bn)
        how = {"density": 0.5, "small_integers": True, **how}
        triple = random_blocks(rng, shape, (bm, bn), dtype=dtype, batch=batch, **how)
        sparse = engine.bsr(triple, shape)
        exact = how["small_integers"]
        mat1 = random_values(rng, (*batch, shape[0], inner), dtype, small_integers=exact)
        mat2 = random_values(rng, (*batch, inner, shape[1]), dtype, small_integers=exact)
        return sparse, mat1, mat2

    def call(self, engine, sparse, mat1, mat2, *, fields=None, **keywords):
        config = {"path": self.NAME, **(fields or {})}
        keywords = {"allow_tf32": self.ALLOW_TF32, **keywords}
        with engine.runs(self.SOURCE):
            return sg.sampled_addmm(sparse, mat1, mat2, config=config, **keywords)

    def check(self, engine, rng, case, by=("rows", "columns"), *, fields=None, **how):
        """Twice: the second call repeats the first, on other values in the same memory."""
        sparse, mat1, mat2 = self.operands(engine, rng, case, **how)
        a, b = (laid_out(engine, x, layout) for x, layout in zip((mat1, mat2), by, strict=True))
        term = engine.host(sparse.data).astype(wide(mat1).dtype)
        for values in (mat2, -mat2):
            b[...] = engine.array(values)
            out = self.call(engine, sparse, a, b, fields=fields, alpha=2, beta=-1)
            exact = 2 * stored(wide(mat1) @ wide(values), out.pattern, engine) - term
            assert_exact(engine, out.data, as_stored(exact, case[0]))

    def test_cases(self, engine, rng):
        for case in self.CASES:
            self.check(engine, rng, case)

    def test_layouts(self, engine, rng):
        for i, by in enumerate(LAYOUTS):
            self.check(engine, rng, self.CASES[0], (by, LAYOUTS[i - 1]))
            self.check(engine, rng, self.CASES[-1], (by, by))

    def test_inner_sizes(self, engine, rng):
        """Parts of slices, and none."""
        for inner in (0, 1, 7, 8, 31, 64, 129):
            for by in (("rows", "columns"), ("columns", "rows")):
                self.check(engine, rng, self.CASES[0], by, inner=inner)

    def test_fields(self, engine, rng):
        for fields in self.FIELDS:
            for by in (("rows", "columns"), ("columns", "rows")):
                self.check(engine, rng, self.CASES[0], by, fields=fields)

    def test_patterns(self, engine, rng):
        """Empty and full rows, more rows than a warp has lanes, unsorted columns, one block."""
        for blocks, density in (((40, 40), 0.03), ((70, 3), 0.5), ((1, 90), 1.0), ((1, 1), 1.0)):
            self.check(engine, rng, self.CASES[0], blocks=blocks, density=density)
        sparse, mat1, mat2 = self.operands(engine, rng, self.CASES[0], (4, 9))
        columns = np.concatenate([rng.permutation(9) for _ in range(4)]).astype(np.int32)
        data = np.zeros((36, *sparse.blocksize), dtype_of(self.CASES[0][0]))
        parts = data, columns, np.arange(0, 37, 9, dtype=np.int32)
        where = engine.bsr(parts, sparse.shape)
        out = self.call(engine, where, engine.array(mat1), engine.array(mat2), beta=0)
        assert_exact(engine, out.data, stored(wide(mat1) @ wide(mat2), out.pattern, engine))

    def test_repeated_blocks(self, engine, rng):
        """Not in order: the values of a block are added up, its product is added once."""
        for case in (self.CASES[0], self.CASES[-1]):
            for beta in (0, -1):
                how = {"density": 0.8, "duplicates": True}
                sparse, mat1, mat2 = self.operands(engine, rng, case, **how)
                out = self.call(engine, sparse, *map(engine.array, (mat1, mat2)), beta=beta)
                assert out.nnzb < sparse.nnzb and out.has_canonical_format
                parts = map(engine.host, (sparse.data, sparse.indices, sparse.indptr))
                exact = wide(mat1) @ wide(mat2) + beta * dense_from_blocks(*parts, sparse.shape)
                exact = stored(exact, out.pattern, engine)
                assert_exact(engine, out.data, as_stored(exact, case[0]))

    def test_zero_sizes(self, engine, rng):
        """Nothing is launched (where the inner size is 0 the input is scaled, see there)."""
        (dtype, (bm, bn)), config = self.CASES[0], {"path": self.NAME}
        for (rows, columns), density, batch in (
            ((0, 3), 1, ()),
            ((3, 0), 1, ()),
            ((0, 0), 1, ()),
            ((2, 3), 0, ()),
            ((2, 3), 0.5, (0,)),
        ):
            shape, how = (rows * bm, columns * bn), {"density": density, "batch": batch}
            sparse = engine.bsr(random_blocks(rng, shape, (bm, bn), dtype=dtype, **how), shape)
            mats = ((*batch, shape[0], 40), (*batch, 40, shape[1]))
            mat1, mat2 = (engine.array(random_values(rng, s, dtype)) for s in mats)
            engine.look(sparse)
            with engine.runs(None):
                keywords = {"config": config, "allow_tf32": self.ALLOW_TF32}
                out = sg.sampled_addmm(sparse, mat1, mat2, **keywords)
            assert out.shape == (*batch, *shape) and out.data.size == 0

    def test_more_than_two_to_the_31_values(self, engine, rng, room):
        """Of the input, which becomes the result; those of some block rows are compared."""
        dtype, (bm, bn) = smallest(self.CASES)
        counts = along(engine, bm), along(engine, bn)
        room(engine, counts[0] * counts[1] * bm * bn * dtype_of(dtype).itemsize + 2**32)
        sparse = full(engine, counts, (bm, bn), dtype)
        mat1 = random_values(rng, (sparse.shape[0], 32), dtype, small_integers=True)
        mat2 = random_values(rng, (32, sparse.shape[1]), dtype, small_integers=True)
        terms = {}
        for i in some_rows(sparse):
            terms[i] = random_values(rng, (counts[1], bm, bn), dtype, small_integers=True)
            of_rows(sparse)[i] = engine.array(terms[i])
        moved = engine.array(mat1), engine.array(mat2)
        out = self.call(engine, sparse, *moved, beta=-1, out=sparse)
        for i, term in terms.items():
            sums = wide(mat1[i * bm : (i + 1) * bm]) @ wide(mat2)
            exact = sums.reshape(bm, -1, bn).swapaxes(0, 1) - wide(term)
            assert_exact(engine, of_rows(out)[i], as_stored(exact, dtype))

    @pytest.mark.parametrize("large, order", [(0, "C"), (1, "C"), (1, "F")])
    def test_matrices_of_more_than_two_to_the_31_values(self, engine, rng, room, large, order):
        """Blocks that their first and their last rows, or columns, are multiplied for."""
        dtype, blocksize = smallest(self.CASES)
        inner, counts = (1040, [3, 3]) if engine.on_gpu else (40, [3, 3])
        if engine.on_gpu:
            counts[large] = 2**31 // (inner * blocksize[large]) + 1
        (m, n), (bm, bn) = (c * side for c, side in zip(counts, blocksize)), blocksize
        room(engine, 2 * max(m, n) * inner * dtype_of(dtype).itemsize + 2**32)  # and a copy
        indptr = engine.xp.ones(counts[0] + 1, "int32")
        indptr[0], indptr[-1] = 0, 2
        places = np.array([1, counts[1] - 1], np.int32)
        blocks = engine.xp.zeros((2, bm, bn), dtype_of(dtype))
        where = sg.bsr_array((blocks, engine.array(places), indptr), shape=(m, n))
        mat1 = engine.xp.zeros((m, inner), dtype_of(dtype))
        mat2 = engine.xp.zeros((inner, n), dtype_of(dtype), order=order)
        assert not engine.on_gpu or (mat1, mat2)[large].size > 2**31
        one = random_values(rng, (2, bm, inner), dtype, small_integers=True)
        two = random_values(rng, (2, inner, bn), dtype, small_integers=True)
        mat1[:bm], mat1[-bm:] = map(engine.array, one)
        mat2[:, bn : 2 * bn], mat2[:, -bn:] = map(engine.array, two)
        out = self.call(engine, where, mat1, mat2, beta=0)
        assert_exact(engine, out.data, as_stored(wide(one) @ wide(two), dtype))

    def test_batches(self, engine, rng):
        case = self.CASES[0]
        for own, first, second in (((), (2, 3), (3,)), ((3,), (2, 1), ()), ((2, 3), (), ())):
            sparse, mat1, mat2 = self.operands(engine, rng, case, (3, 7), batch=own)
            mat1 = random_values(rng, (*first, *mat1.shape[-2:]), case[0], small_integers=True)
            mat2 = random_values(rng, (*second, *mat2.shape[-2:]), case[0], small_integers=True)
            moved = engine.array(mat1), engine.array(mat2)
            out = self.call(engine, sparse, *moved, beta=2)
            term = 2 * engine.host(sparse.data).astype(wide(mat1).dtype)
            exact = stored(wide(mat1) @ wide(mat2), out.pattern, engine) + term
            assert_exact(engine, out.data, exact)

    def test_out(self, engine, rng):
        """Every output dtype, in any order, and in place; nothing is written beside it."""
        for dtype, blocksize in dict(self.CASES).items():
            sparse, mat1, mat2 = self.operands(engine, rng, (dtype, blocksize))
            sums = stored(wide(mat1) @ wide(mat2), sparse.pattern, engine)
            a, b = engine.array(mat1), engine.array(mat2)
            for output in OUTPUTS[dtype]:
                for order in "CFA":
                    nothing = 77 if dtype_of(output).kind == "i" else np.nan
                    memory = engine.xp.full((*reversed(sums.shape), 2), nothing, "float32")
                    memory = memory.astype(dtype_of(output))
                    values = {
                        "F": memory[..., 0].T,
                        "C": engine.xp.ascontiguousarray(memory[..., 0].T),
                        "A": engine.xp.ascontiguousarray(memory.T)[1].swapaxes(-1, -2)[..., ::1],
                    }[order]
                    values = values if values.shape == sums.shape else values.swapaxes(-1, -2)
                    out = sparse.with_data(values)
                    assert self.call(engine, sparse, a, b, beta=0, out=out) is out
                    limits = (-128, 127) if output == "int8" else (-np.inf, np.inf)
                    exact = sums if sums.dtype.kind == "c" else np.clip(sums, *limits)
                    assert_exact(engine, out.data, exact)
            if dtype != "int8":
                exact = sums + 2 * engine.host(sparse.data).astype(sums.dtype)
                assert self.call(engine, sparse, a, b, beta=2, out=sparse) is sparse
                assert_exact(engine, sparse.data, exact)

    def test_within_the_bound_and_the_same_bits_again(self, engine, rng):
        for case in self.CASES:
            if case[0] == "int8":
                continue
            sparse, mat1, mat2 = self.operands(engine, rng, case, inner=200, small_integers=False)
            a, b = engine.array(mat1), engine.array(mat2)
            first, again = (self.call(engine, sparse, a, b, beta=0).data for _ in range(2))
            rounded = self.ALLOW_TF32 and case[0] == "float32"
            pair = accuracy_bound(mat1, mat2, allow_tf32=rounded)
            exact, bound = (stored(x, sparse.pattern, engine) for x in pair)
            assert_close(engine.host(first), exact, bound)
            np.testing.assert_array_equal(engine.host(first), engine.host(again))

    def test_what_the_pattern_lacks_is_not_read(self, engine, rng):
        case = next(case for case in self.CASES if case[0] != "int8")
        sparse, mat1, mat2 = self.operands(engine, rng, case, (2, 6))
        bm, bn = case[1]
        parts = np.zeros((2, bm, bn), mat1.dtype), np.array([1, 3]), np.array([0, 0, 2])
        where = engine.bsr(parts, sparse.shape)
        mat1[:bm] = np.nan
        for column in (0, 2, 4, 5):
            mat2[:, column * bn : (column + 1) * bn] = np.nan
        out = self.call(engine, where, engine.array(mat1), engine.array(mat2), beta=0)
        with np.errstate(invalid="ignore"):
            sums = stored(wide(mat1) @ wide(mat2), out.pattern, engine)
        assert np.isfinite(sums).all()
        assert_exact(engine, out.data, sums)

    def test_alpha_zero_reads_no_matrix(self, engine, rng):
        case = next(case for case in self.CASES if case[0] != "int8")
        sparse, mat1, mat2 = self.operands(engine, rng, case)
        mat1[...] = np.nan
        out = self.call(engine, sparse, engine.array(mat1), engine.array(mat2), alpha=0, beta=3)
        assert_exact(engine, out.data, 3 * wide(engine.host(sparse.data)))

    def test_indices_of_64_bits(self, engine, rng, monkeypatch):
        monkeypatch.setattr("sparsegpu.pattern.index_dtype", lambda largest: np.dtype(np.int64))
        self.check(engine, rng, self.CASES[0])

    def test_what_it_refuses(self):
        for dtype, blocksize, allow_tf32 in self.REFUSED:
            f = facts(dtype, blocksize, allow_tf32=allow_tf32)
            assert dtype not in self.MODULE.DTYPES or self.MODULE.tile(f, Fields()) is None

    def test_fields_it_does_not_have(self):
        fields = Fields({"path": self.NAME, "no_such_field": 1}, "sampled_addmm")
        self.MODULE.tile(facts(*self.CASES[0]), fields)
        with pytest.raises(ConfigError, match=r"sampled_addmm.*'no_such_field'"):
            fields.finish()

    @pytest.mark.gpu
    def test_in_a_graph_on_a_side_stream(self, cuda_engine, rng):
        """Captured on the second call, and replayed with other values; K in parts, too."""
        engine, case = cuda_engine, self.CASES[0]
        for fields in ({}, *(fields for fields in self.FIELDS if "split_k" in fields)):
            sparse, *mats = self.operands(engine, rng, case)
            a, b = (laid_out(engine, x, by) for x, by in zip(mats, ("strided", "skewed")))
            out = sparse.copy()

            def product(sparse=sparse, a=a, b=b, out=out, fields=fields):
                return self.call(engine, sparse, a, b, fields=fields, beta=-1, out=out)

            with engine.side_stream() as stream:
                graph = engine.captured(product)
                for _ in range(3):
                    term, mat1, mat2 = (
                        random_values(rng, x.shape, case[0], small_integers=True)
                        for x in (sparse.data, a, b)
                    )
                    for there, values in zip((sparse.data, a, b), (term, mat1, mat2)):
                        there[...] = engine.array(values)
                    out.data.fill(0)
                    graph.launch(stream)
                    exact = stored(wide(mat1) @ wide(mat2), out.pattern, engine) - wide(term)
                    assert_exact(engine, out.data, as_stored(exact, case[0]))
