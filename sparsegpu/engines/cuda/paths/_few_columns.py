"""What the paths for a few columns of small blocks share: ``vector`` and ``vector_mma``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from ...._arrays import accumulator_dtype
from ...._math import ceil_div
from .._grid import THREADS, grid
from ..runtime.launch import NULL, Launch, kernel
from ..runtime.structs import kernel_struct
from ..runtime.submission import workspace
from ..runtime.types import ctype
from ..runtime.view import batch_dims, matrix_view, vector_view
from ._facts import INDICES, Facts
from ._fields import Fields
from ._product import Product, alignment
from ._row_split import balanced_splits

BY_ADDRESS = INDICES

#: More columns than this are no longer "a few vectors".
MOST_COLUMNS = 16
_MOST_BLOCK_BYTES = 4096
_MOST_SUM_BYTES = 256  # of a lane
_MOST_ROUNDS = 8  # rows that a team takes one after the other
_WARPS = 64  # of a multiprocessor; with more work than that, a warp takes several rows


@dataclass(frozen=True, slots=True)
class Tile:
    """How a thread block shares the work.

    Attributes
    ----------
    teams : int
        Rows that a warp takes at once.
    warps : int
        Of a thread block.
    rounds : int
        Rows that a team takes one after the other.
    defines : dict
        The ``-D`` names of the kernel.
    """

    teams: int
    warps: int
    rounds: int
    defines: dict[str, Any]


def serves(p: Product) -> bool:
    """Return whether blocks are small, and 32-bit arithmetic finds every row of ``dense``."""
    near = 0 <= p.dense.strides[-2] * p.pattern.blocksize[1] < 2**32
    return (
        not (p.empty or p.transposed)
        and near
        and p.pattern.block_shape[1] < 2**32
        and small_blocks(p.dtype, p.pattern.blocksize, p.out.shape[-1])
    )


def facts(p: Product) -> Facts:
    """Return what a tile depends on, the splits of long rows among it."""
    balanced = balanced_splits(p.pattern)
    rows = p.pattern.block_shape[0] if balanced is None else balanced.splits.shape[-2]
    vector_k, vector_n = _vector_widths(p.dense)
    return replace(
        p.facts(),
        row_blocks=p.pattern.nnzb / rows,
        rows=rows,
        split_rows=balanced is not None,
        vector_k=vector_k,
        vector_n=vector_n,
    )


def pays(f: Facts) -> bool:
    """Return whether a lane has few sums, so that no other path was measured to be faster.

    With many its registers spill, and a product takes up to a hundred times as long.
    """
    bm, columns = f.blocksize[0], f.columns
    outputs, even = bm * columns, columns & (columns - 1) == 0  # even: lanes share the columns
    match f.dtype.name:
        case "float64":
            few = bm <= 4 or (bm <= 8 and columns in (2, 4, 8))
            return few or outputs <= (40 if even else 32)
        case "float32":
            most = (256, 100) if bm % 8 == 0 else (128, 80)
            return outputs <= most[0 if even else 1]
        case "complex64" | "complex128":
            return True
    if min(bm, columns) >= 8:
        return False  # half a fragment of mma
    if f.rows_aligned(16):
        return bm <= 8 or columns == 2 or (columns == 4 and bm <= 16)
    return outputs <= (120 if bm % 8 == 0 else 80)


def small_blocks(dtype: np.dtype, blocksize: tuple[int, int], columns: int) -> bool:
    """Return whether blocks are small, and columns few, enough for a team of lanes."""
    bm, bk = blocksize
    return (
        columns <= MOST_COLUMNS
        and bm * bk * dtype.itemsize <= _MOST_BLOCK_BYTES
        and bm * accumulator_dtype(dtype).itemsize <= _MOST_SUM_BYTES
        and bk <= 32 * (16 // dtype.itemsize)
    )


def shape_names(f: Facts) -> dict[str, Any]:
    """Return the ``-D`` names of what is multiplied."""
    return {
        "T": ctype(f.dtype),
        "BM": f.blocksize[0],
        "BK": f.blocksize[1],
        "COLUMNS": f.columns,
        "SPLIT_ROWS": int(f.split_rows),
        "BATCHED": int(f.matrices > 1),
    }


def rounds_of(f: Facts, teams: int, most: int, fields: Fields) -> int:
    """Return how many rows a team takes one after the other: more than one where rows are many."""
    resident = _WARPS * f.multiprocessors
    rounds = max(min(ceil_div(f.rows, teams) * f.matrices // resident, most), 1)
    return fields.pick("rounds", rounds, range(1, _MOST_ROUNDS + 1))


def launches(source: str, p: Product, tile: Tile) -> tuple[Launch, ...]:
    """Return the launch of a kernel, and of the sum over the splits of long rows."""
    bm, columns = p.pattern.blocksize[0], p.out.shape[-1]
    balanced = balanced_splits(p.pattern)
    rows = p.pattern.block_shape[0] if balanced is None else balanced.splits.shape[-2]
    batches, parts = prod(p.batch), 0 if balanced is None else balanced.parts
    acc = accumulator_dtype(p.data.dtype).itemsize
    sums = workspace(batches * parts * bm * columns * acc) if parts else None
    out, shape = matrix_view(p.out, p.batch), batch_dims(p.batch)
    operands = (
        out,
        vector_view(p.pattern._indptr if balanced is None else _flat(balanced.splits), p.batch),
        vector_view(p.pattern._indices, p.batch),
        matrix_view(p.data[..., 0, :, :], p.batch),
        matrix_view(p.dense, p.batch),
        shape,
        kernel_struct(source, "SpmvProblem")(
            batches=batches, rows=rows, partials=parts, rounds=tile.rounds, padding=0
        ),
    )
    groups = ceil_div(ceil_div(rows, tile.teams), tile.rounds)
    main = Launch(
        kernel(
            source,
            INDEX=ctype(p.pattern._indices.dtype),
            **p.defines,
            **tile.defines,
        ),
        grid(ceil_div(batches * groups, tile.warps)),
        (32 * tile.warps,),
        (
            b"".join(operands),
            NULL if sums is None else sums,
            p.epilogue,
        ),
    )
    if balanced is None or balanced.rows.shape[-2] == 0:
        return (main,)
    split = balanced.rows.shape[-2]
    reduce = Launch(
        kernel(
            "bsr_addmm_vector_reduce", T=ctype(p.data.dtype), BM=bm, COLUMNS=columns, **p.defines
        ),
        grid(batches * split),
        (THREADS,),
        (
            out,
            vector_view(_flat(balanced.rows), p.batch),
            shape,
            kernel_struct("bsr_addmm_vector_reduce", "SplitRowsProblem")(
                batches=batches, rows=split, partials=parts
            ),
            sums,
            p.epilogue,
        ),
    )
    return main, reduce


def _flat(table: Any) -> Any:
    return table.reshape(*table.shape[:-2], -1)


def _vector_widths(dense: Any) -> tuple[int, int]:
    """Return how many elements of a column, and of a row, one load of up to 16 bytes may take."""
    found = []
    item = dense.itemsize
    for axis in (-2, -1):
        unit = dense.shape[axis] > 1 and dense.strides[axis] == item
        along = dense.ndim + axis
        strides = zip(dense.shape, dense.strides, strict=True)
        others = [s for i, (n, s) in enumerate(strides) if i != along and n != 1]
        found.append(max(alignment(dense.data.ptr, *others) // item, 1) if unit else 1)
    return found[0], found[1]
