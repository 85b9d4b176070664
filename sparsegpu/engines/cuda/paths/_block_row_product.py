"""The launch of a kernel whose tiles each lie in one block row: no row groups."""

from __future__ import annotations

from math import prod
from typing import Any

from ...._math import ceil_div
from .._grid import grid
from ..runtime.launch import Launch, kernel
from ..runtime.structs import kernel_struct
from ..runtime.types import ctype
from ..runtime.view import batch_dims, matrix_view, vector_view
from ._cluster_work import rows_by_length
from ._product import Product
from ._tile import Tile


def tiles_of(p: Product, tile: Tile) -> int:
    """Return how many tiles a product has."""
    (bm, _), n = p.pattern.blocksize, p.out.shape[-1]
    block_rows = prod(p.batch) * p.pattern.block_shape[0]
    return block_rows * ceil_div(bm, tile.tile_m) * ceil_div(n, tile.tile_n)


def block_row_launch(
    p: Product, tile: Tile, source: str, *, raster: int = 0, **defines: Any
) -> Launch:
    """Return the launch.

    Parameters
    ----------
    p : Product
    tile : Tile
    source : str
        Of the kernel.
    raster : int
        Row tiles that are taken before the next column tile, longest block rows first. 0: in the
        order of the block rows.
    **defines
        Further ``-D`` names of the kernel.
    """
    (bm, bk), n = p.pattern.blocksize, p.out.shape[-1]
    batches, block_rows = prod(p.batch), p.pattern.block_shape[0]
    of_product = {"batches": batches, "block_rows": block_rows, "n": n}
    if raster:
        row_tiles = batches * block_rows * ceil_div(bm, tile.tile_m)
        panels = ceil_div(raster, row_tiles)
        problem = kernel_struct(source, "FullPrecisionProblem")(**of_product, raster_width=panels)
    else:
        problem = kernel_struct(source, "BlockRowProblem")(**of_product, bm=bm, bk=bk)
    vectors, blocks = [p.pattern._indptr, p.pattern._indices], [p.data]
    if raster:
        vectors.insert(0, None if p.empty else rows_by_length(p.pattern))
    if p.meta is None:
        vectors.append(p.order)
    else:
        blocks.append(p.meta)
    # An empty array has no first block; the kernel reads nothing from it.
    matrices = [None if p.empty else stored[..., 0, :, :] for stored in blocks] + [p.dense]
    return Launch(
        kernel(
            source, INDEX=ctype(p.pattern._indices.dtype), **p.defines, **defines, **tile.defines
        ),
        grid(tiles_of(p, tile)),
        (tile.threads,),
        (
            matrix_view(p.out, p.batch),
            *(vector_view(None if p.empty else vector, p.batch) for vector in vectors),
            *(matrix_view(None if p.empty else matrix, p.batch) for matrix in matrices),
            batch_dims(p.batch),
            problem,
            p.epilogue,
        ),
        tile.shared_memory,
    )
