"""Launches a wrapped kernel on CuPy's current stream, through the library's one door."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

from .._arrays import is_cupy


def launch(
    name: str,
    code: bytes,
    args: Iterable[Any],
    launch: tuple[tuple[int, ...], tuple[int, ...], int],
) -> None:
    """Launch a cubin's kernel with checked arguments: arrays, numbers, bytes, None.

    ``launch`` is its grid, its block, and the bytes of dynamic shared memory.
    """
    from ..engines.cuda.runtime import launch as door

    grid, block, shared_memory = launch
    packed = tuple(_packed(door, value) for value in args)
    kernel = door.loaded(name, code)
    door.submit(door.Launch(kernel, grid, block, packed, shared_memory), whole=True)


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
