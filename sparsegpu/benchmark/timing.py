"""Times of a call: on the device by events, on the host by the clock; and the chip's ceilings.

A call's device time must not contain the host's: the stream is kept busy, by a kernel that only
waits, while the host enqueues the first event, the call and the second event.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Call = Callable[[], Any]

REPEATS = 20
_TURNS = 4  # at least, where there are several calls
_WARM_UP = 3
_FLUSH_BYTES = 1 << 28  # several times the L2 of any GPU today
_SLACK_US = 30.0
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
def _flush_buffer() -> Any:
    import cupy

    return cupy.zeros(_FLUSH_BYTES // 8, np.int64)


def device_ms(call: Call, *, flush: bool = False, repeats: int = REPEATS) -> float:
    """Return the median device time of a call in milliseconds, after warm-up.

    Parameters
    ----------
    call, flush, repeats
        As for `in_turns`.
    """
    return in_turns({"": call}, flush=flush, repeats=repeats)[""]


def in_turns(
    calls: Mapping[str, Call], *, flush: bool = False, repeats: int = REPEATS
) -> dict[str, float]:
    """Return the median device time of each of several calls in milliseconds, after warm-up.

    They take turns in `orders`, several times: the clock of a chip at its power limit depends on
    what ran before.

    Parameters
    ----------
    calls : mapping
        Name to what enqueues work on the current stream.
    flush : bool
        Push the operands out of the L2 before every repetition: for memory-bound work, which
        in an application finds its operands in memory.
    repeats : int
        Of each call, in all turns together, at least.
    """
    names = list(calls)
    leads = {name: _lead(call) for name, call in calls.items()}
    spans: dict[str, list[float]] = {name: [] for name in names}
    turns = orders(len(names))
    if len(names) > 1:
        turns *= -(-_TURNS // len(turns))
    for turn in turns:
        for name in (names[place] for place in turn):
            spans[name] += _spans(calls[name], leads[name], flush, -(-repeats // len(turns)))
    return {name: float(np.median(times)) for name, times in spans.items()}


def orders(count: int) -> list[list[int]]:
    """Return orders in which each of ``count`` comes behind every other one equally often.

    Williams' design: E. J. Williams, "Experimental designs balanced for the estimation of residual
    effects of treatments", Australian Journal of Scientific Research A 2 (1949).

    Examples
    --------
    >>> orders(2)
    [[0, 1], [1, 0]]
    >>> orders(3)
    [[0, 1, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0], [0, 2, 1], [1, 0, 2]]
    """
    first = [(i + 1) // 2 if i % 2 else -(i // 2) for i in range(count)]
    square = [[(place + shift) % count for place in first] for shift in range(count)]
    return square if count % 2 == 0 or count == 1 else square + [row[::-1] for row in square]


def _lead(call: Call) -> np.int64:
    """Return the nanoseconds that keep the stream busy until a call is enqueued; warms up."""
    for _ in range(_WARM_UP):
        call()
    return np.int64(1000 * (1.5 * host_us(call, repeats=5) + _SLACK_US))


def _spans(call: Call, lead: np.int64, flush: bool, repeats: int) -> list[float]:
    """Return the device times of some calls in milliseconds; one before them is not counted."""
    import cupy

    call()
    spans = []
    for _ in range(repeats):
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        if flush:
            _flush_buffer().max()  # written, its lines would leave the L2 within the timed call
        _wait_kernel()((1,), (1,), (lead,))
        start.record()
        result = call()
        stop.record()
        stop.synchronize()
        del result  # behind the time: giving results back is not the call's part
        spans.append(cupy.cuda.get_elapsed_time(start, stop))
    return spans


def host_us(call: Call, repeats: int = 100, loops: int = 1) -> float:
    """Return the host time of a call in microseconds: a loop of calls that nothing waits for.

    Of several loops the median, which one interruption of the host does not move.
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
    """Return the median host time of one call that finds the stream idle, in microseconds."""
    spans = []
    for _ in range(repeats):
        _synchronize()
        start = time.perf_counter()
        call()
        spans.append(time.perf_counter() - start)
    _synchronize()
    return float(np.median(spans)) * 1e6


def whole_us(call: Call) -> float:
    """Return the time of one call and the work it enqueued, in microseconds."""
    _synchronize()
    start = time.perf_counter()
    call()
    _synchronize()
    return (time.perf_counter() - start) * 1e6


def copy_gbs(size: int = 1 << 30) -> float:
    """Return the bandwidth of a device copy, read and write counted, in GB/s."""
    import cupy

    source = cupy.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    target = cupy.empty_like(source)
    return 2 * size / device_ms(lambda: cupy.copyto(target, source)) / 1e6


def _synchronize() -> None:
    import cupy

    cupy.cuda.get_current_stream().synchronize()
