"""The products of the contract as dense formulas in wide dtypes, and the accuracy rule's bound.

Written from the contract's text; nothing here computes with the library. What the contract has no
answer to is `MustRefuse`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsegpu.testing import accumulator_roundoff, exact_activation, exact_dtype

from .case import Close, Same, require
from .draws import BFLOAT16, FP8, OPERANDS, Bsr

FLOATS = (np.dtype(np.float16), BFLOAT16, np.dtype(np.float32))
INT8, INT32, SINGLE = np.dtype(np.int8), np.dtype(np.int32), np.dtype(np.float32)
ACTIVATIONS = (None, "relu", "gelu", "gelu_erf", "silu")
_LIPSCHITZ = 1.2  # of every activation: gelu's is 1.13, silu's 1.1


def array(x: Any) -> np.ndarray:
    """Return what counts as an array of numbers, a list too."""
    require(not isinstance(x, (str, bytes, dict, np.ma.MaskedArray, Bsr)), f"no array: {x!r:.60}")
    result = np.asarray(x)
    require(result.dtype != object, "an array of objects")
    return result


def number(x: Any, *, complex_allowed: bool = False) -> Any:
    """Return a scalar as a Python number."""
    if isinstance(x, np.ndarray) and x.ndim == 0:
        x = x[()]
    x = x.item() if isinstance(x, np.generic) else x
    require(isinstance(x, (int, float, complex)), f"no number: {x!r:.60}")
    require(complex_allowed or not isinstance(x, complex), "complex for real operands")
    require(not isinstance(x, int) or abs(x) < 2**1023, "larger than a float")
    return float(x) if isinstance(x, int) and abs(x) > 2**53 else x


def dtype_named(name: Any) -> np.dtype:
    return {"bfloat16": BFLOAT16, "float8_e4m3fn": FP8}.get(name) or np.dtype(name)


def result_dtype(dtype: np.dtype, out: Any, out_dtype: Any) -> np.dtype:
    """Return the output dtype that the contract offers for operands of ``dtype``."""
    offered = {INT8: (INT32, INT8, *FLOATS), FP8: (BFLOAT16, *FLOATS)}.get(dtype)
    offered = offered or ((dtype, *FLOATS) if dtype in FLOATS else (dtype,))
    wanted = [] if out_dtype is None else [dtype_named(out_dtype)]
    wanted += [] if out is None else [out.dtype]
    require(all(w in offered for w in wanted) and len(set(wanted)) < 2, "an output dtype")
    return wanted[0] if wanted else offered[0]


def bsr_product(
    bsr: Bsr, dense: np.ndarray, *, transposed: bool = False
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return ``bsr @ dense``, the same of magnitudes, and the most products in a sum.

    Only stored blocks count: an infinity in ``dense`` shows where a block meets it.
    """
    wide = exact_dtype(dense.dtype)
    m, k = reversed(bsr.shape) if transposed else bsr.shape
    require(dense.ndim >= 2 and dense.shape[-2] == k, "inner sizes")
    batch = np.broadcast_shapes(bsr.batch, dense.shape[:-2])
    dense = np.broadcast_to(dense, (*batch, *dense.shape[-2:])).astype(wide)
    which = np.arange(int(np.prod(bsr.batch))).reshape(bsr.batch)
    which = np.broadcast_to(which, batch)
    product = np.zeros((*batch, m, dense.shape[-1]), wide)
    size, terms = np.zeros(product.shape, np.abs(product).dtype), 0
    for b in np.ndindex(*batch):
        own = np.unravel_index(int(which[b]), bsr.batch) if bsr.batch else ()
        met: dict[int, int] = {}
        for i, j, block in bsr.blocks(own):
            if transposed:
                i, j, block = j, i, block.T
            bm, bk = block.shape
            rows, lines = slice(i * bm, (i + 1) * bm), slice(j * bk, (j + 1) * bk)
            block = block.astype(wide)
            product[b][rows] += block @ dense[b][lines]
            size[b][rows] += np.abs(block) @ np.abs(dense[b][lines])
            met[i] = met.get(i, 0) + bk
        terms = max(terms, *met.values(), 0)
    return product, size, terms


