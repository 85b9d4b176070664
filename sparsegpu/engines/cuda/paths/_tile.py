"""The tile of a kernel whose thread blocks each compute one rectangle of the output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Tile:
    """What a kernel is compiled and launched with.

    Attributes
    ----------
    tile_m, tile_n : int
        Rows and columns of the output that a thread block computes.
    threads : int
        Of a thread block.
    defines : dict
        The ``-D`` names of the kernel.
    shared_memory : int
        Dynamic, of a thread block, in bytes.
    splits : int
        Of k, at most, whose sums another launch adds.
    """

    tile_m: int
    tile_n: int
    threads: int
    defines: dict[str, Any]
    shared_memory: int = 0
    splits: int = 1
