"""The tile of the Hopper 2:4 product ``semi_structured_addmm_sm90.cu``: pure Python."""

from __future__ import annotations

from dataclasses import dataclass

from .fields import Fields
from .hopper_tile import (
    MOST_STAGES,
    SHARED,
    STAGE_BYTES_K,
    STRIPS,
    THREADS,
    TILE_M,
)

#: Bytes of a dense column that a pair of columns of metadata is of.
PAIR_BYTES_K = 64
#: Pairs of columns of metadata that a stage holds.
PAIRS = STAGE_BYTES_K // PAIR_BYTES_K
#: Two barriers for each stage, behind everything else: with room for alignment besides, five stages
#: of 8-bit types and a strip for each warp would not fit.
_BARRIERS = 2 * 8 * MOST_STAGES
#: Bytes of `dense` from which on pairs of thread blocks share it: below, bringing it is little.
_LARGE = 8 << 20


@dataclass(frozen=True, slots=True)
class SparseTile:
    """What the kernel is compiled and launched with; the names are those of the source."""

    tile_n: int
    stages: int
    cluster: int
    strips: int
    shared_memory: int

    @property
    def threads(self) -> int:
        """Threads of a block: two warpgroups that multiply, one that brings operands."""
        return THREADS


def pair_bytes(itemsize: int) -> int:
    """Return the bytes of a pair of columns of metadata of `TILE_M` rows."""
    return 2 * TILE_M * (4 if itemsize == 1 else 2)


def sparse_tile(
    itemsize: int,
    shape: tuple[int, int, int],
    processors: int,
    fields: Fields | None = None,
    plain: bool = False,
    bytes_out: bool = False,
) -> SparseTile:
    """Return the tile for a product.

    Parameters
    ----------
    itemsize : int
        Of the operands.
    shape : (M, K, N)
    processors : int
        Multiprocessors of the device.
    fields : Fields, optional
        ``tile_n``, ``stages`` and ``cluster``, where they are not to be chosen here.
    plain : bool
        One strip of each warp is enough for the outputs (`write_tile` of ``epilogue_store.cuh``).
    bytes_out : bool
        Outputs are int8, which leave in strips of 128 columns.

    Examples
    --------
    >>> tile = sparse_tile(2, (8192, 8192, 8192), 132)
    >>> tile.tile_n, tile.stages, tile.cluster
    (256, 4, 2)
    """
    m, k, n = shape
    fields = fields or Fields()
    widths = (128, 256) if bytes_out else (64, 128, 256)
    covering = next((width for width in widths if width >= n), widths[-1])
    tile_n = fields.pick("tile_n", covering, widths)
    # Below an odd number of tiles a pair multiplies one that is not there.
    panels = -(-n // tile_n)
    rounds, of_pairs = (
        -(-(-(-m // (TILE_M * high)) * panels) // (processors // high)) for high in (1, 2)
    )
    pays = of_pairs <= rounds and k * n * itemsize >= _LARGE
    clusters = (1, 2) if tile_n > 64 else (1,)
    cluster = fields.pick("cluster", clusters[-1] if pays else 1, clusters)
    stage = (TILE_M // 2 + tile_n) * STAGE_BYTES_K + PAIRS * pair_bytes(itemsize)
    two, one = (
        min((SHARED - _BARRIERS - strips) // stage, MOST_STAGES) for strips in (STRIPS, STRIPS // 2)
    )
    # Thread blocks of a pair wait for each other less with another stage.
    most = one if plain and cluster > 1 else two
    stages = fields.pick("stages", most, range(2, most + 1))
    fields.finish()
    strips = 1 if stages > two else 2
    shared_memory = stages * stage + STRIPS * strips // 2 + _BARRIERS
    return SparseTile(tile_n, stages, cluster, strips, shared_memory)
