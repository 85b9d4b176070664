"""From a case to operands: random data on the device, the call, and the check of its result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

import sparsegpu as sg

from .._arrays import bfloat16, dtype_of, float8_e4m3fn
from ..ops._product import Options
from ..ops._product_24 import addmm
from ..tuning.operands import random_array
from .case import Case
from .check import error_in_bounds
from .patterns import block_pattern

#: The path of `scatter_mm` that follows a pattern's lists, by the layout of a case.
TILES = {"tiles": "simt", "tiles on tensor cores": "mma", "tiles by wgmma": "wgmma"}

Arrays = tuple[Any, ...]


@dataclass(eq=False)
class Workload(ABC):
    """A case with its operands.

    Attributes
    ----------
    case : Case
    call : callable
        Does the work; this is what is timed.
    values : array
        The stored values of the sparse matrix.
    operands : tuple of array
        All that the call reads.
    """

    case: Case
    call: Callable[[], Any]
    values: Any
    operands: Arrays

    @property
    def stored(self) -> int:
        """Number of stored elements, of all batches."""
        return int(self.values.size)

    @property
    def flops(self) -> int:
        """Useful operations; one per stored element where the work is no product."""
        return self.stored

    @property
    def bytes(self) -> int:
        """Bytes that must be moved: operands and results once."""
        return sum(int(array.nbytes) for array in (*self.operands, *self.results()))

    @abstractmethod
    def error(self) -> float:
        """Check the result; return its largest error as a fraction of what is allowed.

        Raises
        ------
        AssertionError
            The result is wrong.
        """

    def results(self) -> Arrays:
        """Do the work and return the arrays that it made."""
        answer = self.call()
        return answer if isinstance(answer, tuple) else (answer,)

    def same_bits(self) -> bool:
        """Do the work twice and compare the bits."""
        first = [bits_of(array).copy() for array in self.results()]
        again = [bits_of(array) for array in self.results()]
        return all(bool((a == b).all()) for a, b in zip(first, again, strict=True))


def bits_of(array: Any) -> Any:
    """Return a view of an array as unsigned integers, which are equal where the bits are."""
    return array.view(np.dtype(f"u{array.itemsize}"))


@dataclass(eq=False)
class Product(Workload):
    """``out = act(input + left_alpha * (left @ dense) * right_alpha)``.

    Attributes
    ----------
    left : bsr_array or dense array
        The matrix on the left of the formula; transposed where the call transposes its operand.
    dense, out : array (*B, K, N), (*B, M, N)
        Operand and result of the formula: views of what the call gets.
    keywords : dict
        What is fused into the product.
    product : callable
        Of 2:4: given another 2:4 matrix, a result and keywords, returns the call of that product.
    """

    values: Any = field(init=False)
    operands: Arrays = field(init=False)
    left: Any
    dense: Any
    out: Any
    keywords: dict[str, Any] = field(default_factory=dict)
    product: Callable[..., Callable[[], Any]] | None = None

    def __post_init__(self) -> None:
        left = self.left
        parts = (
            (left.data, left.indices, left.indptr) if isinstance(left, sg.bsr_array) else (left,)
        )
        self.values, self.operands = parts[0], (*parts, self.dense)

    @property
    def dtype(self) -> np.dtype:
        """The operands' dtype, also where CuPy has float8 as bytes."""
        return dtype_of(self.case.dtype)

    def typed(self, values: np.ndarray) -> np.ndarray:
        """Return values on the host in the operands' dtype."""
        return values.view(self.dtype) if self.dtype == float8_e4m3fn else values

    @property
    def flops(self) -> int:
        """Useful operations; of a 2:4 product the dense-equivalent ones."""
        return 2 * self.stored * (self.dense.shape[-1] if self.dense.ndim > 1 else 1)

    def wide(self) -> Any:
        """Return the matrix on the left as a dense array."""
        return self.left.toarray() if isinstance(self.left, sg.bsr_array) else self.left

    def poison(self) -> None:
        """Fill ``out`` with NaN, or with an integer that is hardly a result."""
        self.out.fill(-77 if self.out.dtype.kind == "i" else np.nan)

    def results(self) -> Arrays:
        self.poison()
        self.call()
        return (self.out,)

    def error(self) -> float:
        return error_in_bounds(self)


