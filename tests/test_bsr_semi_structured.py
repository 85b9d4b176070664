"""`BsrSemiStructuredArray`: block sparse rows of 2:4 blocks, on every engine."""

import copy
import io
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegpu as sg
from addmm_cases import LAYOUTS
from conftest import Engine
from covering import covered
from path_contract import Batches, Epilogues, Products, SemiStructuredBlocks
from properties import drawn
from semi_structured_cases import BF16, HALF, INT8, SINGLE, Blocks, exact_product, sum_dtype
from sparsegpu.testing import assert_within_bound, random_blocks, random_values

DTYPES = [HALF, BF16, SINGLE, INT8]
LEAST = {HALF: (32, 32), BF16: (32, 32), SINGLE: (32, 16), INT8: (16, 64)}
KERNEL = "bsr_semi_structured_addmm"


# -- the container ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_each_block_is_as_a_matrix_of_its_own(engine, rng, dtype):
    bm, bk = LEAST[dtype]
    case = Blocks(engine, rng, (2 * bm, 3 * bk), dtype)
    A = case.sparse
    assert A.pattern is case.bsr.pattern and A.dtype == dtype and A.ndim == 2
    assert A.shape == case.bsr.shape and A.blocksize == case.bsr.blocksize
    assert A.density == case.bsr.density and A.device == case.bsr.device
    assert A.nnz == A.size == case.bsr.nnz // 2 == A.packed.size
    assert A.nbytes == sum(x.nbytes for x in (A.packed, A.meta, A.indices, A.indptr))
    for p in range(A.nnzb):
        packed, meta = sg.semi_structured_from_dense(case.bsr.data[p])
        np.testing.assert_array_equal(engine.host(A.packed[p]), engine.host(packed))
        np.testing.assert_array_equal(engine.host(A.meta[p]), engine.host(meta))


@covered(dtype=DTYPES, batch=[(), (2,), (2, 3)])
def test_back(engine, rng, dtype, batch):
    case = Blocks(engine, rng, LEAST[dtype], dtype, batch=batch)
    with engine.runs("semi_structured_expand"):
        back, dense = case.sparse.tobsr(), case.sparse.todense()
    np.testing.assert_array_equal(engine.host(back.data), engine.host(case.bsr.data))
    assert back.pattern is case.bsr.pattern
    np.testing.assert_array_equal(engine.host(dense), case.dense)
    with engine.runs("semi_structured_expand"):
        wide = sg.bsr_array(case.sparse, dtype="float32")
    assert wide.pattern is case.bsr.pattern and wide.dtype == np.float32


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_pruned_on_the_way(engine, rng, dtype):
    data, indices, indptr = random_blocks(rng, (128, 256), (32, 64), dtype=dtype)
    A = engine.bsr((data, indices, indptr), (128, 256))
    with pytest.raises(ValueError, match="semi_structured: argument 'self': expected at most"):
        A.semi_structured()
    with engine.runs("prune_24", "semi_structured_compress"):
        pruned = A.semi_structured(prune=True)
    keep = "1:2" if dtype == SINGLE else "2:4"
    with sg.use_engine("reference"):
        expected = sg.prune_24(data, keep=keep)
    np.testing.assert_array_equal(engine.host(pruned.tobsr().data), expected)
    dropped = A.semi_structured(strict=False)
    with sg.use_engine("reference"):
        parts = sg.semi_structured_from_dense(data.reshape(-1, 64), strict=False)
        expected = sg.semi_structured_to_dense(*parts).reshape(data.shape)
    np.testing.assert_array_equal(engine.host(dropped.tobsr().data), expected)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_the_first_group_that_keeps_too_much_is_named(engine, batch):
    dense = np.zeros((*batch, 96, 128), np.float16)
    dense[..., 40, 64:67] = 1
    dense[..., 70, 5] = 1
    A = sg.bsr_array(engine.array(dense), blocksize=(32, 32))
    of = " of matrix 0" if batch else ""
    message = (
        rf"at most 2 nonzero of each 4.*block 0{of}, in its group at row 8, column 0 "
        r"\(row 40, column 64 of the matrix\)"
    )
    with pytest.raises(ValueError, match=message):
        A.semi_structured()


def test_what_cannot_be_compressed(engine):
    def blocks(blocksize, dtype):
        return sg.bsr_array(engine.array(np.ones((96, 192), dtype)), blocksize=blocksize)

    with pytest.raises(ValueError, match=r"multiple of 32 rows and of 32 columns.*got 16x32"):
        blocks((16, 32), HALF).semi_structured()
    with pytest.raises(ValueError, match=r"multiple of 16 rows and of 64 columns.*got 32x32"):
        blocks((32, 32), INT8).semi_structured()
    with pytest.raises(TypeError, match=r"2:4 dtypes float16.*got float64"):
        blocks((32, 32), np.float64).semi_structured()


