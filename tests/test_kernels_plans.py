"""Calls that are alike are planned once, and others are not taken for them."""

from __future__ import annotations

import gc
import weakref
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

import sparsegpu
from sparsegpu import kernels
from sparsegpu.kernels import plans, winners

SOURCE = """extern "C" __global__ void fill(float* y, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a;
}"""


class Asked:
    """A grid that counts how often it is asked for."""

    def __init__(self):
        self.times = 0

    def __call__(self, meta):
        self.times += 1
        return -(-meta["n"] // 128)


def fill(**changed):
    def ref(y, a, n):
        y[:n] = a

    declared = dict(params=["y", "a", "n"], writes=["y"], reads=[], ref=ref, block=128)
    return kernels.wrap(SOURCE, "fill", **(declared | changed))


def test_what_is_alike_is_planned_once():
    grid, y = Asked(), np.zeros(8, np.float32)
    kernel = fill(grid=grid)
    for value in (1.0, 1.0, np.float32(1)):
        kernel.inplace(y, value, 8)
    assert (y == 1).all() and grid.times == 2  # of a Python and of a NumPy float
    other = np.ones(8, np.float32)
    kernel.inplace(other, 1.0, 5)
    kernel.inplace(y, 1.0, 5)
    assert grid.times == 3
    assert (kernel(y, 1.0, 5)[:5] == 1).all() and (kernel(other, 1.0, 5)[:5] == 1).all()
    assert grid.times == 4


@pytest.mark.parametrize("changed", [
    lambda y: (y, -0.0, 8), lambda y: (y, 0.0, 7), lambda y: (y[:7], 0.0, 7),
    lambda y: (y[::-1], 0.0, 8), lambda y: (y, np.float64(0), 8), lambda y: (None, 0.0, 8),
])  # fmt: skip
def test_what_is_not_alike(changed):
    y = np.ones(8, np.float32)
    first, second = plans.key_of((y, 0.0, 8)), plans.key_of(changed(y))
    assert first != second and None not in (first, second)


def test_the_sign_of_zero_arrives():
    kernel, y = fill(grid=Asked()), np.ones(4, np.float32)
    kernel.inplace(y, 0.0, 4)
    assert not np.signbit(y).any()
    kernel.inplace(y, -0.0, 4)
    assert np.signbit(y).all()


def test_checks_are_made_of_every_kind_of_call():
    kernel, y = fill(grid=1), np.zeros(4, np.float32)
    kernel.inplace(y, 1.0, 4)
    y.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        kernel.inplace(y, 1.0, 4)
    assert (kernel(y, 1.0, 4) == 1).all()
    with pytest.raises(ValueError, match="a float"):
        kernel.inplace(np.zeros(4, np.float32), 1, 4)
    with pytest.raises(TypeError, match="in-place"):
        kernel.inplace(kernels.Out(like="y"), 1.0, 4)
    with pytest.raises(ValueError, match="stride 0"):
        kernel.inplace(np.broadcast_to(np.float32(0), (4,)), 1.0, 4)


def test_heuristics_and_pruning_are_asked_at_every_call():
    asked = []

    def heuristic(meta):
        asked.append(meta["n"])
        return {}

    kernel, y = fill(grid=1, heuristics=[heuristic]), np.zeros(4, np.float32)
    kernel.inplace(y, 1.0, 4)
    kernel.inplace(y, 1.0, 4)
    assert asked == [4, 4]
    pruned = fill(grid=1, prune=lambda configs, args: asked.append(args["n"]) or configs)
    pruned(y, 1.0, 3)
    pruned(y, 1.0, 3)
    assert asked == [4, 4, 3, 3]


def test_a_new_winner_counts_at_the_next_call(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARSEGPU_CACHE_DIR", str(tmp_path))
    grid, y = Asked(), np.zeros(4, np.float32)
    kernel = fill(grid=grid)
    kernel.inplace(y, 1.0, 4)
    winners.keep("another kernel's", kernels.Config())
    kernel.inplace(y, 1.0, 4)
    assert grid.times == 2
    assert winners.forget() == 1
    kernel.inplace(y, 1.0, 4)
    assert grid.times == 3


def test_the_chosen_engine_counts():
    kernel, y = fill(grid=1), np.zeros(4, np.float32)
    kernel.inplace(y, 1.0, 4)
    with sparsegpu.use_engine("reference"):
        kernel.inplace(y, 2.0, 4)
    assert (y == 2).all()


def test_no_memory_is_kept():
    class Watched(np.ndarray):
        pass

    kernel, y = fill(grid=1), np.zeros(4, np.float32).view(Watched)
    plain = np.zeros(4, np.float32)
    gone = weakref.ref(y), weakref.ref(plain)
    kernel.inplace(y, 1.0, 4)
    kernel.inplace(plain, 1.0, 4)
    del y, plain
    gc.collect()
    assert gone[0]() is None and gone[1]() is None


def test_plans_are_few():
    kernel, y = fill(grid=1), np.zeros(1000, np.float32)
    for n in range(plans.CAPACITY + 10):
        kernel.inplace(y, 1.0, n)
    assert len(kernel._plans._kept) == 10
    assert plans.key_of((kernels.Out([3], "float32"), 1.0)) is None  # its shape is a list
    assert plans.key_of((object(),)) is None
    with pytest.raises(FrozenInstanceError):
        kernels.Out(3, "float32").fill = 0
