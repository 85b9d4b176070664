"""Calls like an earlier one go to the device at once, with the addresses of their own arrays."""

from __future__ import annotations

import numpy as np
import pytest

import fake_cuda
import sparsegpu
from in_threads import run_in_threads
from kernel_cases import DeviceArray
from prepared_cases import axpy, decoding
from sparsegpu import kernels
from sparsegpu.engines.cuda.runtime import launch
from sparsegpu.kernels import arguments, guard, prepared, winners
from sparsegpu.kernels.foreign import Signature, Typed


@pytest.fixture
def device(monkeypatch):
    return decoding(monkeypatch)


def test_the_third_call_is_not_planned(device):
    kernel = axpy()
    for i in range(5):
        kernel.inplace(DeviceArray(1000 + i), 2.0, DeviceArray(2000 + i), 8)
    assert device.seen[0] == (1000, 2.0, 2000, 8)
    assert [(y, x) for y, _, x, _ in device.seen] == [(1000 + i, 2000 + i) for i in range(5)]
    assert len(device.planned) == 2 and len(launch.launch_counts()) >= 1


def test_every_launch_is_counted(device):
    kernel, before = axpy(), launch.launch_counts().get("axpy", 0)
    for _ in range(4):
        kernel.inplace(DeviceArray(1000), 2.0, DeviceArray(2000), 8)
    assert launch.launch_counts()["axpy"] == before + 4


@pytest.mark.parametrize("other", [
    lambda y, x: (y, -0.0, x, 8), lambda y, x: (y, 0.0, x, 7), lambda y, x: (y, 0.0, None, 8),
    lambda y, x: (DeviceArray(1, (2, 4)), 0.0, x, 8),
    lambda y, x: (y, 0.0, DeviceArray(9, (8,), (8,)), 8),
    lambda y, x: (y, np.float32(0), x, 8), lambda y, x: (y, 0.0, x, np.int64(8)),
])  # fmt: skip
def test_calls_that_are_others_are_planned(device, other):
    kernel = axpy()
    y, x = DeviceArray(1000), DeviceArray(2000)
    for _ in range(4):
        kernel.inplace(y, 0.0, x, 8)
    kernel.inplace(*other(y, x))
    assert len(device.planned) == 3
    kernel.inplace(y, 0.0, x, 8)
    assert len(device.planned) == 3


def test_with_names_everything_is_planned(device):
    kernel = axpy()
    for i in range(3):
        kernel.inplace(DeviceArray(1000 + i), 2.0, DeviceArray(2000), n=8)
    assert len(device.planned) == 3 and len(device.seen) == 3


def test_grids_blocks_and_configurations_tell_calls_apart(device):
    kernel, given = axpy(), (DeviceArray(1000), 2.0, DeviceArray(2000), 8)
    config = kernels.Config({"A": 1}, block=16)
    launches = ({}, {"grid": 1}, {"grid": (1, 2)}, {"block": 8}, {"config": config})
    for _ in range(4):
        for launch_ in launches:
            kernel.inplace(*given, **launch_)
        kernel.launch((3,), (4,), given)
    assert len(device.planned) == 12
    assert device.launches[-6:] == device.launches[:6]
    assert [sizes[:2] for sizes in device.launches[:6]] == [
        (2, 1),
        (1, 1),
        (1, 2),
        (2, 1),
        (2, 1),
        (3, 1),
    ]
    for grid in ((1.0, 2), True, (True, 2)):  # which equal what is kept
        with pytest.raises(TypeError, match="argument 'grid'"):
            kernel.inplace(*given, grid=grid)
    for _ in range(3):
        kernel.inplace(*given, grid=lambda m: 1)
        kernel.inplace(*given, grid=[1, 2])
    assert len(device.planned) == 12 + 3 + 6


def test_without_parameters(device):
    device.fields = []
    kernel = kernels.wrap('extern "C" __global__ void k() {}', "k", grid=1, block=1,
                          writes=[], reads=[], ref=lambda: None)  # fmt: skip
    for _ in range(3):
        assert kernel.inplace() is None and kernel() == ()


