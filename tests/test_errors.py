"""Bad input gets a clear error before anything is written: function, argument, expected, got."""

import sys
import warnings
from contextlib import contextmanager
from types import ModuleType

import numpy as np
import pytest

import sparsegpu as sg
from foreign_arrays import OfAnotherLibrary
from sparsegpu._arrays import as_array
from sparsegpu.testing import assert_within_bound, random_blocks, random_values


@contextmanager
def refused(engine, error, match):
    """Compute on an engine, which is to raise such an error."""
    with sg.use_engine(engine.name), pytest.raises(error, match=match):
        yield


def make(engine, rng, dtype="float32"):
    arrays = random_blocks(rng, (16, 24), (4, 8), dtype=dtype)
    return engine.bsr(arrays, (16, 24))


def test_out_of_range_column(engine, rng):
    data, indices, indptr = random_blocks(rng, (16, 24), (4, 8))
    for wrong in (3, -1):
        bad = indices.copy()
        bad[-1] = wrong
        arrays = tuple(engine.array(a) for a in (data, bad, indptr))
        with refused(
            engine, ValueError, rf"bsr_array: argument 'indices': expected .* in 0..2, got {wrong}"
        ):
            sg.bsr_array(arrays, shape=(16, 24))


def test_three_dimensional_matrix(engine, rng):
    dense = engine.array(random_values(rng, (2, 32, 32), "float16"))
    with refused(
        engine, ValueError, r"semi_structured_from_dense: argument 'dense': .*got.*\(2, 32, 32\)"
    ):
        sg.semi_structured_from_dense(dense)


def test_wrong_inner_size_and_untouched_out(engine, rng):
    a = make(engine, rng)
    out = engine.array(np.full((16, 5), 7, np.float32))
    with refused(
        engine,
        ValueError,
        r"bsr_addmm: argument 'dense': expected shape \(\*batch, 24, N\), got \(23, 5\)",
    ):
        sg.bsr_addmm(None, a, engine.array(np.ones((23, 5), np.float32)), out=out)
    assert (engine.host(out) == 7).all()


@pytest.mark.parametrize("shape", [(16, 6), (15, 5), (1, 16, 5), (16,)])
def test_out_of_the_wrong_shape(engine, rng, shape):
    a = make(engine, rng)
    out = engine.array(np.full(shape, 7, np.float32))
    with refused(engine, ValueError, r"bsr_matmul: argument 'out': expected shape \(16, 5\), got"):
        sg.bsr_matmul(a, engine.array(np.ones((24, 5), np.float32)), out=out)
    assert (engine.host(out) == 7).all()


def test_dtypes_are_not_promoted(engine, rng):
    a = make(engine, rng, "float16")
    with refused(
        engine, TypeError, r"bsr_matmul: argument 'dense': expected dtype float16 .*, got float32"
    ):
        sg.bsr_matmul(a, engine.array(np.ones((24, 5), np.float32)))


@pytest.mark.parametrize("array", ["bool", "int32", "int64", "object"])
def test_dtypes_that_no_product_takes(engine, rng, array):
    a = make(engine, rng)
    dense = np.ones((24, 5), array)
    if engine.on_gpu and array == "object":
        pytest.skip("CuPy has no object arrays")
    with refused(engine, TypeError, r"argument 'dense'"):
        sg.bsr_matmul(a, engine.array(dense))


def test_not_24(engine, rng):
    dense = np.zeros((32, 64), np.float16)
    dense[5, 9:12] = 1
    with refused(engine, ValueError, r"semi_structured_from_dense.*row 5.*column 8"):
        sg.semi_structured_from_dense(engine.array(dense))


def test_out_overlapping_an_operand(engine, rng):
    a = make(engine, rng)
    memory = engine.array(np.ones((30, 5), np.float32))
    with refused(engine, ValueError, r"argument 'out': expected memory apart from 'dense'"):
        sg.bsr_matmul(a, memory[:24], out=memory[10:26])
    shared = engine.array(np.ones((17, 5), np.float32))
    with refused(engine, ValueError, r"argument 'out': .*apart from 'input'"):
        sg.bsr_addmm(shared[:16], a, engine.array(np.ones((24, 5), np.float32)), out=shared[1:])


def test_interleaved_memory_does_not_overlap(engine, rng):
    a = make(engine, rng)
    memory = engine.array(np.ones((24, 10), np.float32))
    with engine.runs("bsr_addmm"):
        out = sg.bsr_matmul(a, memory[:, ::2], out=memory[:16, 1::2])
    assert_within_bound(out, engine.host(a.toarray()), np.ones((24, 5), np.float32))


