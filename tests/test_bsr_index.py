"""Elements, rows, columns and parts of a `bsr_array`, held against SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import sparsegpu as sg
from operator_cases import make
from sparsegpu import bsr_array

#: Of a matrix of shape (12, 20) in blocks of (3, 4).
PARTS = {
    "rows": np.s_[3:9],
    "columns": np.s_[:, 4:12],
    "last columns": np.s_[:, -8:],
    "both": np.s_[3:9, 8:20],
    "none": np.s_[6:3, 12:4],
    "no columns": np.s_[:, 8:8],
    "all": np.s_[:, :],
}
ROWS = {
    "list": [0, 7, 7, 2, -1],
    "array": np.array([11, 3], np.int32),
    "unsigned": np.array([11, 3], np.uint8),
    "no rows": [],
    "mask": np.arange(12) % 3 == 1,
    "list of bool": [True, False] * 6,
    "empty mask": np.zeros(12, bool),
}
DENSE = {
    "element": np.s_[5, 7],
    "column": np.s_[:, 6],
    "last column": np.s_[:, -1],
    "part of a column": np.s_[2:7, 6],
    "backwards": np.s_[::-2, 6],
    "row": np.s_[4],
    "part of a row": np.s_[4, 3:9],
    "listed column": np.s_[[0, 7, 7], 6],
}


@pytest.mark.parametrize("dtype", ["float64", "int8", "bool", "complex64"])
@pytest.mark.parametrize("name", PARTS)
def test_slices(engine, rng, name, dtype):
    a, dense = make(engine, rng, dtype=dtype, duplicates=True)
    part, expected = a[PARTS[name]], sp.csr_array(dense)[PARTS[name]].toarray()
    part.check_format()
    assert isinstance(part, bsr_array) and part.blocksize == (3, 4)
    assert part.shape == expected.shape and part.dtype == expected.dtype
    np.testing.assert_array_equal(engine.host(part.toarray()), expected)
    part.data[...] = 0  # its own values
    np.testing.assert_array_equal(engine.host(a.toarray()), dense)


@pytest.mark.parametrize("name", ROWS)
def test_rows(engine, rng, name):
    a, dense = make(engine, rng, dtype="float64", duplicates=True)
    rows = ROWS[name]
    rows = rows if isinstance(rows, list) else engine.array(rows)
    expected = sp.csr_array(dense)[ROWS[name]].toarray()
    for part, where in (
        (a[rows], expected),
        (a[rows, :], expected),
        (a[rows, 4:12], expected[:, 4:12]),
    ):
        part.check_format()
        assert isinstance(part, bsr_array) and part.blocksize == (1, 4)
        assert part.shape == where.shape
        np.testing.assert_array_equal(engine.host(part.toarray()), where)
    assert a[rows].tobsr((1, 2)).shape == expected.shape


@pytest.mark.parametrize("name", DENSE)
def test_dense_parts(engine, rng, name):
    a, dense = make(engine, rng, dtype="float64", duplicates=True)
    key = DENSE[name]
    part, expected = engine.host(a[key]), dense[key]
    assert part.shape == expected.shape and part.dtype == expected.dtype
    np.testing.assert_array_equal(part, expected)


def test_columns_of_nothing(engine):
    a = bsr_array((engine.array(np.zeros((0, 2, 2))), engine.array(np.zeros(0, int)),
                   engine.array(np.zeros(3, int))), shape=(4, 6))  # fmt: skip
    np.testing.assert_array_equal(engine.host(a[:, 5]), np.zeros(4))
    assert a[:, 2:6].shape == (4, 4) and a[:, 2:6].nnzb == 0
    assert a[engine.array(np.array([1, 1]))].shape == (2, 6)


def test_matrices_of_a_batch(engine, rng):
    a, dense = make(engine, rng, dtype="float64", batch=(3, 2), duplicates=True)
    for key in (0, -1, (2, 1), np.s_[1:], np.s_[::-1, 1], np.s_[:, 0], np.s_[0:0], np.s_[2, :1]):
        part, expected = a[key], dense[key]
        part.check_format()
        assert isinstance(part, bsr_array) and part.blocksize == (3, 4)
        assert part.shape == expected.shape
        np.testing.assert_array_equal(engine.host(part.toarray()), expected)
    part.data[...] = 0
    np.testing.assert_array_equal(engine.host(a.toarray()), dense)
    for key in (np.s_[1, 0, 3:6, 4:8], np.s_[1, 0, :, 8:12]):
        np.testing.assert_array_equal(engine.host(a[key].toarray()), dense[key])
    for key in (np.s_[2, 1, 5], np.s_[2, 1, 5, 6], np.s_[2, 1, :, 6]):
        np.testing.assert_array_equal(engine.host(a[key]), dense[key])


def test_a_part_keeps_nothing_of_the_whole(rng):
    a = sg.random_bsr((3, 8, 8), (2, 2), 0.5, rng=rng, dtype="float64")
    x = np.ones(8)
    np.testing.assert_array_equal(a[1] @ x, (a @ x)[1])


def test_an_element_costs_no_row():
    a = bsr_array((np.array([[[5.0, 7.0]]]), [2**34], [0, 1]), shape=(1, 2**36))
    assert a[0, 2**35] == 5 and a[-1, 2**35 + 1] == 7 and a[0, 3] == 0
    assert type(a[0, 3]) is type(a[0, 2**35]) is np.float64


def test_off_the_grid(engine, rng):
    a, _ = make(engine, rng, dtype="float64")
    for key, match in (
        (np.s_[1:6], r"bsr_array\[i:j\]: argument 'i, j': expected multiples of 3.*got \(1, 6\)"),
        (np.s_[:, 4:7], r"bsr_array\[:, k:l\]: argument 'k, l': .*multiples of 4.*got \(4, 7\)"),
        (np.s_[3:6, 2:8], r"bsr_array\[:, k:l\]: argument 'k, l': .*multiples of 4.*got \(2, 8\)"),
        (np.s_[:, ::2], r"bsr_array\[:, k:l\]: argument 'step': expected 1, got 2"),
        (np.s_[::-1], r"bsr_array\[i:j\]: argument 'step': expected 1, got -1"),
    ):
        with pytest.raises(ValueError, match=match):
            a[key]


def test_out_of_range(engine, rng):
    a, _ = make(engine, rng, dtype="float64")
    batch, _ = make(engine, rng, dtype="float64", batch=(3,))
    for array, key, match in (
        (a, np.s_[12], r"'i': expected a row in -12\.\.11, got 12"),
        (a, np.s_[:, 20], r"bsr_array\[:, j\]: argument 'j': expected a column in -20\.\.19"),
        (a, np.s_[:, -21], r"bsr_array\[:, j\]: argument 'j': expected a column in -20\.\.19"),
        (a, engine.array(np.array([0, 12])), r"bsr_array\[rows\]: argument 'rows': .* got 12"),
        (a, engine.array(np.array([0, -13])), r"bsr_array\[rows\]: argument 'rows': .* got -13"),
        (a, engine.array(np.ones(5, bool)), r"'rows': expected a mask of shape \(12,\), got \(5,"),
        (batch, 3, r"bsr_array\[b\]: argument 'b': expected an index in -3\.\.2, got 3"),
    ):
        with pytest.raises(IndexError, match=match):
            array[key]


def test_what_is_not_offered(engine, rng):
    a, _ = make(engine, rng, dtype="float64")
    batch, _ = make(engine, rng, dtype="float64", batch=(3,))
    for array, key in (
        (a, ...),
        (a, (0, ...)),
        (a, (0, 1, ...)),
        (a, ()),
        (batch[0], ()),
        (a, np.s_[:, [1, 2]]),
        (a, range(3)),
        (batch, np.s_[:, 3:6]),
        (batch, [0, 1]),
    ):
        with pytest.raises(NotImplementedError, match=r"bsr_array\[...\]: the index .*supported:"):
            array[key]
    for key in (
        *(None, "rows", 1.5, True, np.float32(1), np.bool_(1), {}, float, np.s_[0, 1.5], (0, "j")),
        *(np.s_[0.5:3], np.s_[0, "a":"b"], np.s_[::0], np.s_[1, 2, 3], np.array(1.5)),
    ):
        for of_matrix in (a, batch[0]):
            with pytest.raises(IndexError, match=r"^bsr_array\[...\]: argument 'key': expected "):
                of_matrix[key]
    for rows in (np.array([0.5]), np.array([[0, 1]]), np.ones((12, 20), bool)):
        with pytest.raises(TypeError, match=r"bsr_array\[rows\]: argument 'rows': expected .*1-D"):
            a[engine.array(rows)]


def test_integers_in_arrays_of_no_dimensions_are_integers(engine, rng):
    a, dense = make(engine, rng, dtype="float64")
    i, j = np.array(7), np.array(-2, "int8")
    assert engine.host(a[i, j]) == engine.host(a[7, -2]) == dense[7, -2]
    np.testing.assert_array_equal(engine.host(a[i]), dense[7])


def test_rows_on_the_host_of_an_array_on_a_gpu(cuda_engine, rng):
    a, _ = make(cuda_engine, rng, dtype="float64")
    assert a[[0, 1]].shape == (2, 20)  # a list is no array of another library
    with pytest.raises(TypeError, match=r"argument 'rows': .*no silent copy across the bus"):
        a[np.array([0, 1])]
