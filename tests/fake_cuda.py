"""A CUDA by hand, for what the runtime decides without a kernel: streams, events, captures."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from itertools import accumulate
from operator import mul
from types import SimpleNamespace

import numpy as np

from sparsegpu.engines.cuda.runtime import capture, launch, replay, submission, workspace


class Memory:
    """Device memory that nobody has."""

    def __init__(self, nbytes):
        self.nbytes = nbytes

    def __getitem__(self, part):
        return Memory(part.stop)


class Array:
    """What a call is told apart by, of an array: a new one, as those of CuPy, without ``ptr``."""

    new = iter(())

    def __init__(self, shape, dtype=np.float32, *, ptr=None):
        ptr = next(Array.new) if ptr is None else ptr
        self.data, self.shape = SimpleNamespace(ptr=ptr, device_id=0), shape
        self.strides, self.dtype = (16, 4), np.dtype(dtype)
        self.nbytes = 64

    @property
    def _c_contiguous(self):
        compact = accumulate(self.shape[:0:-1], mul, initial=self.dtype.itemsize)
        strides = zip(self.shape[::-1], self.strides[::-1], compact, strict=True)
        return all(n == 1 or s == c for n, s, c in strides)


def at(ptr, shape=(4, 4)):
    """Return the array at an address."""
    return Array(shape, ptr=ptr)


class Event:
    """Done at once, or when a test says so."""

    made: list[Event] = []

    def __init__(self, disable_timing):
        self.done, self.ptr = True, len(Event.made)
        Event.made.append(self)

    def synchronize(self):
        self.done = True


class Stream:
    def __init__(self, ptr):
        self.ptr = ptr


class ExternalStream(Stream):
    pass


class MemoryAsyncPool:
    """CuPy's allocator in the order of streams."""

    def malloc(self, nbytes):
        return nbytes, sys.modules["cupy"].cuda.get_current_stream()


class Work:
    """What an engine submits; it notes the streams that it went to."""

    source = ""

    def __init__(self):
        self.streams = []

    def on(self, stream):
        self.streams.append(stream)


class Told(SimpleNamespace):
    """What CUDA was told, and what a test tells of it."""

    def __init__(self):
        super().__init__(recorded=[], waited=[], pending=False, captured=set(), current=Stream(0))
        self.launched, self.cleared, self.copied, self.graphs = [], [], [], []
        self.allocator, self.device = object(), 0

    @contextmanager
    def on(self, stream):
        """Make a stream current."""
        before, self.current = self.current, stream
        yield stream
        self.current = before


def put_in_place(monkeypatch) -> Told:
    """Put a CUDA in place of CuPy's."""
    told = Told()

    def record(event, stream):
        Event.made[event].done = not told.pending
        told.recorded.append((event, stream))

    @contextmanager
    def using_allocator(allocator):
        before, told.allocator = told.allocator, allocator
        yield
        told.allocator = before

    class Capture(capture.Capture):
        def __init__(self):
            self._memory, self._owners, self._workspaces, self._apart = [], {}, {}, {}

    graph = Capture()
    told.graph = graph
    cuda = SimpleNamespace(
        Event=Event,
        MemoryAsyncPool=MemoryAsyncPool,
        malloc_async=MemoryAsyncPool().malloc,
        Stream=Stream,
        ExternalStream=ExternalStream,
        get_current_stream=lambda: told.current,
        get_allocator=lambda: told.allocator,
        using_allocator=using_allocator,
        runtime=SimpleNamespace(
            getDevice=lambda: told.device,
            eventRecord=record,
            streamWaitEvent=lambda stream, event: told.waited.append(stream),
            streamIsCapturing=lambda stream: stream in told.captured,
            memsetAsync=lambda *arguments: told.cleared.append(arguments),
            memcpyAsync=lambda *arguments: told.copied.append(arguments),
            memcpyDeviceToDevice=3,
            graphLaunch=lambda *arguments: told.graphs.append(arguments),
        ),
        driver=SimpleNamespace(launchKernel=lambda *arguments: told.launched.append(arguments)),
    )
    Array.new = iter(range(1 << 40, 1 << 41, 512))
    cupy = SimpleNamespace(
        cuda=cuda,
        ndarray=Array,
        empty=lambda shape, dtype: Memory(shape) if isinstance(shape, int) else Array(shape, dtype),
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)

    @contextmanager
    def relaxed():
        yield

    monkeypatch.setattr(workspace, "relaxed", relaxed)
    monkeypatch.setattr(capture, "relaxed", relaxed)
    monkeypatch.setattr(workspace, "_stream_type", lambda: Stream)
    monkeypatch.setattr(submission, "_cuda", lambda: cuda)
    monkeypatch.setattr(launch, "_current_stream", lambda: cuda.get_current_stream)
    monkeypatch.setattr(launch, "_launch_kernel", lambda: cuda.driver.launchKernel)
    monkeypatch.setattr(launch, "_runtime", lambda: cuda.runtime)
    monkeypatch.setattr(replay, "_without_owner", {})
    monkeypatch.setattr(capture, "capture_on", lambda stream: graph)
    workspace._waiting.clear()
    return told
