"""What every kernel path of a product promises, whatever it was made for.

A path's test file makes a class of one family, says what the path serves and adds its own::

    class TestPath(BsrPath, FromTheRight):
        NAME, SOURCE = "groups", "bsr_addmm_groups"
        CASES = [("float16", (16, 16)), ("bfloat16", (33, 20))]
        LAYOUTS, COLUMNS = ["rows", "columns"], [72, 264]

Without ``OnDevice`` and a ``NAME``, what every engine chooses by itself is held to the same.
A test whose arguments name lists of the class (`Path.lists`) is given as few combinations of them
as show every two values together: on a GPU each may be a kernel to compile, in seconds.
"""

from itertools import product

import numpy as np
import pytest

import semi_structured_cases
import sparsegpu as sg
from addmm_cases import ORDERS, Operand, blank, laid_out
from covering import covering, named
from sparsegpu._arrays import dtype_of
from sparsegpu.testing import assert_within_bound, random_values

_FLOATS = ("float16", "bfloat16", "float32")
#: Dtypes of results by that of the operands.
OUTPUTS = {
    **dict.fromkeys(_FLOATS, _FLOATS),
    **{dtype: (dtype,) for dtype in ("float64", "complex64", "complex128")},
    "int8": ("int8", "int32", *_FLOATS),
}
#: Dtypes of results in which sums of small integers are exact, where they are not the operands'.
SUMS = {"float16": "float32", "bfloat16": "float32", "int8": "int32"}


def wide(array):
    """Return the values in a dtype in which the sums of these tests are exact."""
    return array.astype("complex128" if array.dtype.kind == "c" else "float64")


def assert_exact(engine, out, expected):
    """Compare with what numbers of ``out``'s dtype come nearest."""
    np.testing.assert_array_equal(engine.host(out), expected.astype(out.dtype))


class Path:
    """What a path is called and serves."""

    NAME: str | None = None  # config={"path": NAME}
    SOURCE: str  # of kernels: one whose name starts so has to run
    CASES: list  # (dtype, blocksize); of 2:4 operands (dtype, shape)
    RIGHT: list | None = None  # the cases of `FromTheRight`, where they are not all
    MANY: list = []  # the cases of `ManyTiles`
    LAYOUTS: list  # of dense, see `laid_out`
    COLUMNS: list
    ORDERS: list = ORDERS  # of out, see `blank`
    ACTIVATIONS: list = ["gelu", None]
    KEYWORDS: dict = {}  # of every call

    def lists(self):
        """Return what the tests' arguments go through, by name."""
        first = dict(reversed(self.CASES))
        return {
            "case": self.CASES,
            "right": self.CASES if self.RIGHT is None else self.RIGHT,
            "one": list(first.items()),  # of a dtype, the first
            "some": list(dict.fromkeys([*first.items(), *dict(self.CASES).items()])),  # and last
            "many": self.MANY,
            "layout": self.LAYOUTS,
            "columns": self.COLUMNS,
            "order": self.ORDERS,
            "output": sorted({output for dtype, _ in self.CASES for output in OUTPUTS[dtype]}),
            "activation": self.ACTIVATIONS,
        }

    def pytest_generate_tests(self, metafunc):
        lists = self.lists()
        names = [name for name in lists if name in metafunc.fixturenames]
        combinations = product(*(lists[name] for name in names))
        if "output" in names:
            which = names.index("output")
            combinations = [c for c in combinations if c[which] in OUTPUTS[c[0][0]]]
        if names:
            chosen = covering(combinations)
            metafunc.parametrize(names, chosen, ids=map(named, chosen))

    def keywords(self, **fields):
        """Return the keywords of a call, with fields of the path's configuration."""
        config = {"path": self.NAME, **fields} if self.NAME else None
        return {"config": config, **self.KEYWORDS}

    def copied(self, dtype, layout, columns):
        """Return which kernels must run besides, because ``dense`` is not read as it lies."""
        return ()

    def sums(self, dtype):
        """Return the dtype of results in which sums of small integers are exact."""
        return SUMS.get(dtype, dtype)

    def multiply(self, engine, sparse, dense, copied=(), fields=None, **keywords):
        with engine.runs(self.SOURCE, *copied):
            return self.matmul(sparse, dense, **self.keywords(**(fields or {})), **keywords)


