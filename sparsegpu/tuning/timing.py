"""The time of a call: on the device by events, on the host by the clock; a copy's bandwidth.

A call's device time must not contain the host's. So a kernel that only waits keeps the stream busy
while the host enqueues the first event, the call and the second event.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Call = Callable[[], Any]

REPEATS = 20
#: A configuration counts as faster than another from this ratio of their times on.
NOISE = 1.03
#: Up to so many columns of the dense operand a product is bound by reading the sparse one.
MEMORY_BOUND_COLUMNS = 128
_ROUNDS = 4  # at least, where several calls are compared
_WARM_UP = 3
_FLUSH_BYTES = 1 << 28  # several times the L2 of any GPU today
_SLACK_US = 30.0
#: Seconds. After a product OpenBLAS's threads wait for the next one without sleeping, for about
#: 0.1 s; the scheduler spreads threads over the cores within some milliseconds of work.
_ASLEEP, _AWAKE = 0.1, 0.02
_WAIT = r"""
extern "C" __global__ void wait(const long long nanoseconds) {
    long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - start < nanoseconds);
}
"""


@functools.cache
def _wait_kernel() -> Any:
    import cupy

    return cupy.RawKernel(_WAIT, "wait")


@functools.cache
def _flush_buffer(device: int) -> Any:
    """Return memory of a device, which is the current one."""
    import cupy

    return cupy.zeros(_FLUSH_BYTES // 8, np.int64)


def device_ms(call: Call, *, flush: bool = False, repeats: int = REPEATS) -> float:
    """Return the median device time of a call in milliseconds, after warm-up.

    Parameters
    ----------
    call, flush, repeats
        As for `interleaved_ms`.
    """
    return interleaved_ms({"": call}, flush=flush, repeats=repeats)[""]


def interleaved_ms(
    calls: Mapping[str, Call], *, flush: bool = False, repeats: int = REPEATS
) -> dict[str, float]:
    """Return the median device time of each of several calls in milliseconds, after warm-up.

    They are measured alternately, in `balanced_orders`: the clock of a chip at its power limit
    depends on what ran before.

    Parameters
    ----------
    calls : mapping
        Name to what enqueues work on the current stream.
    flush : bool
        Evict the operands from the L2 before every repetition: memory-bound work finds its
        operands in memory when an application calls it.
    repeats : int
        Of each call, at least, over all rounds.
    """
    names = list(calls)
    waits = {name: _wait_ns(call) for name, call in calls.items()}
    spans: dict[str, list[float]] = {name: [] for name in names}
    rounds = balanced_orders(len(names))
    if len(names) > 1:
        rounds *= math.ceil(_ROUNDS / len(rounds))
    for order in rounds:
        for name in (names[place] for place in order):
            spans[name] += _spans(calls[name], waits[name], flush, math.ceil(repeats / len(rounds)))
    return {name: float(np.median(times)) for name, times in spans.items()}


def balanced_orders(count: int) -> list[list[int]]:
    """Return orders of ``count`` items in which each follows every other one equally often.

    Williams' design: E. J. Williams, "Experimental designs balanced for the estimation of residual
    effects of treatments", Australian Journal of Scientific Research A 2 (1949).

    Examples
    --------
    >>> balanced_orders(2)
    [[0, 1], [1, 0]]
    >>> balanced_orders(3)
    [[0, 1, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0], [0, 2, 1], [1, 0, 2]]
    """
    first = [(i + 1) // 2 if i % 2 else -(i // 2) for i in range(count)]
    square = [[(place + shift) % count for place in first] for shift in range(count)]
    return square if count % 2 == 0 or count == 1 else square + [row[::-1] for row in square]


def _wait_ns(call: Call) -> np.int64:
    """Warm a call up; return how long the stream must be kept busy while it is enqueued."""
    for _ in range(_WARM_UP):
        call()
    return np.int64(1000 * (1.5 * host_us(call, repeats=5) + _SLACK_US))


def _spans(call: Call, wait: np.int64, flush: bool, repeats: int) -> list[float]:
    """Return the device times of repeated calls in milliseconds; a first one is not counted."""
    import cupy

    call()
    spans = []
    for _ in range(repeats):
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        if flush:
            # Read only: dirty lines would be written back in the timed call.
            _flush_buffer(cupy.cuda.runtime.getDevice()).max()
        _wait_kernel()((1,), (1,), (wait,))
        start.record()
        result = call()
        stop.record()
        stop.synchronize()
        del result  # freed after the second event: that is not part of the call
        spans.append(cupy.cuda.get_elapsed_time(start, stop))
    return spans


def host_us(call: Call, repeats: int = 100, loops: int = 1) -> float:
    """Return the mean host time of a call in microseconds, in a loop that never synchronizes.

    Of several loops it is the median, so that an interruption of the host does not count.
    """
    spans = []
    for _ in range(loops):
        _synchronize()
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        spans.append(time.perf_counter() - start)
    _synchronize()
    return float(np.median(spans)) / repeats * 1e6


def single_host_us(call: Call, repeats: int = REPEATS) -> float:
    """Return the median host time of a single call on an idle stream, in microseconds."""
    spans = []
    for _ in range(repeats):
        _synchronize()
        start = time.perf_counter()
        call()
        spans.append(time.perf_counter() - start)
    _synchronize()
    return float(np.median(spans)) * 1e6


def whole_us(call: Call) -> float:
    """Return the time of a call and of the work it enqueued, in microseconds."""
    _synchronize()
    start = time.perf_counter()
    call()
    _synchronize()
    return (time.perf_counter() - start) * 1e6


def settle(call: Call) -> None:
    """Prepare the host for measuring ``call``, after whatever ran before.

    Threads of other libraries fall asleep, which would take cores from it; its own threads, which
    slept meanwhile, and the caches are as after many calls.
    """
    time.sleep(_ASLEEP)
    start = time.perf_counter()
    call()
    while time.perf_counter() - start < _AWAKE:
        call()


def copy_gbs(size: int = 1 << 30) -> float:
    """Return the bandwidth of a device copy, read and write counted, in GB/s."""
    import cupy

    source = cupy.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    target = cupy.empty_like(source)
    return 2 * size / device_ms(lambda: cupy.copyto(target, source)) / 1e6


def _synchronize() -> None:
    import cupy

    cupy.cuda.get_current_stream().synchronize()