def test_elements_of_out_that_share_memory(engine, rng):
    a, x = make(engine, rng), engine.array(np.ones((24, 5), np.float32))
    as_strided = engine.xp.lib.stride_tricks.as_strided
    memory = engine.xp.zeros(400, np.float32)
    with engine.runs("bsr_addmm"):
        expected = engine.host(a @ x)
        # Those of the last one do not nest, and yet each element has a place of its own.
        for strides in ((20, 4), (-20, 4), (4, 64), (8, 140), (20, 64)):
            out = as_strided(memory[0 if strides[0] > 0 else 300 :], (16, 5), strides)
            np.testing.assert_array_equal(engine.host(sg.bsr_matmul(a, x, out=out)), expected)
    memory.fill(7)
    for strides in ((0, 4), (16, 4), (4, 4), (4, 60), (20, 2)):
        out = as_strided(memory, (16, 5), strides)
        with pytest.raises(
            ValueError, match="'out': expected distinct elements, got a view of str"
        ):
            sg.bsr_matmul(a, x, out=out)
    assert (engine.host(memory) == 7).all()


def test_wrong_engine_for_the_arrays(rng):
    a = sg.bsr_array(random_blocks(rng, (16, 24), (4, 8)), shape=(16, 24))
    with (
        sg.use_engine("cuda"),
        pytest.raises(TypeError, match="expected cupy arrays for the engine 'cuda', got numpy"),
    ):
        a @ np.ones((24, 2), np.float32)
    with (
        pytest.raises(ValueError, match=r"use_engine: argument 'name': expected one of"),
        sg.use_engine("gpu"),
    ):
        pass


def test_host_with_device(cuda_engine, rng):
    a = make(cuda_engine, rng)
    with pytest.raises(TypeError, match=r"bsr_matmul: argument 'dense': expected a cupy array"):
        sg.bsr_matmul(a, np.ones((24, 5), np.float32))
    out = np.full((16, 5), 7, np.float32)
    with pytest.raises(TypeError, match=r"bsr_matmul: argument 'out': expected a cupy array"):
        sg.bsr_matmul(a, cuda_engine.array(np.ones((24, 5), np.float32)), out=out)
    assert (out == 7).all()


def dense_product(engine, rng, **keywords):
    x = engine.array(np.ones((5, 16), np.float32))
    return sg.dense_bsr_matmul(x, make(engine, rng), **keywords)


def linear(engine, rng, **keywords):
    del rng
    weight = sg.to_semi_structured(engine.array(np.zeros((32, 16), np.float32)))
    x = engine.array(np.ones((5, 16), np.float32))
    return sg.semi_structured_linear(x, weight, **keywords)


@pytest.mark.parametrize(("product", "n"), [(dense_product, 24), (linear, 32)])
def test_products_from_the_right_speak_of_the_callers_shapes(engine, rng, product, n):
    def ones(*shape):
        return engine.array(np.ones(shape, np.float32))

    def refuses(error, match, **keywords):
        with refused(engine, error, match):
            product(engine, rng, **keywords)

    refuses(ValueError, rf"'out': expected shape \(5, {n}\), got \(5, 7\)", out=ones(5, 7))
    refuses(ValueError, rf"'out': expected shape \(5, {n}\), got \({n},\)", out=ones(n))
    refuses(ValueError, rf"'out': expected shape \(5, {n}\), got \(\)", out=ones())
    refuses(TypeError, r"'out': expected an array to write to, got list", out=[[0.0] * n] * 5)
    refuses(ValueError, r"'left_alpha': .* \(5,\), got \(6,\)", left_alpha=ones(6))
    refuses(ValueError, rf"'right_alpha': .* \({n},\), got \(6,\)", right_alpha=ones(6))
    refuses(TypeError, r"'config': expected a dict or None", config=3)
    refuses(TypeError, "unexpected keyword argument 'from_the_right'", from_the_right=True)


def test_input_from_the_right(engine, rng):
    wrong = engine.array(np.ones((24, 5), np.float32))
    with refused(engine, ValueError, r"'input': .* broadcasts to \(5, 24\), got \(24, 5\)"):
        dense_product(engine, rng, input=wrong, beta=1)


