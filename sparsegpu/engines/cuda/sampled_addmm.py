"""Dense @ dense at the stored blocks, on the device."""

from __future__ import annotations

from typing import Any

from ..._arrays import accumulator_dtype
from ..._epilogue import Epilogue
from ..._math import ceil_div
from ...pattern import Pattern
from ._epilogue_args import epilogue_args
from ._grid import grid, size_of
from .paths._simt_tile import simt_tile
from .runtime.launch import Launch, kernel, submit
from .runtime.structs import kernel_struct
from .runtime.types import ctype
from .runtime.view import batch_dims, matrix_view, merged_batch


def sampled_addmm(
    out_data: Any,
    pattern: Pattern,
    input_data: Any,
    mat1: Any,
    mat2: Any,
    alpha: Any,
    beta: Any,
) -> None:
    """Write ``beta * input_data + alpha * (mat1 @ mat2)[stored blocks]``.

    mat1 is (*B, M, K), mat2 (*B, K, N); ``input_data`` is None when beta is 0. To the kernel the
    stored blocks are one batch dimension more.
    """
    bm, bn = pattern.blocksize
    rows, columns = pattern._rows[..., None, None], pattern._indices[..., None, None]
    mat1, mat2 = mat1[..., None, :, :], mat2[..., None, :, :]
    operands = (out_data, rows, columns, mat1, mat2, input_data)
    batch = merged_batch(out_data.shape[:-2], *((a, 2) for a in operands))
    defines, epilogue_argument = epilogue_args(
        Epilogue(alpha, beta, input_data), batch, accumulator_dtype(mat1.dtype), out_data.dtype
    )
    tile = simt_tile(bm, bn)
    blocks = size_of(batch)
    parts = ceil_div(bm, tile.tile_m) * ceil_div(bn, tile.tile_n)
    inner = mat1.shape[-1] if alpha != 0 else 0
    compiled = kernel(
        "sampled_addmm",
        T=ctype(mat1.dtype),
        INDEX=ctype(pattern._indices.dtype),
        **defines,
        **tile.defines,
    )
    launch = Launch(
        compiled,
        grid(blocks * parts),
        (tile.threads,),
        (
            matrix_view(out_data, batch),
            matrix_view(rows, batch),
            matrix_view(columns, batch),
            matrix_view(mat1, batch),
            matrix_view(mat2, batch),
            batch_dims(batch),
            kernel_struct("sampled_addmm", "SampledProblem")(blocks=blocks, k=inner, bm=bm, bn=bn),
            epilogue_argument,
        ),
    )
    submit(launch, whole=True)
