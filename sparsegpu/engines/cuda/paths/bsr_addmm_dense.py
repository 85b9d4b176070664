"""BSR @ dense by cuBLAS on a dense copy of the matrix, where enough blocks are stored.

The blocks are scattered into workspace, at memory speed; cuBLAS then multiplies the zeros as well.
The densities from which that is faster were measured on an H200 at 8192 cubed, and of the
smallest blocks at 4096 cubed.
"""

from __future__ import annotations

from .._grid import flat_blocks
from ..convert import scatter_launch
from ..runtime.architectures import HOPPER, PORTABLE, runs_on
from ..runtime.cublas import WORKSPACE, Gemm
from ..runtime.launch import Work
from ..runtime.submission import workspace
from ._facts import HALVES, Facts
from ._fields import Fields
from ._product import Product
from ._sm90 import multiplies

NAME = "dense"
SOURCES = ()
DTYPES, ARCHS = HALVES, PORTABLE
TENSOR_CORES = False
BY_ADDRESS: dict[str, tuple[str, ...]] = {}

#: (block rows below, density from which cuBLAS wins) of blocks that the Hopper product takes.
BREAK_EVEN = ((32, 0.35), (64, 0.55), (128, 0.88))
#: The same of the smallest of these blocks where rows, columns and terms are at most so many: at
#: 4096 cubed and density 0.5 the Hopper product takes 0.173 ms, cuBLAS with the dense copy 0.190.
BREAK_EVEN_SMALL = 4096, 0.55
#: The same of other blocks of 16 rows and columns or more.
BREAK_EVEN_OTHERS = 0.12
_LEAST_DENSITY = 2**-4  # below, the dense copy is sixteen times as large as the values
_LARGE = 2048  # rows, columns and terms; smaller products are too short for it to matter
_INT32 = 2**31

facts = Product.facts


def serves(p: Product) -> bool:
    """Return whether these are two matrices that cuBLAS takes, without an epilogue."""
    return (
        p.out.dtype == p.data.dtype
        and p.defines["EPILOGUE"] == "identity"
        and not (p.empty or p.transposed)
        and p.out.ndim == 2
        and max(*p.out.shape, *p.dense.shape) < _INT32
        and p.out.flags.c_contiguous
        and p.dense.flags.c_contiguous
    )


def pays(f: Facts) -> bool:
    """Return whether so much is stored that cuBLAS is faster than any sparse kernel."""
    (bm, bk), (m, k, n) = f.blocksize, f.shape
    if min(m, k, n) < _LARGE or min(bm, bk) < 16 or not runs_on(HOPPER, f.capability):
        return False
    least = BREAK_EVEN_OTHERS
    if multiplies(f):
        least = next((density for rows, density in BREAK_EVEN if bm < rows), 1.01)
        largest, at_least = BREAK_EVEN_SMALL
        if max(m, k, n) <= largest:
            least = max(least, at_least)
    return f.density >= least


def worth_measuring(f: Facts) -> bool:
    """Return whether `tune` measures it: a dense copy of a sparser matrix may not fit anywhere."""
    return f.density >= _LEAST_DENSITY


def tile(f: Facts, fields: Fields) -> bool | None:
    """Return that there is nothing to choose; None for blocks that are stored transposed."""
    return None if f.transposed else True


def launches(p: Product, tile: bool) -> tuple[Work, ...] | None:
    """Return what scatters the blocks and multiplies, None where blocks are repeated."""
    if p.pattern.has_repeated_blocks:
        return None  # their sums would be rounded to 16 bits
    import cupy

    m, k = p.pattern.shape
    memory = workspace(m * k * p.data.itemsize)
    left = cupy.ndarray((m, k), p.data.dtype, memory.data)
    scatter = scatter_launch(left, p.pattern, flat_blocks(p.data))
    return scatter, Gemm(left, p.dense, p.out, workspace(WORKSPACE))
