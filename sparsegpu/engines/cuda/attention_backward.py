"""Host side of ``bsr_attention_backward``, ``..._mask`` and ``..._sinks``."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..._block_bits import BlockBits
from ..._math import ceil_div
from ..._score import Score
from ...pattern import Pattern
from ._grid import THREADS, flat_blocks, grid, mask_blocks, packed_mask, same_place, size_of
from ._heads import as_vectors, split_heads
from ._score_args import score_args
from ._transpose import transpose_pattern
from .paths.bsr_attention_simt import lanes
from .runtime.launch import Launch, kernel, submit
from .runtime.structs import kernel_struct
from .runtime.submission import workspace
from .runtime.types import ctype
from .runtime.view import batch_dims, matrix_view, merged_batch, vector_view


def attention_backward(
    gradients: tuple[Any, Any, Any, Any, Any],
    grad: Any,
    query: Any,
    key: Any,
    value: Any,
    pattern: Pattern,
    mask_data: Any,
    out: Any,
    lse: Any,
    grad_lse: Any,
    score: Score,
    sinks: Any,
) -> None:
    """Write the gradients of query, key, value, mask and sinks; None is not wanted.

    The formulas, and the arguments, are the reference's. A launch for each gradient, that of query
    first: it leaves one number a query, which the others read.
    """
    of_query, of_key, of_value, of_mask, of_sinks = gradients
    transposed, _ = transpose_pattern(pattern)
    blocks, packed = mask_blocks(mask_data), packed_mask(mask_data)
    memory = workspace(size_of(lse.shape) * lse.itemsize)
    delta = memory[: lse.nbytes].view(lse.dtype).reshape(*score.heads, lse.shape[-1])
    # By name: an array, and how many dimensions stand behind its heads.
    heads, kv_heads = score.heads[-1], key.shape[-3]
    arrays = {
        "query": (query, 2),
        "key": (key, 2),
        "value": (value, 2),
        "grad": (grad, 2),
        "out": (out, 2),
        "lse": (lse, 1),
        "grad_lse": (grad_lse, 1),
        "delta": (delta, 1),
        "mask": (blocks, 2),
        "slopes": (as_vectors(score.slopes), 1),
    }
    of_pattern = {
        "starts": (pattern._indptr, 1),
        "indices": (pattern._indices, 1),
        "blocks": (None, 1),
    }
    of_transpose = {
        "starts": (transposed._indptr, 1),
        "indices": (transposed._indices, 1),
        "blocks": (_blocks_of_transpose(pattern), 1),
    }

    def reads(gradient: Any, trailing: int, more: dict[str, tuple[Any, int]]) -> _Reads:
        named = {**arrays, **more, "gradient": (gradient, trailing)}
        return _Reads(named, score, heads, kv_heads, packed)

    bm, bk = pattern.blocksize
    works = [
        _of_rows("query", reads(of_query, 2, of_pattern), pattern, (bm, bk), score),
        _of_rows("key", reads(of_key, 2, of_transpose), transposed, (bk, bm), score),
        _of_rows("value", reads(of_value, 2, of_transpose), transposed, (bk, bm), score),
    ]
    if of_mask is not None:
        more = {**of_pattern, "rows": (pattern._rows, 1)}
        works.append(_of_mask(reads(flat_blocks(of_mask), 2, more), pattern, score))
    if of_sinks is not None:
        more = {"sinks": (as_vectors(sinks), 1)}
        works.append(_of_sinks(reads(as_vectors(of_sinks), 1, more), lse))
    submit(*works, whole=packed is not None or same_place(blocks, mask_data))


def _blocks_of_transpose(pattern: Pattern) -> Any:
    """Return which block of the pattern each block of its transpose is, (*batch, nnzb) int64."""

    def build() -> Any:
        _, order = transpose_pattern(pattern)
        return (order % pattern.nnzb).reshape(pattern._indices.shape)

    return pattern.memo("blocks of the transpose", build)


class _Reads:
    """The arrays that a launch for one gradient reads and writes, in the order of its batch.

    The heads are ordered so that those which share a matrix of the gradient follow each other:
    first the dimensions along which it has more than one, then those it is summed over. Then
    matrix n of the gradient is that of the heads ``n * shares..(n + 1) * shares``.
    """

    def __init__(
        self,
        arrays: dict[str, tuple[Any, int]],
        score: Score,
        heads: int,
        kv_heads: int,
        packed: BlockBits | None,
    ):
        self._packed = packed
        groups = heads // kv_heads
        split = {
            name: (split_heads(array, trailing, heads, kv_heads), trailing)
            for name, (array, trailing) in arrays.items()
        }
        batch = score.heads if groups == 1 else (*score.heads[:-1], kv_heads, groups)
        gradient, trailing = split["gradient"]
        own = _padded(gradient, trailing, len(batch)).shape[: len(batch)]
        order = sorted(range(len(batch)), key=lambda d: own[d] == 1)  # stable
        self._arrays = {
            name: (
                None if array is None else _ordered(array, trailing, order),
                trailing,
            )
            for name, (array, trailing) in split.items()
        }
        self.batch = merged_batch(tuple(batch[d] for d in order), *self._arrays.values())
        self.owners = size_of(own)
        self.shares = size_of(batch) // self.owners

    def __getitem__(self, name: str) -> Any:
        """Return an array (*batch, ...)."""
        return self._arrays[name][0]

    def views(self, *names: str) -> tuple[bytes, ...]:
        """Return arrays as kernel arguments."""
        return tuple(self._view(*self._arrays[name]) for name in names)

    def _view(self, array: Any, trailing: int) -> bytes:
        view = matrix_view if trailing == 2 else vector_view
        return view(array, self.batch)

    def score(self, score: Score) -> tuple[dict[str, Any], bytes]:
        """Return the score's ``-D`` names and argument."""
        dtype = self["query"].dtype
        return score_args(score, self.batch, self["mask"], self["slopes"], dtype, self._packed)


