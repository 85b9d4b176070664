"""A 2:4 matrix in the library's own layout, compressed on the device by the library.

The library's layout differs between devices and versions and is not documented. So the matrix is
expanded and the library compresses it, for every dtype that it multiplies.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..._math import round_up
from ..cuda.compress import expand
from ..cuda.runtime.launch import submit
from .library import handle, sparse_descriptor

_NON_TRANSPOSE, _LEFT = 0, 1

#: "cusparseLtStructuredDescriptorInit": what rows are multiples of, by the bytes of an element.
#: The multiples of our format are as large, but for the rows of one-byte dtypes (16).
_ROWS = {1: 32, 2: 16, 4: 8}


class _Matrix(NamedTuple):
    m: int
    k: int
    dtype: np.dtype


class Compressed:
    """The library's buffer of one matrix.

    Attributes
    ----------
    buffer : cupy.ndarray of uint8
    shape : (m, k)
        Padded with rows of zeros.
    dtype : dtype
        What the values stand for.
    """

    __slots__ = ("buffer", "dtype", "shape")

    def __init__(self, buffer: Any, shape: tuple[int, int], dtype: np.dtype):
        self.buffer, self.shape, self.dtype = buffer, shape, dtype


class _Compression:
    """The library's compression, whose last argument is the stream."""

    __slots__ = ("on",)

    source = ""

    def __init__(self, on: Callable[[int], None]):
        self.on = on


def compressed(packed: Any, meta: Any, dtype: np.dtype) -> Compressed:
    """Return a matrix for the library, from packed values and CUTLASS's metadata.

    Source: cuSPARSELt documentation, ``cusparseLtSpMMACompressedSize2`` and
    ``cusparseLtSpMMACompress2``.
    """
    import cupy

    stored, k = packed.shape[0], 2 * packed.shape[1]
    m = round_up(stored, _ROWS[packed.itemsize])
    if 0 in (m, k):
        return Compressed(cupy.empty(0, dtype=np.uint8), (m, k), dtype)
    dense = (cupy.empty if m == stored else cupy.zeros)((m, k), dtype=packed.dtype)
    expand(dense[:stored], packed, meta)
    context = handle()
    lt, address = context.lt, context.address
    with context.lock:
        matrix = sparse_descriptor(context, _Matrix(m, k, dtype))
        try:
            size, scratch_size = lt.sp_mma_compressed_size2(address, matrix)
            buffer = cupy.empty(size, dtype=np.uint8)
            scratch = cupy.empty(scratch_size, dtype=np.uint8)
            pointers = dense.data.ptr, buffer.data.ptr, scratch.data.ptr
            arguments = address, matrix, _LEFT, _NON_TRANSPOSE, *pointers
            submit(_Compression(partial(lt.sp_mma_compress2, *arguments)), setup=True)
        finally:
            lt.mat_descriptor_destroy(matrix)
    return Compressed(buffer, (m, k), dtype)
