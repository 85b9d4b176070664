"""From a case to operands: random data on the device, the call, and what it must come to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

import sparsegpu as sg

from .._arrays import bfloat16, dtype_of, float8_e4m3fn
from ..ops._product import Options
from ..ops._product_24 import addmm
from .case import Case
from .patterns import block_pattern


@dataclass(eq=False)
class Problem:
    """``out = act(input + left_alpha * (left @ dense) * right_alpha)`` as a case has it.

    Attributes
    ----------
    case : Case
    left : bsr_array or dense array
        The matrix on the left as the formula has it, transposed where the call does that itself.
    dense, out : array (*B, K, N), (*B, M, N)
        Operand and result as the formula has them: views of what the call gets.
    call : callable
        The library's product, into ``out``.
    keywords : dict
        What is fused behind the product.
    product : callable
        Of 2:4: given another 2:4 matrix, a result and keywords, returns the call of that product.
    """

    case: Case
    left: Any
    dense: Any
    out: Any
    call: Callable[[], Any]
    keywords: dict[str, Any] = field(default_factory=dict)
    product: Callable[..., Callable[[], Any]] | None = None

    @property
    def dtype(self) -> np.dtype:
        """What the operands stand for; CuPy's float8 is bytes."""
        return dtype_of(self.case.dtype)

    def real(self, values: np.ndarray) -> np.ndarray:
        """Return operands on the host as what they stand for."""
        return values.view(self.dtype) if self.dtype == float8_e4m3fn else values

    @property
    def stored(self) -> int:
        """Number of stored elements, all batches."""
        return int(self.left.data.size if isinstance(self.left, sg.bsr_array) else self.left.size)

    @property
    def flops(self) -> int:
        """Useful operations; of a 2:4 product the dense-equivalent ones."""
        columns = self.dense.shape[-1] if self.dense.ndim > 1 else 1
        return 2 * self.stored * columns

    @property
    def stored_bytes(self) -> int:
        """Bytes of the stored values."""
        return self.stored * self.dense.itemsize

    @property
    def bytes(self) -> int:
        """Bytes that must be moved: values, indices, operand and result once."""
        index = 0
        if isinstance(self.left, sg.bsr_array):
            index = self.left.indices.nbytes + self.left.indptr.nbytes
        return self.stored_bytes + index + self.dense.nbytes + self.out.nbytes

    def wide(self) -> Any:
        """Return the matrix on the left as a dense array."""
        return self.left.toarray() if isinstance(self.left, sg.bsr_array) else self.left

    def poison(self) -> None:
        """Fill ``out`` with what no product is (NaN for floats)."""
        self.out.fill(-77 if self.out.dtype.kind == "i" else np.nan)


def make_problem(case: Case, xp: ModuleType, seed: int = 0) -> Problem:
    """Draw a case's operands in the given array library."""
    if case.operation == "2:4":
        return _semi_structured(case, xp, seed)
    if case.operation == "2:4 blocks":
        return _sparse_blocks(case, xp, seed)
    matrix = make_matrix(case, xp, seed)
    m, k, n = case.shape
    batch = (case.batch,) if case.batch else ()
    dtype = matrix.dtype
    out_dtype = np.dtype(np.int32) if dtype == np.int8 else dtype
    dense = random_values(xp, (*batch, k, n), dtype, seed + 1)
    out = xp.empty((*batch, m, n), out_dtype)
    keywords = _fused(xp, case, seed) if case.fused else {}
    layout = case.layout
    left = matrix
    if layout == "dense columns":
        dense = dense.swapaxes(-1, -2).copy().swapaxes(-1, -2)
    elif layout == "out columns":
        out = xp.empty((n, m), out_dtype).T
    elif layout == "1-D dense":
        dense, out = dense[:, 0].copy(), xp.empty(m, out_dtype)
    if layout == "dense @ bsr":
        right, result = dense.T.copy(), out.T.copy()
        return Problem(
            case,
            matrix.T,
            right.T,
            result.T,
            lambda: sg.dense_bsr_matmul(right, matrix, out=result),
        )
    if layout == "bsr.T @ dense":
        left = matrix.T
        return Problem(case, left, dense, out, lambda: sg.bsr_matmul(matrix.T, dense, out=out))
    given = {"input": None, "beta": 0} | keywords | {"allow_tf32": case.tf32}
    if case.path:
        given["config"] = {"path": case.path}
    bias = given.pop("input")
    return Problem(
        case,
        left,
        dense,
        out,
        lambda: sg.bsr_addmm(bias, matrix, dense, out=out, **given),
        keywords,
    )


