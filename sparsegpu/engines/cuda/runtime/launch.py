"""Loads and launches kernels; all work for the device goes through `submit`.

This is the only file that loads cubins and launches kernels. Finding a kernel costs a dictionary
look-up, after the first call for a (device, source, defines).

Whatever the CUDA engine enqueues is a `Work`, and `submit` enqueues it. Recorders are told of
every submission: `replay.Call` keeps what a call submitted, so that an equal call needs no
planning. A tracer could be another one, set with `recording`.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache, partial
from itertools import accumulate, count
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from ...._locks import fork_safe
from ...._math import round_up
from .architectures import PORTABLE, matching_architecture
from .compile import compile_kernel, supported_architectures
from .device import compute_capability, current_device, in_context, lacks_context

#: Thread blocks of a grid, at most.
MAX_GRID = 2**31 - 1

_kernels: dict[tuple, Kernel] = {}
# How often each source was launched. `next` of a count is one step for all threads, without a lock.
_launches: defaultdict[str, count[int]] = defaultdict(count)
_lock = fork_safe(threading.RLock())

# CUresult of a launch that asks for more than the device has; the context stays usable.
_INVALID_VALUE, _OUT_OF_RESOURCES, _INVALID_CLUSTER = 1, 701, 912
_PARAMETER_ALIGNMENT = 128  # more than any parameter needs (a tensor map: 64)


class LaunchError(RuntimeError):
    """A launch that asks for more threads, registers or shared memory than there is."""


class Work(Protocol):
    """One thing to enqueue: a kernel's launch, a library's product, a memset.

    It holds addresses, never the caller's arrays. ``source`` is the stem of the kernel's source,
    empty where no kernel of ours is launched.
    """

    source: str

    def on(self, stream: int) -> None:
        """Enqueue on the stream with this handle."""


#: What is told of a submission: the works, ``whole`` and ``setup`` as `submit` has them.
Recorder = Callable[[tuple[Work, ...], bool, bool], None]


def submit(*works: Work, whole: bool = False, setup: bool = False) -> None:
    """Enqueue works on CuPy's current stream and tell the recorders.

    Parameters
    ----------
    *works : Work
    whole : bool
        The engine function's statement that these works are all that it does on the device and
        that nothing but metadata decided on them: CuPy copied nothing, there is no temporary
        memory but `submission.workspace`'s, and no value was read on the host but those of
        `HostNumbers` among them. Only calls all of whose submissions say so are replayed.
    setup : bool
        The works make something that is kept with an operand (a schedule, a transposed pattern).
        They belong to no call.
    """
    enqueue(works, current_stream(), whole, setup)


def current_stream() -> int:
    """Return the handle of CuPy's current stream."""
    return _current_stream()().ptr


def enqueue(works: tuple[Work, ...], stream: int, whole: bool, setup: bool = False) -> None:
    """Do what `submit` does on the stream with this handle."""
    for work in works:
        work.on(stream)
    for recorder in _recorders.get():
        recorder(works, whole, setup)


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Tell a recorder, besides those that are set, of what is submitted in the ``with`` block.

    Of this thread or task only. The recorder is called after the works are enqueued.
    """
    token = _recorders.set((*_recorders.get(), recorder))
    try:
        yield
    finally:
        _recorders.reset(token)


# One look-up a submission, for all recorders: a replayed call takes some 10 microseconds.
_recorders: ContextVar[tuple[Recorder, ...]] = ContextVar("recorders", default=())

#: Returns the recorders that are set here.
recorders: Callable[[], tuple[Recorder, ...]] = _recorders.get


def launch_counts() -> dict[str, int]:
    """Return how often each source was launched in this process so far."""
    # Only its repr, "count(3)", says how far a count is without taking a step.
    numbers = [(source, int(repr(n).strip("count()"))) for source, n in [*_launches.items()]]
    return {source: number for source, number in numbers if number}


@cache
def _current_stream() -> Callable[[], Any]:
    from cupy.cuda import get_current_stream

    return get_current_stream


@lru_cache(maxsize=1024)
def _parameters(
    sizes: tuple[int, ...],
) -> tuple[struct.Struct, tuple[int, ...], type[ctypes.Array]]:
    """Return how parameters of some sizes are packed with their addresses, and their offsets.

    Also the type of a buffer for them that may begin at any address.
    """
    padded = [round_up(size, _PARAMETER_ALIGNMENT) for size in sizes]
    fields = [f"{size}s{wide - size}x" for size, wide in zip(sizes, padded, strict=True)]
    starts = tuple(accumulate(padded, initial=0))[:-1]
    packed = struct.Struct(f"<{''.join(fields)}{len(sizes)}Q")
    return packed, starts, ctypes.c_char * (packed.size + _PARAMETER_ALIGNMENT)


@cache
def _runtime() -> ModuleType:
    from cupy.cuda import runtime

    return runtime


@cache
def _launch_kernel() -> Callable[..., None]:
    from cupy.cuda import driver

    return driver.launchKernel


class Kernel:
    """A loaded kernel of one device, to be launched by a `Launch`."""

    __slots__ = ("_function", "_shared", "source")

    def __init__(self, source: str, function: Any):
        self.source = source
        self._function = function
        self._shared = 0  # dynamic bytes granted; static and dynamic ones soon exceed 48 KB

    def prepared(self, shared_memory: int) -> int:
        """Return the driver's handle, once it may use so much dynamic shared memory."""
        if shared_memory > self._shared:
            self._opt_in(shared_memory)
        return self._function.ptr

    def _opt_in(self, shared_memory: int) -> None:
        from cupy.cuda import driver

        attribute = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        with _lock:
            if shared_memory <= self._shared:  # another thread asked for more meanwhile
                return
            try:
                in_context(driver.funcSetAttribute, self._function.ptr, attribute, shared_memory)
            except driver.CUDADriverError as error:
                _refuse(error, self.source, f"{shared_memory} bytes of shared memory")
                raise
            self._shared = shared_memory