def make_product(case: Case, xp: ModuleType, seed: int = 0) -> Product:
    """Draw the operands of a product in the given array library."""
    if case.operation == "2:4":
        return _semi_structured(case, xp, seed)
    if case.operation == "2:4 blocks":
        return _sparse_blocks(case, xp, seed)
    matrix = make_matrix(case, xp, seed)
    m, k, n = case.shape
    batch = (case.batch,) if case.batch else ()
    dtype = matrix.dtype
    out_dtype = np.dtype(np.int32) if dtype == np.int8 else dtype
    dense = random_array(xp, (*batch, k, n), dtype, seed + 1)
    out = xp.empty((*batch, m, n), out_dtype)
    keywords = _fused(xp, case, seed) if case.fused else {}
    layout = case.layout
    if layout == "dense columns":
        dense = dense.swapaxes(-1, -2).copy().swapaxes(-1, -2)
    elif layout == "out columns":
        out = xp.empty((n, m), out_dtype).T
    elif layout == "1-D dense":
        dense, out = dense[:, 0].copy(), xp.empty(m, out_dtype)
    if layout == "dense @ bsr":
        right, result = dense.T.copy(), out.T.copy()
        swapped = partial(sg.dense_bsr_matmul, right, matrix, out=result)
        return Product(case, swapped, matrix.T, right.T, result.T)
    if layout == "bsr.T @ dense":
        return Product(case, lambda: sg.bsr_matmul(matrix.T, dense, out=out), matrix.T, dense, out)
    if layout == "index lists" or layout in TILES:
        lists = sg.bsr_scatter_mm_indices_data(matrix, dense)
        call = partial(sg.bsr_scatter_mm, matrix, dense, lists, out)
        if layout != "index lists":
            path = TILES[layout]
            call = partial(_add_tiles, matrix.data, dense, lists, out, {"path": path})
        return Product(case, call, matrix, dense, out)
    given = {"input": None, "beta": 0} | keywords | {"allow_tf32": case.tf32}
    given |= case.config
    bias = given.pop("input")
    call = partial(sg.bsr_addmm, bias, matrix, dense, out=out, **given)
    return Product(case, call, matrix, dense, out, keywords)


def _add_tiles(blocks: Any, others: Any, lists: tuple, out: Any, config: dict[str, Any]) -> None:
    """Let a kernel of `scatter_mm` compute a whole product."""
    out.fill(0)
    sg.scatter_mm(blocks, others, lists, accumulators=out, config=config)


def make_matrix(case: Case, xp: ModuleType, seed: int = 0) -> sg.bsr_array:
    """Draw a case's matrix; every call makes a new pattern."""
    rng = np.random.default_rng(seed)
    m, k, _ = case.shape
    (bm, bk), dtype = case.block, dtype_of(case.dtype)
    parts = [
        block_pattern(case.pattern, (m // bm, k // bk), case.density, rng)
        for _ in range(case.batch or 1)
    ]
    indptr, indices = (np.stack(part) if case.batch else part[0] for part in zip(*parts))
    data = random_array(xp, (*indices.shape, bm, bk), dtype, seed)
    arrays = (data, xp.asarray(indices), xp.asarray(indptr))
    return sg.bsr_array(arrays, shape=(*data.shape[:-3], m, k), check=False)


def _fused(xp: ModuleType, case: Case, seed: int) -> dict[str, Any]:
    m, _, n = case.shape
    # Sums of about 1, where gelu is not linear.
    scale = (case.density * case.shape[1]) ** -0.5
    return {
        "input": random_array(xp, (m, 1), dtype_of(case.dtype), seed + 2),
        "beta": 1,
        "left_alpha": xp.full(m, scale, np.float32),
        "right_alpha": random_array(xp, (n,), np.dtype(np.float32), seed + 3),
        "activation": "gelu",
    }


def _semi_structured(case: Case, xp: ModuleType, seed: int) -> Product:
    m, k, n = case.shape
    dtype = dtype_of(case.dtype)
    keep = "1:2" if dtype == np.float32 else "2:4"
    pruned = sg.prune_24(random_array(xp, (m, k), dtype, seed), keep=keep)
    by_columns = case.layout == "dense columns"
    dense = random_array(xp, (n, k) if by_columns else (k, n), dtype, seed + 1)
    if by_columns:
        dense = dense.T
    out_dtype = bfloat16 if dtype.itemsize == 1 else dtype
    by_columns = case.layout == "out columns"
    out = xp.empty((n, m), out_dtype).T if by_columns else xp.empty((m, n), out_dtype)

    def product(matrix: sg.SemiStructuredArray, out: Any, **keywords: Any) -> Callable[[], Any]:
        if dtype == float8_e4m3fn:  # as `scaled_mm` does, which has no `out`
            options = Options(beta=0, out=out, **case.config, **keywords)
            return lambda: addmm("bench", None, matrix, dense, options, operand_dtype=dtype)
        if case.tf32:
            keywords["allow_tf32"] = True
        given = keywords | case.config
        return lambda: sg.semi_structured_matmul(matrix, dense, out=out, **given)

    call = product(sg.to_semi_structured(pruned), out)
    return Product(case, call, pruned, dense, out, product=product)


def _sparse_blocks(case: Case, xp: ModuleType, seed: int) -> Product:
    m, k, n = case.shape
    whole = make_matrix(case, xp, seed)
    pruned = whole.with_data(sg.prune_24(whole.data))
    matrix = pruned.semi_structured()
    dense = random_array(xp, (k, n), whole.dtype, seed + 1)
    out = xp.empty((m, n), whole.dtype)
    call = partial(sg.bsr_matmul, matrix, dense, out=out, **case.config)
    return Product(case, call, pruned, dense, out)
