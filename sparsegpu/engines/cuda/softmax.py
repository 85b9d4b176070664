"""Host side of ``bsr_softmax`` and of its gradient."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..._math import ceil_div, power_of_two_below
from ...pattern import Pattern
from ._grid import aligned, flat_blocks, flat_output, same_place
from .runtime.device import multiprocessors
from .runtime.launch import Launch, kernel, submit
from .runtime.structs import kernel_struct
from .runtime.types import ctype
from .runtime.view import batch_dims, matrix_view, merged_batch, vector_view

_LINE = 128  # bytes that the memory moves at once, at best
_WARPS, _MOST_WARPS = 4, 16  # of a thread block: of teams of one warp each; of one team
_STREAMED = 2  # vectors at a time of what is not kept
#: 32-bit registers for what a lane keeps (exponentials, or vectors of both operands), and the most
#: vectors. There are fewer where its place in a row takes more registers (`Teams.whole`).
_ROOM, _LESS_ROOM = (64, 12), (40, 8)
_RESIDENT = 512  # threads of a multiprocessor: 128 registers each


def bsr_softmax(out_data: Any, pattern: Pattern, data: Any) -> None:
    """Write the softmax of each row's stored elements; ``out_data`` may be ``data``.

    One launch. A row that fits the registers of its threads is read once, a longer one twice.
    """
    _by_vectors("bsr_softmax", out_data, pattern, data)


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

    @property
    def step(self) -> int:
        """Vectors from one of a lane to its next one."""
        return 32 // self.rows * self.warps

    def whole(self, vectors: int) -> bool:
        """Whether a lane's next vector is whole blocks further, of so many vectors a row."""
        return self.step % vectors == 0


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
    # Somewhat more than the mean fits; of the longest rows an eighth does.
    length = max(mean + ceil_div(mean, 8), ceil_div(longest, 8)) * (bk // wide)
    line = power_of_two_below(max(_LINE // (bk * itemsize), 1))
    for room, most in (_ROOM, _LESS_ROOM):
        chosen = _teams(bm, length, line, min(room // registers, most))
        if chosen.whole(bk // wide):
            break
    return chosen


def _teams(bm: int, length: int, line: int, kept: int) -> Teams:
    """Return how rows of ``length`` vectors are shared out; ``line`` rows are side by side."""
    room = 32 * kept  # of a warp, in vectors
    rows = power_of_two_below(min(bm, 32))
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
        if len(blocks) > 1:  # packed, two operands; sums of float64 take more
            registers = 2 * max(wide * dtype.itemsize // 4, 1) + (dtype == np.float64)
        else:  # exponentials; those of float64 take as many again while they are made
            registers = wide * (8 if dtype == np.float64 else 1)
        mean = ceil_div(pattern.nnzb, block_rows)
        shared = teams(
            mean, pattern.longest_row, pattern.blocksize, wide, dtype.itemsize, registers
        )
        team = 32 * shared.warps
        threads = team if shared.warps > 1 else 32 * _WARPS
        vectors = bk // wide
        groups = ceil_div(bm, shared.rows)
        matrix_count = prod(out_data.shape[:-3])
        matrices = (out, *blocks)
        batch = merged_batch(out.shape[:-2], *((x, 2) for x in matrices), (pattern._indptr, 1))
        compiled = kernel(
            source,
            T=ctype(dtype),
            OUT=ctype(out.dtype),
            WIDE=wide,
            TEAM=team,
            THREADS=threads,
            RESIDENT=_RESIDENT,
            KEPT=shared.kept,
            STREAMED=shared.streamed,
            WHOLE=int(shared.whole(vectors)),
            INDEX=ctype(pattern._indptr.dtype),
        )
        # As many thread blocks as are resident: each works on many rows.
        of_block = threads // team
        grid = min(
            ceil_div(matrix_count * block_rows * groups, of_block),
            multiprocessors() * (_RESIDENT // threads),
        )
        next_row, step_groups = divmod(grid * of_block, groups)
        step_matrices, step_block_rows = divmod(next_row, block_rows)
        problem = kernel_struct(source, "RowsProblem")(
            matrices=matrix_count,
            block_rows=block_rows,
            step_matrices=step_matrices,
            step_block_rows=step_block_rows,
            groups=groups,
            step_groups=step_groups,
            bm=bm,
            rows=shared.rows,
            lanes=32 // shared.rows,
            vectors=vectors,
            block_step=shared.step // vectors,
            vector_step=shared.step % vectors,
        )
        launch = Launch(
            compiled,
            (grid,),
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
