"""Two GPUs by hand, over NumPy: what is computed lies on the current one, and so must its operands.

As with CuPy where no GPU reads the memory of another.
"""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import numpy as np

from sparsegpu.engines.cuda.runtime import submission


class _Machine(threading.local):
    """Which GPU is a thread's current one, where it waited, and what it computed in no call."""

    def __init__(self):
        self.current, self.waited, self.apart = 0, [], []


Machine = _Machine()


class DeviceArray(np.ndarray):
    """An array in the memory of a GPU; its views are there, too."""

    def __array_finalize__(self, source):
        self.device_id = getattr(source, "device_id", Machine.current)

    def __array_ufunc__(self, ufunc, method, *inputs, **keywords):
        return computed(getattr(ufunc, method), inputs, keywords)

    def __array_function__(self, function, types, arguments, keywords):
        del types
        return computed(function, arguments, keywords)

    @property
    def data(self):
        pointer = self.__array_interface__["data"][0]
        return SimpleNamespace(device_id=self.device_id, ptr=pointer)

    @property
    def device(self):
        return on(self.device_id)

    @property
    def _c_contiguous(self):
        return self.flags.c_contiguous

    def get(self):
        return self.view(np.ndarray).copy()  # from wherever it is


def computing(name):
    method = getattr(np.ndarray, name)
    return lambda self, *given, **named: computed(method, (self, *given), named)


_INDEXING, _REDUCING = ("__getitem__", "__setitem__"), ("any", "all", "max", "min", "sum", "tolist")
for _name in (*_INDEXING, *_REDUCING, "astype", "copy", "__int__", "__bool__"):
    setattr(DeviceArray, _name, computing(_name))


def plain(value):
    """Return an operand as NumPy's; it must be on the current GPU."""
    if isinstance(value, (tuple, list)):
        return type(value)(map(plain, value))
    if isinstance(value, DeviceArray):
        assert value.device_id == Machine.current, "an array of another GPU"
        return value.view(np.ndarray)
    return value


def computed(function, arguments, keywords):
    """Do what NumPy does; what is no view of an operand is on the current GPU."""
    if submission.current() is None:
        Machine.apart.append(function)
    found = function(*plain(arguments), **{n: plain(v) for n, v in keywords.items()})
    if isinstance(found, (list, tuple)):
        return type(found)(map(on_current, found))
    return on_current(found)


def on_current(found):
    if isinstance(found, (np.ndarray, np.generic)):
        return np.asarray(found).view(DeviceArray)
    return found


class Cupy:
    """NumPy's functions under CuPy's name."""

    __name__ = "cupy"
    ndarray = DeviceArray

    @staticmethod
    def asnumpy(array):
        return array.get() if isinstance(array, DeviceArray) else np.asarray(array)

    def __getattr__(self, name):
        found = getattr(np, name)
        if isinstance(found, (type, np.ufunc)) or not callable(found):
            return found
        return lambda *arguments, **keywords: computed(found, arguments, keywords)


class on:
    """Make a GPU current: CuPy's ``Device``."""

    def __init__(self, device):
        self.id = device

    def __enter__(self):
        self._before, Machine.current = Machine.current, self.id
        return self

    def __exit__(self, *error):
        Machine.current = self._before


def put_in_place(monkeypatch):
    """Put two GPUs in place of CuPy's, and return their CuPy."""
    cupy = Cupy()
    Machine.waited, Machine.apart = [], []

    def wait():
        Machine.waited.append(Machine.current)

    stream = SimpleNamespace(ptr=0, synchronize=wait)
    cupy.cuda = SimpleNamespace(
        Device=on,
        get_current_stream=lambda: stream,
        runtime=SimpleNamespace(
            CUDARuntimeError=RuntimeError,
            getDevice=lambda: Machine.current,
            getDeviceCount=lambda: 2,
            deviceSynchronize=wait,
        ),
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(submission, "_cuda", lambda: cupy.cuda)
    return cupy
