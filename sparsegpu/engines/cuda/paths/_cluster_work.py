"""Work lists: what each thread block of ``bsr_addmm_skinny_sm90.cu`` does, kept with a pattern."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...._math import ceil_div
from ....pattern import Pattern
from .._grid import THREADS, grid
from ..runtime.launch import Launch, kernel, submit
from ..runtime.types import ctype

#: Rows of a row tile and terms of a step.
SIDE = 64
_WORDS = 32  # of 32 bits: ``struct ClusterWork`` in bsr_addmm_skinny_sm90/cluster_work.cuh


def cluster_work(pattern: Pattern, cluster: int, rows_per_cluster: int) -> Any:
    """Return what the thread blocks do that multiply a pattern; made on the device, once.

    Parameters
    ----------
    pattern : Pattern
    cluster : int
        Thread blocks of a cluster.
    rows_per_cluster : int
        Row tiles that a cluster takes.

    Returns
    -------
    int32 array (*batch, thread blocks of a matrix * 32)
        `ClusterWork` of ``bsr_addmm_skinny_sm90/cluster_work.cuh``, one after the other.
    """
    (bm, bk), block_rows = pattern.blocksize, pattern.block_shape[0]
    matrices = prod(pattern.batch_shape)
    row_tiles = block_rows * (bm // SIDE)
    thread_blocks = ceil_div(row_tiles, rows_per_cluster) * cluster

    def build() -> Any:
        shape = (*pattern.batch_shape, thread_blocks * _WORDS)
        shares = pattern.xp.empty(shape, dtype=np.int32)
        compiled = kernel(
            "bsr_cluster_work",
            INDEX=ctype(pattern._indices.dtype),
            CLUSTER=cluster,
            ROWS_PER_CLUSTER=rows_per_cluster,
            SLICES_M=bm // SIDE,
            SLICES_K=bk // SIDE,
        )
        launch = Launch(
            compiled,
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
        submit(launch, setup=True)
        return shares

    return pattern.memo(("cluster work", cluster, rows_per_cluster), build)


def rows_by_length(pattern: Pattern) -> Any:
    """Return the block rows, those with most blocks first; made once and kept with the pattern."""

    def build() -> Any:
        counts = pattern._indptr[..., 1:] - pattern._indptr[..., :-1]
        return pattern.xp.argsort(-counts, axis=-1, kind="stable").astype(pattern._indices.dtype)

    return pattern.memo("block rows by length", build)
