"""Tensor maps of a user's arrays, as arguments of wrapped kernels."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from .._arrays import is_cupy
from .._checks import bad_type, bad_value, check_integers, kind_of
from .memory import address, extent, is_array

#: What a kernel takes by value: a ``CUtensorMap``.
BYTES = 128


@dataclass(frozen=True, slots=True, eq=False)
class TensorMap:
    """Stands for an argument that is a tensor map (``const __grid_constant__ CUtensorMap``).

    A bulk store through it writes its array, and a bulk load reads it. The reference gets the
    array. The functional form makes a map of the copy.

    Parameters
    ----------
    array : array
        Its innermost dimension is contiguous, the other strides are multiples of 16 bytes, and it
        begins at a multiple of 16.
    box : int or tuple of int
        Elements that are copied at once, along the array's axes, 1 to 256 each.
    swizzle : {0, 32, 64, 128}
        Bytes within which 16-byte pieces change places in shared memory.
    strides : tuple of int, optional
        Another reading of the array's memory, in bytes along its axes.

    Raises
    ------
    TypeError
        No array, or a dtype without a tensor-map type.
    ValueError
        What a tensor map cannot describe, or strides that lead out of the array.

    Notes
    -----
    Source: CUDA driver API, ``cuTensorMapEncodeTiled``; PTX ISA, "cp.async.bulk.tensor". Two maps
    of the same memory, box, swizzle and strides are encoded once.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsegpu import kernels
    >>> kernels.TensorMap(np.zeros((256, 64), np.float16), (64, 64), swizzle=128).box
    (64, 64)
    """

    array: Any
    box: tuple[int, ...]
    swizzle: int = field(default=0, kw_only=True)
    strides: tuple[int, ...] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not is_array(self.array):
            raise bad_type("TensorMap", "array", "an array", kind_of(self.array))
        expected = "an integer for every axis"
        for name in ("box", "strides"):
            given = getattr(self, name)
            if given is None and name == "strides":
                continue
            sizes = given if isinstance(given, (tuple, list)) else (given,)
            found = check_integers("TensorMap", name, sizes, expected)
            object.__setattr__(self, name, found)
        self._key()
        if self.strides is not None:
            last = sum((n - 1) * s for n, s in zip(self.array.shape, self.strides, strict=True))
            low, end = extent(self.array)
            most = end - address(self.array) - self.array.itemsize
            if low != address(self.array) or last > most:
                expected = f"strides whose last element is at most {most} bytes from the first"
                raise bad_value("TensorMap", "strides", expected, self.strides)

    def _key(self) -> Any:
        from ..engines.cuda.runtime.tensor_map import tensor_map_key

        array = self.array
        described = SimpleNamespace(
            shape=array.shape,
            strides=array.strides,
            dtype=array.dtype,
            data=SimpleNamespace(ptr=address(array)),
            device=SimpleNamespace(id=array.data.device_id if is_cupy(array) else -1),
        )
        return tensor_map_key(
            described, self.box, self.swizzle, strides=self.strides, function="TensorMap"
        )

    @property
    def fact(self) -> str:
        """Everything but the array, as what calls are told apart by."""
        return f"{self.box} {self.swizzle} {self.strides}"

    def of(self, array: Any) -> TensorMap:
        """Return the same map of another array."""
        return TensorMap(array, self.box, swizzle=self.swizzle, strides=self.strides)

    def encoded(self) -> bytes:
        """Return the map as the kernel takes it; needs the driver."""
        from ..engines.cuda.runtime.tensor_map import encode

        return encode(self._key())


def array_of(value: Any) -> Any:
    """Return a tensor map's array, anything else as it is."""
    return value.array if isinstance(value, TensorMap) else value
