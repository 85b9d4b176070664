"""Attention through the hosts of its CUDA paths, over emulated kernels and NumPy arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from struct import pack
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from sparsegpu import engines
from sparsegpu.engines.cuda import attention as host
from sparsegpu.engines.cuda.paths import (
    _attention,
    _attention_tiles,
    _dispatch,
    bsr_attention_simt,
    bsr_attention_sm80,
    bsr_attention_sm90,
)

from .build import HostKernel

_PATHS = (bsr_attention_simt, bsr_attention_sm80, bsr_attention_sm90)
_PROCESSORS = 3  # few, so that a thread block has many tiles
_FACTS = ((9, 0), _PROCESSORS, 227 * 1024)


class _DeviceArray(np.ndarray):
    """A NumPy array that says its address as CuPy's do."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data, device_id=0)


def _on_device(array: Any) -> Any:
    """Return an array as a device has it: from a multiple of 16 bytes on."""
    if array is None:
        return None
    if array.ctypes.data % 16:
        memory = np.empty(array.nbytes + 16, np.uint8)
        first = -memory.ctypes.data % 16
        moved = memory[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
        moved[...] = array
        array = moved
    return array.view(_DeviceArray)


class _Groups:
    """Row groups of a pattern, by their definition (`engines.cuda._schedule.RowGroups`).

    What no schedule would read is poisoned.
    """

    def __init__(self, pattern: Any, rows: int):
        indptr = np.asarray(pattern._indptr).reshape(-1, pattern._indptr.shape[-1])
        matrices, block_rows = indptr.shape[0], indptr.shape[1] - 1
        indices = np.asarray(pattern._indices).reshape(matrices, -1)
        nnzb = indices.shape[1]
        of_matrix = -(-block_rows // rows)
        self.groups = matrices * of_matrix
        columns = np.full(matrices * nnzb, -7, np.int32)
        blocks = np.full((matrices * nnzb, rows), -999, np.int32)
        starts, counts = np.zeros(self.groups, np.int64), np.zeros(self.groups, np.int32)
        for group in range(self.groups):
            b, first = group // of_matrix, group % of_matrix * rows
            entries: dict[int, dict[int, int]] = {}
            for r, i in enumerate(range(first, min(first + rows, block_rows))):
                for p in range(indptr[b, i], indptr[b, i + 1]):
                    entries.setdefault(int(indices[b, p]), {})[r] = b * nnzb + p
            start = starts[group] = b * nnzb + indptr[b, first]
            counts[group] = len(entries)
            for e, column in enumerate(sorted(entries), start):
                columns[e], blocks[e] = column, -1
                for r, block in entries[column].items():
                    blocks[e, r] = block
        by_matrix = counts.reshape(matrices, of_matrix)
        order = np.argsort(-by_matrix, axis=1, kind="stable")
        order = (order + of_matrix * np.arange(matrices)[:, None]).astype(np.int32)
        self.blocks = blocks.reshape(-1).view(_DeviceArray)
        self._arrays = (starts, counts, columns, self.blocks, order)

    def argument(self) -> bytes:
        return pack("<7Q", *(a.ctypes.data for a in self._arrays), 0, 0)


def _tensor_map(array: Any, box: Any, swizzle: int, *, shape: Any, strides: Any) -> bytes:
    """Return ``TensorMap`` of `include/ptx/bulk_tensor.cuh`, held to what TMA can do."""
    assert swizzle == box[-1] * array.itemsize == 128 and box[0] == 1 and max(box) <= 256
    assert array.ctypes.data % 16 == 0 and all(s % 16 == 0 <= s for s in strides[:-1])
    return pack("<9Q56x", array.ctypes.data, *shape, *strides[:-1], *box[1:], array.itemsize)


@contextmanager
def emulated_attention(directory: Path) -> Iterator[Counter]:
    """Compute attention of NumPy arrays by emulated kernels in this block.

    Parameters
    ----------
    directory : path
        Where builds are kept.

    Yields
    ------
    Counter
        Launches by the source of the kernel.
    """
    launched: Counter = Counter()
    built: dict[Any, HostKernel] = {}
    alive: list[Any] = []  # a real schedule is kept with its pattern

    def kernel(source: str, *_: Any, **defines: Any) -> tuple[str, HostKernel]:
        key = source, *sorted(defines.items())
        if key not in built:
            built[key] = HostKernel(source, defines, directory)
        return source, built[key]

    def submit(*works: Any, **_: Any) -> None:
        for (source, run), grid, block, arguments, *_ in works:
            launched[source] += 1
            plain = (np.asarray(a) if isinstance(a, np.ndarray) else a for a in arguments)
            run(grid[0], block[0], tuple(plain))

    def row_groups(pattern: Any, rows: int) -> _Groups:
        alive.append(_Groups(pattern, rows))
        return alive[-1]

    def workspace(nbytes: int) -> Any:
        return _on_device(np.full(nbytes, 0xFF, np.uint8))

    def attention(
        out: Any,
        lse: Any,
        query: Any,
        key: Any,
        value: Any,
        pattern: Any,
        mask_data: Any,
        score: Any,
        sinks: Any,
        *,
        allow_tf32: bool = False,
        config: Any = None,
    ) -> None:
        arrays = (query, key, value)
        host.attention(
            out.view(_DeviceArray),
            None if lse is None else lse.view(_DeviceArray),
            *map(_on_device, arrays),
            pattern,
            _on_device(mask_data),
            replace(score, slopes=_on_device(score.slopes)),
            _on_device(sinks),
            allow_tf32=allow_tf32,
            config=config,
        )

    imported = engines._import

    def emulated(engine: str, stem: str) -> Any:
        mine = (engine, stem) == ("cpu", "attention")
        return SimpleNamespace(attention=attention) if mine else imported(engine, stem)

    with ExitStack() as stack:
        for module in (*_PATHS, _attention_tiles):
            for name, value in {"kernel": kernel, "Launch": lambda *parts: parts}.items():
                stack.enter_context(patch.object(module, name, value))
        for module, name, value in (
            (_attention_tiles, "row_groups", row_groups),
            (_attention_tiles, "workspace", workspace),
            (_attention, "device_facts", lambda: _FACTS),
            (_dispatch, "runs_here", lambda _: True),
            (bsr_attention_sm90, "tensor_map", _tensor_map),
            (bsr_attention_sm90, "multiprocessors", lambda: _PROCESSORS),
            (host, "submit", submit),
            (engines, "_import", emulated),
        ):
            stack.enter_context(patch.object(module, name, value))
        yield launched