def _padded(array: Any, trailing: int, dims: int) -> Any:
    """Return an array with leading dimensions of 1 up to ``dims`` of them."""
    missing = dims - (array.ndim - trailing)
    return array[(None,) * missing]


def _ordered(array: Any, trailing: int, order: list[int]) -> Any:
    """Return a view whose leading dimensions are in another order."""
    behind = range(len(order), len(order) + trailing)
    return _padded(array, trailing, len(order)).transpose(*order, *behind)


class _Tile(NamedTuple):
    """What a thread block takes of a gradient: rows a warp, warps, columns a lane."""

    rows: int
    warps: int
    columns: int


def _of_rows(
    name: str, reads: _Reads, walked: Pattern, sizes: tuple[int, int], score: Score
) -> Launch:
    """Return the launch for the gradient of query, key or value.

    ``walked`` groups the blocks by the rows of that operand, of which a block has ``sizes[0]``.
    """
    (own, other), features = sizes, reads["query"].shape[-1]
    value_features, dtype = reads["value"].shape[-1], reads["query"].dtype
    width = value_features if name == "value" else features
    tile = _Tile(*lanes(own, width, dtype))
    tiles, slices = ceil_div(own, tile.rows * tile.warps), ceil_div(width, 32 * tile.columns)
    groups = walked.block_shape[0]
    items = reads.owners * groups * tiles * slices
    defines, score_argument = reads.score(score)
    compiled = kernel(
        "bsr_attention_backward",
        T=ctype(dtype),
        GRADIENT=name,
        INDEX=ctype(walked._indices.dtype),
        ROWS=tile.rows,
        COLUMNS=tile.columns,
        **defines,
    )
    problem = kernel_struct("bsr_attention_backward", "BackwardProblem")(
        tiles=tiles,
        slices=slices,
        items=items,
        groups=groups,
        shares=reads.shares,
        own=own,
        other=other,
        features=features,
        value_features=value_features,
    )
    operands = ("gradient", "query", "key", "value", "grad", "out", "lse", "grad_lse", "delta")
    return Launch(
        compiled,
        grid(items),
        (32 * tile.warps,),
        (
            *reads.views(*operands, "starts", "indices", "blocks"),
            batch_dims(reads.batch),
            problem,
            score_argument,
        ),
    )


def _of_mask(reads: _Reads, pattern: Pattern, score: Score) -> Launch:
    """Return the launch for the gradient of the mask's stored elements."""
    (bm, bk), dtype = pattern.blocksize, reads["query"].dtype
    tile = _Tile(*lanes(bm, bk, dtype))
    row_tiles, key_tiles = ceil_div(bm, tile.rows * tile.warps), ceil_div(bk, 32)
    items = reads.owners * pattern.nnzb * row_tiles * key_tiles
    defines, score_argument = reads.score(score)
    compiled = kernel(
        "bsr_attention_backward_mask",
        T=ctype(dtype),
        INDEX=ctype(pattern._indices.dtype),
        ROWS=tile.rows,
        **defines,
    )
    problem = kernel_struct("bsr_attention_backward_mask", "MaskProblem")(
        row_tiles=row_tiles,
        key_tiles=key_tiles,
        items=items,
        blocks=pattern.nnzb,
        shares=reads.shares,
        bm=bm,
        bk=bk,
        features=reads["query"].shape[-1],
        value_features=reads["value"].shape[-1],
    )
    operands = ("gradient", "query", "key", "value", "grad", "lse", "delta", "rows", "indices")
    return Launch(
        compiled,
        grid(items),
        (32 * tile.warps,),
        (*reads.views(*operands), batch_dims(reads.batch), problem, score_argument),
    )


def _of_sinks(reads: _Reads, lse: Any) -> Launch:
    """Return the launch for the gradient of the sinks."""
    return Launch(
        kernel("bsr_attention_backward_sinks", T=ctype(lse.dtype)),
        grid(reads.owners),
        (THREADS,),
        (
            *reads.views("gradient", "sinks", "lse", "delta"),
            batch_dims(reads.batch),
            np.int64(reads.owners),
            np.int64(reads.shares),
            np.int64(lse.shape[-1]),
        ),
    )
