"""The device that arrays are moved to."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ._arrays import import_cupy
from ._checks import bad_value, check_integers


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
        (device,) = check_integers(function, "device", (device,), "None or an integer")
    try:
        count = cuda.runtime.getDeviceCount()
    except cuda.runtime.CUDARuntimeError as error:
        raise RuntimeError(f"{function}: a CUDA device is asked for, and got {error}") from error
    if device is not None and not 0 <= device < count:
        raise bad_value(function, "device", f"a device in 0..{count - 1}", device)
    return cupy, cuda.Device(device)
