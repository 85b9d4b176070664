"""How ``bsr_addmm_vector_mma.cu`` lays blocks into fragments, and where: pure Python."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil

import numpy as np

from .._blocks import ceil_div
from .fields import Fields
from .vector_tile import FewColumns, VectorTile, vector_tile

_SIDES = (2, 4, 8)
_TERMS = 2  # of a lane, loaded at once
_DEPTHS = (4, 5, 6, 3)  # products of fragments whose operands a lane loads at once, best first
_NARROW_DEPTHS = (5, 4, 6, 3)  # the same for float32
#: Compute capabilities whose float64 tensor cores keep up with memory.
_FULL_RATE = ((8, 0), (9, 0), (10, 0))


@dataclass(frozen=True, slots=True)
class FragmentTile:
    """A warp's share: the names are those of ``bsr_addmm_vector_mma.cu``."""

    teams: int  # SLOTS
    unroll: int
    x_together: int
    warps: int = 4
    resident: int = 4
    rounds: int = 3  # as of `VectorTile`

    @property
    def source(self) -> str:
        """The kernel."""
        return "bsr_addmm_vector_mma"

    def defines(self, blocksize: tuple[int, int], columns: int) -> dict[str, int]:
        """Return the ``-D`` names of the kernel."""
        return {
            "BM": blocksize[0],
            "BK": blocksize[1],
            "COLUMNS": columns,
            "UNROLL": self.unroll,
            "X_VECTOR": self.x_together,
            "WARPS": self.warps,
            "RESIDENT": self.resident,
        }


def takes_fragments(product: FewColumns) -> bool:
    """Whether the kernel serves, and is the faster one (float32 pays for its conversions).

    Examples
    --------
    >>> takes_fragments(FewColumns((9, 0), np.dtype("float64"), (4, 4), 8, 20))
    True
    """
    dtype, (bm, bk), columns = product.dtype, product.blocksize, product.columns
    sides = bm in _SIDES and bk in _SIDES
    if product.cc not in _FULL_RATE or not sides or product.data_alignment < 16:
        return False
    if dtype == np.float32:
        return min(bm, bk) >= 4 and 4 <= columns <= 8
    # A single column leaves most of a fragment empty. It pays where a block fills the rest, and
    # where few lanes would have the whole of a small one.
    return dtype == np.float64 and (1 if bm == bk != 4 else 2) <= columns <= 8


def fragment_tile(product: FewColumns, fields: Fields | None = None) -> FragmentTile:
    """Return how a warp shares the work.

    Parameters
    ----------
    product : FewColumns
        Float32 or float64, with blocks of 2, 4 or 8 rows and columns, and up to 8 columns.
    fields : Fields, optional
        ``unroll``, ``warps`` and ``resident``, where they are not to be chosen here.

    Examples
    --------
    >>> fragment_tile(FewColumns((9, 0), np.dtype("float64"), (4, 4), 8, 20))
    FragmentTile(teams=1, unroll=5, x_together=0, warps=4, resident=5, rounds=8)
    """
    bm, bk = product.blocksize
    products = max(ceil(product.row_blocks * bk / (4 * _TERMS)), 1)
    fields = fields or Fields()
    narrow = product.dtype == np.float32
    depth = min(
        _NARROW_DEPTHS if narrow else _DEPTHS, key=lambda depth: ceil_div(products, depth) * depth
    )
    unroll = fields.pick("unroll", depth, range(2, 9))
    tall = narrow and bm == 8  # these want fewer warps, and to be replaced sooner
    warps = fields.pick("warps", 2 if tall else 4, (2, 4, 8))
    single = product.columns == 1 and bk == 2
    resident = (4 + (product.plain and not tall) + (narrow and not tall) + single) * 4 // warps
    return FragmentTile(
        teams=8 // max(bm, next(n for n in (1, *_SIDES) if n >= product.columns)),
        unroll=unroll,
        x_together=int(product.along_k % _TERMS == 0),
        warps=warps,
        resident=fields.pick("resident", resident, range(2, max(resident, 24 // warps) + 1)),
        # Where most is gathered, a warp's start costs more than rows that lie far apart.
        rounds=8 if product.columns > bm else 3,
    )


def chosen_tile(product: FewColumns, fields: Fields | None = None) -> FragmentTile | VectorTile:
    """Return which kernel multiplies, and how a warp of it shares the work.

    ``fragments=0`` among the fields keeps away from the tensor cores; for the others see
    `fragment_tile` and `vector_tile`.
    """
    fields = fields or Fields()
    if takes_fragments(product) and fields.pick("fragments", 1, (0, 1)):
        return fragment_tile(product, fields)
    return vector_tile(product, fields)


#: `chosen_tile` without fields, at the cost of a look-up.
kept_tile = lru_cache(maxsize=256)(chosen_tile)