def test_out_overlapping_the_blocks_from_the_right(engine, rng):
    a = make(engine, rng)
    out = a.data.reshape(-1)[: 2 * 24].reshape(2, 24)
    x = engine.array(np.ones((2, 16), np.float32))
    with refused(engine, ValueError, "apart from 'bsr'"):
        sg.dense_bsr_matmul(x, a, out=out)


def test_results_are_row_major_from_either_side(engine, rng):
    with sg.use_engine(engine.name):
        assert dense_product(engine, rng).flags.c_contiguous
        assert linear(engine, rng).flags.c_contiguous


def test_scalars_are_checked_without_blocks(engine):
    a = sg.bsr_array(engine.array(np.zeros((4, 4), np.float32)), blocksize=(2, 2))
    x = engine.array(np.ones((4, 1), np.float32))
    with refused(engine, TypeError, r"argument 'alpha'"):
        sg.bsr_matmul(a, x, alpha="2")


def test_scales_have_their_own_names(engine):
    a = sg.to_semi_structured(engine.array(np.zeros((16, 64), np.int8)))
    x, ones = engine.array(np.ones((64, 5), np.int8)), engine.array(np.ones(3, np.float32))
    for name, scales in (("scale_sparse", (ones, 1)), ("scale_dense", (1, ones))):
        with refused(engine, ValueError, rf"argument '{name}'"):
            sg.scaled_mm(a, x, *scales)


def test_what_names_no_dtype():
    a = sg.bsr_array(np.eye(4), blocksize=(2, 2))
    for make_it, function, argument in (
        (lambda: sg.bsr_matmul(a, np.ones(4), out_dtype="foo"), "bsr_matmul", "out_dtype"),
        (lambda: sg.bsr_array(np.eye(4), blocksize=(2, 2), dtype="foo"), "bsr_array", "dtype"),
        (lambda: a.astype("foo"), "astype", "dtype"),
        (lambda: a.sum(dtype="foo"), "sum", "dtype"),
        (lambda: sg.random_bsr((4, 4), (2, 2), 0.5, dtype="foo"), "random_bsr", "dtype"),
        (lambda: sg.meta_reorder_offsets(32, 2, "foo"), "meta_reorder_offsets", "meta_dtype"),
    ):
        with pytest.raises(TypeError, match=rf"{function}: argument '{argument}': .* got 'foo'"):
            make_it()


def test_what_is_no_integer():
    dense = np.ones((4, 4))
    for make_it, argument in (
        (lambda: sg.bsr_array(dense, blocksize=(2.5, 2)), "blocksize"),
        (lambda: sg.bsr_array(dense, blocksize=2), "blocksize"),
        (lambda: sg.bsr_array(dense, blocksize=(2, 2, 2)), "blocksize"),
        (lambda: sg.bsr_array((4.0, 4.0)), "arg"),
        (lambda: sg.bsr_array(dense, shape=(4.5, 4), blocksize=(2, 2)), "shape"),
        (lambda: sg.random_bsr(4, (2, 2), 0.5), "shape"),
        (lambda: sg.random_bsr((4, 4), (2, 2), 0.5, xp="numpy"), "xp"),
        (lambda: sg.random_bsr((4, 4), (2, 2), "all"), "density"),
        (lambda: sg.prune_blocks(dense, (2, 2), "all"), "density"),
        (lambda: sg.bsr_array([[1.0, 2], [3]], blocksize=(1, 1)), "arg"),
        (lambda: sg.bsr_array(dense, blocksize=(2, 2)).diagonal(1.5), "k"),
        (lambda: sg.causal(4.5, 2), "length"),
        (lambda: sg.causal((4, 4, 4), 2), "length"),
        (lambda: sg.sliding_window(4, 2, "wide"), "window"),
        (lambda: sg.sliding_window(4, 2, None), "window"),
        (lambda: sg.from_cusparselt_layout(np.ones(4, np.float16), 128), "shape"),
    ):
        with pytest.raises((TypeError, ValueError), match=rf"argument '{argument}': expected"):
            make_it()


def test_an_array_is_no_choice():
    a = sg.bsr_array(np.eye(4), blocksize=(2, 2))
    with pytest.raises(ValueError, match="argument 'activation': expected one of"):
        sg.bsr_matmul(a, np.ones(4), activation=np.ones(3))


def test_a_matrix_of_scipy_is_no_dense_operand():
    import scipy.sparse

    a = sg.bsr_array(np.eye(4), blocksize=(2, 2))
    with pytest.raises(
        TypeError, match=r"got scipy\.sparse\..*bsr_array \(sparsegpu.bsr_array takes"
    ):
        sg.bsr_matmul(a, scipy.sparse.bsr_array(np.eye(4)))


