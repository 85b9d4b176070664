"""Memory of CUDA graphs, kept for as long as the graph.

A graph goes on using the addresses that were captured. So whatever a captured call allocates, its
result included, is kept until the graph and all graphs instantiated from it are destroyed. To learn
of that, the graph is given a CUDA user object, whose destructor posts a semaphore.

Source: CUDA C++ Programming Guide, "CUDA Graphs" ("CUDA User Objects", "Graph Memory Nodes").
"""

from __future__ import annotations

import ctypes
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

from ...._locks import fork_safe
from .workspace import StreamWorkspace, relaxed

_SEMAPHORE_BYTES = 64  # more than any ``sem_t`` has

_captures: OrderedDict[int, Capture] = OrderedDict()
_lock = fork_safe(threading.RLock())  # reentrant: a user's finalizer may run while it is held


class Capture:
    """The memory of a capture, and of the graph that it becomes.

    Parameters
    ----------
    graph : CUgraph
        The graph that is being captured.
    """

    __slots__ = ("_apart", "_graph_end", "_memory", "_owners", "_workspaces")

    def __init__(self, graph: Any):
        self._graph_end = GraphEnd(graph)
        self._memory: list[Any] = []
        self._apart: dict[int, Any] = {}  # streams, by device
        self._owners: dict[int, Any] = {}
        self._workspaces: dict[Hashable, StreamWorkspace] = {}

    def workspace(self, place: Hashable) -> StreamWorkspace:
        """Return the workspace of all calls captured on a stream, whatever their operands."""
        return self._workspaces.setdefault(place, StreamWorkspace())

    def keep(self, owner: Any) -> None:
        """Keep alive what the graph needs besides the caller's arrays: patterns, works."""
        self._owners[id(owner)] = owner

    def keeping(self, allocator: Callable[[int], Any]) -> Callable[[int], Any]:
        """Return an allocator for CuPy that keeps what it allocates."""
        place = self._on_a_stream_apart if _is_in_stream_order(allocator) else nullcontext

        def allocate(nbytes: int) -> Any:
            with place():
                allocated = allocator(nbytes)
            self._memory.append(allocated)
            return allocated

        return allocate

    @contextmanager
    def _on_a_stream_apart(self) -> Iterator[None]:
        """Allocate on a stream that is not captured, before the graph may run.

        What is allocated in the order of a captured stream is a part of the graph, which CUDA then
        launches only once, as it does not free it.
        """
        from cupy.cuda import Stream, runtime

        device = runtime.getDevice()
        stream = self._apart.get(device)
        if stream is None:
            stream = self._apart[device] = Stream(non_blocking=True)
        with stream:
            yield
        with relaxed():
            stream.synchronize()

    def over(self) -> bool:
        """Return whether the graph is gone."""
        return self._graph_end.seen()


def _is_in_stream_order(allocator: Any) -> bool:
    """Return whether an allocator of CuPy's calls ``cudaMallocAsync``."""
    from cupy.cuda import MemoryAsyncPool, malloc_async

    pool = getattr(allocator, "__self__", None)
    return allocator == malloc_async or isinstance(pool, MemoryAsyncPool)


class GraphLaunch:
    """A CUDA graph that was captured, as a `launch.Work`: all of it is enqueued again."""

    __slots__ = ("_graph",)

    source = ""

    def __init__(self, graph: Any):
        self._graph = graph  # CuPy's, which keeps the graph alive

    def on(self, stream: int) -> None:
        """Enqueue on the stream with this handle."""
        from cupy.cuda import runtime

        runtime.graphLaunch(self._graph.graphExec, stream)


class GraphEnd:
    """Tells when a graph, and all graphs instantiated from it, are destroyed.

    The destructor runs in a thread of the driver's, where neither Python nor CUDA may be called, so
    it is the C library's ``sem_post``.
    """

    __slots__ = ("_semaphore",)

    def __init__(self, graph: Any):
        from cuda.bindings import driver

        c = _c_library()
        # Allocated in C, since graphs may be destroyed after the interpreter has ended.
        self._semaphore: int | None = c.calloc(1, _SEMAPHORE_BYTES)
        c.sem_init(self._semaphore, 0, 0)
        destructor = ctypes.cast(c.sem_post, ctypes.c_void_p).value
        flag = driver.CUuserObject_flags.CU_USER_OBJECT_NO_DESTRUCTOR_SYNC
        moved = driver.CUuserObjectRetain_flags.CU_GRAPH_USER_OBJECT_MOVE
        marker = _checked(
            driver.cuUserObjectCreate(self._semaphore, driver.CUhostFn(destructor), 1, flag)
        )
        _checked(driver.cuGraphRetainUserObject(graph, marker, 1, moved))

    def seen(self) -> bool:
        """Return whether that has happened."""
        if self._semaphore is None:
            return True
        c = _c_library()
        if c.sem_trywait(self._semaphore) != 0:
            return False
        c.free(self._semaphore)
        self._semaphore = None
        return True


def capture_on(stream: int) -> Capture:
    """Return the capture that a stream belongs to; forked streams share one."""
    from cuda.bindings import driver

    _, number, graph, *_ = _checked(driver.cuStreamGetCaptureInfo(stream))
    number = int(number)
    found = _captures.get(number)
    if found is None:
        with _lock:
            reclaim()
            found = _captures.get(number)
            if found is None:
                found = _captures[number] = Capture(graph)
    return found


def reclaim() -> None:
    """Give back the memory of graphs that were destroyed."""
    with _lock:
        for number, capture in list(_captures.items()):
            if capture.over():
                _captures.pop(number, None)


def reclaim_next() -> None:
    """Do what `reclaim` does for one graph, the next time for another one.

    For calls that are planned: what they look at does not grow with the number of graphs.
    """
    if _captures:
        with _lock:
            number, capture = next(iter(_captures.items()), (0, None))
            if capture is None:  # another thread has given it back
                return
            if capture.over():
                _captures.pop(number, None)
            else:
                _captures.move_to_end(number)


def _checked(answer: tuple) -> Any:
    """Return what a function of the driver gave, or raise its error."""
    status, *values = answer
    if int(status) != 0:
        raise RuntimeError(f"the CUDA driver: {status.name}")
    return values[0] if len(values) == 1 else values


@cache
def _c_library() -> ctypes.CDLL:
    c = ctypes.CDLL(None)
    c.calloc.restype = ctypes.c_void_p
    c.calloc.argtypes = (ctypes.c_size_t, ctypes.c_size_t)
    for function in (c.free, c.sem_post, c.sem_trywait):
        function.argtypes = (ctypes.c_void_p,)
    c.sem_init.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_uint)
    return c
