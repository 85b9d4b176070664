"""torch's attention over the same block mask, and dense attention where it fits.

FlexAttention's tiles are searched: its defaults are up to twice slower than the best. Every
candidate is compiled, so the search has a longer budget than those of other peers, begins with
what was best for the last case of its kind, and ends when the time is spent.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..tuning.timing import device_ms
from .attention import AttentionWorkload, Backward
from .block_masks import MaskWorkload
from .peer import (
    CUDNN,
    FLASH,
    FLEX,
    FLEX_MASK,
    GATHERED,
    TRITON,
    NotAvailableError,
    Prepared,
)

#: Compiling is most of a search: its budget is so many times that of other peers.
_COMPILING = 8
_REPEATS = 5
Options = dict[str, int]

_FORWARD = ("BLOCK_M", "BLOCK_N", "num_stages", "num_warps")
_FORWARD_TILES = (
    *((128, 64, 3, 4), (128, 128, 2, 8), (128, 64, 3, 8), (64, 64, 3, 4), (128, 64, 2, 4)),
    *((128, 32, 3, 4), (64, 64, 4, 4), (64, 128, 3, 4), (64, 32, 3, 4), (128, 128, 3, 8)),
)
_BACKWARD = ("BLOCK_M1", "BLOCK_N1", "BLOCK_M2", "BLOCK_N2", "num_stages", "num_warps")
_BACKWARD_TILES = (
    *((64, 128, 128, 64, 3, 8), (64, 128, 128, 64, 2, 8), (64, 64, 64, 64, 3, 4)),
    *((32, 128, 128, 32, 3, 4), (32, 64, 64, 32, 3, 4), (64, 128, 128, 64, 3, 4)),
)


def candidates(block: tuple[int, int], backward: bool) -> list[Options]:
    """Return tiles that divide a block, the most promising first.

    Examples
    --------
    >>> candidates((64, 64), False)[0]
    {'BLOCK_M': 64, 'BLOCK_N': 64, 'num_stages': 3, 'num_warps': 4}
    """
    names, tiles = (_BACKWARD, _BACKWARD_TILES) if backward else (_FORWARD, _FORWARD_TILES)
    bm, bk = block
    offered = [dict(zip(names, tile, strict=True)) for tile in tiles]
    sides = {"M": bm, "N": bk}

    def fits(tile: Options) -> bool:
        return all(
            sides[name[6]] % value == 0 for name, value in tile.items() if name.startswith("BLOCK")
        )

    return [tile for tile in offered if fits(tile)]


_best_so_far: dict[tuple[Any, ...], Options] = {}


def search(
    tiles: list[Options], key: tuple[Any, ...], measure: Callable[[Options], float], budget_s: float
) -> tuple[Options, int]:
    """Measure tiles until the time is spent; return the best, and how many were measured.

    Raises
    ------
    NotAvailableError
        None of them could be measured.
    """
    deadline = time.monotonic() + budget_s
    first = _best_so_far.get(key)
    tiles = tiles if first is None else [first, *(tile for tile in tiles if tile != first)]
    times: list[float] = []
    for tile in tiles:
        if np.isfinite(min(times, default=np.inf)) and time.monotonic() > deadline:
            break
        times.append(measure(tile))
    if not np.isfinite(min(times, default=np.inf)):
        raise NotAvailableError("no tile compiles")
    best = _best_so_far[key] = tiles[times.index(min(times))]
    return best, len(times)


def prepared(peer: str, workload: Any, tuning_s: float) -> Prepared:
    """Prepare one of torch's functions for a case of attention or of masks.

    Raises
    ------
    NotAvailableError
        This version of torch does not offer it.
    """
    try:
        return _PEERS[peer](workload, tuning_s)
    except (RuntimeError, ImportError) as error:
        raise NotAvailableError(str(error).splitlines()[0][:80]) from error


def _tensors(workload: AttentionWorkload) -> tuple[Any, Any, Any]:
    """Return query, key and value as torch's, one batch of all heads, sharing their memory."""
    import torch

    wanted = isinstance(workload, Backward)
    arrays = workload.query, workload.key, workload.value
    query, key, value = (torch.from_dlpack(a)[None].requires_grad_(wanted) for a in arrays)
    return query, key, value


def _timed(workload: AttentionWorkload, attend: Callable[[], Any], leaves: Any) -> Any:
    """Return what is timed, the forward or the backward call, and its (first) result."""
    import cupy
    import torch

    if not isinstance(workload, Backward):
        return attend, cupy.from_dlpack(attend())[0]
    out, grad = attend(), torch.from_dlpack(workload.grad)[None]

    def call() -> Any:
        return torch.autograd.grad(out, leaves, grad, retain_graph=True)

    return call, cupy.from_dlpack(call()[0])[0]