def test_nothing_becomes_dense_unasked():
    """Nor an array of objects, which NumPy would make of what it does not know."""
    a = sg.bsr_array(np.eye(32, dtype=np.float16), blocksize=(32, 32))
    for sparse in (a, a.semi_structured(), sg.to_semi_structured(a.toarray())):
        for make_dense in (np.asarray, np.median, lambda s: np.stack([s, s])):
            with pytest.raises(
                TypeError,
                match=rf"{type(sparse).__name__}: .* A\.todense\(\) makes|^numpy\.\w+: .*makes",
            ):
                make_dense(sparse)
    with pytest.raises(TypeError, match=r"'dense': expected a NumPy .* got sparsegpu\.bsr\.array"):
        sg.bsr_matmul(a, a)


class OfANeighbour(OfAnotherLibrary):
    def __array__(self, dtype=None, copy=None):
        return self.array


def test_kinds_of_host_arrays(rng):
    a = sg.bsr_array(random_values(rng, (8, 12), "bfloat16"), blocksize=(4, 4))
    x = random_values(rng, (12, 5), "bfloat16")
    expected = a @ x
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        matrix = np.asmatrix(x)
    for dense in (matrix, x.view(np.recarray), OfANeighbour(x)):
        result = sg.bsr_matmul(a, dense)
        assert type(result) is np.ndarray
        np.testing.assert_array_equal(result, expected)
    assert (sg.bsr_matmul(a, matrix[:, 0]) == expected[:, :1]).all()
    single = a.astype(np.float32)
    np.testing.assert_array_equal(
        single @ OfAnotherLibrary(x.astype(np.float32)), single @ x.astype(np.float32)
    )
    with pytest.raises(TypeError, match="argument 'dense': expected an array that NumPy can read"):
        sg.bsr_matmul(a, OfAnotherLibrary(x))  # NumPy's DLPack knows no bfloat16
    masked = np.ma.masked_equal(x.astype(np.float32), 0)
    with pytest.raises(TypeError, match="argument 'dense': expected an array without a mask"):
        sg.bsr_matmul(single, masked)
    with pytest.raises(TypeError, match="argument 'data': expected an array without a mask"):
        a.with_data(np.ma.masked_array(a.data))


def test_while_another_thread_imports_masked_arrays(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpy.ma", ModuleType("numpy.ma"))  # nothing in it yet
    assert type(as_array(np.eye(4).view(np.recarray), "f", "x")) is np.ndarray


class OfAnotherClass(np.ndarray):
    """Arrays of a program that has its own."""


def test_what_can_be_written_to(rng, tmp_path):
    a = sg.bsr_array(random_values(rng, (8, 12), "float32"), blocksize=(4, 4))
    x = random_values(rng, (12, 5), "float32")
    on_disk = np.memmap(tmp_path / "out", dtype=np.float32, mode="w+", shape=(8, 5))
    weight = sg.to_semi_structured(sg.prune_24(a.toarray(), keep="1:2"), pad=True)
    lists = ("scatter_mm", np.array([0, 1]), np.array([[0, 0]]))
    tile, blocks, others = np.zeros((1, 4, 5), np.float32), a.data[:1], x[None, :4]
    for out in (on_disk, np.zeros((8, 5), np.float32).view(OfAnotherClass)):
        for engine in ("reference", "cpu"):
            with sg.use_engine(engine):
                assert sg.bsr_matmul(a, x, out=out) is out
                np.testing.assert_array_equal(out, a @ x)
                assert sg.semi_structured_matmul(weight, x, out=out) is out
                np.testing.assert_array_equal(out, weight @ x)
                assert sg.bsr_scatter_mm(a, x, out=out) is out
                tiles = tile.view(type(out)) if type(out) is OfAnotherClass else tile
                assert sg.scatter_mm(blocks, others, lists, accumulators=tiles) is tiles
    for write, argument in (
        (lambda out: sg.bsr_matmul(a, x, out=out), "out"),
        (lambda out: sg.bsr_scatter_mm(a, x, out=out), "out"),
        (lambda out: sg.scatter_mm(blocks, others, lists, accumulators=out), "accumulators"),
        (lambda out: a.sum(0, out=out), "out"),
    ):
        with pytest.raises(TypeError, match=f"argument '{argument}': expected an array to write"):
            write(tile.tolist())