class Products:
    """The values of products."""

    def test_exact_on_small_integers(self, engine, rng, case, layout, columns):
        """Twice: the second call repeats the first, on other values in the same memory."""
        dtype, _ = case
        sparse, a = self.operand(engine, rng, case, small_integers=True)
        x = random_values(rng, (a.shape[1], columns), dtype, small_integers=True)
        dense, copied = laid_out(engine, x, layout), self.copied(dtype, layout, columns)
        for values in (x, -x):
            dense[...] = engine.array(values)
            out = self.multiply(engine, sparse, dense, copied, out_dtype=self.sums(dtype))
            assert_exact(engine, out, wide(a) @ wide(values))

    def test_within_the_bound_and_the_same_bits_again(self, engine, rng, some, layout):
        """Of both signs, so that sums cancel."""
        dtype, columns = some[0], self.COLUMNS[-1]
        sparse, a = self.operand(engine, rng, some)
        x = random_values(rng, (a.shape[1], columns), dtype)
        dense, tf32 = laid_out(engine, x, layout), self.KEYWORDS.get("allow_tf32", False)
        first, again = (self.multiply(engine, sparse, dense) for _ in range(2))
        assert first.dtype == {"int8": "int32"}.get(dtype, dtype_of(dtype))
        assert_within_bound(engine.host(first), a, x, dtype=dtype, allow_tf32=tf32)
        np.testing.assert_array_equal(engine.host(first), engine.host(again))


class Epilogues:
    """What becomes of the sums."""

    def test_epilogue_and_output(self, engine, rng, some, output, order, activation):
        """Scalars, scales, a term to add and an activation; nothing is written beside ``out``."""
        dtype, columns = some[0], self.COLUMNS[-1]
        sparse, a = self.operand(engine, rng, some)
        m, k = a.shape
        x = random_values(rng, (k, columns), dtype)
        keywords = {"beta": 0.5, "alpha": 2.0**-10 if dtype == "int8" else 2}
        if dtype_of(dtype).kind != "c":
            keywords["activation"] = activation
        terms = {
            "left_alpha": random_values(rng, (m,), "float32"),
            "right_alpha": random_values(rng, (columns,), "float32"),
        }
        term = random_values(rng, (m, 1), output, small_integers=dtype == "int8")
        moved = {name: engine.array(value) for name, value in terms.items()}
        dense = laid_out(engine, x, self.LAYOUTS[0])
        out = blank(engine, (m, columns), output, order)
        memory = out.base.copy()
        with engine.runs(self.SOURCE):
            given = engine.array(term), sparse, dense
            got = self.addmm(*given, out=out, **moved, **keywords, **self.keywords())
        assert got is out
        tf32 = self.KEYWORDS.get("allow_tf32", False)
        about = {"input": term, "dtype": dtype, "allow_tf32": tf32, **keywords, **terms}
        assert_within_bound(engine.host(out), a, x, **about)
        out[...] = memory.ravel()[0]
        assert (out.base.view("uint8") == memory.view("uint8")).all()

    def test_out_may_be_input(self, engine, rng, one):
        dtype, columns = one[0], self.COLUMNS[-1]
        sparse, a = self.operand(engine, rng, one, small_integers=True)
        x = random_values(rng, (a.shape[1], columns), dtype, small_integers=True)
        sums = wide(a) @ wide(x)
        start = random_values(rng, sums.shape, self.sums(dtype), small_integers=True)
        dense, out = laid_out(engine, x, self.LAYOUTS[0]), engine.array(start.copy())
        with engine.runs(self.SOURCE):
            self.addmm(out, sparse, dense, beta=2, out=out, **self.keywords())
        assert_exact(engine, out, 2 * wide(start) + sums)
        if out.dtype.kind != "i":
            out[...] = np.nan
        with engine.runs(self.SOURCE):  # whose input is not read
            self.addmm(out, sparse, dense, beta=0, out=out, **self.keywords())
        assert_exact(engine, out, sums)


class Batches:
    """Batches of either operand, which broadcast."""

    def test_batches(self, engine, rng, one):
        for sparse, a, x in self.batches(engine, rng, one):
            copied = self.copied(one[0], self.LAYOUTS[0], x.shape[-1])
            dense = laid_out(engine, x, self.LAYOUTS[0])
            out = self.multiply(engine, sparse, dense, copied, out_dtype=self.sums(one[0]))
            assert_exact(engine, out, np.matmul(wide(a), wide(x)))


class Gpu:
    """The path is one of a GPU's."""

    pytestmark = pytest.mark.gpu

    @pytest.fixture
    def engine(self, cuda_engine):
        """The cuda engine, on a GPU on which the path's kernel runs."""
        from sparsegpu.engines.cuda.runtime.device import runs_here
        from sparsegpu.engines.cuda.support import kernels

        if not any(row.source == self.SOURCE and runs_here(row.archs) for row in kernels()):
            pytest.skip(f"{self.SOURCE} is for other GPUs")
        return cuda_engine


