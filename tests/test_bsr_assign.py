"""``A[i, j] = value`` on stored blocks, held against NumPy."""

import numpy as np
import pytest

from sparsegpu import bsr_array
from sparsegpu.testing import random_blocks

KEYS = [
    (3, 4),
    (-1, -1),
    (slice(0, 4), slice(2, 8)),
    (slice(None, None, 2), 5),
    (2, slice(1, None)),
    ([0, 1, 7], [3, 3, 0]),
    ([1, -2], slice(None)),
    5,
    (slice(3, 3), 0),
    ([], []),
]


def of_library(engine, key):
    """Return an index with its lists as arrays of the engine's library."""
    if not isinstance(key, tuple):
        return key
    return tuple(engine.array(np.array(k, int)) if isinstance(k, list) else k for k in key)


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "int8", "complex64", "float16"])
def test_as_numpy(engine, rng, key, dtype):
    on = of_library(engine, key)
    key = tuple(np.array(k, int) if k == [] else k for k in key) if isinstance(key, tuple) else key
    dense = rng.integers(1, 5, (8, 10)).astype(dtype)  # every block is kept
    A = bsr_array(engine.array(dense), blocksize=(2, 5))
    pattern = A.pattern
    with engine.runs(None):
        A[on] = 7
    dense[key] = 7
    np.testing.assert_array_equal(engine.host(A.toarray()), dense)
    values = rng.integers(-4, 5, dense[key].shape).astype(dtype)
    if values.ndim:
        with engine.runs(None):
            A[on] = engine.array(values)
        dense[key] = values
        np.testing.assert_array_equal(engine.host(A.toarray()), dense)
    assert A.pattern is pattern


def test_what_is_stored_is_written_and_shared(engine, rng):
    triple = random_blocks(rng, (12, 20), (3, 5), density=0.5, shuffled=False)
    A = engine.bsr(triple, (12, 20))
    B, before = A.with_data(A.data), engine.host(A.toarray())
    row = int(np.repeat(np.arange(4), np.diff(triple[2]))[0]) * 3
    column = int(triple[1][0]) * 5
    with engine.runs(None):
        A[row, column] = 9.0
    before[row, column] = 9
    np.testing.assert_array_equal(engine.host(B.toarray()), before)  # the values are shared


def test_what_is_refused_writes_nothing(engine):
    dense = np.kron(np.eye(3), np.ones((2, 2))).astype("float32")
    A = bsr_array(engine.array(dense), blocksize=(2, 2))
    for key, value, error, match in (
        ((0, 3), 1, ValueError, "'i, j': expected elements of stored blocks"),
        (([0, 0], [0, 3]), 1, ValueError, "'i, j': expected elements of stored blocks"),
        (0, 1, ValueError, "'i, j': expected elements of stored blocks"),
        ((6, 0), 1, IndexError, "'i': expected -6..5, got 6"),
        ((0, -7), 1, IndexError, "'j': expected -6..5, got -7"),
        ((0, 0.5), 1, IndexError, "'key': expected integers, slices"),
        ("a", 1, IndexError, "'key': expected integers, slices"),
        (None, 1, IndexError, "'key': expected integers, slices"),
        (..., 1, NotImplementedError, "the index Ellipsis is not offered"),
        (([[0]], 0), 1, TypeError, "'i': expected an integer"),
        (([0, 1, 2], [0, 1]), 1, ValueError, "'j'"),
        ((0, 0), 1j, TypeError, "'value': expected real numbers for float32"),
        ((0, 0), "one", TypeError, "'value'"),
        ((0, slice(0, 2)), engine.array(np.ones(3)), ValueError, "'value'"),
        ((0, 0, 0), 1, IndexError, "'key': expected at most 2 indices"),
    ):
        with pytest.raises(error, match=match) as caught:
            A[of_library(engine, key)] = value
        assert str(caught.value).startswith("bsr_array[i, j] =")
    np.testing.assert_array_equal(engine.host(A.toarray()), dense)
    narrow = bsr_array(engine.array(dense.astype("int8")), blocksize=(2, 2))
    with pytest.raises(ValueError, match="'value': expected a number that int8 holds"):
        narrow[0, 0] = 300
    batch = bsr_array(engine.array(np.stack([dense, dense])), blocksize=(2, 2))
    with pytest.raises(ValueError, match="'self': expected one matrix"):
        batch[0, 0] = 1
    data = engine.array(np.ones((2, 1, 1), "float32"))
    double = bsr_array((data, engine.array(np.array([0, 0])), engine.array(np.array([0, 2]))))
    with pytest.raises(ValueError, match=r"'self': .*sum_duplicates"):
        double[0, 0] = 1


def test_lists_of_python():
    A = bsr_array(np.ones((4, 4)), blocksize=(2, 2))
    A[[0, 1], [3, 2]] = [5.0, 6.0]
    assert A[0, 3] == 5 and A[1, 2] == 6
    A[[], []] = 1
    assert A.sum() == 25


def test_values_that_cannot_be_written_to():
    data = np.ones((1, 2, 2))
    data.flags.writeable = False
    A = bsr_array((data, [0], [0, 1]))
    for write, function in (
        (lambda: A.__setitem__((0, 0), 3), r"bsr_array\[i, j\] ="),
        (lambda: A.setdiag(3), "setdiag"),
    ):
        message = f"^{function}: argument 'self': expected writeable values, got read-only ones"
        with pytest.raises(ValueError, match=message):
            write()
    B = bsr_array((data, [0], [0, 1]), shape=(2, 4))
    B.setdiag(3, k=2)  # adds a block, and so new values
    assert B.diagonal(2).tolist() == [3, 3] and (data == 1).all()


@pytest.mark.parametrize("value", [300, -(2**70), np.nan, np.inf, 1e300, np.float64(-129.5)])
def test_numbers_that_integers_do_not_hold(value):
    A = bsr_array(np.eye(4, dtype="int8"), blocksize=(2, 2))
    for write, argument in (
        (lambda: A.__setitem__((0, 0), value), r"bsr_array\[i, j\] =: argument 'value'"),
        (lambda: A.setdiag(value), "setdiag: argument 'values'"),
    ):
        with pytest.raises(ValueError, match=rf"^{argument}: expected a number that int8 holds"):
            write()
    assert (A.toarray() == np.eye(4)).all()
    A[0, 1] = -128.9  # cut, as NumPy does
    assert A[0, 1] == -128
