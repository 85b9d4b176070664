"""`SemiStructuredArray`: what it holds, builds, refuses and writes to files."""

import io
import pickle

import numpy as np
import pytest

import sparsegpu as sg
from covering import covered
from in_threads import run_in_threads
from semi_structured_cases import BF16, FP8, HALF, INT8, SINGLE, bits
from sparsegpu.engines.cusparselt import availability
from sparsegpu.testing import assert_within_bound, random_24, random_values

DTYPES = [HALF, BF16, SINGLE, INT8, FP8]
KERNEL = "semi_structured_addmm"


def assert_same(engine, got, expected):
    np.testing.assert_array_equal(bits(engine.host(got)), bits(engine.host(expected)))


def positive_zeros(dense):
    """-0.0 is a zero that a 2:4 matrix need not keep."""
    return np.where(dense == 0, np.zeros((), dense.dtype), dense)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_from_dense_holds_one_half(engine, rng, dtype):
    dense = engine.array(random_24(rng, (64, 128), dtype))
    with engine.runs("semi_structured_compress"):
        A = sg.SemiStructuredArray.from_dense(dense)
        packed, meta = sg.semi_structured_from_dense(dense)
    assert A.shape == (64, 128) and A.dtype == dtype and A.ndim == 2 and A.backend == "native"
    assert_same(engine, A.packed, packed)
    assert_same(engine, A.values(), packed)
    assert_same(engine, A.meta, meta)
    assert_same(engine, A.indices(), meta)
    assert A.packed_t is None and A.meta_t is None and A.bitmask is None
    assert A.nbytes == packed.nbytes + meta.nbytes


@covered(dtype=DTYPES, order="CF")
def test_todense(engine, rng, dtype, order):
    dense = positive_zeros(random_24(rng, (64, 64), dtype))
    with engine.runs("semi_structured_expand"):
        A = sg.to_semi_structured(engine.xp.array(engine.array(dense), order=order))
        there, back = A.todense(), A.T.todense()
    assert_same(engine, there, engine.array(dense))
    assert_same(engine, back, engine.array(np.ascontiguousarray(dense.T)))
    assert back.flags.c_contiguous


@covered(shape=[(1, 1), (5, 6), (33, 100), (32, 64), (0, 3)], dtype=DTYPES)
def test_padding_is_remembered(engine, rng, shape, dtype):
    m, k = shape
    dense = positive_zeros(random_24(rng, shape, dtype))
    kernels = ("semi_structured_compress", "semi_structured_expand") if dense.size else (None,)
    with engine.runs(*kernels):
        A = sg.to_semi_structured(engine.array(dense), pad=True)
        back, back_t = A.todense(), A.T.todense()
    assert A.shape == shape and A.T.shape == (k, m)
    assert_same(engine, back, engine.array(dense))
    assert_same(engine, back_t, engine.array(np.ascontiguousarray(dense.T)))


def test_pruned_holds_everything(engine, rng):
    dense = engine.array(random_values(rng, (64, 96), BF16))
    with engine.runs("semi_structured_tile"):
        A = sg.SemiStructuredArray.prune_dense_static_sort(dense)
        parts = sg.semi_structured_tile(dense)
    for name, part in zip(("packed", "meta", "packed_t", "meta_t", "bitmask"), parts, strict=True):
        assert_same(engine, getattr(A, name), part)
    with engine.runs("semi_structured_expand", "prune_tile", "semi_structured_bitmask"):
        back, pruned = A.todense(), sg.prune_tile(dense)
        mask_t, expected = A.T.bitmask, sg.compressed_swizzled_bitmask(pruned.T)
    assert_same(engine, back, pruned)
    assert_same(engine, mask_t, expected)
    assert A.T.packed is A.packed_t and A.T.meta_t is A.meta and A.T.T.bitmask is A.bitmask


def test_pruned_and_padded(engine, rng):
    dense = random_values(rng, (30, 70), INT8)
    x, y = random_values(rng, (70, 9), INT8), random_values(rng, (9, 30), INT8)
    with engine.runs(KERNEL):
        A = sg.SemiStructuredArray.prune_dense_static_sort(
            engine.array(dense), "causal1122", pad=True
        )
        out, other = A @ engine.array(x), engine.array(y) @ A
    padded = np.zeros((32, 72), np.int8)
    padded[:30, :70] = dense
    pruned = sg.prune_tile(padded, "causal1122")[:30, :70].astype(np.int64)
    np.testing.assert_array_equal(engine.host(out), pruned.dot(x))
    np.testing.assert_array_equal(engine.host(other), y.astype(np.int64).dot(pruned))


