"""Comparisons of `bsr_array`, held against dense NumPy."""

from __future__ import annotations

import operator

import numpy as np
import pytest

from covering import covered
from operator_cases import NUMBERS, check, make
from sparsegpu import bsr_array
from sparsegpu._arrays import bfloat16

ORDERED = [operator.lt, operator.le, operator.gt, operator.ge]


@covered(dtype=NUMBERS, duplicates=[False, True])
def test_with_a_number(engine, rng, dtype, duplicates):
    a, dense = make(engine, rng, dtype=dtype, duplicates=duplicates)
    engine.look(a)
    with engine.runs("bsr_sum_blocks" if duplicates else None):
        check(engine, a != 0, dense != 0)
        check(engine, np.float64(2) == a, dense == 2)
        check(engine, a == 0.5, dense == 0.5)
        check(engine, a == np.float32(-1), dense == -1)
        check(engine, a == bfloat16.type(2), dense == 2)
        check(engine, a == np.nan, np.zeros(dense.shape, bool))
        if dense.dtype.kind != "c":
            check(engine, a > 1, dense > 1)
            check(engine, a <= -1, dense <= -1)
            check(engine, np.int8(1) < a, dense > 1)
            check(engine, a >= engine.array(np.array(2, np.int8)), dense >= 2)
    assert duplicates or (a != 0).pattern is a.pattern


@covered(dtype=[*NUMBERS, "bool"], duplicates=[False, True])
def test_with_another(engine, rng, dtype, duplicates):
    a, dense_a = make(engine, rng, dtype=dtype, duplicates=duplicates)
    b, dense_b = make(engine, rng, dtype=dtype, duplicates=duplicates, density=0.3)
    with engine.runs("bsr_sum_blocks"):
        check(engine, a != b, dense_a != dense_b)
        check(engine, a != a.with_data(a.data), np.zeros(a.shape, bool))
        assert int((a != a.copy()).sum()) == 0
        if dense_a.dtype.kind != "c":
            check(engine, a < b, dense_a < dense_b)
            check(engine, a > b, dense_a > dense_b)


def test_with_another_of_another_kind(engine, rng):
    a, dense_a = make(engine, rng, dtype="float32", batch=(2,))
    full = bsr_array(engine.array(np.ones((12, 20))), blocksize=(6, 5))
    nothing = bsr_array(engine.array(np.zeros((12, 20))), blocksize=(3, 4))
    with engine.runs("bsr_sum_blocks"):
        check(engine, a.astype("float64") != full, dense_a != 1)
    with engine.runs("bsr_union"):
        check(engine, nothing != nothing, np.zeros((12, 20), bool))
        check(engine, nothing < full, np.ones((12, 20), bool))
    with engine.runs(None):
        check(
            engine,
            bsr_array(engine.array(np.zeros((0, 4))), blocksize=(2, 2)) != 0,
            np.zeros((0, 4)) != 0,
        )


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_with_dense(engine, rng, dtype):
    a, dense = make(engine, rng, dtype=dtype)
    other = engine.array(np.roll(dense, 1, axis=0))
    with engine.runs("bsr_scatter"):
        for compare in (operator.eq, operator.ne, *ORDERED):
            check(engine, compare(a, other), compare(dense, np.roll(dense, 1, axis=0)))
        check(engine, a == other[:1], dense == np.roll(dense, 1, axis=0)[:1])


def test_what_holds_for_zeros(engine, rng):
    a, _ = make(engine, rng, dtype="float32")
    b = a.copy()
    for fill in (
        lambda: a == b,
        lambda: a <= b,
        lambda: a >= b,
        lambda: a == 0,
        lambda: a != 1,
        lambda: a < 1,
        lambda: a != np.nan,
    ):
        with pytest.raises(
            NotImplementedError, match=r"bsr_array [=!<>]+: a comparison that holds"
        ):
            fill()


def test_what_does_not_compare(engine, rng):
    a, _ = make(engine, rng, dtype="complex64")
    assert (a == None) is False and (a != object()) is True  # noqa: E711
    assert a in [a] and len({a, a}) == 1
    with pytest.raises(TypeError, match="'>' not supported"):
        _ = a > None
    for other in (1, a, a.toarray()):
        with pytest.raises(TypeError, match="bsr_array >: argument 'self': expected real numbers"):
            _ = a > other
    for other in (1j, np.complex64(1), a.toarray()):
        with pytest.raises(TypeError, match="bsr_array >: argument 'other': expected real numbers"):
            _ = a.real > other
    with pytest.raises(
        ValueError, match=r"bsr_array !=: argument 'other': expected shape \(12, 20\)"
    ):
        _ = a != a.T
    with pytest.raises(ValueError, match="bool: the truth value of a bsr_array is ambiguous"):
        bool(a)


def test_host_and_device_do_not_mix(cuda_engine):
    a = bsr_array(cuda_engine.array(np.eye(4)), blocksize=(2, 2))
    for other in (np.eye(4), a.get(), np.array(1.0)):
        with pytest.raises(TypeError, match="argument 'other': expected a cupy array"):
            _ = a != other
