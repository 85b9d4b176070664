"""Host side of ``bsr_softmax`` and of its gradient."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..._math import ceil_div
from ...pattern import Pattern
from ._grid import (
    THREADS,
    aligned,
    flat_blocks,
    flat_output,
    grid,
    power_of_two_below,
    same_place,
    size_of,
)
from .runtime.launch import Launch, kernel, submit
from .runtime.structs import kernel_struct
from .runtime.types import ctype
from .runtime.view import batch_dims, matrix_view, merged_batch, vector_view

#: The kernel of the softmax. "bsr_softmax_wide" is to replace it once it has been measured.
FORWARD = "bsr_softmax"
_LONG_ROW = 1024  # mean stored elements of a row from which a whole thread block works on it

_LINE = 128  # bytes that the memory moves at once, at best
_WARPS, _MOST_WARPS = 4, 16  # of a thread block: of teams of one warp each; of one team
_STREAMED = 2  # vectors at a time of what is not kept
#: 32-bit registers for what a lane keeps: exponentials, or vectors of both operands.
_REGISTERS = 64


def bsr_softmax(out_data: Any, pattern: Pattern, data: Any) -> None:
    """Write the softmax of each row's stored elements; ``out_data`` may be ``data``.

    One launch. A row that fits the registers of its threads is read once, a longer one twice.
    """
    if FORWARD == "bsr_softmax":
        _by_elements(out_data, pattern, data)
    else:
        _by_vectors(FORWARD, out_data, pattern, data)


def bsr_softmax_backward(out_data: Any, pattern: Pattern, grad_data: Any, data: Any) -> None:
    """Write the gradient of the softmax ``data``; ``out_data`` may be ``grad_data``.

    One launch. A row that fits the registers of its threads is read once, a longer one twice.
    """
    _by_vectors("bsr_softmax_backward", out_data, pattern, grad_data, data)


class Teams(NamedTuple):
    """How rows are shared out (``common/stored_rows.cuh``).

    Attributes
    ----------
    warps : int
        Of a team.
    rows : int
        Element rows at a time.
    kept, streamed : int
        Vectors of a lane: in registers, and at a time of the rest.
    """

    warps: int
    rows: int
    kept: int
    streamed: int


def teams(
    mean: int, longest: int, blocksize: tuple[int, int], wide: int, itemsize: int, registers: int
) -> Teams:
    """Return how rows of so many blocks are shared out.

    Parameters
    ----------
    mean, longest : int
        Blocks of a block row, the mean rounded up.
    blocksize : (int, int)
    wide, itemsize : int
        Elements of a vector, and their bytes.
    registers : int
        For each vector that is kept.
    """
    bm, bk = blocksize
    kept = min(_REGISTERS // registers, 16)
    room = 32 * kept  # of a warp, in vectors
    # Somewhat more than the mean fits; of the longest rows an eighth does.
    length = max(mean + ceil_div(mean, 8), ceil_div(longest, 8)) * (bk // wide)
    rows = power_of_two_below(min(bm, 32))
    line = power_of_two_below(max(_LINE // (bk * itemsize), 1))
    while rows > line and rows * length > room:
        rows //= 2
    while rows > 1 and rows * length > room * _MOST_WARPS:
        rows //= 2
    if rows * length > room * _MOST_WARPS:
        return Teams(_MOST_WARPS, rows, _STREAMED, kept)
    warps = 1
    while rows * length > room * warps:
        warps *= 2
    return Teams(warps, rows, kept, _STREAMED)


def _by_vectors(source: str, out_data: Any, pattern: Pattern, *operands: Any) -> None:
    bm, bk = pattern.blocksize
    block_rows = pattern.block_shape[0]
    blocks = tuple(map(flat_blocks, operands))  # may be copies: they have to outlive the launch
    dtype = blocks[0].dtype
    with flat_output(out_data) as out:
        wide = _vector(bk, (out, *blocks))
        if len(blocks) > 1:  # packed, two operands
            registers = 2 * max(wide * dtype.itemsize // 4, 1)
        else:  # exponentials; those of float64 take as many again while they are made
            registers = wide * (4 if dtype == np.float64 else 1)
        mean = ceil_div(pattern.nnzb, block_rows)
        shared = teams(
            mean, pattern.longest_row, pattern.blocksize, wide, dtype.itemsize, registers
        )
        team = 32 * shared.warps
        threads = team if shared.warps > 1 else 32 * _WARPS
        groups = ceil_div(bm, shared.rows)
        items = size_of(out_data.shape[:-3]) * block_rows * groups
        matrices = (out, *blocks)
        batch = merged_batch(out.shape[:-2], *((x, 2) for x in matrices), (pattern._indptr, 1))
        compiled = kernel(
            source,
            T=ctype(dtype),
            OUT=ctype(out.dtype),
            WIDE=wide,
            TEAM=team,
            THREADS=threads,
            KEPT=shared.kept,
            STREAMED=shared.streamed,
            INDEX=ctype(pattern._indptr.dtype),
        )
        problem = kernel_struct(source, "RowsProblem")(
            groups=groups,
            items=items,
            block_rows=block_rows,
            bm=bm,
            vectors=bk // wide,
            rows=shared.rows,
        )
        launch = Launch(
            compiled,
            grid(ceil_div(items, threads // team)),
            (threads,),
            (
                *(matrix_view(x, batch) for x in matrices),
                vector_view(pattern._indptr, batch),
                batch_dims(batch),
                problem,
            ),
        )
        whole = all(map(same_place, matrices, (out_data, *operands)))
        submit(launch, whole=whole)


def _vector(bk: int, matrices: tuple[Any, ...]) -> int:
    """Return how many elements of a row every matrix lets a lane move at once."""
    wide = 16 // matrices[1].itemsize
    while wide > 1 and not (
        bk % wide == 0
        and all(
            x.strides[-1] == x.itemsize and aligned(x, min(wide * x.itemsize, 16)) for x in matrices
        )
    ):
        wide //= 2
    return wide


def _by_elements(out_data: Any, pattern: Pattern, data: Any) -> None:
    bm, bk = pattern.blocksize
    block_rows = pattern.block_shape[0]
    team = THREADS if pattern.nnzb * bk >= _LONG_ROW * block_rows else 32
    rows = power_of_two_below(min(bm, max(1, 32 // bk)))  # at a time by one team
    groups = ceil_div(bm, rows)
    items = size_of(out_data.shape[:-3]) * block_rows * groups
    blocks = flat_blocks(data)  # may be a copy: it has to outlive the launch
    with flat_output(out_data) as out:
        batch = merged_batch(out.shape[:-2], (out, 2), (blocks, 2), (pattern._indptr, 1))
        compiled = kernel(
            "bsr_softmax",
            T=ctype(data.dtype),
            OUT=ctype(out_data.dtype),
            TEAM=team,
            INDEX=ctype(pattern._indptr.dtype),
        )
        launch = Launch(
            compiled,
            grid(ceil_div(items, THREADS // team)),
            (THREADS,),
            (
                matrix_view(out, batch),
                matrix_view(blocks, batch),
                vector_view(pattern._indptr, batch),
                batch_dims(batch),
                np.int64(groups),
                np.int64(items),
                np.int64(block_rows),
                np.int32(bm),
                np.int32(bk),
                np.int32(rows),
            ),
        )
        submit(launch, whole=same_place(blocks, data) and same_place(out, out_data))