# -- both sides ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [HALF, BF16, SINGLE, INT8], ids=str)
def test_operators_on_both_sides(engine, rng, dtype):
    a = random_24(rng, (32, 64), dtype)
    x, y = random_values(rng, (64, 7), dtype), random_values(rng, (3, 5, 32), dtype)
    A = sg.to_semi_structured(engine.array(a))
    with engine.runs(KERNEL):
        results = [A @ engine.array(x), engine.array(y) @ A]
        results += [engine.array(np.ascontiguousarray(x.T)) @ A.T]
        results += [A.T @ engine.array(np.ascontiguousarray(y[0].T))]
        vector = engine.array(y[0, 0]) @ A
    assert_within_bound(results[0], a, x)
    assert_within_bound(results[1], y, np.broadcast_to(a, (3, 32, 64)))
    assert_within_bound(results[2], x.T, a.T)
    assert_within_bound(results[3], a.T, y[0].T)
    assert_within_bound(engine.host(vector)[None], y[0, :1], a)


def test_a_missing_half_is_built_once_and_kept(engine, rng):
    pruned = sg.prune_tile(random_values(rng, (64, 64), HALF))
    A = sg.to_semi_structured(engine.array(pruned))
    y = engine.array(random_values(rng, (5, 64), HALF))
    assert A.packed_t is None
    with engine.runs(KERNEL):
        first = y @ A
        kept = A.packed_t
        second = y @ A
    assert kept is not None and A.packed_t is kept and A.T.packed is kept
    assert_same(engine, first, second)
    expected, meta = sg.semi_structured_from_dense(np.ascontiguousarray(pruned.T))
    assert_same(engine, kept, engine.array(expected))
    assert_same(engine, A.T.values(), engine.array(expected))
    assert_same(engine, A.T.indices(), engine.array(meta))


def test_a_transpose_that_is_not_24(engine):
    dense = np.zeros((32, 32), HALF)
    dense[:, ::4] = np.arange(1, 33)[:, None]
    A = sg.to_semi_structured(engine.array(dense))
    y = np.ones((3, 32), HALF)
    with engine.runs(KERNEL):
        out = engine.array(y) @ A
    np.testing.assert_array_equal(engine.host(out), y @ dense)
    half = A.half(transposed=True)
    with engine.runs(KERNEL):
        engine.array(y) @ A
    assert half.split and A.half(transposed=True) is half
    assert A.packed_t is None and A.T.packed is None
    for method in (A.T.values, A.T.indices):
        with (
            engine.runs(None),
            pytest.raises(ValueError, match=r"2:4 by rows.*products with it work"),
        ):
            method()


def test_threads_build_one_half(engine, rng):
    A = sg.to_semi_structured(engine.array(sg.prune_tile(random_values(rng, (64, 64), HALF))))
    seen = []

    def build(_):
        with sg.use_engine(engine.name):
            seen.append(A.half(transposed=True))

    run_in_threads(build, 4)
    assert len(seen) == 4 and all(half is seen[0] for half in seen)


@pytest.mark.parametrize("dtype", [INT8, SINGLE], ids=str)
def test_a_transpose_of_its_own_multiples(engine, rng, dtype):
    shape = (16, 64) if dtype == INT8 else (32, 48)
    a = random_24(rng, shape, dtype)
    y = random_values(rng, (4, shape[0]), dtype)
    A = sg.to_semi_structured(engine.array(a))
    with engine.runs(KERNEL):
        out = engine.array(y) @ A
    assert_within_bound(out, y, a)


# -- the constructor ----------------------------------------------------------------------------


def test_from_parts(engine, rng):
    dense = engine.array(random_values(rng, (32, 64), HALF))
    with engine.runs("semi_structured_tile"):
        packed, meta, packed_t, meta_t, mask = sg.semi_structured_tile(dense)
        whole = sg.SemiStructuredArray((32, 64), packed, meta, packed_t, meta_t, mask)
        by_columns = sg.SemiStructuredArray((32, 64), None, None, packed_t, meta_t)
        same = whole.todense(), by_columns.todense()
        products = whole @ dense.T, by_columns @ dense.T
    assert_same(engine, *same)
    assert_same(engine, *products)
    assert_same(engine, by_columns.packed, packed)


