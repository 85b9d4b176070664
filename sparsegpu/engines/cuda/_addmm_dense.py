"""BSR @ dense by way of a dense matrix and cuBLAS, where so much is stored that this is faster.

The blocks are scattered into workspace, at memory speed; then every zero is
multiplied as well. From which density on that pays was measured on an H200 at 8192 cubed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._blocks import flat_blocks
from ._product import Product
from .convert import scatter_launch
from .runtime.cublas import WORKSPACE, Gemm
from .runtime.fields import Fields
from .runtime.hopper_tile import hopper_tile
from .runtime.launch import Work, runs_here
from .runtime.submission import workspace

#: (block rows below, density from which cuBLAS wins) of blocks that the Hopper product takes.
BREAK_EVEN = ((32, 0.35), (64, 0.55), (128, 0.88))
#: The same of other blocks of 16 rows and columns or more.
BREAK_EVEN_OTHERS = 0.12
_INT32 = 2**31
_LARGE = 2048  # rows, columns and terms; smaller products are over before it matters


def dense_launches(p: Product, config: Mapping[str, Any] | None) -> tuple[Work, ...] | None:
    """Return what scatters the blocks and multiplies, or None where this is not to serve.

    Parameters
    ----------
    p : Product
    config : mapping, optional
        ``{"path": "dense"}`` wherever cuBLAS may multiply; else only where it should.
    """
    if not _may(p) or not (config or _pays(p)) or (config or {}).get("path", "dense") != "dense":
        return None
    if p.pattern.has_repeated_blocks:
        return None  # their sums would be rounded to 16 bits
    import cupy

    Fields(config).finish()
    m, k = p.pattern.shape
    memory = workspace(m * k * p.data.itemsize)
    left = cupy.ndarray((m, k), p.data.dtype, memory.data)
    scatter = scatter_launch(left, p.pattern, flat_blocks(p.data))
    return scatter, Gemm(left, p.dense, p.out, workspace(WORKSPACE))


def _may(p: Product) -> bool:
    return (
        p.data.dtype.name in {"float16", "bfloat16"}
        and p.out.dtype == p.data.dtype
        and p.defines["EPILOGUE"] == "identity"
        and not (p.empty or p.transposed)
        and p.out.ndim == 2
        and max(*p.out.shape, *p.dense.shape) < _INT32
        and p.out.flags.c_contiguous
        and p.dense.flags.c_contiguous
    )


def _pays(p: Product) -> bool:
    (m, k), (bm, bk) = p.pattern.shape, p.pattern.blocksize
    if min(m, k, p.out.shape[-1]) < _LARGE or min(bm, bk) < 16 or not runs_here("bsr_addmm_sm90"):
        return False
    if hopper_tile(p.data.dtype, (bm, bk), p.out.shape[-1], False) is None:
        least = BREAK_EVEN_OTHERS
    else:
        least = next((density for rows, density in BREAK_EVEN if bm < rows), 1.01)
    return p.data.size >= least * m * k
