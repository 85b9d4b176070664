"""Products of blocks, added where index lists say, on the device.

The tiles of one call do not overlap (`ops.scatter_mm` ensures that), so each belongs to one thread
block and its sum is rounded once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._arrays import HALF_DTYPES, accumulator_dtype
from ..._epilogue import Epilogue
from ..._math import ceil_div
from ._epilogue_args import epilogue_args
from ._grid import aligned, grid, size_of
from .paths._simt_tile import simt_tile
from .runtime.launch import Launch, Memset, kernel, submit
from .runtime.structs import kernel_struct
from .runtime.types import ctype
from .runtime.view import batch_dims, matrix_view, merged_batch

#: The kernel of 16-bit products from 16x16 blocks on. "scatter_mm_sm80", on tensor cores, is to
#: replace it once it has been measured.
HALVES = "scatter_mm"
_FEWEST = 16  # rows and columns of a block that are worth a fragment
_SIDES = (16, 32, 64)  # of a thread block's tile on tensor cores

_LISTS = ("starts", "r_offsets", "p_offsets", "q_offsets")


def clear(accumulators: Any) -> None:
    """Write zeros, which the first sums are added to."""
    if accumulators.flags.c_contiguous:
        submit(Memset(accumulators), whole=True)
    else:
        accumulators.fill(0)
        submit()  # not `whole`: what this call submits is not all that it does


def scatter_mm(accumulators: Any, blocks: Any, others: Any, c_offsets: Any, pq: Any) -> None:
    """Add ``blocks[p] @ others[q]`` to ``accumulators[r]``, (p, q) = pq[c_offsets[r]:...]."""
    _launch(
        "pairs",
        accumulators,
        blocks,
        others,
        (c_offsets, None, pq, None),
        tiles=accumulators.shape[0],
        batches=1,
    )


def bsr_strided_mm(
    accumulators: Any,
    blocks: Any,
    others: Any,
    c_indices: Any,
    r_offsets: Any,
    p_offsets: Any,
    q_offsets: Any,
    split_n: int,
) -> None:
    """Add block products to tiles of (*B, M, N); offsets are ``row * N + column``."""
    _launch(
        "strided",
        accumulators,
        blocks,
        others,
        (c_indices, r_offsets, p_offsets, q_offsets),
        tiles=r_offsets.size,
        batches=size_of(accumulators.shape[:-2]),
        split_n=split_n,
    )


def bsr_strided_mm_compressed(
    accumulators: Any,
    blocks: Any,
    others: Any,
    c_indices: Any,
    r_offsets: Any,
    q_offsets: Any,
    split_n: int,
) -> None:
    """Do the same with ``c_indices`` = indptr: a tile's blocks are those of its block row."""
    _launch(
        "compressed",
        accumulators,
        blocks,
        others,
        (c_indices, r_offsets, None, q_offsets),
        tiles=r_offsets.size,
        batches=size_of(accumulators.shape[:-2]),
        split_n=split_n,
    )


def _launch(
    form: str,
    accumulators: Any,
    blocks: Any,
    others: Any,
    lists: tuple,
    *,
    tiles: int,
    batches: int,
    split_n: int = 1,
) -> None:
    if form == "pairs":
        batch, stack = accumulators.shape[:1], others.shape[:1]
    else:
        batch = stack = merged_batch(accumulators.shape[:-2], (accumulators, 2), (others, 2))
    (_, ms, ks), n = blocks.shape, accumulators.shape[-1]
    ns = n // split_n
    defines, epilogue_argument = epilogue_args(
        Epilogue(1, 1, accumulators), batch, accumulator_dtype(blocks.dtype), accumulators.dtype
    )
    given = lists
    index, lists = _uniform(lists)  # may be copies: they have to outlive the launch
    source = HALVES if _lies_in_vectors(blocks, others) else "scatter_mm"
    tile = simt_tile(ms, ns) if source == "scatter_mm" else _mma_tile(ms, ks, ns)
    parts = ceil_div(ms, tile.tile_m) * ceil_div(ns, tile.tile_n)
    addresses = [0 if a is None else a.data.ptr for a in lists]
    problem = kernel_struct(source, "ScatterProblem")(
        tiles=tiles, batches=batches, n=n, ms=ms, ks=ks, ns=ns, split=split_n
    )
    compiled = kernel(
        source,
        FORMAT=form,
        T=ctype(blocks.dtype),
        INDEX=ctype(index),
        **defines,
        **tile.defines,
    )
    launch = Launch(
        compiled,
        grid(tiles * batches * parts),
        (tile.threads,),
        (
            matrix_view(accumulators, batch),
            matrix_view(blocks, blocks.shape[:1]),
            matrix_view(others, stack),
            kernel_struct(source, "Lists")(**dict(zip(_LISTS, addresses, strict=True))),
            batch_dims(batch),
            problem,
            epilogue_argument,
        ),
    )
    submit(launch, whole=all(a is b for a, b in zip(lists, given, strict=True)))


@dataclass(frozen=True, slots=True)
class MmaTile:
    """The tile of ``scatter_mm_sm80.cu``: outputs, threads and ``-D`` names."""

    tile_m: int
    tile_n: int
    threads: int
    defines: dict[str, int]


def _mma_tile(ms: int, ks: int, ns: int) -> MmaTile:
    """Return the smallest tile that holds a part, up to 64 x 64."""
    tile_m, tile_n = (next((t for t in _SIDES if t >= n), _SIDES[-1]) for n in (ms, ns))
    tile_n = max(tile_n, 32)
    warps_m, warps_n = max(tile_m // 32, 1), 2
    names = {"KS": ks, "TILE_M": tile_m, "TILE_N": tile_n, "STAGES": 4}
    names |= {"WARPS_M": warps_m, "WARPS_N": warps_n}
    return MmaTile(tile_m, tile_n, 32 * warps_m * warps_n, names)


def _lies_in_vectors(blocks: Any, others: Any) -> bool:
    """Whether tensor cores can take operands: rows of 16-byte vectors, blocks from 16x16 on."""
    _, ms, ks = blocks.shape
    return (
        blocks.dtype in HALF_DTYPES
        and min(ms, ks) >= _FEWEST
        and ks % 8 == 0
        and all(a.strides[-1] == a.itemsize and aligned(a, 16) for a in (blocks, others))
    )


def _uniform(lists: tuple) -> tuple[np.dtype, tuple]:
    """Return the lists as contiguous arrays of one dtype, int32 or int64."""
    dtypes = {a.dtype for a in lists if a is not None}
    int32 = np.dtype(np.int32)
    index = int32 if dtypes == {int32} else np.dtype(np.int64)
    return index, tuple(
        None if a is None else a.astype(index, order="C", copy=False) for a in lists
    )
