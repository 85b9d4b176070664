"""What the paths through wgmma share: the shape of their tiles, and what a tile may take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..runtime.architectures import SHARED_MEMORY
from ._facts import Facts

#: Up to so many columns waste most of a tile of 64.
FEW_COLUMNS = 16
TILE_M = 128
STAGE_BYTES_K = 128  # bytes of k that a stage holds
#: Store buffers of the epilogue: two for each of eight warps.
STORE_BUFFERS = 8 * 2 * 2048
#: Threads of a block: two warpgroups that multiply, one that loads operands.
THREADS = 384
SHARED = SHARED_MEMORY[9, 0]
RESERVED = 2048  # alignment of the stages, barriers
MOST_STAGES = 8

#: Bytes of a dense column that a pair of columns of 2:4 metadata covers.
PAIR_BYTES_K = 64
#: Pairs of columns of metadata that a stage of `STAGE_BYTES_K` holds.
PAIRS = STAGE_BYTES_K // PAIR_BYTES_K

# Similar rows are grouped where even the unions of random rows get shorter by that, and where the
# product is not short beside what finding the order adds to the first call.
_SPARSE, _MANY_COLUMNS = 0.25, 1024


@dataclass(frozen=True, slots=True)
class RowGroupTile:
    """What a kernel whose groups of block rows share tiles of ``dense`` is launched with.

    Attributes
    ----------
    tile_n : int
    step_k : int
        Rows of ``dense`` that are loaded at a time.
    rows : int
        Block rows of a group.
    slices : int
        Tiles that a block's rows need.
    group_similar_rows : int
        Whether similar block rows share tiles, rather than neighbours.
    shared_memory : int
    defines : dict
        The ``-D`` names of the kernel.
    """

    tile_n: int
    step_k: int
    rows: int
    slices: int
    group_similar_rows: int
    shared_memory: int
    defines: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ClusterTile:
    """Columns of a thread block, thread blocks of a cluster, and what a kernel is compiled with."""

    tile_n: int
    cluster: int
    shared_memory: int
    defines: dict[str, Any]


def multiplies(f: Facts) -> bool:
    """Return whether `bsr_addmm_sm90` has a tile for such blocks and dtypes."""
    (bm, bk), size = f.blocksize, f.itemsize
    if not f.tensor_cores or f.columns <= FEW_COLUMNS or bm % 16 or bk * size % 32:
        return False
    if not f.transposed:
        return True
    # wgmma takes int8 and TF32 with k contiguous only, and no swizzle is as wide as other rows.
    return size == 2 and (bm % 64 == 0 or bm in {16, 32})


def pair_bytes(itemsize: int) -> int:
    """Return the bytes of a pair of columns of metadata of `TILE_M` rows."""
    return 2 * TILE_M * (4 if itemsize == 1 else 2)


def widths(by_128_columns: bool) -> tuple[int, ...]:
    """Return the widths of a tile, narrowest first; int8 results leave by 128 columns."""
    return (128, 256) if by_128_columns else (64, 128, 256)


def covering(columns: int, widths: tuple[int, ...]) -> int:
    """Return the narrowest tile that covers all columns, else the widest."""
    return next((n for n in widths if n >= columns), widths[-1])


def pays_to_group(f: Facts) -> int:
    """Return whether the block rows of a group are better chosen by similarity."""
    return int(f.density <= _SPARSE and f.columns >= _MANY_COLUMNS)