def test_recorders_get_launches_of_their_own(device):
    kernel, works = axpy(), []
    for _ in range(3):
        kernel.inplace(DeviceArray(1000), 2.0, DeviceArray(2000), 8)
    with launch.recording(lambda given, whole, setup: works.append(given)):
        kernel.inplace(DeviceArray(1001), 2.0, DeviceArray(2000), 8)
        kernel.inplace(DeviceArray(1002), 2.0, DeviceArray(2000), 8)
    kernel.inplace(DeviceArray(1003), 2.0, DeviceArray(2000), 8)
    (first,), (second,) = works
    assert first is not second
    device.seen.clear()
    first.on(0)
    second.on(0)
    assert [y for y, *_ in device.seen] == [1001, 1002]  # what they hold, no later call changes


@pytest.mark.parametrize("alike", [True, False])
def test_another_device(device, alike):
    kernel = axpy()
    args = DeviceArray(1000), 2.0, DeviceArray(2000), 8
    for _ in range(3):
        kernel.inplace(*args)
    (found,) = kernel._plans.prepared.values()
    assert found.run((args[0], 2.0, DeviceArray(2000, device=1), 8), alike) is None
    device.device = 1
    assert found.run(args, alike) is None
    assert len(device.seen) == 3
    device.device = 0
    assert found.run(args, alike) == [] and len(device.seen) == 4


@pytest.mark.parametrize(("shape", "strides"), [
    ((2, 4), [(16, 4), (4, 8), (32, 4)]), ((1, 8), [(32, 4), (4, 4)]), ((2, 4), [(4, 8), (16, 4)]),
])  # fmt: skip
def test_other_strides(device, shape, strides):
    """In C order and not; and where these say nothing of a dimension of one element."""
    kernel, y = axpy(), DeviceArray(1000)
    for known, given in enumerate(strides):
        for _ in range(4):
            kernel.inplace(y, 2.0, DeviceArray(2000, shape, given), 8)
        assert len(device.planned) == 2 * known + 2


def test_another_dtype(device):
    kernel, y, x = axpy(), DeviceArray(1000), DeviceArray(2000)
    for _ in range(4):
        kernel.inplace(y, 0.0, x, 8)
    x.dtype = np.dtype("int32")
    with pytest.raises(TypeError, match="float32"):
        kernel.inplace(y, 0.0, x, 8)


def test_what_is_set_around_a_call(device, monkeypatch):
    """Of a call like the latest: the engine, what is checked, and winners are asked every time."""
    kernel, args = axpy(), (DeviceArray(1000), 2.0, DeviceArray(2000), 8)
    for _ in range(4):
        kernel.inplace(*args)
    assert len(device.planned) == 2
    checks = []
    monkeypatch.setattr(guard, "check", lambda *of: checks.append(of))
    with kernels.checked():
        kernel.inplace(*args)
    assert len(checks) == 1 and len(device.planned) == 3
    with sparsegpu.use_engine("reference"), pytest.raises(TypeError, match="NumPy arrays"):
        kernel.inplace(*args)
    monkeypatch.setattr(winners, "generation", winners.generation + 1)
    kernel.inplace(*args)
    assert len(device.planned) == 5
    with pytest.raises(TypeError, match="expected also n"):
        kernel.inplace(*args[:3])


def test_what_came_twice_needs_no_key(device, monkeypatch):
    kernel, keys = axpy(), []
    key = kernels.Kernel._key
    monkeypatch.setattr(kernels.Kernel, "_key", lambda *of: keys.append(of) or key(*of))
    for i in range(9):
        kernel.inplace(DeviceArray(1000 + i), 2.0, DeviceArray(2000), 8)
    assert len(keys) == 4 and len(device.seen) == 9


def test_two_kinds_of_calls_that_take_turns(device):
    kernel, x = axpy(), DeviceArray(2000)
    for i in range(5):
        kernel.inplace(DeviceArray(1000 + i), 2.0, x, 8)
        kernel.inplace(DeviceArray(3000 + i, (2, 4)), 2.0, x, 7)
    assert len(device.planned) == 4 and kernel._plans.latest_inplace.prepared is None
    assert [(y, n) for y, _, _, n in device.seen[-4:]] == [
        *((1003, 8), (3003, 7), (1004, 8), (3004, 7)),
    ]


def test_tensor_maps_are_told_by_the_key_alone():
    """Theirs is the only memory that is packed with a launch."""
    tensor_map = kernels.TensorMap(np.zeros((256, 64), np.float16), (64, 64), swizzle=128)
    assert prepared._told(tensor_map) != tensor_map


