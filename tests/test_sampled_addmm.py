"""`sampled_addmm`: beta * input.data + alpha * (mat1 @ mat2) at the stored blocks."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegpu
from covering import covered
from properties import drawn
from sampled_path import stored
from sparsegpu._memo import RECENT
from sparsegpu.engines.cuda.runtime.replay import Call
from sparsegpu.testing import accuracy_bound, assert_close, random_blocks, random_values

DTYPES = ["float16", "bfloat16", "float32", "float64", "int8", "complex64", "complex128"]


def check(engine, result, input, mat1, mat2, *, alpha=1, beta=0):
    """Compare with the dense formula in float64, within the bound of section 1."""
    term = None if beta == 0 else engine.host(input.toarray())
    exact, bound = accuracy_bound(mat1, mat2, alpha=alpha, beta=beta, input=term)
    exact, bound = (stored(x, result.pattern, engine) for x in (exact, bound))
    assert_close(engine.host(result.data), exact, bound)


@covered(dtype=DTYPES, blocksize=[(16, 16), (1, 1), (3, 8), (16, 32)], small=[False, True])
def test_formula(engine, rng, dtype, blocksize, small):
    shape = (5 * blocksize[0], 4 * blocksize[1])
    triple = random_blocks(rng, shape, blocksize, dtype=dtype, small_integers=small)
    input = engine.bsr(triple, shape)
    mat1 = random_values(rng, (shape[0], 21), dtype, small_integers=small)
    mat2 = random_values(rng, (21, shape[1]), dtype, small_integers=small)
    with engine.runs("bsr_sampled_addmm"):
        out = sparsegpu.sampled_addmm(
            input, engine.array(mat1), engine.array(mat2), beta=2, alpha=-3
        )
    assert out.dtype == mat1.dtype
    assert out.pattern is input.pattern
    check(engine, out, input, mat1, mat2, alpha=-3, beta=2)
    if small and dtype != "int8":
        # Exactly representable sums are bit-exact.
        wide = np.complex128 if mat1.dtype.kind == "c" else np.float64
        exact = -3 * (mat1.astype(wide) @ mat2.astype(wide))
        exact = exact + 2 * engine.host(input.toarray()).astype(wide)
        assert (
            engine.host(out.data) == stored(exact.astype(mat1.dtype), out.pattern, engine)
        ).all()


@pytest.mark.parametrize(
    ("pattern_batch", "batch1", "batch2"),
    [((), (2, 3), (3,)), ((3,), (2, 1), ()), ((2, 3), (), ()), ((1,), (4,), ()), ((), (0,), ())],
)
def test_batches(engine, rng, pattern_batch, batch1, batch2):
    triple = random_blocks(rng, (8, 12), (4, 2), batch=pattern_batch)
    input = engine.bsr(triple, (8, 12))
    engine.look(input)
    mat1 = random_values(rng, (*batch1, 8, 5), "float32")
    mat2 = random_values(rng, (*batch2, 5, 12), "float32")
    with engine.runs("bsr_sampled_addmm" if 0 not in batch1 else None):
        out = sparsegpu.sampled_addmm(input, engine.array(mat1), engine.array(mat2), beta=0.5)
    batch = np.broadcast_shapes(pattern_batch, batch1, batch2)
    assert out.data.shape == (*batch, input.nnzb, 4, 2)
    assert out.shape == (*batch, 8, 12)
    check(engine, out, input, mat1, mat2, beta=0.5)


def test_bool_input_is_a_pattern_only(engine, rng):
    data, indices, indptr = random_blocks(rng, (8, 8), (2, 2), dtype="bool")
    where = engine.bsr((np.zeros_like(data), indices, indptr), (8, 8))
    mat1, mat2 = (random_values(rng, (8, 8), "bfloat16") for _ in range(2))
    with engine.runs("bsr_sampled_addmm"):
        out = sparsegpu.sampled_addmm(where, engine.array(mat1), engine.array(mat2), beta=0)
    assert out.dtype == mat1.dtype
    check(engine, out, where, mat1, mat2)
    for beta in (1, 0.5):
        with pytest.raises(ValueError, match=r"sampled_addmm: argument 'beta': expected 0 with"):
            sparsegpu.sampled_addmm(where, engine.array(mat1), engine.array(mat2), beta=beta)
    with pytest.raises(ValueError, match="beta"):
        sparsegpu.sampled_addmm(where, engine.array(mat1), engine.array(mat2))


def test_beta_zero_does_not_read(engine, rng):
    data, indices, indptr = random_blocks(rng, (8, 8), (2, 2))
    input = engine.bsr((np.full_like(data, np.nan), indices, indptr), (8, 8))
    mat1, mat2 = (random_values(rng, (8, 8), "float32") for _ in range(2))
    with engine.runs("bsr_sampled_addmm"):
        out = sparsegpu.sampled_addmm(input, engine.array(mat1), engine.array(mat2), beta=0)
    check(engine, out, input, mat1, mat2)


def test_alpha_zero_computes_no_product(engine, rng):
    triple = random_blocks(rng, (8, 8), (2, 2))
    input = engine.bsr(triple, (8, 8))
    nan = engine.array(np.full((8, 8), np.nan, np.float32))
    with engine.runs("bsr_sampled_addmm"):
        out = sparsegpu.sampled_addmm(input, nan, nan, alpha=0, beta=2)
    assert (engine.host(out.data) == 2 * triple[0]).all()


def test_duplicates_are_summed_first(engine, rng):
    triple = random_blocks(rng, (6, 6), (2, 2), density=2, duplicates=True)
    input = engine.bsr(triple, (6, 6))
    mat1, mat2 = (random_values(rng, (6, 6), "float32") for _ in range(2))
    with engine.runs("bsr_sampled_addmm"):
        out = sparsegpu.sampled_addmm(input, engine.array(mat1), engine.array(mat2))
    assert out.nnzb < input.nnzb
    assert out.has_canonical_format
    check(engine, out, input, mat1, mat2, beta=1)


@pytest.mark.parametrize("kind", ["transposed", "reversed", "sliced", "broadcast"])
def test_strides(engine, rng, kind):
    triple = random_blocks(rng, (12, 8), (4, 4), dtype="float16", small_integers=True)
    input = engine.bsr(triple, (12, 8))
    wide = engine.array(random_values(rng, (40, 40), "float16", small_integers=True))
    mat1, mat2 = {
        "transposed": (wide[:16, :12].T, wide[:8, :16].T),
        "reversed": (wide[:12, :16][::-1, ::-1], wide[:16, :8][::-1]),
        "sliced": (wide[0:36:3, 1:33:2], wide[3:35:2, 5:37:4]),
        "broadcast": (
            engine.xp.broadcast_to(wide[:1, :16], (12, 16)),
            engine.xp.broadcast_to(wide[:16, :1], (16, 8)),
        ),
    }[kind]
    with engine.runs("bsr_sampled_addmm"):
        out = sparsegpu.sampled_addmm(input, mat1, mat2)
    check(engine, out, input, engine.host(mat1), engine.host(mat2), beta=1)


def test_out(engine, rng):
    triple = random_blocks(rng, (8, 8), (2, 2), dtype="bfloat16")
    input = engine.bsr(triple, (8, 8))
    mat1, mat2 = (random_values(rng, (8, 8), "bfloat16") for _ in range(2))
    a, b = engine.array(mat1), engine.array(mat2)
    before = engine.bsr((triple[0].copy(), *triple[1:]), (8, 8))
    # Another dtype, another object with an equal pattern.
    out = engine.bsr((np.full(triple[0].shape, np.nan, np.float32), *triple[1:]), (8, 8))
    with engine.runs("bsr_sampled_addmm"):
        result = sparsegpu.sampled_addmm(input, a, b, out=out)
    assert result is out
    check(engine, out, input, mat1, mat2, beta=1)
    # In place.
    with engine.runs("bsr_sampled_addmm"):
        result = sparsegpu.sampled_addmm(input, a, b, beta=-1, out=input)
    assert result is input
    check(engine, input, before, mat1, mat2, beta=-1)


def test_int8(engine, rng):
    triple = random_blocks(rng, (8, 8), (4, 4), dtype="int8")
    input = engine.bsr(triple, (8, 8))
    mat1, mat2 = (random_values(rng, (8, 8), "int8") for _ in range(2))
    a, b = engine.array(mat1), engine.array(mat2)
    exact = mat1.astype(np.int64) @ mat2
    dense = engine.host(input.toarray()).astype(np.int64)
    with engine.runs("bsr_sampled_addmm"):
        out = sparsegpu.sampled_addmm(input, a, b)
        rounded = sparsegpu.sampled_addmm(input, a, b, alpha=0.25, beta=0)
        wide = sparsegpu.sampled_addmm(input.astype(np.int32), a, b)
    saturated = np.clip(exact + dense, -128, 127)
    assert (engine.host(out.data) == stored(saturated, out.pattern, engine)).all()
    halves_to_even = np.clip(np.rint(exact * 0.25), -128, 127)
    assert (engine.host(rounded.data) == stored(halves_to_even, out.pattern, engine)).all()
    assert wide.dtype == np.int32
    assert (engine.host(wide.data) == stored(exact + dense, out.pattern, engine)).all()
    for dtype in (np.int32, np.float32, ml_dtypes.bfloat16):
        target = engine.bsr((np.zeros(triple[0].shape, dtype), *triple[1:]), (8, 8))
        with engine.runs("bsr_sampled_addmm"):
            sparsegpu.sampled_addmm(input, a, b, out=target)
        expected = (exact + dense).astype(np.float32).astype(dtype)
        assert (engine.host(target.data) == stored(expected, out.pattern, engine)).all()


@pytest.mark.parametrize(("m", "n", "k"), [(0, 8, 4), (8, 0, 4), (8, 8, 0), (0, 0, 0)])
def test_zero_sizes(engine, rng, m, n, k):
    triple = random_blocks(rng, (m, n), (2, 2))
    input = engine.bsr(triple, (m, n))
    mat1, mat2 = (engine.array(np.ones(s, np.float32)) for s in ((m, k), (k, n)))
    with engine.runs("bsr_sampled_addmm" if triple[0].size else None):
        out = sparsegpu.sampled_addmm(input, mat1, mat2, beta=3)
    assert (engine.host(out.data) == 3 * triple[0]).all()


def test_nothing_stored(engine):
    input = sparsegpu.bsr_array(engine.array(np.zeros((4, 4), np.float32)), blocksize=(2, 2))
    ones = engine.array(np.ones((4, 4), np.float32))
    with engine.runs(None):
        out = sparsegpu.sampled_addmm(input, ones, ones)
    assert out.nnzb == 0
    assert out.shape == (4, 4)


@drawn(20, derandomize=True)
@given(
    blocks=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    blocksize=st.tuples(st.integers(1, 33), st.integers(1, 33)),
    k=st.integers(0, 40),
    density=st.floats(0, 1),
    seed=st.integers(0, 2**20),
)
def test_any_shape(engine, blocks, blocksize, k, density, seed):
    rng = np.random.default_rng(seed)
    shape = (blocks[0] * blocksize[0], blocks[1] * blocksize[1])
    triple = random_blocks(rng, shape, blocksize, density=density)
    input = engine.bsr(triple, shape)
    mat1 = random_values(rng, (shape[0], k), "float32")
    mat2 = random_values(rng, (k, shape[1]), "float32")
    with engine.runs("bsr_sampled_addmm" if triple[0].size else None):
        out = sparsegpu.sampled_addmm(input, engine.array(mat1), engine.array(mat2), alpha=0.75)
    check(engine, out, input, mat1, mat2, alpha=0.75, beta=1)


def test_a_second_call_can_be_captured(cuda_engine, rng):
    """No synchronisation, no transfer and no allocation: a CUDA graph takes the call."""
    cupy = cuda_engine.xp
    triple = random_blocks(rng, (32, 32), (16, 16), density=0.5)
    input = cuda_engine.bsr(triple, (32, 32))
    mat1, mat2 = (random_values(rng, (32, 32), "float32") for _ in range(2))
    a, b, out = cupy.asarray(mat1), cupy.asarray(mat2), input.copy()
    with cuda_engine.side_stream() as stream:
        graph = cuda_engine.captured(lambda: sparsegpu.sampled_addmm(input, a, b, out=out))
        out.data.fill(7)
        graph.launch(stream)
    check(cuda_engine, out, input, mat1, mat2, beta=1)


def test_a_repeated_call_keeps_what_it_reads(monkeypatch):
    """The pattern of a batch, of which the operand keeps the latest few; not the operand's own."""
    read = []
    monkeypatch.setattr(Call, "keep", lambda self, *results, reads=None: read.append(reads))
    input = sparsegpu.bsr_array(np.ones((4, 4), np.float32), blocksize=(2, 2))
    mat = np.ones((3, 4, 4), np.float32)
    result = sparsegpu.sampled_addmm(input, mat, mat)
    sparsegpu.sampled_addmm(input, mat[0], mat[0])
    assert read[0] is result.pattern is not input.pattern and read[1] is None


