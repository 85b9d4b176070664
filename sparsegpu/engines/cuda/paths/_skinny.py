"""What the paths for few columns of 16-bit blocks share: ``skinny`` and ``skinny_wgmma``."""

from __future__ import annotations

from math import prod
from typing import Any, Protocol

from .._grid import aligned
from ..runtime.launch import Launch, kernel
from ..runtime.structs import kernel_struct
from ..runtime.types import ctype
from ..runtime.view import batch_dims, matrix_view, vector_view
from ._cluster_work import SIDE
from ._facts import INDICES, Facts
from ._product import Product

BY_ADDRESS = {**INDICES, "BATCHED": (0, 1), "COLUMN_TILES": (0, 1)}

#: More columns than this keep the tensor cores busy.
MOST_COLUMNS = 128
#: Columns with which clusters of thread blocks beat a thread block a tile.
_OF_CLUSTERS = range(17, MOST_COLUMNS + 1)


class SkinnyTile(Protocol):
    """What both paths' tiles have."""

    @property
    def defines(self) -> dict[str, Any]:
        """The ``-D`` names of the kernel."""

    @property
    def shared_memory(self) -> int:
        """Dynamic, of a thread block, in bytes."""


def serves(p: Product) -> bool:
    """Return whether operands can be copied in 16-byte vectors and counted in 32 bits."""
    return not (p.empty or p.transposed) and prod(p.out.shape[:-1]) < 2**31 and aligned(p.data, 16)


def has_few_columns(f: Facts) -> bool:
    """Return whether columns are few, and operands lie as both kernels read them."""
    return f.columns <= MOST_COLUMNS and not f.transposed and f.layout in {"rows", "columns"}


def suits_clusters(f: Facts) -> bool:
    """Return whether clusters can take the blocks: whole tiles and steps."""
    bm, bk = f.blocksize
    return has_few_columns(f) and bm % SIDE == 0 and bk % SIDE == 0


def clusters_pay(f: Facts) -> bool:
    """Return whether clusters are faster where they can take the blocks."""
    return f.columns in _OF_CLUSTERS


def skinny_launch(
    p: Product,
    tile: SkinnyTile,
    source: str,
    archs: tuple[str, ...],
    blocks: tuple[int, int],
    threads: int,
    starts: Any,
    **problem: int,
) -> Launch:
    """Return the launch that computes a product.

    Parameters
    ----------
    p : Product
    tile : SkinnyTile
    source : str
        Of the kernel.
    archs : tuple of str
        That the source compiles for.
    blocks : (int, int)
        Thread blocks for each column tile, and column tiles.
    threads : int
        Of a thread block.
    starts : array
        Where the kernel finds the work of a thread block: the pattern's ``indptr`` or a work list.
    **problem
        The fields of the kernel's struct ``SkinnyProblem`` but ``n``.
    """
    return Launch(
        kernel(
            source,
            archs,
            INDEX=ctype(p.pattern._indices.dtype),
            BATCHED=int(prod(p.batch) > 1),
            COLUMN_TILES=int(blocks[1] > 1),
            **p.defines,
            **tile.defines,
        ),
        (prod(blocks),),
        (threads,),
        (
            matrix_view(p.out, p.batch),
            vector_view(starts, p.batch),
            vector_view(p.pattern._indices, p.batch),
            matrix_view(p.data[..., 0, :, :], p.batch),
            matrix_view(p.dense, p.batch),
            batch_dims(p.batch),
            kernel_struct(source, "SkinnyProblem")(**problem, n=p.out.shape[-1], padding=0),
            p.epilogue,
        ),
        tile.shared_memory,
    )
