"""A sampled product as its paths see it: dense operands, how they lie, the stored blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, prod
from typing import Any

import numpy as np

from ...._arrays import accumulator_dtype, dtype_of
from ...._epilogue import Epilogue
from ...._math import ceil_div, round_up
from ....pattern import Pattern
from .._epilogue_args import epilogue_args
from .._grid import THREADS, grid
from ..runtime.architectures import SHARED_MEMORY, shared_memory_of
from ..runtime.device import device_facts
from ..runtime.launch import MAX_GRID, Launch, kernel
from ..runtime.structs import kernel_struct
from ..runtime.submission import workspace
from ..runtime.types import ctype
from ..runtime.view import MAX_BATCH_DIMS, batch_dims, matrix_view, merged_batch, vector_view
from ._dense_lines import aligned_lines
from ._examples import OUTPUTS
from ._facts import HALVES, always
from ._fields import Fields
from ._product import layout_of
from ._tile import Tile

#: How `layout_of` calls an operand whose 16-byte vectors run along k, and across it.
_ALONG, _ACROSS = ("rows", "columns"), ("columns", "rows")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledFacts:
    """Numbers that describe a sampled product and the device: a tile is chosen from these alone.

    Attributes
    ----------
    dtype : dtype
        Of the matrices.
    shape : (M, K, N)
        M counts the rows of all matrices of the result.
    blocksize : (bm, bn)
    row_blocks : float
        Stored blocks of a block row, on average.
    mat1, mat2 : {"along", "across", "strided"}
        Whether 16-byte vectors of a matrix can be copied along k, or across it.
    allow_tf32 : bool
    capability : (int, int)
    multiprocessors, shared_memory : int
        Of the device; bytes that a thread block may have.
    """

    dtype: np.dtype
    shape: tuple[int, int, int]
    blocksize: tuple[int, int]
    row_blocks: float = 1.0
    mat1: str = "along"
    mat2: str = "across"
    allow_tf32: bool = False
    capability: tuple[int, int] = (9, 0)
    multiprocessors: int = 132
    shared_memory: int = SHARED_MEMORY[9, 0]

    @property
    def tensor_cores(self) -> bool:
        """Whether tensor cores may multiply the dtype in its own precision, float32 as TF32."""
        return self.dtype.name != "float32" or self.allow_tf32

    def whole_across(self) -> tuple[bool, bool]:
        """Return whether vectors across k of mat1, and of mat2, lie within a block and as asked.

        Of 16-bit types, which tensor cores read in either order.
        """
        return tuple(  # type: ignore[return-value]
            lies == "across" and self.dtype.itemsize == 2 and extent % 8 == 0
            for lies, extent in zip((self.mat1, self.mat2), self.blocksize, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Sampled:
    """Everything that a path needs to know of a sampled product.

    Attributes
    ----------
    out : array (*B, nnzb, bm, bn)
    pattern : Pattern
        Without repeated blocks.
    mat1, mat2 : arrays (*B, M, K), (*B, K, N)
    epilogue : Epilogue
        Of arrays like ``out``.
    allow_tf32 : bool
    """

    out: Any
    pattern: Pattern
    mat1: Any
    mat2: Any
    epilogue: Epilogue
    allow_tf32: bool

    @property
    def dtype(self) -> np.dtype:
        """Of the matrices."""
        return self.mat1.dtype

    @property
    def inner(self) -> int:
        """K, 0 where the matrices are not read."""
        return self.mat1.shape[-1] if self.epilogue.alpha != 0 else 0

    @property
    def layouts(self) -> tuple[str, str]:
        """What `SampledFacts` say of the matrices."""
        first, second = layout_of(self.mat1), layout_of(self.mat2)
        names = dict(zip(_ALONG, ("along", "across"), strict=True))
        mirrored = dict(zip(_ACROSS, ("along", "across"), strict=True))
        return names.get(first, "strided"), mirrored.get(second, "strided")

    def facts(self) -> SampledFacts:
        """Return what the tile of a sampled product depends on."""
        capability, multiprocessors, shared_memory = device_facts()
        mat1, mat2 = self.layouts
        return facts_of(
            self.pattern,
            self.pattern.batch_shape,
            self.mat1.shape[-1],
            dtype=self.dtype,
            mat1=mat1,
            mat2=mat2,
            allow_tf32=self.allow_tf32,
            capability=capability,
            multiprocessors=multiprocessors,
            shared_memory=shared_memory,
        )


def facts_of(pattern: Pattern, batch: tuple[int, ...], inner: int, **more: Any) -> SampledFacts:
    """Return the facts of a product of some inner size at the blocks of a pattern."""
    m, n = pattern.shape
    return SampledFacts(
        shape=(prod(batch) * m, inner, n),
        blocksize=pattern.blocksize,
        row_blocks=pattern.nnzb / max(pattern.block_shape[0], 1),
        **more,
    )


def used(bn: int, width: int) -> float:
    """Return which share of a width whole blocks, or slices of one, use."""
    return width // bn * bn / width if bn <= width else bn / round_up(bn, width)


def fullest(bn: int, widths: Sequence[int]) -> int:
    """Return the width of which whole blocks, or slices of one, leave least unused."""
    return max(widths, key=lambda width: (used(bn, width), width))


def serves(p: Sampled) -> bool:
    """Return whether the matrices can be copied to lines, where they do not lie in any."""
    return max(p.mat1.ndim, p.mat2.ndim) - 2 <= MAX_BATCH_DIMS


def in_lines(
    p: Sampled, mat1: str, mat2: str, readable: Callable[[Any], bool] = always
) -> tuple[Any, Any, tuple[Launch, ...]]:
    """Return the matrices as a kernel reads them, and the launches that copy those that are not.

    ``mat1`` and ``mat2`` are "along" or "across"; a matrix that lies otherwise is copied so.
    ``readable`` is asked about a matrix whose lines are rows.
    """
    if not p.inner:
        return p.mat1, p.mat2, ()
    copies = []
    left, right = p.mat1, p.mat2
    first, second = p.layouts
    if first != mat1 or not readable(left if mat1 == "along" else left.swapaxes(-1, -2)):
        left, copy = aligned_lines(left, mat1 == "across")
        copies.append(copy)
    if second != mat2 or not readable(right if mat2 == "across" else right.swapaxes(-1, -2)):
        right, copy = aligned_lines(right, mat2 == "along")
        copies.append(copy)
    return left, right, tuple(copies)


#: Into how many parts K may be split, and the slices that a part has at least by default.
_SPLITS, _LEAST_SLICES = (1, 2, 4, 8, 16), 4


def pick_split(
    f: SampledFacts, fields: Fields, tile: tuple[int, int], slice_k: int, resident: int
) -> int:
    """Return into how many parts K is split.

    By default one, and more where a multiprocessor, which holds ``resident`` thread blocks, would
    have nothing to do: where there are fewer tiles than all hold.
    """
    (m, k, _), (bm, bn) = f.shape, f.blocksize
    slices = ceil_div(k, slice_k)
    chunks = m // bm * ceil(f.row_blocks / max(tile[1] // bn, 1))
    tiles = chunks * ceil_div(bm, tile[0]) * ceil_div(bn, tile[1])
    room, deep = f.multiprocessors * resident // max(tiles, 1), slices // _LEAST_SLICES
    wanted = max(s for s in _SPLITS if s <= max(min(room, deep), 1))
    return fields.pick("split_k", wanted, [s for s in _SPLITS if s <= max(slices, 1)])


@dataclass(frozen=True, slots=True)
class Tiles:
    """The tiles of a sampled product, and what the kernels are launched with besides its matrices.

    Attributes
    ----------
    count : int
        Of all matrices and splits: numbers of tiles, of which most have blocks
        (``common/sampled_tile.cuh``).
    units : int
        Of all matrices and splits (``bsr_sampled_addmm_sm90/strip.cuh``).
    batch : tuple of int
    defines : dict
        ``INDEX`` and the names of the epilogue.
    views : tuple of bytes
        ``out``, ``indptr`` and ``indices``.
    problem, epilogue : bytes
    after : tuple of Launch
        What adds the sums of the splits, where there are several.
    """

    count: int
    units: int
    batch: tuple[int, ...]
    defines: dict[str, str]
    views: tuple[bytes, bytes, bytes]
    problem: bytes
    epilogue: bytes
    after: tuple[Launch, ...]

    @property
    def batch_argument(self) -> bytes:
        """``batch`` as the kernels take it."""
        return batch_dims(self.batch)


def tiles_of(
    p: Sampled,
    tile: Tile,
    source: str,
    mat1: Any,
    mat2: Any,
    slice_k: int,
    unit_n: int = 0,
    *,
    even: bool = False,
) -> Tiles | None:
    """Return the tiles, None where a grid cannot have so many; ``slice_k`` terms make a slice.

    ``unit_n``: columns of a unit, where tiles consist of these, not of blocks. ``even``: thread
    blocks share the units evenly.
    """
    (bm, bn), pattern = p.pattern.blocksize, p.pattern
    terms = ceil_div(ceil_div(p.inner, slice_k), tile.splits) * slice_k
    splits = ceil_div(p.inner, terms) if terms else 1
    out, e, acc = p.out, p.epilogue, accumulator_dtype(p.dtype)
    after: tuple[Launch, ...] = ()
    if splits > 1:
        memory = workspace(splits * prod(out.shape) * acc.itemsize)
        parts = memory.view(acc).reshape(splits, *out.shape)
        out, e, after = parts[0], Epilogue(), (_sum_of_parts(p, parts),)
    term = e.input
    first, first_term = out[..., 0, :, :], None if term is None else term[..., 0, :, :]
    indptr, indices = pattern._indptr, pattern._indices
    batch = merged_batch(
        out.shape[:-3],
        *((a, 2) for a in (first, first_term, mat1, mat2)),
        *((a, 1) for a in (indptr, indices)),
    )
    defines, argument = epilogue_args(Epilogue(e.alpha, e.beta, first_term), batch, acc, out.dtype)
    block_rows, matrices = pattern.block_shape[0], prod(batch)
    heights, nnzb = splits * matrices * ceil_div(bm, tile.tile_m), pattern.nnzb
    if unit_n:
        units, slices = nnzb * (bn // unit_n), 1
        chunks = units // (tile.tile_n // unit_n) + block_rows
    else:
        units, slices = nnzb, ceil_div(bn, tile.tile_n)
        chunks = units // max(tile.tile_n // bn, 1) + block_rows
    count, units = heights * chunks * slices, heights * units
    if count > MAX_GRID:
        return None
    problem = kernel_struct(source, "SampledProblem")(
        shares=units if even else count,
        chunks=chunks,
        matrices=matrices,
        block_rows=block_rows,
        blocks=pattern.nnzb,
        k=terms if splits > 1 else p.inner,
        inner=p.inner,
        out_step=_step(out),
        input_step=0 if term is None else _step(term),
        split_step=prod(out.shape),
        bm=bm,
        padding=0,
    )
    return Tiles(
        count,
        units,
        batch,
        {"INDEX": ctype(indices.dtype), **defines},
        (matrix_view(first, batch), vector_view(indptr, batch), vector_view(indices, batch)),
        problem,
        argument,
        after,
    )


def _sum_of_parts(p: Sampled, parts: Any) -> Launch:
    """Return the launch that adds the sums of the splits, (splits, *B, nnzb, bm, bn)."""
    source, out, e = "bsr_sampled_addmm_reduce", p.out, p.epilogue
    first = out[..., 0, :, :]
    term = None if e.input is None else e.input[..., 0, :, :]
    batch = merged_batch(out.shape[:-3], (first, 2), (term, 2))
    defines, argument = epilogue_args(
        Epilogue(e.alpha, e.beta, term), batch, parts.dtype, out.dtype
    )
    bm, bn = p.pattern.blocksize
    problem = kernel_struct(source, "SampledParts")(
        matrices=prod(batch),
        blocks=p.pattern.nnzb,
        out_step=_step(out),
        input_step=0 if e.input is None else _step(e.input),
        bm=bm,
        bn=bn,
        splits=len(parts),
        padding=0,
    )
    return Launch(
        kernel(source, T=ctype(p.dtype), **defines),
        grid(ceil_div(prod(out.shape), THREADS)),
        (THREADS,),
        (matrix_view(first, batch), batch_dims(batch), problem, parts, argument),
    )


def _step(blocks: Any) -> int:
    """Return the elements from a block to the next."""
    return blocks.strides[-3] // blocks.itemsize if blocks.shape[-3] > 1 else 0


# -- what the compile matrix, the tables and the names of fields are made from ----------------

_BLOCKS = ((64, 64), (16, 16), (128, 128), (32, 32), (8, 8), (48, 80), (256, 192), (1, 64))
_LAYOUTS = ("along", "across", "strided")
_K = 4096


def examples(
    dtypes: Sequence[str], capability: tuple[int, int], *, all: bool = False
) -> Iterator[SampledFacts]:
    """Yield sampled products of some dtypes on a device, first those that most paths serve."""
    blocks = _BLOCKS if all else _BLOCKS[:3]
    layouts = _LAYOUTS if all else _LAYOUTS[:2]
    for blocksize, mat1, mat2, name in product(blocks, layouts, layouts, dtypes):
        yield SampledFacts(
            dtype=dtype_of(name),
            shape=(_K, _K, _K),
            blocksize=blocksize,
            row_blocks=0.1 * _K / blocksize[1],
            mat1=mat1,
            mat2=mat2,
            allow_tf32=True,
            capability=capability,
            shared_memory=shared_memory_of(capability),
        )


def epilogues(t: str) -> Iterator[dict[str, str]]:
    """Yield epilogues of matrices of a type: scalars and the input alone."""
    plain = {"ACT": "none", "LEFT": "none", "RIGHT": "none"}
    for out in OUTPUTS.get(t, (t,)):
        yield {"OUT": out, "EPILOGUE": "identity", "INPUT": "none", **plain}
        yield {"OUT": out, "EPILOGUE": "scaled", "INPUT": out, **plain}
    if t == "s8":
        yield {"OUT": "s32", "EPILOGUE": "exact", "INPUT": "s32", **plain}
    elif t in HALVES:
        yield {"OUT": "f32", "EPILOGUE": "scaled", "INPUT": t, **plain}