class Launch:
    """A kernel with all that it is launched with, packed once so that it can be launched again.

    Parameters
    ----------
    kernel : Kernel
    grid, block : tuples of up to three ints
        An empty grid launches nothing.
    args : tuple
        Structs as bytes (`view.matrix_view`) and NumPy scalars, which are copied now, and CuPy
        arrays, whose pointers are passed. The launch keeps these arrays alive, so none may be the
        caller's: pass the `address` of those.
    shared_memory : int
        Dynamic shared memory in bytes.

    Attributes
    ----------
    source : str
        The kernel's; empty where the grid is.
    """

    __slots__ = ("_address", "_arrays", "_count", "_enqueue", "_packed", "source")

    def __init__(
        self,
        kernel: Kernel,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: tuple,
        shared_memory: int = 0,
    ):
        self.source = "" if 0 in grid else kernel.source
        self._count = _launches[kernel.source]
        function = kernel.prepared(shared_memory)
        dimensions = (*grid, 1, 1)[:3] + (*block, 1, 1)[:3]
        self._enqueue = partial(_launch_kernel(), function, *dimensions, shared_memory)
        parts: list[bytes] = []
        self._arrays = []
        for arg in args:
            if type(arg) is bytes:
                parts.append(arg)
            elif isinstance(arg, np.generic):
                parts.append(arg.tobytes())
            else:
                parts.append(address(arg))
                self._arrays.append(arg)
        # One buffer: the parameters, and behind them their addresses, which CUDA is given.
        packed, starts, buffer = _parameters(tuple(map(len, parts)))
        self._packed = buffer()
        first = ctypes.addressof(self._packed)
        unused = -first % _PARAMETER_ALIGNMENT
        first += unused
        self._address = first + packed.size - 8 * len(parts)
        packed.pack_into(self._packed, unused, *parts, *[first + start for start in starts])

    def parameter(self, number: int) -> ctypes.c_uint64:
        """Return eight bytes of a parameter, to be changed by who has the launch alone."""
        at = ctypes.c_uint64.from_address(self._address + 8 * number)
        return ctypes.c_uint64.from_address(at.value)

    def on(self, stream: int) -> None:
        """Launch on the stream with this handle."""
        if not self.source:
            return
        try:
            self._enqueue(stream, self._address, 0)
        except RuntimeError as error:  # CuPy's CUDADriverError is one
            if not lacks_context(error):
                _, x, y, z, *block, shared = self._enqueue.args
                asked = f"grid {(x, y, z)}, block {(*block,)}, {shared} bytes of shared memory"
                _refuse(error, self.source, asked)
                raise
            self._enqueue(stream, self._address, 0)
        next(self._count)


class Memset:
    """Zeros in so many bytes from an address on."""

    __slots__ = ("_nbytes", "_pointer")

    source = ""

    def __init__(self, pointer: int, nbytes: int):
        self._pointer, self._nbytes = pointer, nbytes

    def on(self, stream: int) -> None:
        """Enqueue on the stream with this handle."""
        _runtime().memsetAsync(self._pointer, 0, self._nbytes, stream)


def copy(target: int, source: int, nbytes: int, stream: int) -> None:
    """Enqueue a copy within the current device, where no recorder is to be told of it."""
    runtime = _runtime()
    runtime.memcpyAsync(target, source, nbytes, runtime.memcpyDeviceToDevice, stream)


def pointer(value: int) -> bytes:
    """Return a pointer as a kernel's argument, which keeps nothing alive."""
    return value.to_bytes(8, "little")


def address(array: Any) -> bytes:
    """Return the `pointer` to an array."""
    return pointer(array.data.ptr)


#: A null `pointer`.
NULL = pointer(0)


def _refuse(error: Any, source: str, asked: str) -> None:
    """Raise a `LaunchError` where a driver's error says that too much was asked for."""
    if error.status in {_INVALID_VALUE, _OUT_OF_RESOURCES, _INVALID_CLUSTER}:
        message = f"kernel '{source}' does not launch with {asked}: {error}"
        raise LaunchError(message) from error


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
    return _kernels.get(key) or _keep(key, partial(_compiled, source, defines, archs))


def loaded(name: str, code: bytes) -> Kernel:
    """Return the kernel of a cubin that was compiled for the current device."""
    key = (current_device(), name, code)
    return _kernels.get(key) or _keep(key, partial(_load, name, code))


def _keep(key: tuple, load: Callable[[], Kernel]) -> Kernel:
    """Return the kernel of a key; of several threads that want it, one loads it."""
    with _lock:
        if key not in _kernels:
            _kernels[key] = load()
        return _kernels[key]


def _compiled(
    source: str,
    defines: dict[str, Any],
    archs: tuple[str, ...] = PORTABLE,
    root: Path | None = None,
) -> Kernel:
    arch = choose_architecture(source, archs, compute_capability())
    return _load(source, compile_kernel(source, arch, defines, root=root).code)


def _load(name: str, code: bytes) -> Kernel:
    import cupy

    module = cupy.cuda.Module()
    in_context(module.load, code)
    return Kernel(name, module.get_function(name))


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
