"""torch's block-sparse product, tuned.

``torch.sparse._triton_ops.bsr_dense_addmm`` has four parameters: columns of a tile (SPLIT_N), rows
that share their dense tiles (GROUP_SIZE_ROW), pipeline stages and warps. Its defaults are several
times slower than the best. torch's own `tune_bsr_dense_addmm` measures each candidate for 0.6 s.
Here the same search, one step of one parameter at a time, has a time budget: it starts from the
result of the last case with the same block size, or from `STARTS`, found by an exhaustive search.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..tuning.timing import device_ms
from .peer import NotAvailableError, Prepared
from .softmax import SoftmaxWorkload
from .workload import Product


class Meta(NamedTuple):
    """Parameters of torch's kernel; ``tile_n`` columns are N // SPLIT_N."""

    tile_n: int
    group: int
    stages: int
    warps: int

    def keywords(self, columns: int) -> dict[str, int]:
        """Return them as ``meta=`` wants them."""
        return {
            "SPLIT_N": columns // self.tile_n,
            "GROUP_SIZE_ROW": self.group,
            "num_stages": self.stages,
            "num_warps": self.warps,
        }


#: The values of each parameter, in order: a step of the search goes to the next or previous one.
STEPS = {
    "tile_n": (16, 32, 64, 128, 256, 512),
    "group": (1, 2, 4, 8, 16),
    "stages": (1, 2, 3, 4, 5, 6, 7),
    "warps": (1, 2, 4, 8),
}
#: Where the search begins, by block size.
STARTS = {
    16: Meta(256, 1, 7, 1),
    32: Meta(256, 1, 5, 2),
    64: Meta(128, 8, 6, 4),
    128: Meta(256, 1, 2, 8),
}


def neighbours(meta: Meta, columns: int) -> Iterator[Meta]:
    """Yield the candidates one step away whose tiles divide the columns."""
    for name, values in STEPS.items():
        place = values.index(getattr(meta, name))
        for other in (place + 1, place - 1):
            if 0 <= other < len(values):
                candidate = meta._replace(**{name: values[other]})
                if columns % candidate.tile_n == 0:
                    yield candidate


def search(
    measure: Callable[[Meta], float], start: Meta, columns: int, budget_s: float
) -> tuple[Meta, float, int]:
    """Descend to a candidate without a faster neighbour, or until the time is spent.

    Returns
    -------
    best, its time, how many candidates were measured
    """
    deadline = time.monotonic() + budget_s
    times = {start: measure(start)}
    best, looking = start, True
    while looking:
        looking = False
        for candidate in neighbours(best, columns):
            if time.monotonic() > deadline:
                return best, times[best], len(times)
            if candidate not in times:
                times[candidate] = measure(candidate)
            if times[candidate] < times[best]:
                best, looking = candidate, True
                break
    return best, times[best], len(times)


_best_so_far: dict[tuple[int, int, str], Meta] = {}


def first_guess(block: tuple[int, int], columns: int, dtype: str) -> Meta:
    """Return where the search for a case begins."""
    known = _best_so_far.get((*block, dtype))
    if known is None:
        known = STARTS[min(STARTS, key=lambda size: abs(size - max(block)))]
    fitting = [n for n in STEPS["tile_n"] if columns % n == 0 and n <= known.tile_n]
    return known._replace(tile_n=max(fitting, default=16))


def bsr_tensor(matrix: Any) -> Any:
    """Return a `bsr_array` on the GPU as torch's, sharing its memory."""
    import torch

    parts = (torch.from_dlpack(v) for v in (matrix.indptr, matrix.indices, matrix.data))
    with warnings.catch_warnings():  # "in beta state", "invariant checks are disabled"
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_bsr_tensor(*parts, size=matrix.shape)


def tuned_product(product: Product, budget_s: float) -> Prepared:
    """Return torch's Triton product of a 16-bit or int8 matrix, tuned within the budget."""
    import cupy
    import torch
    import triton
    from torch.sparse._triton_ops import bsr_dense_addmm

    matrix, result = product.left, cupy.empty_like(product.out)
    a = bsr_tensor(matrix)
    x, y = torch.from_dlpack(product.dense), torch.from_dlpack(result)
    columns = x.shape[-1]

    def call(meta: Meta) -> Any:
        return bsr_dense_addmm(
            y, a, x, beta=0, out=y, skip_checks=True, meta=meta.keywords(columns)
        )

    def measure(meta: Meta) -> float:
        try:
            return device_ms(lambda: call(meta), repeats=5)
        except triton.TritonError:  # out of shared memory or registers
            return float("inf")

    dtype = matrix.dtype.name
    start = first_guess(matrix.blocksize, columns, dtype)
    best, _, tried = search(measure, start, columns, budget_s)
    _best_so_far[*matrix.blocksize, dtype] = best
    note = f"{tried} candidates measured, best {best._asdict()}"
    return Prepared(lambda: call(best), result, note, keep=matrix)


def softmax(workload: SoftmaxWorkload) -> Prepared:
    """Return torch's softmax of the stored elements; it is not compared with ours."""
    import cupy
    from torch.sparse import _triton_ops as ops

    a = bsr_tensor(workload.matrices[0])
    try:
        result = ops.bsr_softmax(a)
    except (AttributeError, RuntimeError) as error:  # this version of torch does not offer it
        raise NotAvailableError(str(error).splitlines()[0][:80]) from error

    def call() -> None:
        ops.bsr_softmax(a)

    return Prepared(call, cupy.from_dlpack(result.values()), keep=workload.matrices)
