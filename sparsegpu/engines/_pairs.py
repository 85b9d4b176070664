"""Which blocks meet in a product of two patterns, by index arithmetic over a list of all pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._indices import keys_per_batch
from .._segments import expand_counts, starts_run
from ..pattern import Pattern, from_sorted_keys


class Plan:
    """What a product of two patterns needs besides their values; kept with the pair of patterns.

    It holds neither pattern, so that both may go.

    Attributes
    ----------
    pattern : Pattern
        Of the result, canonical, with the batch shape of both.
    longest : int
        Pairs of blocks that add to one block of the result, at most; only of int8 operands need it
        be the least such number.
    parts : Any
        Which pairs these are, as the engine wants it.
    device, kept
        As a `Pattern` has them: replayed calls and their memory belong to the plan.
    """

    __slots__ = ("device", "kept", "longest", "parts", "pattern")

    def __init__(self, pattern: Pattern, longest: int, parts: Any):
        self.pattern, self.longest, self.parts = pattern, longest, parts
        self.device: int | None = pattern.device
        self.kept: dict[Any, Any] = {}


def plan_of_pairs(
    left: Pattern, right: Pattern, batch: tuple[int, ...], function: str, argument: str
) -> Plan:
    """Return the plan whose ``parts`` are the ``c_offsets`` and ``pq`` of `block_pairs`."""
    pattern, c_offsets, pq = block_pairs(left, right, batch, function, argument)
    longest = int(left.xp.diff(c_offsets).max()) if c_offsets.size > 1 else 0
    return Plan(pattern, longest, (c_offsets, pq))


def block_pairs(
    left: Pattern, right: Pattern, batch: tuple[int, ...], function: str, argument: str
) -> tuple[Pattern, Any, Any]:
    """Return the product's pattern and, for each of its blocks, the pairs of blocks to multiply.

    Returns
    -------
    pattern : Pattern
        Canonical, with batch shape ``batch``.
    c_offsets : int64 array (batch * nnzb + 1,)
    pq : int64 array (pairs, 2)
        Result block r is the sum over ``pq[c_offsets[r]:c_offsets[r + 1]]`` of left block p times
        right block q, both numbered through their own flattened batches.
    """
    xp = left.xp
    (m, _), (_, n) = left.shape, right.shape
    blocksize = left.blocksize[0], right.blocksize[1]
    block_rows, block_cols = left.block_shape[0], right.block_shape[1]
    size = int(np.prod(batch, dtype=np.int64))
    of_left, of_right = (_batch_numbers(p, batch) for p in (left, right))

    # Every left block, matrix by matrix: its number p, its row, and its column, a right row.
    matrix = xp.arange(size * left.nnzb, dtype=np.int64) // max(left.nnzb, 1)
    p = of_left[matrix] * left.nnzb + xp.arange(matrix.size, dtype=np.int64) % max(left.nnzb, 1)
    row = left.rows.ravel()[p].astype(np.int64)
    met = left.indices.ravel()[p].astype(np.int64)

    # Expand: left block p is multiplied by the right blocks first..first + count of that row.
    indptr = right.indptr.reshape(-1).astype(np.int64)
    place = of_right[matrix] * (right.block_shape[0] + 1) + met
    first, count = indptr[place], indptr[place + 1] - indptr[place]
    meets, number = expand_counts(count)
    q = of_right[matrix[meets]] * right.nnzb + first[meets] + number
    column = right.indices.ravel()[q].astype(np.int64)
    key = (matrix[meets] * block_rows + row[meets]) * block_cols + column

    # Sort and compress: pairs with equal keys add to one block of the result.
    order = xp.argsort(key, kind="stable")
    key = key[order]
    starts = xp.flatnonzero(starts_run(key))
    kept = key[starts]
    blocks = block_rows * block_cols
    nnzb = keys_per_batch(kept, batch, blocks, function, argument) if size else 0
    pattern = from_sorted_keys(kept, batch, nnzb, (m, n), blocksize)
    end = xp.full((1,), key.size, dtype=np.int64)
    pq = xp.stack([p[meets][order], q[order]], axis=1)
    return pattern, xp.concatenate([starts.astype(np.int64), end]), pq


def _batch_numbers(pattern: Pattern, batch: tuple[int, ...]) -> Any:
    """Return, for every matrix of the result, the number of the matrix it comes from."""
    xp = pattern.xp
    own = xp.arange(pattern.batch_size, dtype=np.int64).reshape(pattern.batch_shape)
    return xp.broadcast_to(own, batch).ravel()