def test_parts(engine, rng):
    A = Blocks(engine, rng, (32, 64), HALF).sparse
    parts = (A.packed, A.meta, A.indices, A.indptr)
    again = sg.BsrSemiStructuredArray(parts, A.shape)
    np.testing.assert_array_equal(engine.host(again.todense()), engine.host(A.todense()))
    make = sg.BsrSemiStructuredArray
    with pytest.raises(TypeError, match=r"'parts': .*\(packed, meta, .*got 3 of them"):
        make(parts[:3], A.shape)
    with pytest.raises(TypeError, match=r"'parts': .* got bsr_array"):
        make(A.tobsr(), A.shape)
    with pytest.raises(ValueError, match=r"'packed': expected shape .*nnzb.* got \(32,\)"):
        make((A.packed[0, :, 0], *parts[1:]), A.shape)
    with pytest.raises(TypeError, match=r"from_bsr: argument 'bsr': expected a bsr_array"):
        make.from_bsr(A)
    with pytest.raises(ValueError, match=r"'meta': expected shape"):
        make((A.packed, A.meta[:, :16], A.indices, A.indptr), A.shape)
    with pytest.raises(TypeError, match=r"'meta': expected dtype int16"):
        make((A.packed, A.meta.astype(np.int32), A.indices, A.indptr), A.shape)
    with pytest.raises(ValueError, match=r"'indices': expected block columns in 0\.\.3"):
        make((A.packed, A.meta, A.indices + 1, A.indptr), A.shape)
    with pytest.raises(ValueError, match=r"multiples of the blocksize"):
        make(parts, (96, 100))
    assert make((A.packed, A.meta, A.indices + 1, A.indptr), A.shape, check=False).nnzb == A.nnzb


@covered(dtype=DTYPES, compressed=[False, True])
def test_files(engine, rng, dtype, compressed):
    A = Blocks(engine, rng, LEAST[dtype], dtype, batch=(2,)).sparse
    file = io.BytesIO()
    A.save_npz(file, compressed=compressed)
    file.seek(0)
    back = sg.BsrSemiStructuredArray.load_npz(file)
    assert back.dtype == dtype and back.shape == A.shape and back.device == "cpu"
    for name in ("packed", "meta", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(back, name), engine.host(getattr(A, name)))
    other = io.BytesIO()
    sg.save_npz(other, sg.bsr_array((4, 4), blocksize=(2, 2), dtype="float32"))
    other.seek(0)
    with pytest.raises(ValueError, match="a saved BsrSemiStructuredArray"):
        sg.BsrSemiStructuredArray.load_npz(other)
    file.seek(0)
    assert type(sg.load_npz(file)) is sg.BsrSemiStructuredArray


def test_pickle_and_repr(rng):
    case = Blocks(Engine("reference"), rng, (32, 64), BF16)
    back = pickle.loads(pickle.dumps(case.sparse))
    np.testing.assert_array_equal(back.todense(), case.sparse.todense())
    assert "bfloat16, 2:4, 6 blocks of 32x64 stored (density 0.5), on cpu" in repr(back)
    assert back.get() is back


def test_copies_share_the_pattern(engine, rng):
    A = Blocks(engine, rng, (32, 64), BF16).sparse
    shallow, deep = copy.copy(A), copy.deepcopy(A)
    assert all(B.pattern is A.pattern for B in (shallow, deep, A.copy()))
    assert shallow.packed is A.packed and deep.packed is not A.packed
    np.testing.assert_array_equal(engine.host(deep.todense()), engine.host(A.todense()))


@pytest.mark.gpu
def test_to_the_device_and_back(cuda_engine, rng):
    host = Blocks(Engine("reference"), rng, (32, 64), BF16)
    there = host.sparse.to_device()
    assert there.to_device() is there and "on cuda:" in repr(there)
    np.testing.assert_array_equal(there.get().todense(), host.sparse.todense())
    with pytest.raises(TypeError, match="cupy array like 'self'"):
        there @ np.ones(256, BF16)


class TestEveryEngine(SemiStructuredBlocks, Products, Epilogues, Batches):
    """Least blocks and larger ones."""

    SOURCE = KERNEL
    CASES = [
        (str(d), (n * bm, m * bk)) for n, m in [(1, 1), (2, 3)] for d, (bm, bk) in LEAST.items()
    ]
    LAYOUTS, COLUMNS = LAYOUTS, [1, 40, 7]


# -- products -----------------------------------------------------------------------------------


