"""Attention's gradients as their paths see them: operands, and the order of heads of a launch."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ...._block_bits import BlockBits
from ...._score import Score
from ....pattern import Pattern
from .._grid import mask_blocks, packed_mask
from .._heads import as_vectors, split_heads
from .._score_args import score_args
from .._transpose import transpose_pattern
from ..runtime.device import device_facts
from ..runtime.submission import workspace
from ..runtime.view import matrix_view, merged_batch, vector_view
from ._attention import AttentionFacts

#: What a launch reads besides the gradient that it is for: how many dimensions stand behind heads.
_TRAILING = {"query": 2, "key": 2, "value": 2, "grad": 2, "out": 2, "mask": 2}


@dataclass(frozen=True, slots=True)
class AttentionBackward:
    """Everything that a path needs to know of attention's gradients.

    Attributes
    ----------
    arrays : dict
        By name: query, key, value, grad, out, lse, grad_lse, delta, mask, slopes.
    gradients : dict
        Of query, key and value.
    pattern, transposed : Pattern
        Canonical.
    origins : int64 array (*batch, nnzb)
        Which block of its matrix each block of the transpose is.
    order : int64 array (batch * nnzb,)
        The same, counted through the batch.
    mask_data : array (*B, nnzb, bm, bk) or BlockBits
    score : Score
    allow_tf32 : bool
    """

    arrays: dict[str, Any]
    gradients: dict[str, Any]
    pattern: Pattern
    transposed: Pattern
    origins: Any
    order: Any
    mask_data: Any
    score: Score
    allow_tf32: bool

    @property
    def dtype(self) -> np.dtype:
        """Of the operands."""
        return self.arrays["query"].dtype

    def facts(self) -> AttentionFacts:
        """Return what the tiles depend on."""
        capability, _, shared_memory = device_facts()
        query, value = self.arrays["query"], self.arrays["value"]
        return AttentionFacts(
            dtype=query.dtype,
            out_dtype=query.dtype,
            mask_dtype=self.mask_data.dtype,
            blocksize=self.pattern.blocksize,
            features=query.shape[-1],
            value_features=value.shape[-1],
            packed=packed_mask(self.mask_data) is not None,
            softcap=self.score.softcap is not None,
            slopes=self.score.slopes is not None,
            dropout=self.score.dropout_p > 0,
            allow_tf32=self.allow_tf32,
            capability=capability,
            shared_memory=shared_memory,
        )

    def reads(self, gradient: Any, trailing: int, more: dict[str, tuple[Any, int]]) -> Reads:
        """Return the arrays of a launch for a gradient, and ``more``: (array, trailing) by name."""
        named = {n: (a, _TRAILING.get(n, 1)) for n, a in self.arrays.items()}
        named |= more | {"gradient": (gradient, trailing)}
        kv_heads = self.arrays["key"].shape[-3]
        return Reads(named, self.score, self.score.heads[-1], kv_heads, packed_mask(self.mask_data))


def backward_of(
    gradients: tuple[Any, ...],
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
    allow_tf32: bool,
) -> AttentionBackward:
    """Describe the arguments of the engine's ``attention_backward``."""
    transposed, order = transpose_pattern(pattern)
    memory = workspace(prod(lse.shape) * lse.itemsize)
    arrays = {
        "query": query,
        "key": key,
        "value": value,
        "grad": grad,
        "out": out,
        "lse": lse,
        "grad_lse": grad_lse,
        "delta": memory[: lse.nbytes].view(lse.dtype).reshape(*score.heads, lse.shape[-1]),
        "mask": mask_blocks(mask_data),  # may be a copy: it has to outlive the launches
        "slopes": as_vectors(score.slopes),
    }
    named = dict(zip(("query", "key", "value"), gradients))
    origins = _blocks_of_transpose(pattern)
    return AttentionBackward(
        arrays, named, pattern, transposed, origins, order, mask_data, score, allow_tf32
    )


def _blocks_of_transpose(pattern: Pattern) -> Any:
    """Return which block of the pattern each block of its transpose is, (*batch, nnzb) int64."""

    def build() -> Any:
        _, order = transpose_pattern(pattern)
        return (order % pattern.nnzb).reshape(pattern._indices.shape)

    return pattern.memo("blocks of the transpose", build)


class Reads:
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
        self.own, self.owners = own, prod(own)
        self.shares = prod(batch) // self.owners

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