def test_parts_that_do_not_fit(engine):
    xp = engine.xp
    packed, meta = xp.zeros((32, 16), dtype=HALF), xp.full((32, 2), 0x4444, dtype=np.int16)
    for arguments, keywords, error, match in (
        (((32, 32), packed, None), {}, ValueError, "'meta'"),
        (((32, 32), None, None), {}, ValueError, "'packed'.*at least one half"),
        (((32, 64), packed, meta), {}, ValueError, r"'packed'.*\(32, 64\).*got \(32, 32\)"),
        (((32, 32), packed, meta.astype(np.int32)), {}, TypeError, "'meta'.*int16"),
        (((32, 32), packed, meta), {"dtype": "float8_e4m3fn"}, TypeError, "'dtype'.*float16"),
        (((32, 32), packed, meta), {"bitmask": meta}, TypeError, "'bitmask'.*uint8"),
        (
            ((32, 32), packed, meta),
            {"bitmask": xp.zeros((4, 2, 8), dtype=np.uint8)},
            ValueError,
            r"'bitmask'.*\(32, 32\).*got \(4, 2, 8\)",
        ),
        (((32, 32), packed, meta), {"backend": "mkl"}, ValueError, "'backend'.*'native'.*'mkl'"),
    ):
        with engine.runs(None), pytest.raises(error, match=f"SemiStructuredArray.*{match}"):
            sg.SemiStructuredArray(*arguments, **keywords)


def test_what_from_dense_refuses(engine, rng):
    xp = engine.xp
    dense = np.zeros((32, 32), HALF)
    dense[7, 12:15] = 1
    device = engine.array(dense)
    with (
        engine.runs("semi_structured_compress"),
        pytest.raises(ValueError, match=r"row 7, column 12"),
    ):
        sg.to_semi_structured(device)
    with engine.runs("semi_structured_compress"):
        A = sg.to_semi_structured(device, strict=False)
    np.testing.assert_array_equal(engine.host(A.todense())[7, 12:16], [1, 1, 0, 0])
    for make, function in (
        (sg.to_semi_structured, "to_semi_structured"),
        (sg.SemiStructuredArray.from_dense, "SemiStructuredArray.from_dense"),
    ):
        made = rf"^{function}: argument 'dense'.*multiple of 32.*pad=True"
        with engine.runs(None), pytest.raises(ValueError, match=made):
            make(device[:, :24])
    made = r"SemiStructuredArray\.prune_dense_static_sort: argument 'dense'.*multiple of 32"
    with engine.runs(None), pytest.raises(ValueError, match=made):
        sg.SemiStructuredArray.prune_dense_static_sort(device[:, :24])
    with engine.runs(None), pytest.raises(ValueError, match=r"'dense'.*two dimensions"):
        sg.to_semi_structured(xp.zeros((2, 32, 32), dtype=HALF))
    with engine.runs(None), pytest.raises(TypeError, match=r"'dense'.*float64"):
        sg.to_semi_structured(xp.zeros((32, 32)))
    with engine.runs(None), pytest.raises(TypeError, match=r"'dense'.*a dense array"):
        sg.to_semi_structured(A)
    with pytest.raises(TypeError, match=r"'dense'.*its semi_structured\(\)\), got bsr_array"):
        sg.to_semi_structured(sg.bsr_array((32, 32), blocksize=(32, 32), dtype=HALF))
    with engine.runs(None), pytest.raises(TypeError, match=r"float32"):
        sg.SemiStructuredArray.prune_dense_static_sort(xp.zeros((32, 32), dtype=SINGLE))


def test_sparse_by_sparse(engine, rng):
    A = sg.to_semi_structured(engine.array(random_24(rng, (32, 32), HALF)))
    with engine.runs(None), pytest.raises(ValueError, match=r"'other'.*sparse @ sparse"):
        A @ A
    with engine.runs(None), pytest.raises(ValueError, match=r"sparse @ sparse"):
        A @ A.T
    B = sg.bsr_array(engine.xp.ones((32, 32), dtype=HALF), blocksize=(16, 16))
    for left, right in ((A, B), (B, A)):
        with engine.runs(None), pytest.raises(ValueError, match=r"'other'.*sparse @ sparse"):
            left @ right
    others = pytest.importorskip("scipy.sparse").csr_array(np.ones((32, 32), np.float32))
    with engine.runs(None), pytest.raises(ValueError, match=r"'other'.*sparse @ sparse"):
        A @ others


