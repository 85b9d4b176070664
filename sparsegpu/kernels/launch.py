"""Launches a wrapped kernel on CuPy's current stream, through the library's one door."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .._arrays import is_cupy


def launch(
    name: str,
    code: bytes,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    args: Iterable[Any],
    shared_memory: int,
) -> None:
    """Launch a cubin's kernel with checked arguments: arrays, numbers, bytes, None."""
    from ..engines.cuda.runtime import launch as door

    packed = tuple(_packed(door, value) for value in args)
    kernel = door.loaded(name, code)
    door.submit(door.Launch(kernel, grid, block, packed, shared_memory))


def _packed(door: Any, value: Any) -> Any:
    if value is None:
        return door.NULL
    return door.address(value) if is_cupy(value) else value
