"""Devices: the current one, and the ways of sparse arrays to another and to a file."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any, Self

from ._arrays import import_cupy
from ._checks import bad_value, check_integer
from ._protocols import Sparse


class Portable(Sparse):
    """Base of the sparse classes, which say how their parts are checked, moved and written."""

    __slots__ = ()

    device: Any  # "cpu", or the `cupy.cuda.Device`

    def to_device(self, device: int | None = None) -> Self:
        """Return the array on a CUDA device (itself, if it is there already).

        A 2:4 array keeps its backend.

        Parameters
        ----------
        device : int, optional
            Device number; the current device by default.

        Raises
        ------
        ImportError
            When CuPy is not installed.
        RuntimeError
            Without a CUDA device, or a driver that CuPy works with.
        ValueError
            A number that no device has.
        TypeError
            When ``device`` is no integer.
        """
        self._check("to_device")
        cupy, target = target_device(f"{type(self).__name__}.to_device", device)
        if getattr(self.device, "id", None) == target.id:
            return self
        with target:
            return self._moved(cupy)

    def save_npz(self, file: Any, compressed: bool = True) -> None:
        """Write the array to a ``.npz`` file that `load_npz` reads.

        Parameters
        ----------
        file : path or binary file object
            ``.npz`` is appended to a path without it. A path is written atomically.
        compressed : bool

        Raises
        ------
        TypeError
            No file; a ``compressed`` that is not True or False.
        OSError
            A file that cannot be written; what stood under its name is as it was.
        """
        self._save(f"{type(self).__name__}.save_npz", file, compressed)

    def _check(self, method: str) -> None:
        """Refuse parts whose shape or dtype was set since the array was made, where they can be."""

    def _moved(self, cupy: ModuleType) -> Self:
        """Return the array with its parts on the current device."""
        raise NotImplementedError


def device_context(device: int | None) -> AbstractContextManager:
    """Make a GPU the current one, by its number; None is the host, which needs nothing."""
    return nullcontext() if device is None else sys.modules["cupy"].cuda.Device(device)


def target_device(function: str, device: Any) -> tuple[ModuleType, Any]:
    """Return CuPy and one of its devices: by its number, the current one for None.

    Raises
    ------
    ImportError
        When CuPy is not installed.
    RuntimeError
        No CUDA device, or a driver that CuPy's runtime does not work with.
    ValueError
        A number that no device has.
    TypeError
        When ``device`` is no integer.
    """
    cupy = import_cupy(function, "a CUDA device is asked for")
    cuda = cupy.cuda
    if isinstance(device, cuda.Device):
        device = device.id
    if device is not None:
        device = check_integer(function, "device", device, "None or an integer")
    try:
        count = cuda.runtime.getDeviceCount()
    except cuda.runtime.CUDARuntimeError as error:
        raise RuntimeError(f"{function}: a CUDA device is asked for, and got {error}") from error
    if device is not None and not 0 <= device < count:
        raise bad_value(function, "device", f"a device in 0..{count - 1}", device)
    return cupy, cuda.Device(device)
