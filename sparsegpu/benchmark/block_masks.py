"""Making block masks on the device, compared with the same masks made on the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

import sparsegpu as sg

from ..testing import to_host
from .case import Case
from .patterns import block_pattern
from .workload import Arrays, Workload

_PLANNED_ROWS = 2  # block rows of a group: 128 queries of 64


@dataclass(eq=False)
class MaskWorkload(Workload):
    """A function that makes a mask.

    Attributes
    ----------
    expected : callable
        Makes the same mask on the host.
    """

    expected: Callable[[], sg.BlockMask]

    def results(self) -> Arrays:
        return _parts(self.call())

    def error(self) -> float:
        """Compare with the host's mask; 0, as all of it must be equal."""
        names = ("indptr", "indices", "kind", "bits")
        for name, got, wanted in zip(names, self.results(), _parts(self.expected()), strict=True):
            if not np.array_equal(to_host(got), wanted):
                raise AssertionError(f"{name} differs from the host's")
        return 0.0


def make_block_mask(case: Case, xp: ModuleType, seed: int = 0) -> MaskWorkload:
    """Draw what a mask is made of."""
    make, *arrays = OPERATIONS[case.operation](case, np.random.default_rng(seed))
    moved = tuple(xp.asarray(array) for array in arrays)
    call = partial(make, *moved, xp=xp)
    return MaskWorkload(case, call, call().kind, moved, partial(make, *arrays, xp=np))


def _causal(case: Case, _: Any) -> Arrays:
    return (partial(sg.causal, case.shape[:2], case.block, compact=True),)


def _documents(case: Case, rng: Any) -> Arrays:
    """Documents of random lengths in a host list, each of whole blocks."""
    m, bm = case.shape[0], case.block[0]
    count = max(m // bm // 8, 1)
    edges = np.sort(rng.integers(0, m // bm + 1, count - 1)) * bm
    lengths = np.diff(edges, prepend=0, append=m).tolist()
    return (partial(sg.masks.documents, lengths, case.block[0], causal=True),)


def _sliding_window(case: Case, _: Any) -> Arrays:
    """As many keys on either side as the density says."""
    window = max(round(case.density * case.shape[0] / 2), 1)
    sizes = case.shape[:2], case.block, window
    return (partial(sg.sliding_window, *sizes, compact=True),)


def _bigbird(case: Case, _: Any) -> Arrays:
    return (partial(sg.bigbird, case.shape[:2], case.block, rng=0, compact=True),)


def _from_indices(case: Case, rng: Any) -> Arrays:
    """Lists of block columns that come from the device, and what attention plans of them."""
    (m, k, _), (bm, bk) = case.shape, case.block
    _, columns = block_pattern("strata", (case.batch * m // bm, k // bk), case.density, rng)
    lists = columns.reshape(case.batch, m // bm, -1)

    def make(indices: Any, *, xp: ModuleType) -> sg.BlockMask:
        mask = sg.masks.from_indices(
            indices, shape=(case.batch, m, k), blocksize=case.block, check=False
        )
        if xp is not np:
            from ..engines.cuda._schedule import row_groups

            row_groups(mask.pattern, _PLANNED_ROWS)
        return mask

    return make, lists


def _top_k(case: Case, rng: Any) -> Arrays:
    """The blocks of highest score in every block row."""
    (m, k, _), (bm, bk) = case.shape, case.block
    scores = rng.standard_normal((case.batch, m // bm, k // bk), dtype=np.float32)
    best = max(round(case.density * k / bk), 1)

    def make(scores: Any, *, xp: ModuleType) -> sg.BlockMask:
        del xp  # the scores tell
        return sg.masks.top_k(scores, best, case.block)

    return make, scores


#: Each takes a case and a generator. It returns a function of arrays and ``xp`` that makes the
#: mask, and the arrays.
OPERATIONS: dict[str, Callable[[Case, Any], Arrays]] = {
    "causal mask": _causal,
    "documents mask": _documents,
    "sliding window mask": _sliding_window,
    "bigbird mask": _bigbird,
    "mask of indices": _from_indices,
    "mask of top k": _top_k,
}


def _parts(mask: sg.BlockMask) -> Arrays:
    return mask.indptr, mask.indices, mask.kind, mask.bits
