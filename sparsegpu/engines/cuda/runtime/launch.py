"""Kernels on the device: the only file that loads cubins and launches them.

A call costs a dictionary look-up and CuPy's launch; everything else happens at the first call
for a (device, source, defines).
"""

from __future__ import annotations

import threading
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ...._support import architectures_of, matching_architecture
from .compile import compile_kernel, supported_architectures

_kernels: dict[tuple, Kernel] = {}
_launches: Counter[str] = Counter()
_lock = threading.RLock()
_get_device: Any = None

_STATIC_SHARED_LIMIT = 48 * 1024


class Kernel:
    """A loaded kernel of one device.

    Calling it launches on CuPy's current stream.
    """

    __slots__ = ("_function", "_shared", "source")

    def __init__(self, source: str, function: Any):
        self.source = source
        self._function = function
        self._shared = _STATIC_SHARED_LIMIT

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: tuple,
        shared_memory: int = 0,
    ) -> None:
        """Launch; an empty grid launches nothing.

        Parameters
        ----------
        grid, block : tuples of up to three ints
        args : tuple
            CuPy arrays (their pointers), NumPy scalars and structs (`view.matrix_view`).
        shared_memory : int
            Dynamic shared memory in bytes; more than 48 KB is opted in to here.
        """
        if 0 in grid:
            return
        if shared_memory > self._shared:
            self._opt_in(shared_memory)
        self._function(grid, block, args, shared_memory)
        with _lock:
            _launches[self.source] += 1

    def _opt_in(self, shared_memory: int) -> None:
        from cupy.cuda import driver

        attribute = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        driver.funcSetAttribute(self._function.ptr, attribute, shared_memory)
        self._shared = shared_memory


class Launch(NamedTuple):
    """A kernel and everything it is launched with; calling it launches."""

    kernel: Kernel
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: tuple
    shared_memory: int = 0

    def __call__(self) -> None:
        self.kernel(self.grid, self.block, self.args, self.shared_memory)


def kernel(source: str, **defines: Any) -> Kernel:
    """Return the kernel of ``cuda_src/<source>.cu`` for the current device.

    Parameters
    ----------
    source : str
        Stem of the source and name of its entry point.
    **defines : str, int or bool
        Specialisation: ``T="bf16"`` becomes ``-DT=bf16``.

    Raises
    ------
    compile.CompileError
        When it does not compile.
    NotImplementedError
        When ``_kernel_table`` has no architecture of this source that the device can run.
    """
    key = (current_device(), source, *defines.items())
    found = _kernels.get(key)
    if found is None:
        with _lock:
            found = _kernels.get(key)
            if found is None:
                found = _kernels[key] = _load(source, defines)
    return found


def _load(source: str, defines: dict[str, Any], root: Path | None = None) -> Kernel:
    import cupy

    arch = choose_architecture(source, _facts(current_device())[0])
    module = cupy.cuda.Module()
    module.load(compile_kernel(source, arch, defines, root=root).code)
    return Kernel(source, module.get_function(source))


def choose_architecture(source: str, cc: tuple[int, int]) -> str:
    """Return the architecture to compile a source for, given a device's compute capability.

    See `_support.matching_architecture`; the declared ones are those of the source's rows.
    """
    declared = architectures_of(source)
    arch = matching_architecture(declared, cc, supported_architectures())
    if arch is None:
        raise NotImplementedError(
            f"kernel '{source}' on compute capability {cc[0]}.{cc[1]} is not offered; "
            f"supported: {', '.join(declared)}"
        )
    return arch


@cache
def _facts(device: int) -> tuple[tuple[int, int], int]:
    """Return the compute capability of a device and the number of its multiprocessors."""
    import cupy

    found = cupy.cuda.Device(device)
    cc = found.compute_capability
    return (int(cc[:-1]), int(cc[-1])), found.attributes["MultiProcessorCount"]


def runs_here(source: str) -> bool:
    """Return whether the current device runs a kernel that not every architecture has."""
    cc, _ = _facts(current_device())
    return _runs(source, cc)


@cache
def _runs(source: str, cc: tuple[int, int]) -> bool:
    declared = architectures_of(source)
    return matching_architecture(declared, cc, supported_architectures()) is not None


def multiprocessors() -> int:
    """Return the number of multiprocessors of the current device."""
    return _facts(current_device())[1]


def current_device() -> int:
    """Return the number of the current device."""
    global _get_device
    if _get_device is None:
        from cupy.cuda import runtime

        _get_device = runtime.getDevice
    return _get_device()


def launch_counts() -> dict[str, int]:
    """Return how often each source was launched in this process so far."""
    with _lock:
        return dict(_launches)
