"""Host side of ``bsr_softmax``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._math import ceil_div
from ...pattern import Pattern
from ._grid import (
    THREADS,
    flat_blocks,
    flat_output,
    grid,
    power_of_two_below,
    same_place,
    size_of,
)
from .runtime.launch import Launch, kernel, submit
from .runtime.types import ctype
from .runtime.view import batch_dims, matrix_view, merged_batch, vector_view

_LONG_ROW = 1024  # mean stored elements of a row from which a whole thread block works on it


def bsr_softmax(out_data: Any, pattern: Pattern, data: Any) -> None:
    """Write the softmax of each row's stored elements; ``out_data`` may be ``data``.

    One launch. A row that fits the registers of its threads is read once, a longer one twice.
    """
    bm, bk = pattern.blocksize
    block_rows = pattern.block_shape[0]
    team = THREADS if pattern.nnzb * bk >= _LONG_ROW * block_rows else 32
    rows = power_of_two_below(min(bm, max(1, 32 // bk)))  # at a time by one team
    groups = ceil_div(bm, rows)
    items = size_of(out_data.shape[:-3]) * block_rows * groups
    blocks = flat_blocks(data)  # may be a copy: it has to outlive the launch
    with flat_output(out_data) as out:
        batch = merged_batch(out.shape[:-2], (out, 2), (blocks, 2), (pattern._indptr, 1))
        compiled = kernel(
            "bsr_softmax",
            T=ctype(data.dtype),
            OUT=ctype(out_data.dtype),
            TEAM=team,
            INDEX=ctype(pattern._indptr.dtype),
        )
        launch = Launch(
            compiled,
            grid(ceil_div(items, THREADS // team)),
            (THREADS,),
            (
                matrix_view(out, batch),
                matrix_view(blocks, batch),
                vector_view(pattern._indptr, batch),
                batch_dims(batch),
                np.int64(groups),
                np.int64(items),
                np.int64(block_rows),
                np.int32(bm),
                np.int32(bk),
                np.int32(rows),
            ),
        )
        submit(launch, whole=same_place(blocks, data) and same_place(out, out_data))
