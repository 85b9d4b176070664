"""What is kept of captures and what becomes of it, without a GPU."""

from __future__ import annotations

import sys
from collections import OrderedDict
from types import SimpleNamespace

import pytest

from fake_cuda import MemoryAsyncPool, Stream
from sparsegpu.engines.cuda import vector
from sparsegpu.engines.cuda.runtime import capture
from sparsegpu.engines.cuda.runtime.launch import LaunchError
from sparsegpu.engines.cuda.runtime.submission import Submission
from sparsegpu.engines.cuda.runtime.submission import workspace as take


def test_memory_of_graphs_that_are_gone_goes_without_another_capture(cuda, monkeypatch):
    """Calls that are planned look at one graph each."""
    gone, looked_at = set(), []

    def over(number):
        looked_at.append(number)
        return number in gone

    graphs = OrderedDict((n, SimpleNamespace(over=lambda n=n: over(n))) for n in range(4))
    monkeypatch.setattr(capture, "_captures", graphs)

    def call():
        with Submission(0):
            pass

    call()
    call()
    assert looked_at == [0, 1] and len(graphs) == 4
    gone |= {0, 3}
    for _ in range(4):
        call()
    assert looked_at == [0, 1, 2, 3, 0, 1] and graphs.keys() == {1, 2}
    cuda.captured.add(7)
    with cuda.on(Stream(7)):
        call()
    assert len(looked_at) == 6  # while a graph is captured nothing is given back


def test_two_gpus_of_a_capture_do_not_share_workspace(cuda):
    """The per-thread default streams of both have the same handle."""
    per_thread = Stream(2)
    cuda.captured.add(2)
    with cuda.on(per_thread):
        for cuda.device in (0, 1):
            with Submission(cuda.device, SimpleNamespace(kept={}, device=cuda.device)):
                take(1000)
    assert len(cuda.graph._workspaces) == 2


@pytest.mark.parametrize("allocator", ["malloc_async", "a pool of it", "another"])
def test_memory_is_not_allocated_by_the_graph_itself(cuda, allocator):
    """CUDA launches a graph only once where it allocates what it does not free."""
    cupy, waited = sys.modules["cupy"], []

    class Apart(Stream):
        def __init__(self, non_blocking):
            super().__init__(100 + len(waited))

        def __enter__(self):
            self._context = cuda.on(self)
            return self._context.__enter__()

        def __exit__(self, *error):
            self._context.__exit__(*error)

        def synchronize(self):
            waited.append(self.ptr)

    cupy.cuda.Stream = Apart
    cuda.allocator = {
        "malloc_async": cupy.cuda.malloc_async,
        "a pool of it": MemoryAsyncPool().malloc,
        "another": lambda nbytes: (nbytes, cuda.current),
    }[allocator]
    cuda.captured.add(7)
    with cuda.on(Stream(7)):
        for cuda.device in (0, 1):
            with Submission(cuda.device):
                for _ in range(2):
                    cupy.cuda.get_allocator()(64)
    streams = [stream.ptr for _, stream in cuda.graph._memory]
    apart = allocator != "another"
    assert streams == ([100, 100, 102, 102] if apart else [7] * 4)
    assert waited == streams * apart  # before the graph may run


@pytest.mark.parametrize("ended", [False, True])
def test_an_error_in_the_middle_of_a_capture_is_the_one_that_is_raised(cuda, ended):
    """Whatever CUDA says of the capture then."""
    streams = []

    class Captured(Stream):
        def __init__(self, non_blocking):
            super().__init__(9)
            streams.append([])

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def begin_capture(self):
            streams[-1].append("begin")

        def end_capture(self):
            streams[-1].append("end")
            if ended:
                raise RuntimeError("the capture is invalid")

    def iteration():
        raise LaunchError("this one")

    sys.modules["cupy"].cuda.Stream = Captured
    with pytest.raises(LaunchError, match="this one"):
        vector._captured(iteration, 2)
    assert streams == [["begin", "end"]]
