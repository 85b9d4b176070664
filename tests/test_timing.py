"""The order in which calls are timed, without a GPU."""

from collections import Counter
from itertools import pairwise
from types import SimpleNamespace

import pytest

import fake_devices
from sparsegpu.tuning import timing


def test_calls_are_measured_alternately(monkeypatch):
    order = []

    def spans(call, wait, flush, repeats):
        order.append((call, wait, flush, repeats))
        return [float(len(order))] * repeats

    monkeypatch.setattr(timing, "_wait_ns", lambda call: 10 * call)
    monkeypatch.setattr(timing, "_spans", spans)
    times = timing.interleaved_ms({"a": 1, "b": 2}, flush=True, repeats=20)
    assert [call for call, *_ in order] == [1, 2, 2, 1, 1, 2, 2, 1]
    assert {(wait / call, *rest) for call, wait, *rest in order} == {(10, True, 5)}
    assert times == {"a": 4.5, "b": 4.5}
    order.clear()
    assert timing.interleaved_ms({"": 1}, repeats=5) == {"": 1.0}
    assert [repeats for *_, repeats in order] == [5]


def test_each_gpu_flushes_its_own_memory(monkeypatch):
    cupy = fake_devices.put_in_place(monkeypatch)
    event = SimpleNamespace(record=lambda: None, synchronize=lambda: None)
    cupy.cuda.Event, cupy.cuda.get_elapsed_time = lambda: event, lambda start, stop: 2.0
    monkeypatch.setattr(timing, "_wait_kernel", lambda: lambda *arguments: None)
    monkeypatch.setattr(timing, "_FLUSH_BYTES", 64)
    timing._flush_buffer.cache_clear()
    for device in (0, 1):
        with fake_devices.on(device):
            assert timing._spans(lambda: None, 1, True, 3) == [2.0] * 3
    timing._flush_buffer.cache_clear()


@pytest.mark.parametrize("count", range(2, 8))
def test_each_comes_behind_every_other_equally_often(count):
    orders = timing.balanced_orders(count)
    assert all(sorted(order) == list(range(count)) for order in orders)
    behind = Counter(pair for order in orders for pair in pairwise(order))
    assert len(behind) == count * (count - 1) and len(set(behind.values())) == 1


@pytest.mark.parametrize("seconds", [0.001, 0.5])
def test_a_call_settles_after_a_rest(monkeypatch, seconds):
    now, calls = 0.0, []

    def passed(more):
        nonlocal now
        now += more

    monkeypatch.setattr(timing.time, "sleep", passed)
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now)
    timing.settle(lambda: (calls.append(now), passed(seconds)))
    assert calls[0] == 0.1  # what spins for so long is asleep
    assert now - calls[0] >= 0.02 and len(calls) == (1 if seconds > 0.02 else 20)
