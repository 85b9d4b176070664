"""Calls of a wrapped kernel on a device that decodes what it is given to launch."""

from __future__ import annotations

import ctypes
import struct
import sys
import time
from types import SimpleNamespace

import fake_cuda
from kernel_cases import DeviceArray
from sparsegpu import kernels
from sparsegpu.engines.cuda.runtime import copy_bytes, launch
from sparsegpu.engines.cuda.runtime import device as current
from sparsegpu.kernels import build

SOURCE = """extern "C" __global__ void axpy(float* y, float a, const float* x, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}"""


def decoding(monkeypatch):
    """Put a device in place that decodes every launch: its parameters, and the stream."""
    told = fake_cuda.put_in_place(monkeypatch)
    told.seen, told.launches = [], []
    told.fields, told.pause = ["Q", "f", "Q", "q"], False

    def decoded(function, *rest):
        values, parameters = [], rest[-2]
        for i, kind in enumerate(told.fields if function == 1 else ["Q", "Q", "q"]):
            at = ctypes.c_uint64.from_address(parameters + 8 * i).value
            values += struct.unpack(f"<{kind}", ctypes.string_at(at, struct.calcsize(f"<{kind}")))
            if told.pause:
                time.sleep(0)
        told.seen.append(tuple(values))
        told.launches.append(rest[:7])

    monkeypatch.setattr(launch, "_launch_kernel", lambda: decoded)
    monkeypatch.setattr(current, "_get_device", lambda: told.device)
    kernel = launch.Kernel("axpy", SimpleNamespace(ptr=1))
    monkeypatch.setattr(launch, "loaded", lambda name, code: kernel)
    copying = launch.Kernel("copy_bytes", SimpleNamespace(ptr=2))
    monkeypatch.setattr(copy_bytes, "kernel", lambda name: copying)
    monkeypatch.setattr(copy_bytes, "multiprocessors", lambda: 3)
    monkeypatch.setattr(sys.modules["cupy"], "ndarray", DeviceArray)
    monkeypatch.setattr(build, "can_compile", lambda: False)
    monkeypatch.setattr(build, "_device_architecture", lambda: None)
    monkeypatch.setattr(kernels.Kernel, "_build", lambda self, config: SimpleNamespace(code=b""))
    told.planned = []
    plan = kernels.Kernel._planned

    def planned(self, *args):
        told.planned.append(args[0])
        return plan(self, *args)

    monkeypatch.setattr(kernels.Kernel, "_planned", planned)
    return told


def axpy(**changed):
    declared = dict(writes=["y"], reads=["x", "y"], grid=lambda m: -(-m["n"] // 4), block=4)
    return kernels.wrap(SOURCE, "axpy", **(declared | changed))
