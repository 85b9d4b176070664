"""Launches of a wrapped kernel on CuPy's current stream, through the library's one door."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

from .._arrays import is_cupy
from .plans import Sizes


def launch_of(name: str, code: bytes, args: Iterable[Any], sizes: Sizes) -> Any:
    """Return the launch of a cubin with checked arguments: arrays, numbers, bytes, None."""
    from ..engines.cuda.runtime import launch as door
    from ..engines.cuda.runtime.cluster import ClusterLaunch

    grid, block, shared_memory, cluster = sizes
    packed = tuple(_packed(door, value) for value in args)
    kernel = door.loaded(name, code)
    if cluster is None:
        return door.Launch(kernel, grid, block, packed, shared_memory)
    return ClusterLaunch(kernel, grid, block, packed, shared_memory, cluster)


def submit(work: Any) -> None:
    """Enqueue a launch on CuPy's current stream."""
    from ..engines.cuda.runtime import launch as door

    door.submit(work, whole=True)


def check_device(resources: Any, block: tuple[int, ...], shared_memory: int) -> None:
    """Raise ValueError for a launch that asks for more than the current device has."""
    import cupy

    limits = cupy.cuda.Device().attributes
    threads = prod(block)
    for what, asked, most in (
        ("registers", resources.registers * threads, limits["MaxRegistersPerBlock"]),
        ("threads", threads, limits["MaxThreadsPerBlock"]),
        (
            "bytes of shared memory",
            resources.shared + shared_memory,
            limits["MaxSharedMemoryPerBlockOptin"],
        ),
    ):
        if asked > most:
            raise ValueError(f"{asked} {what} a block, of at most {most}")


def _packed(door: Any, value: Any) -> Any:
    if value is None:
        return door.NULL
    return door.address(value) if is_cupy(value) else value