def test_linear_names_its_arguments(engine, rng):
    weight = sg.to_semi_structured(engine.array(random_24(rng, (32, 64), HALF)))
    x = engine.xp.ones((3, 64), dtype=HALF)
    for bias, error in (
        (engine.xp.ones(31, dtype=HALF), ValueError),
        (engine.xp.ones(32), TypeError),
    ):
        with (
            engine.runs(None),
            pytest.raises(error, match=r"semi_structured_linear: argument 'bias'"),
        ):
            sg.semi_structured_linear(x, weight, bias)


def test_the_vendor_backend_says_why_not(engine, rng):
    A = sg.to_semi_structured(engine.array(random_24(rng, (32, 32), HALF)))
    if availability.why_not("here") is not None:
        dense = A.todense()
        with engine.runs(None), pytest.raises(ImportError, match=r"nvmath|cuSPARSELt"):
            sg.SemiStructuredArray.from_dense(dense, backend="cusparselt")
        with engine.runs(None), pytest.raises(ImportError, match=r"to_backend.*native"):
            A.to_backend("cusparselt")
    assert A.to_backend("native") is A
    with pytest.raises(AttributeError, match="backend"):
        A.backend = "cusparselt"
    with engine.runs(None), pytest.raises(ValueError, match=r"'backend'.*'cusparselt'.*'other'"):
        A.to_backend("other")


# -- files, pickles, other places ---------------------------------------------------------------


@covered(dtype=DTYPES, compressed=[True, False])
def test_files(engine, rng, dtype, compressed):
    A = sg.to_semi_structured(engine.array(random_24(rng, (33, 65), dtype)), pad=True)
    file = io.BytesIO()
    A.save_npz(file, compressed=compressed)
    file.seek(0)
    B = sg.SemiStructuredArray.load_npz(file)
    assert isinstance(B.packed, np.ndarray) and B.packed.dtype == dtype
    assert B.shape == A.shape and B.dtype == A.dtype and B.packed_t is None
    assert_same(engine, A.packed, B.packed if not engine.on_gpu else engine.array(B.packed))
    np.testing.assert_array_equal(engine.host(A.meta), B.meta)


def test_files_with_everything(rng, tmp_path):
    A = sg.SemiStructuredArray.prune_dense_static_sort(random_values(rng, (32, 64), BF16))
    A.T.save_npz(tmp_path / "a.npz")
    B = sg.SemiStructuredArray.load_npz(tmp_path / "a.npz").T
    for name in ("packed", "meta", "packed_t", "meta_t", "bitmask"):
        np.testing.assert_array_equal(bits(getattr(A, name)), bits(getattr(B, name)))
    np.savez(tmp_path / "b.npz", x=np.ones(3))
    with pytest.raises(ValueError, match=r"load_npz.*'file'.*b\.npz"):
        sg.SemiStructuredArray.load_npz(tmp_path / "b.npz")


def test_pickles(engine, rng):
    A = sg.to_semi_structured(engine.array(random_24(rng, (32, 64), FP8)))
    B = pickle.loads(pickle.dumps(A))
    assert B.shape == A.shape and B.dtype == FP8
    assert_same(engine, A.packed, B.packed)


def test_repr(rng):
    A = sg.to_semi_structured(random_24(rng, (32, 64), BF16))
    assert repr(A) == (
        "<sparsegpu.SemiStructuredArray, shape (32, 64), bfloat16, 2:4, native, on cpu>"
    )
    assert A.get() is A


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_there_and_back(cuda_engine, rng, dtype):
    A = sg.to_semi_structured(random_24(rng, (32, 64), dtype))
    B = A.to_device()
    assert B.dtype == dtype and B.to_device() is B and "cuda" in repr(B)
    assert B.packed.dtype == (np.uint8 if dtype == FP8 else dtype)
    C = B.get()
    assert C.dtype == dtype and C.packed.dtype == dtype
    np.testing.assert_array_equal(bits(A.packed), bits(C.packed))
    np.testing.assert_array_equal(A.meta, C.meta)
