"""Sizes and indices beyond the integers that hold them are refused where they are given."""

from __future__ import annotations

import io

import numpy as np
import pytest
import scipy.sparse

import sparsegpu
from covering import covered
from sparsegpu import SemiStructuredArray, bsr_array
from sparsegpu.pattern import Pattern

HUGE = 2**70
LAST = 2**64 - 1


def parts(indices, indptr, dtype=np.int64, batch=()):
    indices = np.array(indices, dtype)
    data = np.ones((*indices.shape, 2, 2), np.float32)
    return data, indices, np.array(indptr, dtype)


def halves():
    return sparsegpu.semi_structured_from_dense(np.zeros((32, 64), np.float16))


def saved(shape):
    file = io.BytesIO()
    data, indices, indptr = parts([0], [0, 1])
    np.savez(file, format=b"bsr", shape=shape, data=data, indices=indices, indptr=indptr)
    file.seek(0)
    return sparsegpu.load_npz(file)


SHAPES = {
    "bsr_array": lambda s: bsr_array(parts([0], [0, 1]), shape=s),
    "bsr_array without check": lambda s: bsr_array(parts([0], [0, 1]), shape=s, check=False),
    "bsr_array of nothing": bsr_array,
    "random_bsr": lambda s: sparsegpu.random_bsr(s, (1, 1), 0.0),
    "Pattern": lambda s: Pattern(np.array([0, 1]), np.array([0]), s, (1, 1), function="Pattern"),
    "load_npz": saved,
    "SemiStructuredArray": lambda s: SemiStructuredArray(s, *halves()),
    "BsrSemiStructuredArray": lambda s: sparsegpu.BsrSemiStructuredArray(
        (*(part[None] for part in halves()), np.array([0]), np.array([0, 1])), s
    ),
    "from_cusparselt_layout": lambda s: sparsegpu.from_cusparselt_layout(
        np.zeros(9 * 128 * 64 // 16, np.float16), s
    ),
    "meta_reorder_offsets": lambda s: sparsegpu.meta_reorder_offsets(*s, np.int16),
    "banded": lambda s: sparsegpu.banded(s, 1, 0),
    "sliding_window": lambda s: sparsegpu.sliding_window(s, 1, 0),
    "causal": lambda s: sparsegpu.causal(s, 1),
    "bigbird": lambda s: sparsegpu.bigbird(s, 1),
    "prefix": lambda s: sparsegpu.masks.prefix(s, 1, 0),
    "from_indices": lambda s: sparsegpu.masks.from_indices([[0]], shape=s, blocksize=1),
}
BAD = {
    "beyond 64 bits": ((4, HUGE), ValueError),
    "both": ((HUGE, HUGE), ValueError),
    "product beyond 63 bits": ((2**32, 2**32), ValueError),
    "nothing of too much": ((0, 2**63), ValueError),
    "negative": ((-128, -64), ValueError),
    "one negative": ((4, -64), ValueError),
    "float": ((4.0, 64.0), TypeError),
    "bool": ((True, True), TypeError),
    "text": (("4", "64"), TypeError),
}


@covered(bad=BAD, name=SHAPES)
def test_shapes_that_no_matrix_has(name, bad):
    shape, error = BAD[bad]
    if name == "load_npz" and max(map(int, shape)) >= 2**63:
        pytest.skip("NumPy saves no such integers")
    if name == "bsr_array of nothing" and bad in {"float", "text"}:
        pytest.skip("a dense array")
    function = name.split()[0]
    if name == "load_npz":
        error = ValueError  # of the file, whatever is wrong with it
    with pytest.raises(error, match=f"^{function}: arg"):
        SHAPES[name](np.array(shape) if name == "load_npz" else shape)


@pytest.mark.parametrize("integer", [np.int32, np.uint64, np.int8])
def test_shapes_of_numpy_integers(integer):
    shape = integer(4), integer(4)
    assert bsr_array(parts([0, 1], [0, 1, 2]), shape=shape).shape == (4, 4)
    assert sparsegpu.random_bsr(shape, shape, 1.0, rng=0).shape == (4, 4)
    assert sparsegpu.causal(shape, 2).shape == (4, 4)


@covered(check=[True, False], shape=[None, (4, 4), (4, 2**40)])
@pytest.mark.parametrize(
    ("name", "wrong", "dtype"),
    [
        ("indices", LAST, np.uint64),
        ("indices", 2**63, np.uint64),
        ("indices", LAST - 2**32 + 2, np.uint64),  # 1 in 32 bits
        ("indices", 2**64 - 2**32, np.uint64),  # 0 in 32 bits
        ("indptr", LAST, np.uint64),
        ("indptr", 2**64 - 2**32 + 1, np.uint64),
    ],
)
def test_indices_that_the_cast_would_change(engine, name, wrong, dtype, shape, check):
    given = {"indices": [0, 1], "indptr": [0, 1, 2]}
    given[name][1] = wrong
    arrays = map(engine.array, parts(**given, dtype=dtype))
    with engine.runs(None), pytest.raises(ValueError, match=f"^bsr_array: argument '{name}'"):
        bsr_array(tuple(arrays), shape=shape, check=check)


@pytest.mark.parametrize("wrong", [2**32, 2**32 + 1, -(2**32), 2**31])
def test_64_bit_indices_that_would_wrap(engine, wrong):
    """2**32 would become block column 0 of a matrix that has 32-bit indices."""
    arrays = [engine.array(a) for a in parts([0, wrong], [0, 1, 2])]
    for check in (True, False):
        with engine.runs(None), pytest.raises(ValueError, match="bsr_array: argument 'indices'"):
            bsr_array(tuple(arrays), shape=(4, 4), check=check)


@pytest.mark.parametrize("dtype", ["uint64", "uint32", "uint8", "int8", ">i4", ">i8", "int64"])
def test_every_integer_dtype_that_fits_is_taken(engine, dtype):
    if engine.on_gpu and dtype[0] == ">":
        pytest.skip("CuPy has no other byte order")
    arrays = tuple(map(engine.array, parts([0, 1], [0, 1, 2], dtype)))
    for check in (True, False):
        a = bsr_array(arrays, shape=(4, 4), check=check)
        assert a.indices.dtype == a.indptr.dtype == np.int32 and a.shape == (4, 4)
        assert bsr_array(arrays, check=check).shape == (4, 4)
        assert engine.host(a.indices).tolist() == [0, 1]


@covered(check=[True, False], wrong=[-1, 2**62, 2**63 - 1])
def test_no_shape_is_guessed_from_indices_that_no_matrix_has(engine, wrong, check):
    arrays = tuple(map(engine.array, parts([0, wrong], [0, 1, 2])))
    with engine.runs(None), pytest.raises(ValueError, match="bsr_array: argument 'indices'"):
        bsr_array(arrays, check=check)


def test_wide_matrices_work(engine):
    """Almost 2**63 elements: places, keys and the order of blocks are in 64 bits throughout."""
    columns = 2**60
    last = columns // 2 - 1
    arrays = tuple(map(engine.array, parts([last, 0, last, 5], [0, 2, 4])))
    a = bsr_array(arrays, shape=(4, columns))
    assert a.indices.dtype == np.int64 and a.size == 16
    assert a.density == 16 / (4 * columns)
    assert not a.has_sorted_indices and a.pattern.keys().tolist()[2] == last + columns // 2
    a.sum_duplicates()
    assert engine.host(a.indices).tolist() == [0, last, 5, last]
    assert (a + a).nnzb == 4 and float((a + a).sum()) == 32
    with pytest.raises(ValueError, match=r"bsr_array: argument 'shape': .* 2\*\*63 - 1 elements"):
        bsr_array(arrays, shape=(4, 2**62))


def test_a_product_of_more_elements_than_that():
    left = bsr_array(parts([0, 0], [0, 1, 2]), shape=(4, 2))
    right = bsr_array(parts([2**59], [0, 1]), shape=(2, 2**61))
    with pytest.raises(ValueError, match=r"bsr_array @: argument 'other': .* elements, got "):
        left @ right


def test_a_batch_counts():
    given = parts([[0], [0]], [[0, 1], [0, 1]])
    assert bsr_array(given, shape=(2, 2, 2**60)).shape == (2, 2, 2**60)
    with pytest.raises(ValueError, match=r"argument 'shape': .* got \(2, 2, 2305843009213693952\)"):
        bsr_array(given, shape=(2, 2, 2**61))
    with pytest.raises(ValueError, match=r"argument 'shape': .* got \(2, 2, 2305843009213693952\)"):
        bsr_array(given, shape=(2, 2**61))


@pytest.mark.parametrize("width", [2**62, 2**63 - 1, HUGE])
def test_absurd_windows_are_the_whole_mask(width):
    whole = np.ones((6, 6), bool)
    assert (sparsegpu.banded(6, 2, width).toarray() == whole).all()
    assert (sparsegpu.banded(6, 2, 0, width).toarray() == np.triu(whole)).all()
    assert (sparsegpu.sliding_window(6, 2, width).toarray() == whole).all()
    assert (sparsegpu.sliding_window(6, 2, width, causal=True).toarray() == np.tril(whole)).all()
    mask = sparsegpu.bigbird(6, 2, window=width, global_blocks=width, random_blocks=width, rng=0)
    assert (mask.toarray() == whole).all()


@pytest.mark.parametrize(("row", "column"), [([4], [0]), ([0], [4]), ([-1], [0]), ([0], [-1])])
def test_places_that_were_changed_in_a_sparse_array(row, column):
    """SciPy looks at places when an array is made, and they may be set afterwards."""
    given = scipy.sparse.coo_array((np.ones(1), ([0], [0])), shape=(4, 4))
    given.row[...], given.col[...] = row, column
    with pytest.raises(
        ValueError, match=r"bsr_array: argument 'arg': expected (rows|columns) in 0"
    ):
        bsr_array(given, blocksize=(2, 2))
