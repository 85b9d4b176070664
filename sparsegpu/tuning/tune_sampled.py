"""What `tune` measures of ``sampled_addmm``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._arrays import as_array
from .._checks import bad_type
from .._epilogue import Epilogue
from ..bsr.array import bsr_array
from ..bsr.make import random_bsr
from ..engines.cuda.winners import Kind
from ..ops._canonical import distinct_pattern
from ..ops.sampled_addmm import sampled_addmm
from .operands import random_array

#: The operation.
SAMPLED = "sampled_addmm"


def sampled_operands(bsr: Any, dense: Any) -> tuple[bsr_array, tuple[Any, Any]]:
    """Return a pattern and two matrices.

    Raises
    ------
    TypeError
        No bsr_array, or no pair.
    """
    if not isinstance(bsr, bsr_array):
        raise bad_type("tune", "bsr", f"a bsr_array for op={SAMPLED!r}", type(bsr).__name__)
    if not isinstance(dense, (tuple, list)) or len(dense) != 2:
        expected = f"a tuple (mat1, mat2) for op={SAMPLED!r}"
        raise bad_type("tune", "dense", expected, type(dense).__name__)
    mat1, mat2 = (as_array(a, "tune", "dense") for a in dense)
    return bsr, (mat1, mat2)


def random_sampled(
    shape: Any, blocksize: Any, dtype: np.dtype, density: float
) -> tuple[bsr_array, tuple[Any, Any]]:
    """Return random operands on the device: (M, K) @ (K, N) at blocks of an (M, N) pattern."""
    import cupy

    m, k, n = shape
    bsr = random_bsr((m, n), blocksize, density, dtype=bool, rng=0, xp=cupy)
    return bsr, (random_array(cupy, (m, k), dtype, seed=1), random_array(cupy, (k, n), dtype, 2))


def sampled_kind_of(bsr: bsr_array, mats: tuple[Any, Any], allow_tf32: bool) -> Kind:
    """Return the kind of a sampled product, as a call of it looks it up."""
    from ..engines.cuda.paths._sampled import Sampled
    from ..engines.cuda.paths._tuned import sampled_kind

    mat1, mat2 = mats
    batch = np.broadcast_shapes(mat1.shape[:-2], mat2.shape[:-2], bsr.pattern.batch_shape)
    pattern = distinct_pattern(bsr.pattern, "tune", "bsr").broadcast_to(batch)
    return sampled_kind(Sampled(None, pattern, mat1, mat2, Epilogue(), allow_tf32).facts())


def sampled_product(bsr: bsr_array, mats: tuple[Any, Any], allow_tf32: bool) -> Callable[..., Any]:
    """Return a call that takes ``config`` and ``out`` and returns the stored blocks."""
    mat1, mat2 = mats
    if bsr.dtype != mat1.dtype:  # the matrices' absolute values: only where blocks are is asked
        bsr = bsr.astype(bool)

    def call(*, config: Any = None, out: Any = None) -> Any:
        given = None if out is None else bsr.with_data(out)
        return sampled_addmm(
            bsr, mat1, mat2, beta=0, out=given, allow_tf32=allow_tf32, config=config
        ).data

    return call