@drawn(25)
@given(
    dtype=st.sampled_from(DTYPES),
    scale=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    counts=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    n=st.integers(0, 20),
    density=st.floats(0, 1),
    batch=st.sampled_from([(), (2,), (1, 2)]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_pattern(engine, dtype, scale, counts, n, density, batch, seed):
    rng = np.random.default_rng(seed)
    blocksize = tuple(s * b for s, b in zip(scale, LEAST[dtype], strict=True))
    how = {"density": density, "batch": batch, "duplicates": True, "small_integers": True}
    case = Blocks(engine, rng, blocksize, dtype, counts, **how)
    x = random_values(rng, (*batch, case.dense.shape[-1], n), dtype, small_integers=True)
    with sg.use_engine(engine.name):
        out = sg.bsr_matmul(case.sparse, engine.array(x), out_dtype=sum_dtype(dtype))
    np.testing.assert_array_equal(engine.host(out).astype(float), exact_product(case.dense, x))


def test_vectors(engine, rng):
    case = Blocks(engine, rng, (32, 32), SINGLE, small_integers=True)
    x = random_values(rng, (128,), SINGLE, small_integers=True)
    with engine.runs(KERNEL):
        out = case.sparse @ engine.array(x)
    assert out.shape == (96,)
    np.testing.assert_array_equal(engine.host(out), exact_product(case.dense, x))


def test_nothing_to_multiply(engine, rng):
    case = Blocks(engine, rng, (32, 32), HALF)
    x = engine.array(np.full((128, 5), np.nan, np.float16))
    bias = engine.array(random_values(rng, (96, 5), HALF))
    empty = sg.bsr_array((96, 128), blocksize=(32, 32), dtype=HALF)
    if engine.on_gpu:
        empty = empty.to_device()
    with engine.runs(KERNEL):
        first = sg.bsr_addmm(bias, case.sparse, x, alpha=0, activation="relu")
        second = sg.bsr_addmm(bias, empty.semi_structured(), x, activation="relu")
    expected = np.maximum(engine.host(bias), 0)
    np.testing.assert_array_equal(engine.host(first), expected)
    np.testing.assert_array_equal(engine.host(second), expected)


def test_only_kept_values_are_multiplied(engine):
    """A NaN in a row of `dense` that no code points at does not show; beta == 0 reads nothing."""
    dense = np.tile(np.array([1, 0, 2, 0], np.float16), (32, 16))
    A = sg.bsr_array(engine.array(dense), blocksize=(32, 32)).semi_structured()
    x = np.ones((64, 40), np.float16)
    x[1::2] = np.nan
    bias = engine.array(np.full((32, 40), np.nan, np.float16))
    with engine.runs(KERNEL):
        out = sg.bsr_addmm(bias, A, engine.array(x), beta=0)
    np.testing.assert_array_equal(engine.host(out), np.full((32, 40), 48))


def test_int8_to_other_dtypes(engine, rng):
    case = Blocks(engine, rng, (32, 64), INT8)
    x = random_values(rng, (256, 9), INT8)
    with engine.runs(KERNEL):
        whole = sg.int_bsr_addmm(None, case.sparse, engine.array(x))
        half = sg.bsr_matmul(case.sparse, engine.array(x), alpha=1e-3, out_dtype="float16")
        byte = sg.bsr_matmul(case.sparse, engine.array(x), alpha=1e-3, out_dtype="int8")
    np.testing.assert_array_equal(engine.host(whole), exact_product(case.dense, x))
    assert_within_bound(engine.host(half), case.dense, x, alpha=1e-3, dtype=INT8)
    assert_within_bound(engine.host(byte), case.dense, x, alpha=1e-3, dtype=INT8)


def test_refusals(engine, rng):
    case = Blocks(engine, rng, (32, 32), HALF)
    A, x = case.sparse, engine.array(np.ones((128, 8), np.float16))
    with engine.runs(None):
        with pytest.raises(TypeError, match="'other': expected dtype float16"):
            A @ x.astype(np.float32)
        with pytest.raises(ValueError, match=r"'other': expected shape \(\*batch, 128, N\)"):
            A @ x[:64]
        with pytest.raises(ValueError, match=r"'out': expected shape \(96, 8\)"):
            sg.bsr_matmul(A, x, out=engine.xp.empty((8, 96), np.float16))
        with pytest.raises(ValueError, match="'out': expected memory apart from 'dense'"):
            sg.bsr_matmul(A, x, out=x[:96])
        with pytest.raises(NotImplementedError, match=r"dense @ A.tobsr\(\)"):
            x.T @ A
        with pytest.raises(NotImplementedError, match=r"transpose.*A\.tobsr\(\)\.T"):
            _ = A.T
        with pytest.raises(ValueError, match="a dense array"):
            A @ A
        with pytest.raises(TypeError, match="expected a SemiStructuredArray"):
            sg.semi_structured_matmul(A, x)
        with pytest.raises(TypeError, match="'bsr': expected dtype int8"):
            sg.int_bsr_addmm(None, A, x)
        with pytest.raises(TypeError, match="unexpected keyword argument 'scale'"):
            sg.bsr_matmul(A, x, scale=2)
