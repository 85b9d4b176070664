"""Random operands, drawn on the device."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from .._arrays import check_dtype_name, float8_e4m3fn
from .._checks import bad_type, check_blocksize, check_density, check_sizes
from .._device import target_device


class Random(NamedTuple):
    """What random operands are drawn from."""

    shape: tuple[int, int, int]
    blocksize: tuple[int, int]
    dtype: np.dtype
    density: float


def checked_random(shape: Any, blocksize: Any, dtype: Any, density: Any) -> Random:
    """Return what `sparsegpu.tune` draws operands from, where there is a device for them."""
    if blocksize is None:
        raise bad_type("tune", "blocksize", "a block size, besides a shape (M, K, N)", blocksize)
    m, k, n = check_sizes("tune", "shape", shape, "(M, K, N)", count=3)
    found = Random(
        (m, k, n),
        check_blocksize("tune", blocksize),
        check_dtype_name("tune", "dtype", dtype),
        check_density("tune", density),
    )
    target_device("tune", None)
    return found


def random_array(xp: ModuleType, shape: tuple[int, ...], dtype: np.dtype, seed: int) -> Any:
    """Return standard normal values, of int8 uniform ones over its whole range.

    Parameters
    ----------
    xp : module
        NumPy or CuPy, which has float8_e4m3fn as its bytes.
    shape : tuple of int
    dtype : numpy.dtype
    seed : int
    """
    rng = xp.random.default_rng(seed)
    if dtype.kind == "i":
        return rng.integers(-128, 128, shape, dtype=np.int8)
    if dtype == float8_e4m3fn:
        bits = _float8_bits(rng.standard_normal(shape, dtype=np.float32))
        return bits.view(dtype) if xp is np else bits
    wide = np.float64 if dtype == np.float64 else np.float32
    return rng.standard_normal(shape, dtype=wide).astype(dtype, copy=False)


def _float8_bits(values: Any) -> Any:
    """Return float32 values below 448 rounded to float8_e4m3fn, below 2**-6 as zeros.

    CuPy has no such conversion. The exponent's bias is 7 instead of 127, the mantissa has 3 bits.
    """
    bits = values.view(np.uint32)
    rounded = (bits + 0x7FFFF + (bits >> 20 & 1)) >> 20
    magnitude = (rounded & 0x7FF) - (120 << 3)
    sign = rounded >> 11 << 7
    return (sign | magnitude * (abs(values) >= 2.0**-6)).astype(np.uint8)
