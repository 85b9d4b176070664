"""What the tensor-core paths of attention share: tiles of queries, states of the mask, arguments.

A tile's queries are block rows of a group; ``cuda_src/common/query_tile.cuh`` says how they walk
the group's keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from ...._math import ceil_div, round_up
from ....pattern import Pattern
from .._grid import packed_mask
from .._schedule import RowGroups, row_groups
from .._score_args import score_args
from ..runtime.launch import MAX_GRID, NULL, Launch, address, kernel, submit
from ..runtime.structs import kernel_struct
from ..runtime.submission import workspace
from ..runtime.types import ctype
from ..runtime.view import batch_dims, matrix_numbers, matrix_view, vector_view
from ._attention import Attention, AttentionFacts
from ._attention_backward import AttentionBackward, Reads
from ._product import layout_of
from ._split_k import CutGroups, cut_row_groups
from ._tile_order import band_of_heads

#: The kernels count queries and keys of a head in 32 bits.
_INT32 = 2**31
_MASK_THREADS = 256
_WORD = 32  # columns of a word of bits


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """What a thread block computes and is launched with.

    Attributes
    ----------
    tile_q : int
        Queries of a tile.
    threads : int
    shared_memory : int
        Dynamic, of a thread block, in bytes.
    defines : dict
        The ``-D`` names of the kernel.
    split_kv : bool, optional
        Split the keys of groups that have many more than others. None: the kernel cannot.
    """

    tile_q: int
    threads: int
    shared_memory: int
    defines: dict[str, Any]
    split_kv: bool | None = field(default=None, kw_only=True)


def serves(p: Attention) -> bool:
    """Return whether vectors of the operands can be copied, and 32 bits count a head's rows."""
    return (
        p.lies_in_rows
        and max(p.query.shape[-2], p.key.shape[-2]) < _INT32
        and p.pattern._indptr.flags.c_contiguous
        and readable_mask(p.mask_data)
    )


def widths_for_mma(f: AttentionFacts, most: int, *, least_rows: int = 8) -> tuple[int, int] | None:
    """Return both widths in whole panels of 32, None for what ``mma`` kernels do not take.

    They take blocks of 8 columns and more, and at most ``most`` features, which are copied 16 bytes
    at once.
    """
    (bm, bk), widths = f.blocksize, (f.features, f.value_features)
    if not f.tensor_cores or bm < least_rows or bk < 8 or max(widths) > most:
        return None
    if any(n * f.dtype.itemsize % 16 for n in widths):
        return None
    features, value_features = (round_up(n, 32) for n in widths)
    return features, value_features


def readable_mask(mask_data: Any) -> bool:
    """Return whether the states of a mask can be found: its matrices are at one distance."""
    if packed_mask(mask_data) is not None:
        return True
    batch = zip(mask_data.shape[:-3], mask_data.strides[:-3], strict=True)
    kept = [(n, stride) for n, stride in batch if n != 1]
    return all(outer == n * inner for (_, outer), (n, inner) in pairwise(kept))


def score_defines(f: AttentionFacts) -> dict[str, Any]:
    """Return the ``-D`` names of types and of the score."""
    return {
        "T": ctype(f.dtype),
        "OUT": ctype(f.out_dtype),
        "MASK": ctype(f.mask_dtype),
        "SOFTCAP": int(f.softcap),
        "SLOPES": int(f.slopes),
        "SINKS": int(f.sinks),
        "DROPOUT": int(f.dropout),
        "FOLD": int(f.folded),
        "BM": f.blocksize[0],
        "BK": f.blocksize[1],
    }


def gradient_defines(f: AttentionFacts) -> dict[str, Any]:
    """Return the ``-D`` names of types and of the score, for kernels of gradients."""
    names = ("T", "MASK", "SOFTCAP", "SLOPES", "DROPOUT", "BM", "BK")
    of_score = score_defines(f)
    return {name: of_score[name] for name in names}


@dataclass(frozen=True, slots=True)
class Schedule:
    """The tiles of an attention, and what the kernels read of its mask.

    Attributes
    ----------
    setup : tuple of Launch
        Finds the states.
    items : int
        Tiles of all heads.
    index : str
        ``-DINDEX``.
    matrices : bytes
        Which matrix of the pattern a head reads: a ``View``.
    arguments : tuple
        ``schedule``, ``states``, ``bits``, ``problem`` and ``score_args`` of the kernels.
    cut : CutGroups
        The groups, and which of them were split.
    """

    setup: tuple[Launch, ...]
    items: int
    index: str
    matrices: bytes
    arguments: tuple[Any, ...]
    cut: CutGroups


