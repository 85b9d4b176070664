"""Encoded tensor maps (``CUtensorMap``), kept in an LRU because encoding one is slow in Python.

A map goes by value to a ``const __grid_constant__`` parameter. Source: CUDA driver API, "Tensor
Map Object Management" (``cuTensorMapEncodeTiled``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ...._arrays import bfloat16
from ...._checks import bad_type, bad_value
from .device import in_context

#: Entries kept; a map is 128 bytes.
CAPACITY = 512

_DATA_TYPES = {
    np.dtype(np.uint8): "UINT8",
    np.dtype(np.int8): "UINT8",
    np.dtype(np.int16): "UINT16",
    np.dtype(np.int32): "INT32",
    np.dtype(np.float16): "FLOAT16",
    bfloat16: "BFLOAT16",
    np.dtype(np.float32): "FLOAT32",
    np.dtype(np.float64): "FLOAT64",
}
_SWIZZLES = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}


class EncodeError(RuntimeError):
    """An error of the driver, with its ``status`` as CuPy's own errors have it."""

    def __init__(self, message: str, status: int):
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class TensorMapKey:
    """Everything that a map depends on.

    Attributes
    ----------
    device, pointer : int
        Where the tensor is; the pointer is a multiple of 16.
    shape : tuple of int
        Innermost dimension first, as the driver counts them.
    strides : tuple of int
        In bytes, of all dimensions but the innermost (which is contiguous).
    dtype : dtype
    box : tuple of int
        Elements copied at once, innermost first, each 1..256.
    swizzle : int
        0, 32, 64 or 128 bytes.
    """

    device: int
    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype
    box: tuple[int, ...]
    swizzle: int


def tensor_map_key(
    array: Any,
    box: tuple[int, ...],
    swizzle: int = 0,
    *,
    shape: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
    function: str = "tensor_map",
) -> TensorMapKey:
    """Check and collect what `tensor_map` encodes; needs no GPU.

    Parameters
    ----------
    array : array
        Its own shape and strides (outermost first, like NumPy's) are used unless given.
    box : tuple of int
        Outermost first, of as many dimensions.
    swizzle : {0, 32, 64, 128}
    shape, strides : tuples of int, optional
        Another reading of the same memory; strides in bytes, the last one the item size.
    function : str
        What messages name.

    Raises
    ------
    ValueError
        For what TMA cannot do: more than five dimensions, an innermost dimension
        that is not contiguous, strides that are not multiples of 16, a misaligned pointer, a box
        that is too large or, swizzled, wider than the swizzle.
    TypeError
        For a dtype without a tensor-map type.
    """
    shape = tuple(array.shape) if shape is None else shape
    strides = tuple(array.strides) if strides is None else strides
    itemsize = array.dtype.itemsize
    if array.dtype not in _DATA_TYPES:
        names = ", ".join(d.name for d in _DATA_TYPES)
        raise bad_type(function, "array", f"one of the dtypes {names}", array.dtype)
    if not 1 <= len(shape) <= 5 or len(strides) != len(shape) or len(box) != len(shape):
        expected = "shape, strides and box of 1 to 5 dimensions, the same number each"
        raise bad_value(function, "shape", expected, (shape, strides, box))
    if not all(1 <= n <= 2**32 for n in shape):
        raise bad_value(function, "shape", "sizes in 1..2**32", shape)
    if strides[-1] != itemsize:
        expected = f"a contiguous innermost dimension (stride {itemsize})"
        raise bad_value(function, "strides", expected, strides)
    if any(s % 16 or not 0 <= s < 2**40 for s in strides[:-1]):
        raise bad_value(function, "strides", "multiples of 16 bytes below 2**40", strides)
    if not all(1 <= b <= 256 for b in box):
        raise bad_value(function, "box", "1..256 elements in each dimension", box)
    if swizzle not in _SWIZZLES:
        raise bad_value(function, "swizzle", "0, 32, 64 or 128 bytes", swizzle)
    width = box[-1] * itemsize
    if width % 16 or (swizzle and width > swizzle):
        expected = f"an inner box of a multiple of 16 bytes, at most the swizzle ({swizzle})"
        raise bad_value(function, "box", expected, f"{width} bytes")
    if array.data.ptr % 16:
        raise bad_value(function, "array", "a pointer aligned to 16 bytes", hex(array.data.ptr))
    return TensorMapKey(
        int(array.device.id),
        int(array.data.ptr),
        shape[::-1],
        strides[-2::-1],
        array.dtype,
        box[::-1],
        swizzle,
    )


def tensor_map(
    array: Any,
    box: tuple[int, ...],
    swizzle: int = 0,
    *,
    shape: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> bytes:
    """Return the kernel argument ``CUtensorMap`` of an array (see `tensor_map_key`).

    Elements outside the tensor read as zero and are not written.
    """
    return encode(tensor_map_key(array, box, swizzle, shape=shape, strides=strides))


def encode_arguments(key: TensorMapKey) -> tuple:
    """Return the arguments of ``cuTensorMapEncodeTiled``, in order."""
    from cuda.bindings import driver

    rank = len(key.shape)
    return (
        getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_DATA_TYPES[key.dtype]}"),
        rank,
        key.pointer,
        [driver.cuuint64_t(n) for n in key.shape],
        [driver.cuuint64_t(s) for s in key.strides],
        [driver.cuuint32_t(b) for b in key.box],
        [driver.cuuint32_t(1)] * rank,
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLES[key.swizzle]}"),
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )


@lru_cache(CAPACITY)
def encode(key: TensorMapKey) -> bytes:
    """Encode one map (needs the driver), or return what an equal key was encoded to."""
    return in_context(_encode, key)


def _encode(key: TensorMapKey) -> bytes:
    from cuda.bindings import driver

    status, encoded = driver.cuTensorMapEncodeTiled(*encode_arguments(key))
    if int(status) != 0:
        raise EncodeError(f"cuTensorMapEncodeTiled: {status.name} for {key}", int(status))
    return np.array([int(word) for word in encoded.opaque], dtype=np.uint64).tobytes()
