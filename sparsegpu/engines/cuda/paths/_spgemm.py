"""Sparse times sparse as its paths see it: stacks of blocks, and the pairs that are multiplied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ...._arrays import dtype_of
from ..runtime.architectures import SHARED_MEMORY, shared_memory_of
from ..runtime.device import device_facts
from ..runtime.launch import Launch, address, kernel
from ..runtime.structs import kernel_struct
from ..runtime.types import ctype
from ._tile import Tile

#: The types that pairs may have, as ``BY_ADDRESS`` of a path.
PAIRS = {"PAIR": ("s32", "s64")}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpgemmFacts:
    """Numbers that describe a product and the device: a tile is chosen from these alone.

    Attributes
    ----------
    dtype, out_dtype : dtype
    blocksize : (bm, bk)
    columns : int
        Of a block of the right operand.
    vectors : bool
        All blocks begin at multiples of 16 bytes, those of the result at multiples of two elements.
    capability : (int, int)
    shared_memory : int
        Bytes that a thread block may have.
    """

    dtype: np.dtype
    out_dtype: np.dtype
    blocksize: tuple[int, int]
    columns: int
    vectors: bool = True
    capability: tuple[int, int] = (9, 0)
    shared_memory: int = SHARED_MEMORY[9, 0]

    @property
    def sides(self) -> tuple[int, int, int]:
        """Return bm, bk and bn."""
        return (*self.blocksize, self.columns)


@dataclass(frozen=True, slots=True)
class Spgemm:
    """A stretch of the blocks of a product.

    Attributes
    ----------
    out, a, b : arrays (blocks, rows, columns)
        C-contiguous, of all matrices.
    starts : int64 array (blocks of out + 1,)
    pairs : array (pairs, 2)
        Block ``first + i`` is the sum over ``starts[first + i]..starts[first + i + 1]`` of pairs,
        numbered from ``base`` on.
    first, blocks, base : int
        The stretch.
    """

    out: Any
    a: Any
    b: Any
    starts: Any
    pairs: Any
    first: int
    blocks: int
    base: int

    @property
    def dtype(self) -> np.dtype:
        """Of the operands."""
        return self.a.dtype

    def facts(self) -> SpgemmFacts:
        """Return what the tile depends on."""
        capability, _, shared_memory = device_facts()
        aligned = all(x.data.ptr % 16 == 0 for x in (self.a, self.b))
        return SpgemmFacts(
            dtype=self.dtype,
            out_dtype=self.out.dtype,
            blocksize=self.a.shape[1:],
            columns=self.b.shape[2],
            vectors=aligned and self.out.data.ptr % (2 * self.out.itemsize) == 0,
            capability=capability,
            shared_memory=shared_memory,
        )


def spgemm_launch(p: Spgemm, tile: Tile, source: str, grid: tuple[int]) -> tuple[Launch, ...]:
    """Return the launch of a path's kernel, all of which take the same arguments."""
    _, bm, bk = p.a.shape
    return (
        Launch(
            kernel(source, PAIR=ctype(p.pairs.dtype), **tile.defines),
            grid,
            (tile.threads,),
            (
                address(p.out),
                address(p.a),
                address(p.b),
                p.starts,
                p.pairs,
                kernel_struct(source, "PairsProblem")(
                    first=p.first, blocks=p.blocks, base=p.base, bm=bm, bk=bk, bn=p.b.shape[2]
                ),
            ),
            tile.shared_memory,
        ),
    )


def types(f: SpgemmFacts) -> dict[str, str]:
    """Return the ``-D`` names of the dtypes."""
    return {"T": ctype(f.dtype), "OUT": ctype(f.out_dtype)}


# -- what the compile matrix, the tables and the names of fields are made from ----------------

_SIDES = ((64, 64, 64), (3, 3, 3), (16, 16, 16), (4, 4, 4), (128, 128, 128), (1, 1, 1))
_MORE_SIDES = (
    (8, 8, 8),
    (32, 32, 32),
    (48, 40, 80),
    (2, 5, 3),
    (256, 64, 16),
    (6, 7, 1),
    (5, 9, 5),
)
_OUTPUTS = {
    "float16": ("float16", "float32", "bfloat16"),
    "bfloat16": ("bfloat16", "float32", "float16"),
    "float32": ("float32", "bfloat16", "float16"),
    "int8": ("int32", "int8", "float32", "float16", "bfloat16"),
}


def examples(
    dtypes: Sequence[str], capability: tuple[int, int] = (9, 0), *, all: bool = False
) -> Iterator[SpgemmFacts]:
    """Yield products of some dtypes on a device, first those that most paths serve."""
    for (bm, bk, bn), name in product((*_SIDES, *_MORE_SIDES) if all else _SIDES[:4], dtypes):
        for out in _OUTPUTS.get(name, (name,))[: None if all else 1]:
            yield SpgemmFacts(
                dtype=dtype_of(name),
                out_dtype=dtype_of(out),
                blocksize=(bm, bk),
                columns=bn,
                capability=capability,
                shared_memory=shared_memory_of(capability),
            )