def test_in_place_while_a_stream_is_captured(device):
    kernel, args = axpy(), (DeviceArray(1000), 2.0, DeviceArray(2000), 8)
    device.current = fake_cuda.Stream(7)
    device.captured.add(7)
    for _ in range(4):
        kernel.inplace(*args)
    assert len(device.planned) == 2 and len(device.seen) == 4


@pytest.mark.parametrize("in_place", [True, False])
def test_calls_that_are_planned_all_the_same_keep_nothing_more(device, monkeypatch, in_place):
    kernel, y, x = axpy(), DeviceArray(1000), DeviceArray(2000)
    monkeypatch.setattr(arguments, "cloned", lambda name, bound, written: bound)

    def call():
        (kernel.inplace if in_place else kernel)(y, 2.0, x, 8)

    for _ in range(3):
        call()
    (found,) = kernel._plans.prepared.values()
    with launch.recording(lambda given, whole, setup: None):
        for _ in range(5):
            call()
    assert len(device.planned) == 7 and len(found._idle) == 1


def test_threads_do_not_mix_their_addresses(device):
    kernel, count, times = axpy(), 4, 200
    for _ in range(3):
        kernel.inplace(DeviceArray(0), 2.0, DeviceArray(10), 8)
    device.seen.clear()
    device.pause = True

    def work(number):
        y, x = DeviceArray(100 * number), DeviceArray(100 * number + 10)
        for _ in range(times):
            kernel.inplace(y, 2.0, x, 8)

    run_in_threads(lambda i: work(i + 1), count)
    assert len(device.seen) == count * times
    assert all(x == y + 10 for y, _, x, _ in device.seen)


def test_a_call_within_a_call(device, monkeypatch):
    """As of a finalizer that runs there, or of a thread that the driver lets run meanwhile."""
    kernel, x = axpy(), DeviceArray(2000)
    for _ in range(3):
        kernel.inplace(DeviceArray(1000), 2.0, x, 8)
    (found,) = kernel._plans.prepared.values()
    on, inner = launch.Launch.on, [DeviceArray(3000), DeviceArray(4000)]

    def interrupted(work, stream):
        if inner:
            kernel.inplace(inner.pop(), 2.0, x, 8)
        on(work, stream)

    monkeypatch.setattr(launch.Launch, "on", interrupted)
    device.seen.clear()
    device.planned.clear()
    for i in range(3):
        kernel.inplace(DeviceArray(1001 + i), 2.0, x, 8)
    assert [y for y, *_ in device.seen] == [3000, 4000, 1001, 1002, 1003]
    assert len(device.planned) == 2 and len(found._idle) == 3


def test_what_failed_is_not_used_again(device, monkeypatch):
    kernel, args = axpy(), (DeviceArray(1000), 2.0, DeviceArray(2000), 8)
    for _ in range(3):
        kernel.inplace(*args)

    def fail(work, stream):
        raise launch.LaunchError

    with monkeypatch.context() as failing:
        failing.setattr(launch.Launch, "on", fail)
        with pytest.raises(launch.LaunchError):
            kernel.inplace(*args)
    device.planned.clear()
    for _ in range(3):
        kernel.inplace(*args)
    assert len(device.planned) == 1 and len(device.seen) == 3 + 3


@pytest.mark.parametrize(("compiler", "layout"), [
    ("numba", "qqqqQqqfqqqqQqqqq"), ("cupyx", ["Qqqq", "f", "Qqqqqq"]),
])  # fmt: skip
def test_arrays_with_their_shapes(device, compiler, layout, monkeypatch):
    typed = Typed("y", "float32", 1, "C"), Typed("a", "float32"), Typed("x", "float32", 2, "A")
    signature = Signature(compiler, typed)
    kernel = axpy(params=None, grid=1)._changed(signature=signature)
    monkeypatch.setattr(arguments, "check_layout", lambda *args: None)
    device.fields = layout
    for i in range(4):
        kernel.inplace(DeviceArray(1000 + i), 2.0, DeviceArray(2000 + i, (2, 3)))
    assert len(device.planned) == 2
    before, between, behind = [], [], [6]
    if compiler == "numba":
        before, between, behind = [0, 0, 8, 4], [0, 0, 6, 4], []
    for i, seen in enumerate(device.seen):
        y = [*before, 1000 + i, *([8] if behind else []), 8, 4]
        assert list(seen) == [*y, 2.0, *between, 2000 + i, *behind, 2, 3, 12, 4]
