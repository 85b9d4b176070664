"""A scattered product as its paths see it: blocks, others, and the lists of what is added where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...._arrays import accumulator_dtype, dtype_of
from ...._epilogue import Epilogue
from ...._math import ceil_div
from .._epilogue_args import epilogue_args
from .._grid import aligned, grid
from ..runtime.launch import Launch, kernel
from ..runtime.structs import kernel_struct
from ..runtime.types import ctype
from ..runtime.view import batch_dims, matrix_view, merged_batch
from ._fields import Fields
from ._tile import Tile

#: The formats of the lists, as ``-DFORMAT`` calls them.
FORMS = ("pairs", "strided", "compressed")
_LISTS = ("starts", "r_offsets", "p_offsets", "q_offsets")
_GROUP_SIZES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScatterFacts:
    """Numbers that describe a scattered product: a tile is chosen from these alone.

    Attributes
    ----------
    form : {"pairs", "strided", "compressed"}
        The format of the lists.
    dtype : dtype
        Of the operands.
    blocksize : (Ms, Ks)
    columns : int
        Ns, of a tile of the accumulators.
    terms : float
        Of a sum, on average: the columns of the blocks that a tile has.
    vectors : bool
        Elements of rows of blocks and others are contiguous, and rows begin at multiples of 16
        bytes; those of int8 others, which are not copied in vectors, may begin anywhere.
    group_size : int
        What the lists ask for.
    """

    form: str
    dtype: np.dtype
    blocksize: tuple[int, int]
    columns: int
    terms: float = 512.0
    vectors: bool = True
    group_size: int = _GROUP_SIZES[-1]


@dataclass(frozen=True, slots=True)
class Scatter:
    """Everything that a path needs to know of a scattered product.

    Attributes
    ----------
    form : {"pairs", "strided", "compressed"}
    accumulators : array (R, Ms, Ns) or (*B, M, N)
        Added to.
    blocks : array (P, Ms, Ks)
    others : array (Q, Ks, Ns) or (*B, K, N)
    lists : tuple of arrays or None
        ``starts``, ``r_offsets``, ``p_offsets`` and ``q_offsets`` of ``common/pair_sum.cuh``:
        contiguous, of one dtype.
    split : int
        Tiles side by side in N.
    group_size : int
    """

    form: str
    accumulators: Any
    blocks: Any
    others: Any
    lists: tuple[Any, Any, Any, Any]
    split: int
    group_size: int = _GROUP_SIZES[-1]

    @property
    def dtype(self) -> np.dtype:
        """Of the operands."""
        return self.blocks.dtype

    @property
    def columns(self) -> int:
        """Ns."""
        return self.accumulators.shape[-1] // self.split

    @property
    def tiles(self) -> int:
        """Tiles that the lists have."""
        return self.accumulators.shape[0] if self.form == "pairs" else self.lists[1].size

    @property
    def batches(self) -> int:
        """How often the lists are followed."""
        return 1 if self.form == "pairs" else prod(self.accumulators.shape[:-2])

    @property
    def pairs(self) -> int:
        """Pairs of blocks that the lists have."""
        return (self.lists[3] if self.form == "compressed" else self.lists[2]).shape[0]

    def facts(self) -> ScatterFacts:
        """Return what the tile depends on."""
        operands = self.blocks, self.others
        in_vectors = operands[:1] if self.dtype.itemsize == 1 else operands
        contiguous = all(a.strides[-1] == a.itemsize for a in operands)
        return ScatterFacts(
            form=self.form,
            dtype=self.dtype,
            blocksize=self.blocks.shape[1:],
            columns=self.columns,
            terms=self.pairs / max(self.tiles, 1) * self.blocks.shape[2],
            vectors=contiguous and all(aligned(a, 16) for a in in_vectors),
            group_size=self.group_size,
        )


def pick_group_size(f: ScatterFacts, fields: Fields, tile_m: int) -> int:
    """Return how many rows of parts follow each other; more than a tile has are all."""
    rows = ceil_div(f.blocksize[0], tile_m)
    enough = next((g for g in _GROUP_SIZES if g >= rows), _GROUP_SIZES[-1])
    return fields.pick("group_size", f.group_size, [g for g in _GROUP_SIZES if g <= enough])


class ScatterArguments(NamedTuple):
    """What the kernels of all paths are launched with.

    Attributes
    ----------
    defines : dict
        ``-D`` names that the tile does not say.
    parts : int
        Parts of tiles, in all batches.
    stack : tuple of int
        The batch of others: their stack, or the batch of the accumulators.
    accumulators : bytes
        A ``View``.
    others : tuple
        ``lists``, ``batch``, ``problem`` and ``epilogue`` of the kernels.
    """

    defines: dict[str, Any]
    parts: int
    stack: tuple[int, ...]
    accumulators: bytes
    others: tuple[Any, ...]


def scatter_arguments(p: Scatter, tile: Tile, source: str) -> ScatterArguments:
    """Return the arguments of a kernel for a product."""
    if p.form == "pairs":
        batch, stack = p.accumulators.shape[:1], p.others.shape[:1]
    else:
        batch = merged_batch(p.accumulators.shape[:-2], (p.accumulators, 2), (p.others, 2))
        stack = batch
    _, ms, ks = p.blocks.shape
    defines, epilogue = epilogue_args(
        Epilogue(1, 1, p.accumulators), batch, accumulator_dtype(p.dtype), p.accumulators.dtype
    )
    index = next(ctype(a.dtype) for a in p.lists if a is not None)
    addresses = [0 if a is None else a.data.ptr for a in p.lists]
    problem = kernel_struct(source, "ScatterProblem")(
        tiles=p.tiles,
        batches=p.batches,
        n=p.accumulators.shape[-1],
        ms=ms,
        ks=ks,
        ns=p.columns,
        split=p.split,
    )
    lists = kernel_struct(source, "Lists")(**dict(zip(_LISTS, addresses, strict=True)))
    parts = ceil_div(ms, tile.tile_m) * ceil_div(p.columns, tile.tile_n)
    return ScatterArguments(
        {"INDEX": index, **defines},
        p.tiles * p.batches * parts,
        stack,
        matrix_view(p.accumulators, batch),
        (lists, batch_dims(batch), problem, epilogue),
    )


def scatter_launch(p: Scatter, tile: Tile, source: str) -> tuple[Launch, ...]:
    """Return the launch of a kernel that takes a part of a tile a thread block."""
    a = scatter_arguments(p, tile, source)
    operands = matrix_view(p.blocks, p.blocks.shape[:1]), matrix_view(p.others, a.stack)
    return (
        Launch(
            kernel(source, **a.defines, **tile.defines),
            grid(a.parts),
            (tile.threads,),
            (a.accumulators, *operands, *a.others),
            tile.shared_memory,
        ),
    )


# -- what the compile matrix, the tables and the names of fields are made from ----------------

_BLOCKS = ((64, 64), (16, 16), (3, 5), (128, 128), (32, 24), (8, 8), (256, 64), (1, 7))
_COLUMNS = (64, 24, 200, 4, 1)
_OUTPUTS = {
    "f16": ("f16", "f32", "bf16"),
    "bf16": ("bf16", "f32", "f16"),
    "f32": ("f32", "bf16", "f16"),
    "s8": ("s8", "f32", "bf16"),
}


def examples(
    dtypes: Sequence[str], capability: tuple[int, int] = (9, 0), *, all: bool = False
) -> Iterator[ScatterFacts]:
    """Yield scattered products of some dtypes, first those that most paths serve."""
    del capability  # no tile depends on it
    blocks, columns = (_BLOCKS, _COLUMNS) if all else (_BLOCKS[:3], _COLUMNS[:2])
    for blocksize, n, form, name in product(blocks, columns, FORMS, dtypes):
        yield ScatterFacts(form=form, dtype=dtype_of(name), blocksize=blocksize, columns=n)


def epilogues(t: str) -> Iterator[dict[str, str]]:
    """Yield epilogues of operands of a type: they add to accumulators of each output."""
    none = {"ACT": "none", "LEFT": "none", "RIGHT": "none"}
    for out in _OUTPUTS.get(t, (t,)):
        yield {"OUT": out, "EPILOGUE": "scaled", "INPUT": out, **none}
    if t == "s8":
        yield {"OUT": "s32", "EPILOGUE": "exact", "INPUT": "s32", **none}