def _flex(workload: AttentionWorkload, tuning_s: float) -> Prepared:
    import torch
    import triton
    from torch.nn.attention.flex_attention import flex_attention

    torch._dynamo.reset()
    for limit in ("recompile_limit", "cache_size_limit"):  # by version; a tile is a compilation
        if hasattr(torch._dynamo.config, limit):
            setattr(torch._dynamo.config, limit, 64)
    torch.set_float32_matmul_precision("high" if workload.case.tf32 else "highest")
    compiled = torch.compile(flex_attention, dynamic=False, fullgraph=True)
    leaves, mask = _tensors(workload), _flex_mask(workload)
    grouped = {"enable_gqa": True} if workload.case.group > 1 else {}
    ready: dict[str, tuple[Any, Any]] = {}

    def measure(tile: Options) -> float:
        attend = partial(compiled, *leaves, block_mask=mask, kernel_options=tile, **grouped)
        try:
            ready[repr(tile)] = _timed(workload, attend, leaves)
            return device_ms(ready[repr(tile)][0], repeats=_REPEATS)
        except (RuntimeError, triton.TritonError):  # out of shared memory or registers
            return float("inf")

    case, backward = workload.case, isinstance(workload, Backward)
    key = case.block, case.size[2], backward, case.dtype
    best, tried = search(candidates(case.block, backward), key, measure, _COMPILING * tuning_s)
    call, result = ready[repr(best)]
    return Prepared(call, result, f"{tried} tiles measured, best {best}", (mask, leaves))


def _flex_mask(workload: AttentionWorkload) -> Any:
    """Return the workload's mask as FlexAttention's."""
    import torch
    from torch.nn.attention.flex_attention import BlockMask, create_block_mask

    (m, k, _), (bm, bk) = workload.case.shape, workload.case.block
    if workload.causal:
        return create_block_mask(_causal, None, None, m, k, BLOCK_SIZE=(bm, bk))
    starts, columns = workload._starts, workload._columns
    counts = np.diff(starts)
    lists = np.zeros((m // bm, k // bk), np.int32)
    lists[np.arange(k // bk) < counts[:, None]] = columns
    whole, order = (
        torch.from_numpy(a)[None, None].cuda() for a in (counts.astype(np.int32), lists)
    )
    return BlockMask.from_kv_blocks(
        torch.zeros_like(whole), torch.zeros_like(order), whole, order, BLOCK_SIZE=(bm, bk)
    )


def _causal(batch: Any, head: Any, query: Any, key: Any) -> Any:
    del batch, head
    return query >= key


def _triton(workload: AttentionWorkload, _: float) -> Prepared:
    """Three of torch's Triton kernels: scores at the mask's blocks, their softmax, the product."""
    import cupy
    import torch
    import triton
    from torch.sparse._triton_ops import _scaled_dot_product_attention

    query, key, value = (operand[0] for operand in _tensors(workload))
    heads, (length, keys, _width) = query.shape[0], workload.case.shape
    starts, columns = (
        torch.from_numpy(indices).cuda().repeat(heads, 1)
        for indices in (workload._starts, workload._columns)
    )
    blocks = query.new_zeros(*columns.shape, *workload.case.block)
    with warnings.catch_warnings():  # "in beta state", "invariant checks are disabled"
        warnings.simplefilter("ignore", UserWarning)
        mask = torch.sparse_bsr_tensor(starts, columns, blocks, size=(heads, length, keys))
    call = partial(_scaled_dot_product_attention, query, key, value, mask)
    try:
        result = call()
    except (ValueError, triton.TritonError) as error:  # a block size, out of shared memory
        raise NotAvailableError(str(error).splitlines()[0][:80]) from error
    return Prepared(call, cupy.from_dlpack(result), keep=mask)


def _dense(workload: AttentionWorkload, _: float, *, backend: str) -> Prepared:
    """Dense attention, causal or of all keys, by one of torch's backends."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    leaves = _tensors(workload)

    def attend() -> Any:
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return scaled_dot_product_attention(*leaves, is_causal=workload.causal)

    call, result = _timed(workload, attend, leaves)
    return Prepared(call, result, keep=leaves)


def _gathered(workload: AttentionWorkload, _: float) -> Prepared:
    """Dense attention of single queries over their own keys, gathered before it is timed."""
    import cupy
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    case = workload.case
    (heads, length, width), kv_heads = workload.query.shape, workload.key.shape[0]
    keys = cupy.asarray(np.stack([workload.keys_of(i) for i in range(length)]))
    key, value = (
        torch.from_dlpack(a[:, keys].transpose(1, 0, 2, 3).copy())
        for a in (workload.key, workload.value)
    )
    rows = workload.query.reshape(kv_heads, case.group, length, width).transpose(2, 0, 1, 3).copy()
    query = torch.from_dlpack(rows)
    call = partial(scaled_dot_product_attention, query, key, value)
    answer = cupy.from_dlpack(call()).transpose(1, 2, 0, 3).reshape(heads, length, width)
    return Prepared(call, answer, keep=(query, key, value))


def _block_mask(workload: MaskWorkload, _: float) -> Prepared:
    import torch
    from torch.nn.attention.flex_attention import create_block_mask

    (m, k, _), (bm, bk) = workload.case.shape, workload.case.block
    make = partial(torch.compile(create_block_mask), _causal, None, None, m, k, BLOCK_SIZE=(bm, bk))
    make()
    return Prepared(make, None)


_PEERS: dict[str, Callable[[Any, float], Prepared]] = {
    FLEX: _flex,
    TRITON: _triton,
    CUDNN: partial(_dense, backend="CUDNN_ATTENTION"),
    FLASH: partial(_dense, backend="FLASH_ATTENTION"),
    GATHERED: _gathered,
    FLEX_MASK: _block_mask,
}
