"""The launches of a Hopper product of row groups, of ordinary and of 2:4 blocks.

``cuda_src/bsr_addmm_sm90.cu`` says what row groups are. Groups that are much longer than the others
are split along k; ``bsr_addmm_sm90_reduce.cu`` adds the partial sums.
"""

from __future__ import annotations

from typing import Any

from ...._math import ceil_div
from .._grid import grid
from .._row_order import similar_row_groups
from .._schedule import row_groups
from ..runtime.architectures import HOPPER
from ..runtime.device import multiprocessors
from ..runtime.launch import NULL, Launch, kernel
from ..runtime.structs import kernel_struct
from ..runtime.submission import workspace
from ..runtime.types import ctype
from ..runtime.view import batch_dims, matrix_view
from ._facts import INDICES
from ._product import Product
from ._sm90 import THREADS, TILE_M, RowGroupTile
from ._split_k import cut_row_groups
from ._tma import INT32, dense_maps, one_batch, out_map, store_mode

#: Names that are decided by where the operands lie, or by the lengths of rows, and their values.
BY_ADDRESS = {
    "STORE": ("rows", "columns", "unaligned", "elementwise"),
    **INDICES,
    "SPLIT_K": (0, 1),
}

_SUM = 4  # bytes of a sum
_REDUCE_THREADS = 128
_REDUCED_AT_ONCE = 64 * 64  # sums that a thread block adds at a time, where outputs have two bytes


def row_group_launches(
    p: Product, tile: RowGroupTile, source: str, left: tuple[bytes, ...], **defines: Any
) -> tuple[Launch, ...] | None:
    """Return the launches, or None where tensor maps or 32-bit numbers do not serve.

    Parameters
    ----------
    p : Product
        With ``dense`` as TMA reads it.
    tile : RowGroupTile
    source : str
        Of the kernel.
    left : tuple of tensor maps
        Of the stored blocks; the kernel's first arguments.
    **defines
        Further ``-D`` names of the kernel.
    """
    batch = one_batch(p.batch, p.pattern.batch_size, p.dense, p.out)
    if batch is None:
        return None
    m, n = p.out.shape[-2:]
    grouped = similar_row_groups if tile.group_similar_rows else row_groups
    blocks_from = None if p.order is None else p.order.reshape(-1)
    tiles = batch.count * ceil_div(n, tile.tile_n) * tile.slices  # of a group
    share = p.pattern.nnzb * tiles // multiprocessors()
    schedule, split, parts = cut_row_groups(p.pattern, tile.rows, blocks_from, grouped, share)
    store = store_mode(p.out, batch)
    matrices = p.pattern.batch_size
    of_matrix = schedule.groups // matrices
    if of_matrix * tiles >= INT32:
        return None
    sums, sums_of_tile = NULL, TILE_M * tile.tile_n
    if parts:
        sums = workspace(parts * tiles * sums_of_tile * _SUM)
    out = (
        out_map(p.out, batch, store),
        matrix_view(p.out, p.batch),
        batch_dims(p.batch),
        schedule.argument(),
    )
    of_product = {"batches": batch.count, "m": m, "n": n}
    by_address = {"INDEX": ctype(schedule.blocks.dtype), "STORE": store, **p.defines}
    product = Launch(
        kernel(source, HOPPER, SPLIT_K=int(parts > 0), **by_address, **tile.defines, **defines),
        (min(of_matrix * tiles, multiprocessors()),),
        (THREADS,),
        (
            *left,
            *dense_maps(p.dense, p.layout, batch, tile.tile_n, tile.step_k),
            *out,
            kernel_struct(source, "RowGroupProblem")(
                **of_product,
                groups=of_matrix,
                pattern_batched=matrices > 1,
                dense_batched=batch.dense != 0,
            ),
            sums,
            p.epilogue,
        ),
        tile.shared_memory,
    )
    if not parts:
        return (product,)
    reduced = kernel_struct("bsr_addmm_sm90_reduce", "ReduceProblem")
    of_tile = {name: tile.defines[name] for name in ("T", "BM", "TILE_N")}
    reduce = Launch(
        kernel("bsr_addmm_sm90_reduce", HOPPER, **by_address, **of_tile),
        grid(len(split) * tiles * sums_of_tile // _REDUCED_AT_ONCE),
        (_REDUCE_THREADS,),
        (*out, split, reduced(**of_product, groups=len(split)), sums, p.epilogue),
    )
    return product, reduce