@pytest.mark.gpu
def test_batches_of_many_sizes(cuda_engine, rng):
    """A repeated call reads the pattern of its batch, not what may have taken its memory since."""
    triple = random_blocks(rng, (64, 64), (16, 16), density=0.5, dtype="float32")
    input = cuda_engine.bsr(triple, (64, 64))
    mat = cuda_engine.array(random_values(rng, (RECENT + 8, 64, 64), "float32"))

    def product(batch):
        found = sparsegpu.sampled_addmm(input, mat[:batch], mat[:batch], beta=0)
        return cuda_engine.host(found.data)

    expected = product(2)
    for batch in range(3, len(mat)):
        product(batch)
    taken = [cuda_engine.xp.full(128, -1, np.int32) for _ in range(1000)]
    np.testing.assert_array_equal(product(2), expected)
    del taken


class TestErrors:
    """Each names function, argument, expected and got; ``out`` stays untouched."""

    @pytest.fixture
    def operands(self, rng):
        input = sparsegpu.bsr_array(np.eye(8, dtype=np.float32), blocksize=(2, 2))
        return input, *(random_values(rng, (8, 8), "float32") for _ in range(2))

    @pytest.mark.parametrize(
        ("change", "error", "message"),
        [
            (dict(mat1=np.ones((6, 8), "f4")), ValueError, r"'mat1': expected shape .*8, K\), got"),
            (dict(mat1=np.ones(8, "f4")), ValueError, r"'mat1': expected shape"),
            (dict(mat2=np.ones((7, 8), "f4")), ValueError, r"'mat2': .*\(\*batch, 8, 8\), got"),
            (dict(mat2=np.ones((8, 7), "f4")), ValueError, r"'mat2': .*got \(8, 7\)"),
            (dict(mat2=np.ones((8, 8), "f2")), TypeError, "'mat2': expected dtype float32"),
            (dict(mat1=np.ones((8, 8), "i4")), TypeError, "'mat1': expected one of the dtypes"),
            (dict(input=np.eye(8)), TypeError, "'input': expected a bsr_array, got numpy.ndarray"),
            (dict(alpha=1j), TypeError, "'alpha': expected a real number"),
            (dict(beta="1"), TypeError, "'beta': expected a Python or NumPy number, got str"),
            (dict(out=np.eye(8, dtype="f4")), TypeError, "'out': expected a bsr_array"),
        ],
    )
    def test_argument(self, operands, change, error, message):
        arguments = dict(zip(("input", "mat1", "mat2"), operands)) | change
        with pytest.raises(error, match=r"^sampled_addmm: argument " + message):
            sparsegpu.sampled_addmm(**arguments)

    @pytest.mark.parametrize(
        ("config", "error", "message"),
        [
            (3, TypeError, "'config': expected a dict or None"),
            ({"path": "groups"}, ValueError, r"'config\['path'\]': .*'mma', .*'simt'"),
            ({"path": "mma", "tile_q": 64}, ValueError, r"'config\['tile_q'\]': .*tile_m"),
            ({"path": "mma", "tile_m": 0.5}, ValueError, r"'config\['tile_m'\]': .*integer"),
            ({"tile_m": 64}, ValueError, "'config': expected a 'path'"),
        ],
    )
    def test_config(self, operands, config, error, message):
        out = operands[0].copy()
        for engine in ("reference", "cpu"):
            with (
                sparsegpu.use_engine(engine),
                pytest.raises(error, match=r"^sampled_addmm: argument " + message),
            ):
                sparsegpu.sampled_addmm(*operands, out=out, config=config)
        assert (out.data == operands[0].data).all()
        chosen = sparsegpu.sampled_addmm(*operands, config={"path": "mma", "tile_m": 64})
        assert (chosen.data == sparsegpu.sampled_addmm(*operands).data).all()

    def test_batches_that_do_not_broadcast(self, operands):
        input = operands[0]
        with pytest.raises(ValueError, match="'mat1': expected batch shapes that broadcast"):
            sparsegpu.sampled_addmm(input, np.ones((2, 8, 4), "f4"), np.ones((3, 4, 8), "f4"))

    def test_input_dtype(self, operands):
        with pytest.raises(TypeError, match="'input': expected dtype float32"):
            sparsegpu.sampled_addmm(operands[0].astype(np.float64), *operands[1:])

    def test_out_of_another_pattern(self, operands):
        out = sparsegpu.bsr_array(np.ones((8, 8), np.float32), blocksize=(2, 2))
        with pytest.raises(ValueError, match="'out': expected the pattern of the result"):
            sparsegpu.sampled_addmm(*operands, out=out)
        assert (out.data == 1).all()

    def test_out_overlaps_a_matrix(self, operands):
        input, mat1, _ = operands
        out = input.with_data(mat1.reshape(-1)[:16].reshape(4, 2, 2))
        before = mat1.copy()
        with pytest.raises(ValueError, match="'out': expected memory apart from 'mat1'"):
            sparsegpu.sampled_addmm(input, mat1, mat1, out=out)
        assert (mat1 == before).all()
