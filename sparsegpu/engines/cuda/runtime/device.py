"""The current device: what tiles are chosen by, which code it runs, and its context."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from .architectures import PORTABLE, matching_architecture
from .compile import supported_architectures

_get_device: Callable[[], int] | None = None
_INVALID_CONTEXT = 201  # CUresult


class DeviceFacts(NamedTuple):
    """What tiles are chosen by: compute capability, multiprocessors, a thread block's memory."""

    capability: tuple[int, int]
    multiprocessors: int
    shared_memory: int


@cache
def _facts(device: int) -> DeviceFacts:
    import cupy

    found = cupy.cuda.Device(device)
    cc, attributes = found.compute_capability, found.attributes
    return DeviceFacts(
        (int(cc[:-1]), int(cc[-1])),
        attributes["MultiProcessorCount"],
        int(attributes["MaxSharedMemoryPerBlockOptin"]),
    )


def device_facts() -> DeviceFacts:
    """Return what tiles for the current device are chosen by."""
    return _facts(current_device())


def runs_here(archs: tuple[str, ...]) -> bool:
    """Return whether the current device runs code for one of some architectures."""
    return archs is PORTABLE or _runs(archs, compute_capability())


@cache
def _runs(archs: tuple[str, ...], cc: tuple[int, int]) -> bool:
    return matching_architecture(archs, cc, supported_architectures()) is not None


def multiprocessors() -> int:
    """Return the number of multiprocessors of the current device."""
    return device_facts().multiprocessors


def l2_bytes() -> int:
    """Return the size of the current device's L2 cache."""
    return _l2_bytes(current_device())


@cache
def _l2_bytes(device: int) -> int:
    import cupy

    return int(cupy.cuda.Device(device).attributes["L2CacheSize"])


def compute_capability() -> tuple[int, int]:
    """Return the compute capability of the current device: ``(9, 0)``."""
    return device_facts().capability


def architecture() -> str:
    """Return the compute capability of the current device as one number: ``"90"``."""
    return "{}{}".format(*compute_capability())


def current_device() -> int:
    """Return the number of the current device."""
    global _get_device
    if _get_device is None:
        from cupy.cuda import runtime

        _get_device = runtime.getDevice
    return _get_device()


def in_context(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call the driver from a thread that may not have a current context yet."""
    try:
        return call(*arguments)
    except RuntimeError as error:
        if not lacks_context(error):
            raise
    return call(*arguments)


def lacks_context(error: RuntimeError) -> bool:
    """Return whether the driver refused because this thread has no context; then make one current.

    CuPy makes a context current at a thread's first call of CUDA's runtime API, but launching,
    loading a cubin and encoding a tensor map are calls of the driver API. Checking before each of
    them would cost more than calling again.
    """
    if getattr(error, "status", None) != _INVALID_CONTEXT:
        return False
    from cupy.cuda import runtime

    runtime.setDevice(current_device())
    return True
