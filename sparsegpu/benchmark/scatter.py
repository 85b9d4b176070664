"""Products of pairs of blocks by `scatter_mm`, in its format of the same name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

import sparsegpu as sg

from ..testing import accuracy_bound, assert_close, to_host
from ..tuning.operands import random_array
from .case import Case
from .check import fraction_used, stripes
from .workload import Workload, make_matrix

#: The path that the products take, by operation; None: what a call takes.
PAIRS = {
    "scatter_mm of pairs": None,
    "scatter_mm of pairs on tensor cores": "mma",
    "scatter_mm of pairs on FMA units": "simt",
}
_TILES = 8  # that are compared


@dataclass(eq=False)
class PairsWorkload(Workload):
    """Stacks of blocks, multiplied pairwise.

    Attributes
    ----------
    others : array (Q, Ks, Ns)
    lists : tuple
    """

    others: Any
    lists: tuple

    @property
    def flops(self) -> int:
        """Useful operations."""
        _, ms, ks = self.values.shape
        return 2 * len(self.lists[2]) * ms * ks * self.others.shape[-1]

    def error(self) -> float:
        (tiles,), worst = self.results(), 0.0
        c_offsets, pq = (to_host(a) for a in self.lists[1:3])
        for r in stripes(len(tiles), np.random.default_rng(0), _TILES):
            p, q = pq[c_offsets[r] : c_offsets[r + 1]].T
            left = np.concatenate(list(to_host(self.values[p])), axis=1)
            right = np.concatenate(list(to_host(self.others[q])), axis=0)
            exact, bound = accuracy_bound(left, right)
            tile = to_host(tiles[int(r)])
            assert_close(tile, exact, bound)
            worst = max(worst, fraction_used(tile, exact, bound))
        return worst


def make_pairs(case: Case, xp: ModuleType, seed: int = 0) -> PairsWorkload:
    """Draw blocks and square others; the lists are those of a product of N columns."""
    matrix = make_matrix(case, xp, seed)
    (_, k, n), (_, ks) = case.shape, case.block
    split = max(n // ks, 1)
    dense = xp.empty((k, split * ks), matrix.dtype)  # only its shape matters
    lists = sg.bsr_scatter_mm_indices_data(matrix, dense, "scatter_mm", SPLIT_N=split)
    others = random_array(xp, (k // ks * split, ks, ks), matrix.dtype, seed + 1)
    path = case.path or PAIRS[case.operation]
    config = {"path": path} if path else None
    call = partial(sg.scatter_mm, matrix.data, others, lists, config=config)
    operands = (matrix.data, others, *lists[1:3])
    return PairsWorkload(case, call, matrix.data, operands, others, lists)