class OnDevice(Gpu):
    """What only a path of a GPU can be asked for."""

    REFUSED: list  # (dtype, size, columns, keywords) that the path does not serve
    FIELDS: list = [{"no_such_field": 1}]  # that it does not have

    def test_in_a_graph_on_a_side_stream(self, engine, rng, one):
        dtype, columns = one[0], self.COLUMNS[-1]
        sparse, a = self.operand(engine, rng, one, small_integers=True)
        x = random_values(rng, (3, a.shape[1], columns), dtype, small_integers=True)
        dense = laid_out(engine, x[0], self.LAYOUTS[0])
        out = engine.xp.empty((len(a), columns), dtype_of(self.sums(dtype)))
        with engine.side_stream() as stream:
            graph = engine.captured(lambda: self.multiply(engine, sparse, dense, out=out))
            for values in x:
                dense[...] = engine.array(values)
                out.fill(0)
                graph.launch(stream)
                assert_exact(engine, out, wide(a) @ wide(values))

    def test_refuses_what_it_does_not_serve(self, engine, rng):
        for dtype, size, columns, keywords in self.REFUSED:
            sparse, a = self.operand(engine, rng, (dtype, size))
            dense = engine.array(random_values(rng, (a.shape[1], columns), dtype))
            how = self.keywords() | keywords
            with engine.runs(None), pytest.raises(ValueError, match=r"config\['path'\]"):
                self.matmul(sparse, dense, **how)

    def test_refuses_fields_that_it_does_not_have(self, engine, rng):
        sparse, a = self.operand(engine, rng, self.CASES[0])
        x = random_values(rng, (a.shape[1], self.COLUMNS[-1]), self.CASES[0][0])
        dense = laid_out(engine, x, self.LAYOUTS[0])
        for fields in self.FIELDS:
            expected = rf"config\['{next(iter(fields))}'\]"
            with engine.runs(None), pytest.raises(ValueError, match=expected):
                self.matmul(sparse, dense, **self.keywords(**fields))


