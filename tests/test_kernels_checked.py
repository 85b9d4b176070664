"""`kernels.checked`: a launch that writes what it should not is found, and named."""

from __future__ import annotations

import numpy as np
import pytest

from sparsegpu import kernels
from sparsegpu.kernels import build, guard

SOURCE = 'extern "C" __global__ void k(float* y, const float* x, int n) { y[n] = x[n]; }'
X = np.arange(8, dtype=np.float32)


def beside(array, places):
    """Return memory from an array's first element on, as a kernel has it."""
    return np.lib.stride_tricks.as_strided(array, (places,), (array.itemsize,))


def wrapped(ref, **changed):
    declared = dict(params=["y", "x", "n"], writes=["y"], reads=["x"], grid=2, block=32)
    return kernels.wrap(SOURCE, "k", ref=ref, **(declared | changed))


@pytest.fixture(autouse=True)
def as_declared(monkeypatch):
    monkeypatch.setattr(build, "can_compile", lambda: False)


def copies(y, x, n):
    y[:n] = x[:n]


def test_what_is_right_passes_and_is_computed_once():
    calls = []

    def counted(y, x, n):
        calls.append(y)
        y[:n] = x[:n]

    y = np.zeros(8, np.float32)
    with kernels.checked():
        assert wrapped(counted).inplace(y, X, 5) is None
    assert y.tolist() == [0, 1, 2, 3, 4, 0, 0, 0]
    assert len(calls) == 2 and calls[1] is y
    with kernels.checked():
        np.testing.assert_array_equal(wrapped(copies)(y, X, 8), X)
        np.testing.assert_array_equal(wrapped(copies)(kernels.Out(like="x", fill=0), X, 8), X)
    assert y[7] == 0 and len(calls) == 2
    wrapped(counted).inplace(y, X, 5)
    assert len(calls) == 3


def writes_x(y, x, n):
    x[3] = -1


def writes_behind(y, x, n):
    beside(y, 10)[9] = 1


def writes_before(y, x, n):
    beside(y[-1:][::-1], 1)[:] = 3
    np.lib.stride_tricks.as_strided(y[:1], (3,), (-4,))[2] = 7


@pytest.mark.parametrize("ref, where", [
    (writes_x, "byte 14 of 'x' changes, but only y is found to be written"),
    (writes_behind, "byte 36 of 'y' changes, which is none of its elements"),
    (writes_before, "byte -8 of 'y' changes, which is none of its elements"),
])  # fmt: skip
def test_what_is_wrong_is_named(ref, where):
    y, x = np.zeros(8, np.float32), X.copy()
    with kernels.checked(), pytest.raises(kernels.AccessError) as error:
        wrapped(ref).inplace(y, x, 8)
    assert str(error.value) == f"k, grid (2,), block (32,): {where}"
    assert (y == 0).all() and (x == X).all()  # nothing was launched on them


def test_what_lies_between_strided_elements():
    def spills(y, x, n):
        beside(y, 12)[:] = 5  # contiguous, though every second is none of y's

    memory = np.zeros(16, np.float32)
    with kernels.checked(), pytest.raises(kernels.AccessError, match=r"byte 6 of 'y'.*none of"):
        wrapped(spills).inplace(memory[::2], X, 8)
    backwards = memory[8:0:-1]
    with kernels.checked():
        wrapped(copies).inplace(backwards, X, 8)
    np.testing.assert_array_equal(memory[8:0:-1], X)


def test_arguments_that_share_memory():
    def shifts(y, x, n):
        y[:] = x[::-1].copy()

    memory = X.copy()
    with kernels.checked():
        wrapped(shifts).inplace(memory, memory, 8)
    np.testing.assert_array_equal(memory, X[::-1])
    memory = np.concatenate([X, X])

    def into_the_other(y, x, n):
        beside(y, 10)[9] = -1

    with kernels.checked(), pytest.raises(kernels.AccessError, match=r"36 of 'y'.*none of its"):
        wrapped(into_the_other).inplace(memory[:8], memory[8:], 8)
    with kernels.checked(), pytest.raises(kernels.AccessError, match="23 of 'x' changes, but"):
        wrapped(into_the_other).inplace(memory[:8], memory[4:], 8)


def test_results_are_held_to_ref(monkeypatch):
    wrong = wrapped(copies)
    run = type(wrong)._launched

    def launched(self, ready, plan):  # as a kernel that forgets the last element
        run(self, ready | {"n": ready["n"] - 1}, plan)

    monkeypatch.setattr(type(wrong), "_launched", launched)
    y = np.zeros(8, np.float32)
    with kernels.checked(ref=True), pytest.raises(kernels.AccessError, match="'y' is not what ref"):
        wrong.inplace(y, X, 8)
    with kernels.checked():
        wrong.inplace(y, X, 8)
    assert y.tolist() == [*X[:7], 0]


def test_this_block_only():
    with kernels.checked(ref=True):
        assert guard.checking() and guard.compares_with_ref()
        with kernels.checked():
            assert guard.checking() is False and not guard.compares_with_ref()
        assert guard.compares_with_ref()
    assert guard.checking() is None
    with pytest.raises(TypeError, match="'ref'"), kernels.checked(ref="no"):
        pass
    assert guard.checking() is None


def test_empty_arrays_and_grids():
    with kernels.checked():
        wrapped(copies).inplace(X[:0].copy(), X[:0], 0)
        wrapped(writes_x)[0].inplace(X.copy(), X.copy(), 0)


@pytest.mark.skipif(not build.can_compile(), reason="cuda-bindings (NVRTC) is not installed")
def test_addresses_in_memory_or_in_a_struct(monkeypatch):
    monkeypatch.undo()
    table = 'extern "C" __global__ void k(float** t) { t[0][0] = 1; }'
    opaque = kernels.wrap(table, "k", grid=1, block=1, writes=["t"], ref=id)
    with kernels.checked(), pytest.raises(NotImplementedError, match="addresses in memory"):
        opaque.inplace(np.zeros(2, np.int64))
    text = 'struct S { float* x; }; extern "C" __global__ void k(S s) { *s.x = 1; }'
    with kernels.checked(), pytest.raises(NotImplementedError, match=r"addresses in s\b"):
        kernels.wrap(text, "k", grid=1, block=1, ref=id).inplace(bytes(8))