def schedule_of(
    p: Attention, tile: AttentionTile, source: str, at_once: int = 1, *, dealt: bool = False
) -> Schedule:
    """Return the schedule of an attention; made once a pattern, but for the mask's states.

    ``at_once``: tiles that the device computes at the same time, about; with ``dealt``, the teams
    to which they are dealt out.
    """
    bm = p.pattern.blocksize[0]
    rows = max(1, tile.tile_q // bm)
    groups = row_groups(p.pattern, rows)
    heads, slices = prod(p.batch), ceil_div(bm, tile.tile_q)
    setup, states, bits = _states(p.pattern, p.mask_data, groups, rows)
    cut = CutGroups(groups)
    if tile.split_kv:
        share = p.pattern.nnzb * heads * slices // at_once
        cut = cut_row_groups(p.pattern, rows, None, row_groups, share)
        groups = cut.groups
    of_matrix = groups.groups // p.pattern.batch_size
    items = heads * of_matrix * slices
    step = p.indptr.itemsize * p.indptr.shape[-1]
    read = p.key.nbytes + p.value.nbytes
    problem = kernel_struct(source, "AttentionProblem")(
        groups=of_matrix,
        heads=heads,
        band=band_of_heads(heads, of_matrix * slices, read, p.pattern, at_once if dealt else None),
        nnzb=p.pattern.nnzb,
        queries=p.query.shape[-2],
        features=p.query.shape[-1],
        value_features=p.value.shape[-1],
    )
    return Schedule(
        setup,
        items,
        ctype(groups.blocks.dtype),
        matrix_numbers(p.indptr.shape[:-1], p.indptr.strides[:-1], step, p.batch),
        (
            groups.argument(),
            states,
            bits,
            problem,
            score_args(p.score, p.batch, p.masks, p.slopes, p.dtype, packed_mask(p.mask_data))[1],
        ),
        cut,
    )


#: The views that kernels of gradients take, in their order.
GRADIENT_VIEWS = (
    *("gradient", "second", "query", "key", "value", "grad", "out", "lse", "grad_lse", "delta"),
)


def gradient_reads(p: AttentionBackward, name: str) -> Reads:
    """Return what the kernel of the gradient of "query" reads, or of "key" and of value with it."""
    second = None if name == "query" else p.gradients["value"]
    more: dict[str, tuple[Any, int]] = {"starts": (p.pattern._indptr, 1), "second": (second, 2)}
    return p.reads(p.gradients[name], 2, more)


def serves_backward(p: AttentionBackward) -> bool:
    """Return whether rows can be copied, and key and value are summed over the same heads."""
    arrays = [p.arrays[name] for name in ("query", "key", "value", "grad")]
    of_key, of_value = (p.reads(p.gradients[name], 2, {}) for name in ("key", "value"))
    return (
        all(layout_of(a) == "rows" for a in arrays)
        and max(a.shape[-2] for a in arrays) < _INT32
        and of_key.own == of_value.own
        and all(q._indptr.flags.c_contiguous for q in (p.pattern, p.transposed))
        and readable_mask(p.mask_data)
    )


def backward_schedule(
    p: AttentionBackward,
    reads: Reads,
    tile: AttentionTile,
    source: str,
    *,
    transposed: bool,
    teams: int | None = None,
) -> Schedule:
    """Return the schedule of a launch for gradients, which walks the pattern or its transpose.

    ``teams``: to which tiles are dealt out, as in `band_of_heads`.
    """
    walked = p.transposed if transposed else p.pattern
    own = walked.blocksize[0]
    rows = max(1, tile.tile_q // own)
    groups = row_groups(walked, rows)
    of_matrix = groups.groups // walked.batch_size
    slices = ceil_div(own, tile.tile_q) if own > tile.tile_q else 1
    items = reads.owners * of_matrix * slices
    origins = p.order if transposed else None
    setup, states, bits = _states(p.pattern, p.mask_data, groups, rows, origins)
    starts = reads["starts"]
    others = ("query", "grad") if transposed else ("key", "value")
    read = sum(reads[name].nbytes for name in others) // reads.shares
    problem = kernel_struct(source, "AttentionProblem")(
        groups=of_matrix,
        heads=reads.owners,
        band=band_of_heads(reads.owners, of_matrix * slices, read, walked, teams),
        nnzb=p.pattern.nnzb,
        queries=walked.shape[0],
        features=reads["query"].shape[-1],
        value_features=reads["value"].shape[-1],
    )
    step = starts.itemsize * starts.shape[-1]
    return Schedule(
        setup,
        items,
        ctype(groups.blocks.dtype),
        matrix_numbers(starts.shape[:-1], starts.strides[:-1], step, reads.batch),
        (groups.argument(), states, bits, problem, reads.score(p.score)[1]),
        CutGroups(groups),
    )


def gradient_launches(
    p: AttentionBackward, tile: AttentionTile, source: str
) -> tuple[Launch, ...] | None:
    """Return the launches of a kernel that takes a tile a thread block, for both its gradients.

    None where the tiles are too many for a grid.
    """
    works: list[Launch] = []
    for name in ("query", "key"):
        reads = gradient_reads(p, name)
        schedule = backward_schedule(p, reads, tile, source, transposed=name != "query")
        if schedule.items > MAX_GRID:
            return None
        tables, states, bits, problem, score = schedule.arguments
        compute = Launch(
            kernel(source, INDEX=schedule.index, GRADIENT=name, **tile.defines),
            (schedule.items,),
            (tile.threads,),
            (
                *reads.views(*GRADIENT_VIEWS),
                schedule.matrices,
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
        works += [*schedule.setup, compute]
    return tuple(works)


def _states(
    pattern: Pattern, mask_data: Any, groups: RowGroups, rows: int, origins: Any = None
) -> tuple[tuple[Launch, ...], Any, Any]:
    """Return the launch that finds the states of a mask, and where it writes them and bits.

    Of a mask that is added the schedule's own blocks serve. Those of a transposed pattern are
    blocks ``origins`` of the mask. Of a mask that has bits the states are found once.
    """
    packed, index = packed_mask(mask_data), groups.blocks.dtype
    if packed is not None:

        def build() -> Any:
            states = packed.memo.xp.empty_like(groups.blocks)
            codes = packed.codes.reshape(-1)
            find = _mask_launch(pattern, groups, rows, codes, states, NULL, origins)
            submit(find, setup=True)
            return states

        return (), address(packed.memo.memo((rows, origins is not None), build)), packed.bits
    added = mask_data.dtype != bool
    if added and origins is None:
        return (), groups.blocks, NULL
    of_states = groups.blocks.size * index.itemsize
    if added:  # the states are the mask's blocks
        states = workspace(of_states)
        return (_mask_launch(pattern, groups, rows, origins, states, NULL, None),), states, NULL
    elements = mask_data.reshape(-1, *mask_data.shape[-3:])
    states = workspace(of_states + elements.shape[0] * _bit_bytes(pattern))
    bits = states[of_states:]
    return (_mask_launch(pattern, groups, rows, elements, states, bits, origins),), states, bits


def _mask_launch(
    pattern: Pattern,
    groups: RowGroups,
    rows: int,
    elements: Any,
    states: Any,
    bits: Any,
    origins: Any,
) -> Launch:
    """Return the launch that finds states by a mask's bytes, or among codes (one dimension)."""
    bm, bk = pattern.blocksize
    defines = {"INDEX": ctype(groups.blocks.dtype), "BM": bm, "BK": bk}
    strides = elements.strides
    if elements.ndim == 1:
        defines["CODES"], strides = ctype(elements.dtype), (0, 0, 0, 0)
    blocks = kernel_struct("bsr_attention_mask", "MaskBlocks")(
        elements=elements.data.ptr,
        matrix=strides[0],
        block=strides[1],
        row=strides[2],
        column=strides[3],
        nnzb=pattern.nnzb,
    )
    return Launch(
        kernel("bsr_attention_mask", **defines),
        (groups.groups,),
        (_MASK_THREADS,),
        (
            groups.argument(),
            blocks,
            states,
            bits,
            np.int32(rows),
            NULL if origins is None else origins,
        ),
    )


def _bit_bytes(pattern: Pattern) -> int:
    """Return the bytes of the bits of a matrix of the mask."""
    bm, bk = pattern.blocksize
    return pattern.nnzb * bm * ceil_div(bk, _WORD) * 4


def views(p: Attention) -> tuple[bytes, ...]:
    """Return ``out``, ``lse``, ``query``, ``key`` and ``value`` as the kernels take them."""
    return (
        matrix_view(p.out, p.batch),
        vector_view(p.lse, p.batch),
        matrix_view(p.query, p.batch),
        matrix_view(p.key, p.batch),
        matrix_view(p.value, p.batch),
    )


def heads_arguments(p: Attention) -> tuple[bytes, bytes]:
    """Return ``sinks`` and ``batch`` as the kernels take them."""
    return vector_view(p.sinks, p.batch), batch_dims(p.batch)
