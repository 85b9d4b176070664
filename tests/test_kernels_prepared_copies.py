"""The functional form of a call like an earlier one: copies of what the kernel writes."""

from __future__ import annotations

import pytest

import fake_cuda
from kernel_cases import DeviceArray
from prepared_cases import axpy, decoding
from sparsegpu.engines.cuda.runtime import copy_bytes, launch
from sparsegpu.kernels import build


@pytest.fixture
def device(monkeypatch):
    return decoding(monkeypatch)


def prepared_functional(device, kernel, *args):
    """Return what launches the functional form, which has not been called."""
    key = kernel._key(False, args, None, None, None)
    plan = kernel._planned(key, False, args, {}, None, None, None)
    kernel._prepare(key, plan, args, ["y"])
    device.planned.clear()
    (found,) = kernel._plans.prepared.values()
    return found


def test_copies_of_what_is_written(device):
    kernel, y, x = axpy(), DeviceArray(1000), DeviceArray(2000)
    found = prepared_functional(device, kernel, y, 2.0, x, 8)
    for times in (1, 2, 3):  # by its key, then as a call like the latest
        result = kernel(y, 2.0, x, 8)
        assert isinstance(result, DeviceArray) and result.data.ptr >= 1 << 50
        assert device.copied[times - 1 :] == [(result.data.ptr, 1000, 32, 3, 0)]
        assert device.seen[times - 1 :] == [(result.data.ptr, 2.0, 2000, 8)]
    assert not device.planned
    for alike in (True, False):
        assert len(found.run((DeviceArray(3000), 2.0, DeviceArray(3032), 8), alike)) == 1
        # The same bytes, and a part of them, are the general case.
        for other in (3000, 3004, 2972):
            assert found.run((DeviceArray(3000), 2.0, DeviceArray(other), 8), alike) is None
    device.current = fake_cuda.Stream(7)
    assert found.run((y, 2.0, x, 8), False) is not None
    device.captured.add(7)
    assert found.run((y, 2.0, x, 8), False) is None and not found.is_used_up()


def test_copies_by_a_kernel(device, monkeypatch):
    kernel, x = axpy(), DeviceArray(2000)
    found = prepared_functional(device, kernel, DeviceArray(1024), 2.0, x, 8)
    monkeypatch.setattr(build, "can_compile", lambda: True)
    before = launch.launch_counts().get("copy_bytes", 0)
    for y in (1024, 4096):
        (result,) = found.run((DeviceArray(y), 2.0, x, 8), True)
        target = result.data.ptr
        assert device.seen[-2:] == [(target, y, 32), (target, 2.0, 2000, 8)]
    assert device.launches[-2] == (1, 1, 1, 256, 1, 1, 0) and not device.copied
    assert launch.launch_counts()["copy_bytes"] == before + 2
    (result,) = found.run((DeviceArray(1028), 2.0, x, 8), True)  # in the middle of a vector
    assert device.copied == [(result.data.ptr, 1028, 32, 3, 0)]


@pytest.mark.parametrize(("size", "blocks"), [
    (1, 1), (4096, 1), (4097, 2), (copy_bytes.LARGEST, 12), (copy_bytes.LARGEST + 1, None),
])  # fmt: skip
def test_thread_blocks_of_a_copy(device, size, blocks):
    copy_bytes.CopyBytes(size).on(1 << 20, 1 << 30, 5)
    if blocks is None:
        assert device.copied == [(1 << 20, 1 << 30, size, 3, 5)] and not device.seen
    else:
        assert device.seen == [(1 << 20, 1 << 30, size)] and not device.copied
        assert device.launches[0][0] == blocks