class ManyTiles:
    """More tiles than thread blocks, with long rows: stages are filled many times."""

    MANY_COLUMNS = 1024

    def test_more_tiles_than_thread_blocks(self, engine, rng, many):
        dtype, (bm, bk) = many
        how = {"small_integers": True, "density": 0.2}
        sparse, a = self.operand(engine, rng, many, (2048 // bm, 1024 // bk), **how)
        x = random_values(rng, (a.shape[1], self.MANY_COLUMNS), dtype, small_integers=True)
        dense, out_dtype = laid_out(engine, x, self.LAYOUTS[0]), self.sums(dtype)
        first, again = (self.multiply(engine, sparse, dense, out_dtype=out_dtype) for _ in range(2))
        assert_exact(engine, first, wide(a) @ wide(x))
        assert (first == again).all()


class Patterns:
    """What the pattern says and does not say."""

    def test_what_the_pattern_lacks_is_not_read(self, engine, rng, one):
        """NaN in rows of dense that meet no block, next to those that do."""
        dtype, (bm, bk) = one
        data = random_values(rng, (2, bm, bk), dtype, small_integers=True)
        x = np.full((5 * bk, self.COLUMNS[-1]), 0 if dtype == "int8" else np.nan).astype(data.dtype)
        for block in (slice(bk, 2 * bk), slice(3 * bk, 4 * bk)):
            x[block] = random_values(rng, x[block].shape, dtype, small_integers=True)
        parts = data, np.array([1, 3], np.int32), np.array([0, 0, 2], np.int32)
        sparse = engine.bsr(parts, (2 * bm, 5 * bk))
        dense = laid_out(engine, x, self.LAYOUTS[0])
        out = self.multiply(engine, sparse, dense, out_dtype=self.sums(dtype))
        products = wide(data) @ np.stack([wide(x[bk : 2 * bk]), wide(x[3 * bk : 4 * bk])])
        assert_exact(engine, out[:bm], np.zeros(out[:bm].shape))
        assert_exact(engine, out[bm:], products.sum(axis=0))

    def test_indices_of_64_bits(self, engine, rng, one, monkeypatch):
        monkeypatch.setattr("sparsegpu.pattern.index_dtype", lambda largest: np.dtype(np.int64))
        sparse, a = self.operand(engine, rng, one, small_integers=True)
        assert sparse.indices.dtype == np.int64
        x = random_values(rng, (a.shape[1], self.COLUMNS[-1]), one[0], small_integers=True)
        dense = laid_out(engine, x, self.LAYOUTS[0])
        out = self.multiply(engine, sparse, dense, out_dtype=self.sums(one[0]))
        assert_exact(engine, out, wide(a) @ wide(x))


class FromTheRight:
    """The same kernel for ``dense @ bsr``, whose blocks it reads transposed."""

    def test_from_the_right(self, engine, rng, right, layout, columns):
        dtype, _ = right
        sparse, a = self.operand(engine, rng, right, small_integers=True)
        y = random_values(rng, (columns, len(a)), dtype, small_integers=True)
        dense = laid_out(engine, y, layout)
        with engine.runs(self.SOURCE):
            out = sg.dense_bsr_matmul(dense, sparse, **self.keywords())
        assert_exact(engine, out, wide(y) @ wide(a))
        sparse, a = self.operand(engine, rng, right)
        y = random_values(rng, y.shape, dtype)
        with engine.runs(self.SOURCE):
            out = sg.dense_bsr_matmul(engine.array(y), sparse, **self.keywords())
        tf32 = self.KEYWORDS.get("allow_tf32", False)
        assert_within_bound(engine.host(out), y, a, dtype=dtype, allow_tf32=tf32)


class UnalignedBlocks:
    """Blocks whose values begin at any element."""

    @pytest.mark.parametrize("shift", [1, 3])
    def test_blocks_at_odd_addresses(self, engine, rng, one, shift):
        sparse, a = self.operand(engine, rng, one, small_integers=True)
        blocks = engine.xp.zeros(shift + sparse.data.size, sparse.data.dtype)[shift:]
        moved = sparse.with_data(blocks.reshape(sparse.data.shape))
        moved.data[...] = sparse.data
        x = random_values(rng, (a.shape[1], self.COLUMNS[-1]), one[0], small_integers=True)
        out = self.multiply(engine, moved, engine.array(x), out_dtype=self.sums(one[0]))
        assert_exact(engine, out, wide(a) @ wide(x))


# -- the families of products ---------------------------------------------------------------------


class Bsr(Path):
    """Operands are bsr arrays: unsorted and repeated blocks, empty rows."""

    matmul, addmm = staticmethod(sg.bsr_matmul), staticmethod(sg.bsr_addmm)

    def operand(self, engine, rng, case, counts=(5, 7), *, small_integers=False, **keywords):
        """Return a matrix, and its values. Their bound counts a repeated block as one term."""
        dtype, (bm, bk) = case
        how = {"duplicates": small_integers, "small_integers": small_integers, **keywords}
        shape = (bm * counts[0], bk * counts[1])
        made = Operand(engine, rng, shape, (bm, bk), dtype, **how)
        return made.bsr, made.dense

    def batches(self, engine, rng, one):
        many, of_many = self.operand(engine, rng, one, small_integers=True, batch=(3,))
        single, of_single = self.operand(engine, rng, one, small_integers=True)
        shape = (3, of_single.shape[1], self.COLUMNS[-1])
        x = random_values(rng, shape, one[0], small_integers=True)
        yield many, of_many, x
        yield many, of_many, x[1]
        yield single, of_single, x
        yield single, of_single, x[:, None]


class SemiStructured(Path):
    """Operands are 2:4 matrices."""

    matmul = staticmethod(sg.semi_structured_matmul)
    addmm = staticmethod(sg.semi_structured_addmm)

    def operand(self, engine, rng, case, **keywords):
        dtype, shape = case
        return semi_structured_cases.operand(engine, rng, shape, dtype_of(dtype), **keywords)

    def batches(self, engine, rng, one):
        sparse, a = self.operand(engine, rng, one, small_integers=True)
        shape = (2, 3, a.shape[1], self.COLUMNS[-1])
        x = random_values(rng, shape, one[0], small_integers=True)
        yield sparse, a, x
        yield sparse, a, x[0]


class SemiStructuredBlocks(Path):
    """Operands are bsr arrays of 2:4 blocks."""

    matmul, addmm = staticmethod(sg.bsr_matmul), staticmethod(sg.bsr_addmm)

    def operand(self, engine, rng, case, **keywords):
        dtype, blocksize = case
        keywords = {"duplicates": keywords.get("small_integers", False), **keywords}
        made = semi_structured_cases.Blocks(engine, rng, blocksize, dtype_of(dtype), **keywords)
        return made.sparse, made.dense

    batches = Bsr.batches


class BsrPath(Bsr, Products, Epilogues, Batches, Patterns, OnDevice):
    """A path of ``bsr @ dense``."""


class SemiStructuredPath(SemiStructured, Products, Epilogues, Batches, OnDevice):
    """A path of ``2:4 @ dense``."""


class SemiStructuredLinesPath(SemiStructuredPath):
    """Columns and 16-bit rows of ``dense`` are read as they lie, others copied to columns."""

    def copied(self, dtype, layout, columns):
        pieces = layout == "aligned" or (layout == "rows" and columns % 8 == 0)
        kept = layout == "columns" or (pieces and dtype in {"float16", "bfloat16"})
        return () if kept else ("dense_lines",)


class SemiStructuredBlocksPath(SemiStructuredBlocks, Products, Epilogues, Batches, OnDevice):
    """A path of ``bsr of 2:4 blocks @ dense``."""
