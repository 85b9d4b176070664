"""Work lists: what each thread block of ``bsr_addmm_skinny_sm90.cu`` does, kept with a pattern."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._math import ceil_div
from ...pattern import Pattern
from ._blocks import THREADS, grid, size_of
from .runtime.launch import kernel
from .runtime.skinny_sm90_tile import SIDE
from .runtime.types import ctype

_WORDS = 32  # of 32 bits: ``struct Share`` in common/row_shares.cuh


def row_shares(pattern: Pattern, cluster: int, together: int) -> Any:
    """Return what the thread blocks do that multiply a pattern; made on the device, once.

    Parameters
    ----------
    pattern : Pattern
    cluster : int
        Thread blocks of a cluster.
    together : int
        Row tiles that a cluster takes.

    Returns
    -------
    int32 array (*batch, thread blocks of a matrix * 32)
        `Share` of ``common/row_shares.cuh``, one after the other.
    """
    (bm, bk), block_rows = pattern.blocksize, pattern.block_shape[0]
    matrices = size_of(pattern.batch_shape)
    row_tiles = block_rows * (bm // SIDE)
    thread_blocks = ceil_div(row_tiles, together) * cluster

    def build() -> Any:
        shape = (*pattern.batch_shape, thread_blocks * _WORDS)
        shares = pattern.xp.empty(shape, dtype=np.int32)
        kernel(
            "bsr_row_shares",
            INDEX=ctype(pattern._indices.dtype),
            CLUSTER=cluster,
            TOGETHER=together,
            SLICES=bm // SIDE,
            PARTS=bk // SIDE,
        )(
            grid(ceil_div(matrices * thread_blocks, THREADS)),
            (THREADS,),
            (
                shares,
                rows_by_length(pattern),
                pattern._indptr,
                pattern._indices,
                np.int64(matrices),
                np.int64(block_rows),
                np.int64(pattern.nnzb),
            ),
        )
        return shares

    return pattern.memo(("row shares", cluster, together), build)


def rows_by_length(pattern: Pattern) -> Any:
    """Return the block rows, those with most blocks first; made once and kept with the pattern."""

    def build() -> Any:
        counts = pattern._indptr[..., 1:] - pattern._indptr[..., :-1]
        return pattern.xp.argsort(-counts, axis=-1, kind="stable").astype(pattern._indices.dtype)

    return pattern.memo("block rows by length", build)
