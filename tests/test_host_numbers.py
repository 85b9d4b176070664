"""Numbers that a kernel writes for the host, and calls that wait for them: without a GPU."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from types import SimpleNamespace

import pytest

from fake_cuda import Stream, at
from sparsegpu.engines.cuda import _host_numbers
from sparsegpu.engines.cuda._host_numbers import HostNumbers
from sparsegpu.engines.cuda.runtime import replay
from sparsegpu.engines.cuda.runtime.launch import pointer, submit
from sparsegpu.engines.cuda.runtime.replay import Call
from sparsegpu.engines.cuda.runtime.submission import Submission


@pytest.fixture(autouse=True)
def real_numbers():
    """What kernels of other tests write to is none of the memory that is made up here."""
    before = list(HostNumbers._free)
    yield  # until all that was put in place is gone
    assert HostNumbers._free == before


@pytest.fixture
def pinned(cuda, monkeypatch):
    """Pinned memory as it is allocated, and the streams that were waited for."""
    memory, waits = [], []

    def alloc_pinned_memory(nbytes):
        memory.append((ctypes.c_int64 * (nbytes // 8))())
        return SimpleNamespace(ptr=ctypes.addressof(memory[-1]))

    monkeypatch.setattr(HostNumbers, "_free", [])
    monkeypatch.setattr(_host_numbers, "_memory", [])
    sys.modules["cupy"].cuda.alloc_pinned_memory = alloc_pinned_memory
    monkeypatch.setattr(_host_numbers, "_synchronize", lambda: waits.append)
    yield memory, waits
    replay._without_owner.clear()  # the records give their numbers back, while this is in place


def test_numbers_of_the_host_are_one_calls_alone(cuda, pinned):
    memory, waits = pinned
    first, second = HostNumbers(), HostNumbers()
    places = [int.from_bytes(given.pointer, "little") for given in (first, second)]
    assert places == [*map(ctypes.addressof, memory)]
    for numbers, stream in ((first, 7), (second, 8)):
        with cuda.on(Stream(stream)):
            submit(numbers)
    memory[0][:] = range(1, 1 + len(memory[0]))
    assert second.wait() == [0] * len(memory[1]) and first.wait() == [1, 2, 3, 4, 5]
    assert waits == [8, 7]
    del first
    third = HostNumbers()  # in the memory of the first, which no kernel writes any more
    submit(third)
    assert third.pointer == pointer(places[0]) and third.wait() == [0] * 5
    submit(third)
    del third  # nobody waited: its kernel may yet write
    assert HostNumbers().pointer != pointer(places[0]) and len(memory) == 3


def test_a_call_that_waits_is_replayed_where_its_numbers_are_zero(cuda, pinned):
    (memory, waits), dense, out, told, meanwhile = pinned, at(512), at(1024), [0], []

    def waiting_call(waits=True):
        return Call("operation", None, (dense, out), (), out, waits=waits)

    def kernel(stream):
        memory[0][1] = told[0]
        meanwhile.append(waiting_call().replay())  # as another thread does

    numbers, call = HostNumbers(), waiting_call()
    with Submission(0, None, call):
        submit(numbers, SimpleNamespace(source="", on=kernel), whole=True)
        assert numbers.wait() == [0] * 5
        call.keep()
    assert waiting_call(waits=False).replay() is None
    for told[0], replayed in ((0, [out]), (3, None), (0, [out])):
        assert waiting_call().replay() == replayed
    assert meanwhile == [None] * 4 and waits == [0] * 4
    cuda.captured.add(9)
    with cuda.on(Stream(9)):
        assert waiting_call().replay() is None and len(meanwhile) == 4


def test_the_interpreter_s_end_gives_back_without_a_word():
    """Numbers that a record keeps live for as long as their module, or longer."""
    code = """
from sparsegpu.engines.cuda import _host_numbers
numbers = _host_numbers.HostNumbers.__new__(_host_numbers.HostNumbers)
numbers._stream, numbers._numbers = None, _host_numbers._Numbers()
_host_numbers.__dict__.clear()
del numbers
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