def finished(
    product: np.ndarray,
    size: np.ndarray,
    terms: int,
    dtype: np.dtype,
    *,
    input: Any = None,
    beta: Any = 1,
    alpha: Any = 1,
    left_alpha: Any = None,
    right_alpha: Any = None,
    activation: Any = None,
    out: Any = None,
    out_dtype: Any = None,
    allow_tf32: Any = False,
    config: Any = None,
    vector: int | None = None,
    empty: bool = False,
) -> Close | Same:
    """Return act(beta * input + left_alpha * alpha * product * right_alpha), with its bound.

    ``product`` is (*B, M, N); the caller's result lacks the axis ``vector`` (-1 or -2). ``empty``:
    no block is stored, so that nothing scales the product.
    """
    require(config is None, "a config")
    require(
        isinstance(activation, (str, type(None))) and activation in ACTIVATIONS, "an activation"
    )
    is_complex = dtype.kind == "c"
    require(not (is_complex and activation), "activation of complex")
    alpha, beta = (number(x, complex_allowed=is_complex) for x in (alpha, beta))
    shape = product.shape if vector is None else np.take(product, 0, vector).shape
    if out is not None:
        require(isinstance(out, np.ndarray) and out.shape == shape, "the shape of out")
    dtype_out = result_dtype(dtype, out, out_dtype)
    work = np.dtype(np.float64) if dtype.kind == "i" else product.dtype
    exact, plain = product.astype(work), True
    for side, axis, n in ((left_alpha, -1, -2), (right_alpha, -2, -1)):
        if side is not None:
            scale = array(side)
            require(scale.dtype in {dtype, dtype_out, SINGLE}, "dtype of alphas")
            target = (*product.shape[:-2], product.shape[n])
            require(scale.ndim and scale.shape[-1] == target[-1], "length of alphas")
            np.broadcast_to(scale, target)
            if not (alpha == 0 or empty):
                scale, plain = np.expand_dims(scale.astype(work), axis), False
                exact, size = exact * scale, size * np.abs(scale)
    if alpha == 0 or empty:
        exact, size = np.zeros(product.shape, work), np.zeros(size.shape)
    else:
        exact, size = exact * alpha, size * abs(alpha)
    if input is not None:
        input = array(input)
        allowed = {dtype, dtype_out} | ({INT32} if dtype == INT8 else set())
        require(input.dtype in allowed, "dtype of input")
        np.broadcast_to(input, shape)
        if beta != 0:
            term = input.astype(work)
            term = beta * (
                term if vector is None or not term.ndim else np.expand_dims(term, vector)
            )
            exact, size = exact + term, size + np.abs(term)
            plain = plain and input.dtype.kind == "i"
    if not (np.isfinite(alpha) and np.isfinite(beta)):
        return Shaped(shape, dtype_out)
    u, operand = accumulator_roundoff(dtype, allow_tf32=bool(allow_tf32) and dtype == SINGLE)
    if dtype.kind == "i":
        # Other outputs than int32 are computed in float32.
        plain = (
            plain
            and dtype_out == INT32
            and all(float(x).is_integer() for x in (alpha, beta))
            and activation in {None, "relu"}
        )
        u = 0.0 if plain else 2.0**-24
        terms = 0
    bound = (2 * (terms + 5) * u + operand) * size.astype(np.float64)
    if activation is not None:
        exact = exact_activation(exact, activation)
        bound = bound * _LIPSCHITZ + 8 * u * np.abs(exact)
    if vector is not None:
        exact, bound = np.take(exact, 0, vector), np.take(bound, 0, vector)
    return Close(exact, bound, dtype_out)


class Shaped:
    """A result of whose values nothing is promised: an infinite or NaN scale."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype):
        self.shape, self.dtype = shape, dtype

    def check(self, got: Any) -> None:
        assert (tuple(got.shape), got.dtype) == (self.shape, self.dtype)


def check_operands(a: np.dtype, b: np.dtype) -> None:
    require(a == b and a in OPERANDS, f"operands of {a} and {b}")


def addmm(
    input: Any, bsr: Any, dense: Any, *, from_the_right: bool = False, **keywords: Any
) -> Any:
    """`bsr_addmm`, or `dense_bsr_matmul` by the transposes."""
    require(isinstance(bsr, Bsr), "a bsr_array")
    dense = array(dense)
    check_operands(bsr.dtype, dense.dtype)
    require(dense.ndim > 0, "a dimension")
    seen = (
        dense[:, None] if dense.ndim == 1 else dense.swapaxes(-1, -2) if from_the_right else dense
    )
    product, size, terms = bsr_product(bsr, seen, transposed=from_the_right)
    vector = None if dense.ndim > 1 else -2 if from_the_right else -1
    if from_the_right:
        product, size = product.swapaxes(-1, -2), size.swapaxes(-1, -2)
    empty = bsr.indices.shape[-1] == 0
    return finished(
        product, size, terms, bsr.dtype, input=input, vector=vector, empty=empty, **keywords
    )


def dense_product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``a @ b`` in a wide dtype, and the same of magnitudes."""
    wide = exact_dtype(a.dtype)
    a, b = a.astype(wide), b.astype(wide)
    return a @ b, np.abs(a) @ np.abs(b)


def rounding(dtype: np.dtype) -> float:
    """Return the unit roundoff of the accumulator of ``dtype``."""
    return accumulator_roundoff(dtype)[0]
