"""What the hosts of CUDA paths ask of a device, over emulated kernels and NumPy arrays."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import fields, is_dataclass, replace
from functools import cache, partial
from mmap import PAGESIZE, mmap
from pathlib import Path
from struct import pack
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from sparsegpu import engines
from sparsegpu._math import round_up
from sparsegpu.engines.cuda.runtime.architectures import PORTABLE
from sparsegpu.engines.cuda.runtime.launch import pointer
from sparsegpu.engines.cuda.runtime.view import matrix_view, vector_view
from sparsegpu.engines.cuda.support import kernels
from sparsegpu.pattern import Pattern

from .build import HostKernel

PROCESSORS = 3  # few, so that a thread block has many tiles
L2_BYTES = 1 << 14  # and heads are computed a few at a time
FACTS = ((9, 0), PROCESSORS, 227 * 1024)
_LINE = 128  # bytes, of which lines of a copy are multiples


class DeviceArray(np.ndarray):
    """A NumPy array that says its address as CuPy's do."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data, device_id=0)


@cache
def _protect() -> Callable[..., int]:
    """Return the C library's ``mprotect``."""
    function = ctypes.CDLL(None).mprotect
    function.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return function


def _memory(count: int, fill: int, offset: int = 0) -> np.ndarray:
    """Return bytes whose address is ``offset`` behind a multiple of 16.

    What is read behind them, up to 15 bytes, is a page that nobody may touch: the process dies.
    """
    end = -(-(count + 16) // PAGESIZE) * PAGESIZE
    pages = np.frombuffer(mmap(-1, end + PAGESIZE), np.uint8)
    assert _protect()(pages.ctypes.data + end, PAGESIZE, 0) == 0
    first = end - count - (end - count - offset) % 16
    pages[first : first + count] = fill
    return pages[first : first + count]


def device_array(shape: Any, dtype: Any, fill: int = 0xFF) -> DeviceArray:
    """Return memory as a device gives it: from a multiple of 16 bytes on, poisoned."""
    count = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    return _memory(count, fill).view(dtype).reshape(shape).view(DeviceArray)


def _like(array: np.ndarray) -> DeviceArray:
    """Return an array of the same values and strides, in memory that ends with it."""
    spans = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
    before = -sum(s for s in spans if s < 0)
    count = before + sum(s for s in spans if s > 0) + array.itemsize
    first = array.ctypes.data - before
    # Of a device's arrays slices begin anywhere, at multiples of the itemsize.
    offset = first % 16 if first % array.itemsize == 0 else 0
    made = np.ndarray(
        array.shape, array.dtype, _memory(count, 0xFF, offset), before, array.strides
    ).view(DeviceArray)
    made[...] = array
    return made


class _Operands:
    """The arguments of a call as a device has them; results go back to where they were asked."""

    def __init__(self) -> None:
        self._moved: dict[Any, tuple[Any, Any]] = {}  # by what is where
        self._patterns: dict[int, Pattern] = {}

    def on_device(self, value: Any) -> Any:
        """Return an argument whose arrays say their address."""
        if isinstance(value, np.ndarray):
            if not value.size:
                return value.view(DeviceArray)
            place = value.ctypes.data, value.shape, value.strides, value.dtype
            if place not in self._moved:
                self._moved[place] = value, _like(value)
            return self._moved[place][1]
        if isinstance(value, Pattern):
            if id(value) not in self._patterns:
                self._patterns[id(value)] = self._pattern(value)
            return self._patterns[id(value)]
        if is_dataclass(value) and not isinstance(value, type):
            known = {f.name: getattr(value, f.name) for f in fields(value)}
            changed = {n: self.on_device(v) for n, v in known.items()}
            return replace(value, **{n: v for n, v in changed.items() if v is not known[n]})
        return value

    def _pattern(self, pattern: Pattern) -> Pattern:
        arrays = [self.on_device(a) for a in (pattern._indptr, pattern._indices)]
        made = Pattern(*arrays, pattern.shape, pattern.blocksize, check=False, copy=False)
        made._indptr, made._indices = arrays
        return made

    def bring_back(self) -> None:
        """Copy what was written."""
        for array, moved in self._moved.values():
            if array.flags.writeable:
                array[...] = moved


def _of_device(view: Callable[..., bytes]) -> Callable[..., bytes]:
    """Return a function of `runtime.view` for arrays that NumPy has derived from others."""
    return lambda array, *batch: view(
        None if array is None else np.asarray(array).view(DeviceArray), *batch
    )


def tensor_map(array: Any, box: Any, swizzle: int, *, shape: Any, strides: Any) -> bytes:
    """Return ``TensorMap`` of `include/ptx/bulk_tensor.cuh`, held to what TMA can do."""
    assert swizzle == box[-1] * array.itemsize in (32, 64, 128) and box[0] == 1 and max(box) <= 256
    assert array.ctypes.data % 16 == 0 and all(s % 16 == 0 <= s for s in strides[:-1])
    return pack("<9Q56x", array.ctypes.data, *shape, *strides[:-1], *box[1:], array.itemsize)


def aligned_lines(dense: Any, by_column: bool) -> tuple[Any, Callable[[], None]]:
    """Copy as `paths._dense_lines` does; what lies behind a line is poisoned."""
    lines = dense.swapaxes(-1, -2) if by_column else dense
    pitch = round_up(lines.shape[-1] * lines.itemsize, _LINE) // lines.itemsize
    copy = device_array((*lines.shape[:-1], pitch), lines.dtype)[..., : lines.shape[-1]]

    def work() -> None:
        copy[...] = np.asarray(lines)

    return copy.swapaxes(-1, -2) if by_column else copy, work


class Numbers:
    """Zeros that a kernel writes, and nobody waits for."""

    def __init__(self) -> None:
        self._numbers = np.zeros(5, np.int64)
        self.pointer = pointer(self._numbers.ctypes.data)

    def __call__(self) -> None:
        """Do what a work does here: they are zero already."""

    def wait(self) -> list[int]:
        return self._numbers.tolist()


class Groups:
    """Row groups of a pattern, by their definition (`engines.cuda._schedule.RowGroups`).

    What no schedule would read is poisoned.
    """

    def __init__(self, pattern: Any, rows: int):
        indptr = np.asarray(pattern._indptr).reshape(-1, pattern._indptr.shape[-1])
        matrices, block_rows = indptr.shape[0], indptr.shape[1] - 1
        indices = np.asarray(pattern._indices).reshape(matrices, -1)
        nnzb = indices.shape[1]
        of_matrix = -(-block_rows // rows)
        self.groups, self.rows, self.block_rows = matrices * of_matrix, rows, None
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
        arrays = (starts, counts, columns, blocks.reshape(-1), order)
        self._arrays = tuple(a.view(DeviceArray) for a in arrays)
        self.starts, self.counts, self.columns, self.blocks, self.order = self._arrays

    def argument(self) -> bytes:
        return pack("<7Q", *(a.data.ptr for a in self._arrays), 0, 0)


@contextmanager
def emulated(
    directory: Path,
    modules: Iterable[ModuleType],
    operations: Mapping[str, Mapping[str, Callable[..., Any]]],
    **replacements: Any,
) -> Iterator[Counter]:
    """Let operations on NumPy arrays run the hosts of the CUDA engine over emulated kernels.

    Parameters
    ----------
    directory : path
        Where builds are kept.
    modules : iterable of modules
        Hosts. What they import of launches, memory and the device is replaced in them.
    operations : mapping
        The CUDA engine's functions by the stem of their module and by name, to be called in place
        of the CPU engine's.
    **replacements
        More names to be replaced in ``modules``.

    Yields
    ------
    Counter
        Launches by the source of the kernel.
    """
    launched: Counter = Counter()
    built: dict[Any, HostKernel] = {}
    declared = {row.source: row.archs for row in kernels()}
    alive: list[Any] = []  # a real schedule is kept with its pattern

    def kernel(
        source: str, archs: tuple[str, ...] = PORTABLE, /, **defines: Any
    ) -> tuple[str, HostKernel]:
        assert archs == declared[source], f"{source} is declared for {declared[source]}"
        key = source, *sorted(defines.items())
        if key not in built:
            built[key] = HostKernel(source, defines, directory)
        return source, built[key]

    def launch(
        compiled: tuple[str, HostKernel], grid: Any, block: Any, arguments: Any, *_: Any
    ) -> Callable[[], None]:
        source, run = compiled
        plain = [np.asarray(a) if isinstance(a, np.ndarray) else a for a in arguments]

        def work() -> None:
            launched[source] += 1
            run(grid[0], block[0], plain)

        return work

    def submit(*works: Callable[[], None], **_: Any) -> None:
        for work in works:
            work()

    def row_groups(pattern: Any, rows: int, blocks_from: None = None) -> Groups:
        assert blocks_from is None
        alive.append(Groups(pattern, rows))
        return alive[-1]

    names = {
        "kernel": kernel,
        "Launch": launch,
        "HostNumbers": Numbers,
        "Memset": lambda pointer, nbytes: partial(ctypes.memset, pointer, 0, nbytes),
        "submit": submit,
        "row_groups": row_groups,
        "workspace": lambda nbytes: device_array(nbytes, np.uint8),
        "tensor_map": tensor_map,
        "device_facts": lambda: FACTS,
        "multiprocessors": lambda: PROCESSORS,
        "l2_bytes": lambda: L2_BYTES,
        "architecture": lambda: "".join(map(str, FACTS[0])),
        "runs_here": lambda _: True,
        "matrix_view": _of_device(matrix_view),
        "vector_view": _of_device(vector_view),
        **replacements,
    }

    def over_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            operands = _Operands()
            result = function(
                *map(operands.on_device, arguments),
                **{name: operands.on_device(value) for name, value in keywords.items()},
            )
            operands.bring_back()
            return result

        return call

    imported = engines.engine_part

    def emulated_module(engine: str, stem: str) -> Any:
        if engine != "cpu" or stem not in operations:
            return imported(engine, stem)
        mine = {name: over_arrays(f) for name, f in operations[stem].items()}
        return SimpleNamespace(**mine)

    with ExitStack() as stack:
        for module in modules:
            for name in names.keys() & vars(module).keys():
                stack.enter_context(patch.object(module, name, names[name]))
        stack.enter_context(patch.object(engines, "engine_part", emulated_module))
        yield launched
