"""Kernels on the device: the only file that loads cubins and launches them.

A call costs a dictionary look-up and CuPy's launch; everything else happens at the first call
for a (device, source, defines).
"""

from __future__ import annotations

import ctypes
import threading
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from .architectures import PORTABLE, matching_architecture
from .compile import compile_kernel, supported_architectures

#: Thread blocks of a grid, at most.
MAX_GRID = 2**31 - 1

_kernels: dict[tuple, Kernel] = {}
_launches: Counter[str] = Counter()
_lock = threading.RLock()
_counting = threading.RLock()  # apart from the other, which a compilation holds for seconds
_get_device: Any = None

# CUresult of a launch that asks for what the device has not got; it leaves the context whole.
_INVALID_VALUE, _OUT_OF_RESOURCES = 1, 701
_INVALID_CONTEXT = 201
_PARAMETER_ALIGNMENT = 128  # more than any parameter asks for (a tensor map: 64)


class LaunchError(RuntimeError):
    """A launch that asks for more threads, registers or shared memory than there is."""


class Work(Protocol):
    """What a call enqueues: on CuPy's current stream, or on the stream of an address."""

    def __call__(self) -> None: ...

    def on(self, stream: int) -> None: ...


class Kernel:
    """A loaded kernel of one device.

    Calling it launches on CuPy's current stream.
    """

    __slots__ = ("_function", "_shared", "source")

    def __init__(self, source: str, function: Any):
        self.source = source
        self._function = function
        self._shared = 0  # dynamic bytes opted in to; with a kernel's own 48 KB are soon passed

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
            Dynamic shared memory in bytes, which is opted in to here.
        """
        if 0 in grid:
            return
        if shared_memory > self._shared:
            self._opt_in(shared_memory)
        try:
            self._function(grid, block, args, shared_memory)
        except RuntimeError as error:
            if not lacks_context(error):
                raise
            self._function(grid, block, args, shared_memory)
        with _counting:
            _launches[self.source] += 1

    def prepared(self, shared_memory: int) -> int:
        """Return the driver's handle, once it may use so much dynamic shared memory."""
        if shared_memory > self._shared:
            self._opt_in(shared_memory)
        return self._function.ptr

    def _opt_in(self, shared_memory: int) -> None:
        from cupy.cuda import driver

        attribute = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        with _lock:
            if shared_memory <= self._shared:  # another thread was here, and asked for more
                return
            try:
                driver.funcSetAttribute(self._function.ptr, attribute, shared_memory)
            except driver.CUDADriverError as error:
                _refuse(error, self.source, f"{shared_memory} bytes of shared memory")
                raise
            self._shared = shared_memory


