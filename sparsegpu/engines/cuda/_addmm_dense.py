"""BSR @ dense by way of a dense matrix and cuBLAS, where so much is stored that this is faster.

The blocks are scattered into workspace kept with the pattern, at memory speed; then every zero is
multiplied as well. From which density on that pays was measured on an H200 at 8192 cubed.
"""

from __future__ import annotations

from ._product import Product
from .convert import scatter_blocks
from .runtime.hopper_tile import hopper_tile
from .runtime.launch import runs_here
from .runtime.plan import workspace

#: (block rows below, density from which cuBLAS wins) of blocks that the Hopper product takes.
BREAK_EVEN = ((32, 0.45), (64, 0.6), (128, 0.8))
#: The same of other blocks of 16 rows and columns or more.
BREAK_EVEN_OTHERS = 0.12
_LARGE = 2048  # rows, columns and terms; smaller products are over before it matters


def dense_serves(p: Product, path: str | None) -> bool:
    """Whether cuBLAS may (``path`` "dense") or should (None) multiply instead."""
    possible = (
        p.data.dtype.name in {"float16", "bfloat16"}
        and p.out.dtype == p.data.dtype
        and p.defines["EPILOGUE"] == "identity"
        and not (p.empty or p.transposed or p.batch)
        and p.out.flags.c_contiguous
        and p.dense.flags.c_contiguous
    )
    if not possible or path not in {None, "dense"}:
        return False
    if path is None and not _pays(p):
        return False
    return not p.pattern.has_repeated_blocks  # their sums would be rounded to 16 bits


def _pays(p: Product) -> bool:
    (m, k), (bm, bk) = p.pattern.shape, p.pattern.blocksize
    if min(m, k, p.out.shape[-1]) < _LARGE or min(bm, bk) < 16 or not runs_here("bsr_addmm_sm90"):
        return False
    if hopper_tile(p.data.dtype, (bm, bk), p.out.shape[-1], False) is None:
        least = BREAK_EVEN_OTHERS
    else:
        least = next((density for rows, density in BREAK_EVEN if bm < rows), 1.01)
    return p.data.size >= least * m * k


def multiply_dense(p: Product) -> None:
    """Scatter the blocks and multiply."""
    import cupy

    m, k = p.pattern.shape
    memory = workspace(p.pattern, "dense", m * k * p.data.itemsize)
    dense = cupy.ndarray((m, k), p.data.dtype, memory.data)
    scatter_blocks(dense, p.pattern, p.data)
    cupy.matmul(dense, p.dense, out=p.out)