def make_matrix(case: Case, xp: ModuleType, seed: int = 0) -> sg.bsr_array:
    """Draw a case's matrix; every call makes a pattern of its own."""
    rng = np.random.default_rng(seed)
    m, k, _ = case.shape
    (bm, bk), dtype = case.block, dtype_of(case.dtype)
    parts = [
        block_pattern(case.pattern, (m // bm, k // bk), case.density, rng)
        for _ in range(case.batch or 1)
    ]
    indptr, indices = (np.stack(part) if case.batch else part[0] for part in zip(*parts))
    data = random_values(xp, (*indices.shape, bm, bk), dtype, seed)
    arrays = (data, xp.asarray(indices), xp.asarray(indptr))
    return sg.bsr_array(arrays, shape=(*data.shape[:-3], m, k), check=False)


def random_values(xp: ModuleType, shape: tuple[int, ...], dtype: np.dtype, seed: int) -> Any:
    """Return signed random data, drawn on the device: standard normal, int8 over its range."""
    rng = xp.random.default_rng(seed)
    if dtype.kind == "i":
        return rng.integers(-128, 128, shape, dtype=np.int8)
    if dtype == float8_e4m3fn:
        bits = _float8_bits(rng.standard_normal(shape, dtype=np.float32))
        return bits.view(dtype) if xp is np else bits
    wide = np.float64 if dtype == np.float64 else np.float32
    return rng.standard_normal(shape, dtype=wide).astype(dtype, copy=False)


def _fused(xp: ModuleType, case: Case, seed: int) -> dict[str, Any]:
    m, _, n = case.shape
    # Alphas that bring the sums to where gelu bends.
    scale = (case.density * case.shape[1]) ** -0.5
    return {
        "input": random_values(xp, (m, 1), dtype_of(case.dtype), seed + 2),
        "beta": 1,
        "left_alpha": xp.full(m, scale, np.float32),
        "right_alpha": random_values(xp, (n,), np.dtype(np.float32), seed + 3),
        "activation": "gelu",
    }


def _float8_bits(values: Any) -> Any:
    """Return normal numbers below 448 as the nearest of float8_e4m3fn, smaller ones as zeros.

    CuPy cannot convert to it: the exponent's bias is 7 instead of 127, the mantissa has 3 bits.
    """
    bits = values.view(np.uint32)
    rounded = (bits + 0x7FFFF + (bits >> 20 & 1)) >> 20
    magnitude = (rounded & 0x7FF) - (120 << 3)
    sign = rounded >> 11 << 7
    return (sign | magnitude * (abs(values) >= 2.0**-6)).astype(np.uint8)


def _semi_structured(case: Case, xp: ModuleType, seed: int) -> Problem:
    m, k, n = case.shape
    dtype = dtype_of(case.dtype)
    keep = "1:2" if dtype == np.float32 else "2:4"
    pruned = sg.prune_24(random_values(xp, (m, k), dtype, seed), keep=keep)
    by_columns = case.layout == "dense columns"
    dense = random_values(xp, (n, k) if by_columns else (k, n), dtype, seed + 1)
    if by_columns:
        dense = dense.T
    out_dtype = bfloat16 if dtype.itemsize == 1 else dtype
    out = (
        xp.empty((n, m), out_dtype).T
        if case.layout == "out columns"
        else xp.empty((m, n), out_dtype)
    )

    def product(matrix: sg.SemiStructuredArray, out: Any, **keywords: Any) -> Callable[[], Any]:
        if dtype == float8_e4m3fn:  # what `scaled_mm` does, which has no `out`
            options = Options(beta=0, out=out, **keywords)
            return lambda: addmm("race", None, matrix, dense, options, operand_dtype=dtype)
        if case.tf32:
            keywords["allow_tf32"] = True
        return lambda: sg.semi_structured_matmul(matrix, dense, out=out, **keywords)

    call = product(sg.to_semi_structured(pruned), out)
    return Problem(case, pruned, dense, out, call, product=product)


def _sparse_blocks(case: Case, xp: ModuleType, seed: int) -> Problem:
    m, k, n = case.shape
    whole = make_matrix(case, xp, seed)
    pruned = whole.with_data(sg.prune_24(whole.data))
    matrix = pruned.semi_structured()
    dense = random_values(xp, (k, n), whole.dtype, seed + 1)
    out = xp.empty((m, n), whole.dtype)
    return Problem(case, pruned, dense, out, lambda: sg.bsr_matmul(matrix, dense, out=out))
