"""BSR @ a few vectors on the device: small blocks, streamed (``bsr_addmm_vector*.cu``)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from ..._arrays import accumulator_dtype
from ._blocks import THREADS, ceil_div, grid, size_of
from ._product import Product
from ._row_pieces import balanced_pieces
from .runtime.fields import Fields
from .runtime.fragment_tile import chosen_tile, kept_tile
from .runtime.launch import Launch, current_device, kernel, multiprocessors
from .runtime.submission import workspace
from .runtime.types import ctype
from .runtime.vector_tile import MOST_ROUNDS, FewColumns, power_of_two_in, takes_blocks
from .runtime.view import batch_dims, matrix_view, vector_view

_SIZES = struct.Struct("<3q2i")
_PARTS_SIZES = struct.Struct("<3q")
_WARPS = 64  # of a multiprocessor; with more work than that, a warp takes several rows


def vector_launches(p: Product, config: Mapping[str, Any] | None) -> tuple[Launch, ...] | None:
    """Return the launches that compute a product, or None where this kernel does not serve.

    Parameters
    ----------
    p : Product
    config : mapping, optional
        ``{"path": "vector"}``, and fields of the tile to override the choice.
    """
    if not _serves(p, config):
        return None
    (bm, bk), columns = p.pattern.blocksize, p.out.shape[-1]
    pieces = balanced_pieces(p.pattern)
    rows = p.pattern.block_shape[0] if pieces is None else pieces.pieces.shape[-2]
    batches = size_of(p.batch)
    along_k, along_n = _vectors_of(p.dense)
    product = FewColumns(
        _compute_capability(current_device()),
        p.data.dtype,
        (bm, bk),
        columns,
        p.pattern.nnzb / rows,
        min(map(_alignment, (p.data.data.ptr, *p.data.strides[:-3]))),
        along_k,
        along_n,
        pieces is None and batches == 1,
    )
    fields = Fields(config)
    tile = chosen_tile(product, fields) if config else kept_tile(product)
    groups = ceil_div(rows, tile.teams)
    rounds = max(min(groups * batches // (_WARPS * multiprocessors()), tile.rounds), 1)
    rounds = fields.pick("rounds", rounds, range(1, MOST_ROUNDS + 1))
    if config:
        fields.finish()
    parts = 0 if pieces is None else pieces.parts
    acc = accumulator_dtype(p.data.dtype).itemsize
    sums = workspace(batches * parts * bm * columns * acc) if parts else None
    out, shape = matrix_view(p.out, p.batch), batch_dims(p.batch)
    operands = (
        out,
        vector_view(p.pattern._indptr if pieces is None else _flat(pieces.pieces), p.batch),
        vector_view(p.pattern._indices, p.batch),
        matrix_view(p.data[..., 0, :, :], p.batch),
        matrix_view(p.dense, p.batch),
        shape,
        np.void(_SIZES.pack(batches, rows, parts, rounds, 0)),
    )
    main = Launch(
        kernel(
            tile.source,
            T=ctype(p.data.dtype),
            INDEX=ctype(p.pattern._indices.dtype),
            SPLIT_ROWS=int(pieces is not None),
            BATCHED=int(batches > 1),
            **p.defines,
            **tile.defines((bm, bk), columns),
        ),
        grid(ceil_div(batches * ceil_div(groups, rounds), tile.warps)),
        (32 * tile.warps,),
        (
            np.void(b"".join(part.tobytes() for part in operands)),
            np.uint64(0) if sums is None else sums,
            p.epilogue,
        ),
    )
    if pieces is None or pieces.rows.shape[-2] == 0:
        return (main,)
    cut = pieces.rows.shape[-2]
    finish = Launch(
        kernel("bsr_addmm_parts", T=ctype(p.data.dtype), BM=bm, COLUMNS=columns, **p.defines),
        grid(batches * cut),
        (THREADS,),
        (
            out,
            vector_view(_flat(pieces.rows), p.batch),
            shape,
            np.void(_PARTS_SIZES.pack(batches, cut, parts)),
            sums,
            p.epilogue,
        ),
    )
    return main, finish


@cache
def _compute_capability(device: int) -> tuple[int, int]:
    import cupy

    cc = cupy.cuda.Device(device).compute_capability
    return int(cc[:-1]), int(cc[-1])


def _serves(p: Product, config: Mapping[str, Any] | None) -> bool:
    path = (config or {}).get("path")
    bm, bk = p.pattern.blocksize
    dtype, columns = p.data.dtype, p.out.shape[-1]
    if path not in {None, "vector"} or p.empty or p.transposed:
        return False
    if path is None and dtype.name in ("bfloat16", "float16", "int8") and min(bm, columns) >= 8:
        return False  # eight rows and columns fill half a fragment of the tensor cores
    # A row of dense is found by one multiply-add of 32-bit numbers.
    near = 0 <= p.dense.strides[-2] * bk < 2**32 and p.pattern.block_shape[1] < 2**32
    return near and takes_blocks(dtype, (bm, bk), columns)


def _flat(table: Any) -> Any:
    return table.reshape(*table.shape[:-2], -1)


def _alignment(address: int) -> int:
    return min(power_of_two_in(address), 16) or 16


def _vectors_of(dense: Any) -> tuple[int, int]:
    """Return how many elements of a column, and of a row, 16-byte loads may take at once."""
    found = []
    item = dense.itemsize
    for axis in (-2, -1):
        unit = dense.shape[axis] > 1 and dense.strides[axis] == item
        along = dense.ndim + axis
        strides = zip(dense.shape, dense.strides, strict=True)
        others = [s for i, (n, s) in enumerate(strides) if i != along and n != 1]
        size = min(_alignment(a) for a in (dense.data.ptr, *others))
        found.append(max(size // item, 1) if unit else 1)
    return found[0], found[1]
