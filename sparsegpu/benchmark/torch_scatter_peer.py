"""torch's products by index lists and of pairs, by its default parameters; its index lists."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sparsegpu as sg

from .peer import NotAvailableError, Prepared
from .scatter import PairsWorkload
from .torch_peer import bsr_tensor
from .workload import Product


@contextmanager
def or_not_offered() -> Iterator[None]:
    """Turn what a version of torch or Triton raises, where it has not a kernel, into a reason."""
    import triton

    try:
        yield
    except (AttributeError, AssertionError, RuntimeError, triton.TritonError) as error:
        said = f"{type(error).__name__} {error}".splitlines()[0]
        raise NotAvailableError(said[:80]) from error


def scatter_product(product: Product) -> Prepared:
    """Return torch's product by index lists; they are made once."""
    import cupy
    import torch
    from torch.sparse import _triton_ops as ops

    a, x = bsr_tensor(product.left), torch.from_dlpack(product.dense)
    with or_not_offered():
        lists = ops.bsr_scatter_mm_indices_data(a, x)
        result = ops.bsr_scatter_mm(a, x, indices_data=lists)
    out = cupy.from_dlpack(result)

    def call() -> None:
        ops.bsr_scatter_mm(a, x, indices_data=lists, out=result)

    return Prepared(call, out, keep=product.left)


def index_lists(product: Product) -> Prepared:
    """Return what makes torch's index lists of a pattern anew; the result is our product by them.

    torch keeps the latest lists with the tensor, so they are forgotten before each call.
    """
    import cupy
    import torch
    from torch.sparse import _triton_ops as ops

    a, x = bsr_tensor(product.left), torch.from_dlpack(product.dense)

    def call() -> Any:
        ops._bsr_scatter_mm_indices_data.cache_clear()
        return ops.bsr_scatter_mm_indices_data(a, x)

    with or_not_offered():
        name, *arrays, meta = call()
    lists = (name, *map(cupy.from_dlpack, arrays), {"SPLIT_N": meta["SPLIT_N"]})
    try:
        result = sg.bsr_scatter_mm(product.left, product.dense, lists)
    except ValueError as error:
        raise NotAvailableError(f"other lists: {error}"[:80]) from error
    return Prepared(call, result, f"SPLIT_N {meta['SPLIT_N']}", keep=product.left)


def pairs(workload: PairsWorkload) -> Prepared:
    """Return torch's product of pairs by its Triton kernel."""
    import cupy
    import torch
    from torch.sparse import _triton_ops as ops

    blocks, others, *lists = map(torch.from_dlpack, workload.operands)
    tiles = cupy.zeros_like(workload.results()[0])
    accumulators = torch.from_dlpack(tiles)

    def call() -> None:
        ops.scatter_mm(blocks, others, ("scatter_mm", *lists), accumulators=accumulators)

    with or_not_offered():
        call()
    return Prepared(call, tiles, keep=workload.operands)


def pairs_composed(workload: PairsWorkload) -> Prepared:
    """Return the composition: gather both stacks, multiply all pairs, add products by tile."""
    import cupy
    import torch

    blocks, others, c_offsets, pq = map(torch.from_dlpack, workload.operands)
    first, second = (column.contiguous().long() for column in pq.T)
    lengths = c_offsets.diff().long()
    places = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)
    tiles = cupy.zeros_like(workload.results()[0])
    sums = torch.from_dlpack(tiles)

    def call() -> None:
        sums.zero_()
        sums.index_add_(0, places, torch.bmm(blocks[first], others[second]))

    with or_not_offered():
        call()
    return Prepared(call, tiles, keep=workload.operands)