class Launch:
    """A kernel and all it is launched with, packed once so that repeating it costs little.

    Calling it launches on CuPy's current stream; `on` launches on the stream of an address.

    Parameters
    ----------
    kernel, grid, block, args, shared_memory
        As for `Kernel`. The values of ``args`` are taken now; the memory that they point to is
        read when the kernel runs. Arrays among them are kept alive, so none may be the caller's:
        of these addresses are passed.
    """

    __slots__ = ("_address", "_arrays", "_enqueue", "_packed", "_parameters", "_source")

    def __init__(
        self,
        kernel: Kernel,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: tuple,
        shared_memory: int = 0,
    ):
        from cupy.cuda import driver

        self._source = kernel.source
        function = kernel.prepared(shared_memory)
        dimensions = (*grid, 1, 1)[:3] + (*block, 1, 1)[:3]
        launch = partial(driver.launchKernel, function, *dimensions, shared_memory)
        self._enqueue = None if 0 in grid else launch
        self._arrays = [arg for arg in args if not isinstance(arg, np.generic)]
        values = [_parameter(arg) for arg in args]
        starts, end = [], 0
        for value in values:
            starts.append(end)
            end += -(-len(value) // _PARAMETER_ALIGNMENT) * _PARAMETER_ALIGNMENT
        self._packed = ctypes.create_string_buffer(end + _PARAMETER_ALIGNMENT)
        first = -(-ctypes.addressof(self._packed) // _PARAMETER_ALIGNMENT) * _PARAMETER_ALIGNMENT
        for start, value in zip(starts, values, strict=True):
            ctypes.memmove(first + start, value, len(value))
        self._parameters = (ctypes.c_void_p * len(values))(*(first + start for start in starts))
        self._address = ctypes.addressof(self._parameters)

    def __call__(self) -> None:
        from cupy.cuda import get_current_stream

        self.on(get_current_stream().ptr)

    def on(self, stream: int) -> None:
        """Launch on a stream; an empty grid launches nothing."""
        if self._enqueue is None:
            return
        try:
            self._enqueue(stream, self._address, 0)
        except RuntimeError as error:  # CuPy's CUDADriverError is one
            if not lacks_context(error):
                _, x, y, z, *block, shared = self._enqueue.args
                asked = f"grid {(x, y, z)}, block {(*block,)}, {shared} bytes of shared memory"
                _refuse(error, self._source, asked)
                raise
            self._enqueue(stream, self._address, 0)
        with _counting:
            _launches[self._source] += 1


def in_context(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call the driver, in a thread that may lack a context."""
    try:
        return call(*arguments)
    except RuntimeError as error:
        if not lacks_context(error):
            raise
    return call(*arguments)


def lacks_context(error: RuntimeError) -> bool:
    """Return whether that is why the driver refused; there is one then, to call it again.

    CuPy makes a context current at a thread's first call of CUDA's runtime, which a launch, the
    loading of a cubin and the encoding of a tensor map are not. To ask before each costs more.
    """
    if getattr(error, "status", None) != _INVALID_CONTEXT:
        return False
    from cupy.cuda import runtime

    runtime.setDevice(current_device())
    return True


def _refuse(error: Any, source: str, asked: str) -> None:
    """Raise a driver's error as a `LaunchError`, if that is what it is."""
    if error.status in {_INVALID_VALUE, _OUT_OF_RESOURCES}:
        message = f"kernel '{source}' does not launch with {asked}: {error}"
        raise LaunchError(message) from error


def _parameter(arg: Any) -> bytes:
    """Return the bytes of a kernel's parameter: an array's pointer, or a scalar or struct."""
    if isinstance(arg, np.generic):
        return arg.tobytes()
    return arg.data.ptr.to_bytes(8, "little")


def kernel(source: str, archs: tuple[str, ...] = PORTABLE, /, **defines: Any) -> Kernel:
    """Return the kernel of ``cuda_src/<source>.cu`` for the current device.

    Parameters
    ----------
    source : str
        Stem of the source and name of its entry point.
    archs : tuple of str
        What it compiles for.
    **defines : str, int or bool
        Specialisation: ``T="bf16"`` becomes ``-DT=bf16``.

    Raises
    ------
    compile.CompileError
        When it does not compile.
    NotImplementedError
        When the device runs none of these architectures.
    """
    key = (current_device(), source, *defines.items())
    found = _kernels.get(key)
    if found is None:
        with _lock:
            found = _kernels.get(key)
            if found is None:
                found = _kernels[key] = _load(source, defines, archs)
    return found


def _load(
    source: str,
    defines: dict[str, Any],
    archs: tuple[str, ...] = PORTABLE,
    root: Path | None = None,
) -> Kernel:
    import cupy

    arch = choose_architecture(source, archs, compute_capability())
    module = cupy.cuda.Module()
    in_context(module.load, compile_kernel(source, arch, defines, root=root).code)
    return Kernel(source, module.get_function(source))


def choose_architecture(source: str, declared: tuple[str, ...], cc: tuple[int, int]) -> str:
    """Return the architecture to compile a source for, given a device's compute capability.

    See `architectures.matching_architecture`.
    """
    arch = matching_architecture(declared, cc, supported_architectures())
    if arch is None:
        raise NotImplementedError(
            f"kernel '{source}' on compute capability {cc[0]}.{cc[1]} is not offered; "
            f"supported: {', '.join(declared)}"
        )
    return arch


class DeviceFacts(NamedTuple):
    """What tiles are chosen by: compute capability, multiprocessors, a thread block's memory."""

    capability: tuple[int, int]
    multiprocessors: int
    shared_memory: int


@cache
def _facts(device: int) -> DeviceFacts:
    import cupy

    found = cupy.cuda.Device(device)
    cc, attributes = found.compute_capability, found.attributes
    return DeviceFacts(
        (int(cc[:-1]), int(cc[-1])),
        attributes["MultiProcessorCount"],
        int(attributes["MaxSharedMemoryPerBlockOptin"]),
    )


def device_facts() -> DeviceFacts:
    """Return what tiles for the current device are chosen by."""
    return _facts(current_device())


def runs_here(archs: tuple[str, ...]) -> bool:
    """Return whether the current device runs code for one of some architectures."""
    return archs is PORTABLE or _runs(archs, compute_capability())


@cache
def _runs(archs: tuple[str, ...], cc: tuple[int, int]) -> bool:
    return matching_architecture(archs, cc, supported_architectures()) is not None


def multiprocessors() -> int:
    """Return the number of multiprocessors of the current device."""
    return device_facts().multiprocessors


def compute_capability() -> tuple[int, int]:
    """Return the compute capability of the current device: ``(9, 0)``."""
    return device_facts().capability


def architecture() -> str:
    """Return the compute capability of the current device as one number: ``"90"``."""
    return "{}{}".format(*compute_capability())


def current_device() -> int:
    """Return the number of the current device."""
    global _get_device
    if _get_device is None:
        from cupy.cuda import runtime

        _get_device = runtime.getDevice
    return _get_device()


def launch_counts() -> dict[str, int]:
    """Return how often each source was launched in this process so far."""
    with _counting:
        return dict(_launches)
