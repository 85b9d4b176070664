"""Attention's gradients on Hopper through wgmma (``bsr_attention_backward_sm90.cu``).

A launch for the gradient of query, which walks the pattern, and one for those of key and value,
which walks its transpose. bfloat16 and float16; blocks of multiples of 16 rows and columns that
divide a stage or are its multiples; up to 128 columns of query, key and value, multiples of 8.
Operands that tensor maps cannot describe are left to the other paths.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...._math import ceil_div
from ..runtime.architectures import HOPPER
from ..runtime.device import multiprocessors
from ..runtime.launch import Launch, kernel
from ..runtime.submission import workspace
from ..runtime.view import batch_dims, matrix_numbers
from . import _attention
from ._attention import AttentionFacts
from ._attention_backward import AttentionBackward
from ._attention_tiles import (
    GRADIENT_VIEWS,
    AttentionTile,
    backward_schedule,
    gradient_defines,
    gradient_reads,
    serves_backward,
)
from ._facts import HALVES, INDICES, always
from ._fields import Fields
from ._matrix_maps import described, numbers, rows_map
from ._product import layout_of
from ._sm90 import RESERVED, SHARED, THREADS

NAME = "wgmma"
SOURCES = ("bsr_attention_backward_sm90",)
DTYPES, ARCHS = HALVES, HOPPER
TENSOR_CORES = True
BY_ADDRESS = {**INDICES, "GRADIENT": ("query", "key")}
TOGETHER = ("FEATURES", "BK", "GRADIENT", "INDEX")

facts, examples, pays = AttentionBackward.facts, _attention.examples, always

_PANEL = 64  # columns of a box
_MOST_FEATURES = 128
_MOST_STAGES = 4
_CONSUMERS, _OWN = 2, 64  # warpgroups, own rows of each
_STATIC = 4096  # bytes that a team has besides its tiles, at most
#: By gradient: its operands as own and other rows (``cuda_src/common/attention_gradients.cuh``).
_OPERANDS = {
    "query": ("query", "grad", "key", "value"),
    "key": ("key", "value", "query", "grad"),
}


def serves(p: AttentionBackward) -> bool:
    """Return whether tensor maps describe the operands, and rows of ``out`` can be read."""
    arrays = (p.arrays[name] for name in _OPERANDS["query"])
    of_out = layout_of(p.arrays["out"]) == "rows"
    return of_out and serves_backward(p) and all(described(a) for a in arrays)


def tile(f: AttentionFacts, fields: Fields) -> AttentionTile | None:
    """Return the tile, or None for blocks and widths that it does not take.

    ``fields`` may say ``tile_own``, rows of a team, ``tile_keys`` and ``tile_queries``, those of a
    stage in the gradient of query and in those of key and value, and ``stages``.

    Examples
    --------
    >>> import numpy as np
    >>> f16 = np.dtype("float16")
    >>> f = AttentionFacts(dtype=f16, out_dtype=f16, mask_dtype=np.dtype(bool),
    ...                    blocksize=(128, 128), features=128, value_features=128)
    >>> chosen = tile(f, Fields()).defines
    >>> chosen["TILE_OWN"], chosen["TILE_KEYS"], chosen["TILE_QUERIES"], chosen["KEY_STAGES"]
    (128, 128, 64, 2)
    """
    (bm, bk), widths = f.blocksize, (f.features, f.value_features)
    if f.capability != (9, 0) or bm % 16 or bk % 16:
        return None
    if max(widths) > _MOST_FEATURES or any(n % 8 for n in widths):
        return None
    features, value_features = (ceil_div(n, _PANEL) * _PANEL for n in widths)
    line = 2 * (features + value_features)
    light = f.mask_dtype.kind == "b" and not (f.softcap or f.slopes or f.dropout)
    # Scores with more to do, more sums and slices of blocks leave fewer registers for a stage.
    of_keys = (32, 64, 128) if light and bk <= 128 else (32, 64)
    narrow = max(widths) <= _PANEL and not f.dropout
    of_queries = (32, 64) if narrow or (light and bk >= 64) else (32,)

    def memory(tile_own: int) -> int:
        """Return the bytes of shared memory that a team has for its stages."""
        return (SHARED - RESERVED) * tile_own // (_CONSUMERS * _OWN) - tile_own * line - _STATIC

    def stage_rows(tile_own: int, own: int, other: int, sizes: tuple[int, ...]) -> list[int]:
        rows = max(1, tile_own // own)
        return [
            n
            for n in sizes
            if (n % other == 0 or other % n == 0)
            and rows * max(1, n // other) <= 32
            and memory(tile_own) >= 2 * n * line
        ]

    keys, queries = {}, {}
    for n in (64, 128):
        keys[n] = stage_rows(n, bm, bk, of_keys)
        queries[n] = stage_rows(n, bk, bm, of_queries)
    owns = [n for n in keys if keys[n] and queries[n]]
    if not owns:
        return None
    tile_own = fields.pick("tile_own", 128 if min(bm, bk) >= 128 else 64, owns)
    tile_keys = fields.pick("tile_keys", of_keys[-1], keys[tile_own])
    tile_queries = fields.pick("tile_queries", of_queries[-1], queries[tile_own])
    most = [min(memory(tile_own) // (n * line), _MOST_STAGES) for n in (tile_keys, tile_queries)]
    stages = fields.pick("stages", max(most), range(2, max(most) + 1))
    key_stages, query_stages = (min(stages, n) for n in most)
    largest = max(key_stages * tile_keys, query_stages * tile_queries)
    return AttentionTile(
        tile_q=tile_own,
        threads=THREADS,
        shared_memory=_CONSUMERS * _OWN // tile_own * (tile_own + largest) * line + 1024,
        defines={
            **gradient_defines(f),
            "TILE_OWN": tile_own,
            "TILE_KEYS": tile_keys,
            "TILE_QUERIES": tile_queries,
            "KEY_STAGES": key_stages,
            "QUERY_STAGES": query_stages,
            "FEATURES": features,
            "VALUE_FEATURES": value_features,
        },
    )


def launches(p: AttentionBackward, tile: AttentionTile) -> tuple[Launch, ...]:
    """Return the launches."""
    bases = workspace(p.arrays["delta"].nbytes)
    return (*_launches(p, tile, "query", bases), *_launches(p, tile, "key", bases))


def _launches(
    p: AttentionBackward, tile: AttentionTile, name: str, bases: Any
) -> tuple[Launch, ...]:
    by_queries = name == "query"
    reads = gradient_reads(p, name)
    teams = _CONSUMERS * _OWN // tile.tile_q
    schedule = backward_schedule(
        p, reads, tile, SOURCES[0], transposed=not by_queries, teams=teams * multiprocessors()
    )
    tables, states, bits, problem, score = schedule.arguments
    other = p.pattern.blocksize[1 if by_queries else 0]
    box = min(other, tile.defines["TILE_KEYS" if by_queries else "TILE_QUERIES"])
    operands = _OPERANDS[name]
    maps, matrices = b"", b""
    for n, rows in zip(operands, (_OWN, _OWN, box, box), strict=True):
        maps += rows_map(p.arrays[n], rows)
        matrices += numbers(reads[n], reads.batch, p.arrays[n])
    delta = reads["delta"]  # contiguous in the order of the heads, so its place says their number
    step = delta.itemsize * delta.shape[-1]
    matrices += matrix_numbers(delta.shape[:-1], delta.strides[:-1], step, reads.batch)
    compute = Launch(
        kernel(SOURCES[0], ARCHS, INDEX=schedule.index, GRADIENT=name, **tile.defines),
        (min(ceil_div(schedule.items, teams), multiprocessors()),),
        (tile.threads,),
        (
            maps,
            matrices + schedule.matrices,
            *reads.views(*GRADIENT_VIEWS),
            bases,
            batch_dims(reads.batch),
            tables,
            states,
            bits,
            problem,
            np.int64(reads.shares),
            score,
        ),
        tile.shared_memory,
    )
    return (*schedule.setup, compute)
