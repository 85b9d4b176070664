"""Dense @ dense at the stored blocks (``bsr_sampled_addmm_simt.cu``): every dtype, size and stride.

Without tensor cores. The path to read first.
"""

from __future__ import annotations

from math import prod

from ...._arrays import accumulator_dtype
from ...._math import ceil_div
from .._epilogue_args import epilogue_args
from .._grid import grid
from ..runtime.architectures import PORTABLE
from ..runtime.launch import Launch, kernel
from ..runtime.structs import kernel_struct
from ..runtime.types import ctype
from ..runtime.view import batch_dims, matrix_view, merged_batch
from . import _sampled
from ._facts import FLOATS, INDICES, always
from ._fields import Fields
from ._sampled import Sampled, SampledFacts
from ._simt_tile import simt_tile
from ._tile import Tile

NAME = "simt"
SOURCES = ("bsr_sampled_addmm_simt",)
DTYPES, ARCHS = (*FLOATS, "int8", "complex64", "complex128"), PORTABLE
TENSOR_CORES = False
BY_ADDRESS = INDICES

facts, examples, epilogues = Sampled.facts, _sampled.examples, _sampled.epilogues
pays, serves, worth_measuring = always, always, always


def tile(f: SampledFacts, fields: Fields) -> Tile:
    """Return the tile: the smallest that holds a block, up to 64 x 64.

    ``fields`` may say ``tile_m`` and ``tile_n``.
    """
    simt = simt_tile(*f.blocksize, fields)
    names = {"T": ctype(f.dtype), **simt.defines}
    return Tile(simt.tile_m, simt.tile_n, simt.threads, names)


def launches(p: Sampled, tile: Tile) -> tuple[Launch, ...]:
    """Return the launch. To the kernel the stored blocks are one batch dimension more."""
    bm, bn = p.pattern.blocksize
    pattern, term = p.pattern, p.epilogue.input
    rows, columns = pattern._rows[..., None, None], pattern._indices[..., None, None]
    mat1, mat2 = p.mat1[..., None, :, :], p.mat2[..., None, :, :]
    operands = (p.out, rows, columns, mat1, mat2, term)
    batch = merged_batch(p.out.shape[:-2], *((a, 2) for a in operands))
    defines, epilogue = epilogue_args(p.epilogue, batch, accumulator_dtype(p.dtype), p.out.dtype)
    blocks = prod(batch)
    parts = ceil_div(bm, tile.tile_m) * ceil_div(bn, tile.tile_n)
    compiled = kernel(SOURCES[0], INDEX=ctype(pattern._indices.dtype), **defines, **tile.defines)
    problem = kernel_struct(SOURCES[0], "SampledBlocks")(blocks=blocks, k=p.inner, bm=bm, bn=bn)
    arguments = (
        *(matrix_view(a, batch) for a in operands[:-1]),
        batch_dims(batch),
        problem,
        epilogue,
    )
    return (Launch(compiled, grid(blocks * parts), (tile.threads,), arguments),)
