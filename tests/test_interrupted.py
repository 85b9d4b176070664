"""An allocation that fails, or Ctrl-C, at any line of the library: operands stay whole."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest

import sparsegpu as sg
from sparsegpu.testing import dense_from_blocks, random_24, random_blocks

SOURCES = Path(sg.__file__).parent
#: What operands hold is changed here; engines write to new arrays.
APART = (str(SOURCES / "engines"), str(SOURCES / "_checks.py"), str(SOURCES / "_arrays.py"))


def stop_at(number, error, work):
    """Do ``work``, raising ``error`` at that line of the library.

    Return how many lines ran, or None where it came so far.
    """
    left = number

    def of_line(frame, event, argument):
        nonlocal left
        del frame, argument
        if event == "line":
            left -= 1
            if left == 0:
                raise error
        return of_line

    def of_call(frame, event, argument):
        del event, argument
        name = frame.f_code.co_filename
        # NumPy goes on without an attribute whose look-up fails, whatever the error.
        looked_up = frame.f_code.co_name == "__get__"
        ours = name.startswith(str(SOURCES)) and not name.startswith(APART) and not looked_up
        return of_line if ours else None

    usual = sys.gettrace()
    sys.settrace(of_call)
    try:
        work()
    except error:
        return None
    finally:
        sys.settrace(usual)
    return number - left if left > 0 else None


def operand(rng):
    """An array with duplicates, unsorted columns and blocks of zeros, and its matrix."""
    data, indices, indptr = random_blocks(
        rng, (6, 8), (2, 2), density=1.2, duplicates=True, small_integers=True
    )
    data[::3] = 0
    dense = dense_from_blocks(data, indices, indptr, (6, 8))
    return sg.bsr_array((data, indices, indptr), shape=(6, 8)), dense


IN_PLACE = ["sort_indices", "sum_duplicates", "eliminate_zeros"]
OTHERS = {
    "A @ x": lambda a, x: a @ x,
    "x @ A": lambda a, x: x.T @ a.T,
    "softmax": lambda a, x: sg.bsr_softmax(a),
    "index lists": lambda a, x: sg.bsr_scatter_mm(a, x, sg.bsr_scatter_mm_indices_data(a, x)),
    "A @ B": lambda a, x: a @ a.T,
    "A + B": lambda a, x: a + a.T.T,
    "save_npz": lambda a, x: sg.save_npz(io.BytesIO(), a),
}


def check(a, dense):
    a.check_format()
    x = np.eye(8, 3, dtype=np.float32)
    np.testing.assert_array_equal(a @ x, dense @ x)
    np.testing.assert_array_equal(a.toarray(), dense)


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("name", IN_PLACE)
def test_an_array_that_is_changed_in_place_stays_whole(rng, name, error):
    """At whatever line it stops, pattern and values belong together."""
    first, dense = operand(rng)
    parts = first.data, first.indices, first.indptr

    def fresh():
        return sg.bsr_array(parts, shape=first.shape, copy=True)

    getattr(fresh(), name)()  # what is compiled and imported once
    number, a = 1, fresh()
    while stop_at(number, error, getattr(a, name)) is None:
        check(a, dense)
        number, a = number + 1, fresh()
    assert number > 5, "it was stopped nowhere"
    check(a, dense)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_kept_with_a_pattern_stays_whole(rng, name):
    """A first call that stops half-way leaves nothing that a second one would take for whole."""
    x = np.eye(8, 3, dtype=np.float32)
    first, dense = operand(rng)
    parts = first.data, first.indices, first.indptr

    def fresh():
        return sg.bsr_array(parts, shape=first.shape)

    OTHERS[name](first, x)
    whole = fresh()
    count = stop_at(1 << 30, MemoryError, lambda: OTHERS[name](whole, x))
    for number in np.unique(np.linspace(1, count, 40, dtype=int)):
        a = fresh()
        assert stop_at(int(number), MemoryError, lambda a=a: OTHERS[name](a, x)) is None
        OTHERS[name](a, x)
        check(a, dense)


def test_a_semi_structured_array_stays_whole(rng):
    """Also one that builds its other half."""
    dense = random_24(rng, (32, 32), "float16", small_integers=True)
    x = np.eye(3, 32, dtype=np.float16)
    x @ sg.to_semi_structured(dense)  # what is compiled and imported once
    whole = sg.to_semi_structured(dense)
    count = stop_at(1 << 30, MemoryError, lambda: x @ whole)
    for number in np.unique(np.linspace(1, count, 60, dtype=int)):
        a = sg.to_semi_structured(dense)
        assert stop_at(int(number), MemoryError, lambda a=a: x @ a) is None
        np.testing.assert_array_equal(x @ a, x @ dense)
        np.testing.assert_array_equal(a.todense(), dense)
