"""Cases of the BSR products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import sparsegpu
from sparsegpu.engines.cuda.paths import BSR
from sparsegpu.testing import accumulator_roundoff, softmax_backward_bound, to_host

from . import oracle
from .case import Case, Close, by_path, public, require
from .draws import OPERANDS, REALS, Bsr, Draws
from .oracle import FLOATS, INT8, INT32, SINGLE, array, number

#: Kernel paths of the products; None is the one that a call takes by itself.
_PATHS = (None, *(path.NAME for path in BSR))

_ALPHAS = (1, 0, 2, -1, 0.5, 1.5, np.float32(3), True)


def epilogue(
    draws: Draws,
    dtype: np.dtype,
    shape: tuple[int, ...],
    *,
    vector: bool = False,
    full: bool = True,
) -> dict[str, Any]:
    """Draw keywords of a product whose result is ``shape``."""
    keywords: dict[str, Any] = {}
    outputs = {INT8: (INT32, INT8, *FLOATS)}.get(dtype, FLOATS if dtype in FLOATS else (dtype,))
    output = draws.choice(outputs) if draws.chance(40) else outputs[0] if dtype == INT8 else dtype
    if draws.chance(40):
        keywords["out"] = draws.values(shape, output)
    elif output != (INT32 if dtype == INT8 else dtype):
        keywords["out_dtype"] = draws.choice((output, output.name))
    if draws.chance(40):
        keywords["alpha"] = draws.choice(_ALPHAS)
        if dtype.kind == "c" and draws.chance(30):
            keywords["alpha"] = 1 - 2j
    if draws.chance(30) and dtype.kind != "c":
        keywords["activation"] = draws.choice(oracle.ACTIVATIONS)
    if not vector and full:
        for name, n in (("left_alpha", shape[-2]), ("right_alpha", shape[-1])):
            if draws.chance(20):
                lead = shape[:-2] if draws.chance(30) else ()
                keywords[name] = draws.values(
                    (*lead, n), SINGLE if dtype == INT8 else dtype, exact=True
                )
    if dtype == SINGLE and draws.chance(20):
        keywords["allow_tf32"] = True
    return keywords


def an_input(draws: Draws, keywords: dict, dtype: np.dtype, shape: tuple[int, ...]) -> Any:
    """Draw what is added: nothing, or an array that broadcasts to the result."""
    if draws.chance(30):
        return None
    if draws.chance(50):
        keywords["beta"] = draws.choice(_ALPHAS)
    output = oracle.result_dtype(dtype, keywords.get("out"), keywords.get("out_dtype"))
    own = draws.choice((dtype, output, *((INT32,) if dtype == INT8 else ())))
    kept = [n if draws.chance(70) else 1 for n in shape]
    return draws.values(
        tuple(kept[draws.integer(0, len(kept)) :] if draws.chance(30) else kept), own
    )


def operands(draws: Draws, *, from_the_right: bool = False, dtype: Any = None):
    """Draw a BSR and a dense operand that fit, and the shape of their product."""
    dtype = draws.choice(OPERANDS) if dtype is None else dtype
    # On a GPU an infinity may show as NaN in rows that have no block for it: `bsr_addmm` says so.
    finite = draws.on_gpu
    batch, other = draws.batches()
    bsr = draws.bsr(dtype, batch=batch)
    m, k = reversed(bsr.shape) if from_the_right else bsr.shape
    if draws.chance(15):
        return bsr, draws.values((k,), dtype, finite=finite), (*batch, m), True
    n = draws.columns()
    lead = np.broadcast_shapes(batch, other)
    if from_the_right:
        return bsr, draws.values((*other, n, k), dtype, finite=finite), (*lead, n, m), False
    return bsr, draws.values((*other, k, n), dtype, finite=finite), (*lead, m, n), False


def bsr_addmm(draws: Draws) -> Case:
    name = draws.choice(("bsr_addmm", "int_bsr_addmm"))
    bsr, dense, shape, vector = operands(draws, dtype=INT8 if name[0] == "i" else None)
    keywords = epilogue(draws, bsr.dtype, shape, vector=vector)
    arguments = {"input": an_input(draws, keywords, bsr.dtype, shape), "bsr": bsr, "dense": dense}

    def expected(input: Any, bsr: Any, dense: Any, **more: Any) -> Any:
        require(name == "bsr_addmm" or bsr.dtype == INT8, "int8")
        return oracle.addmm(input, bsr, dense, **more)

    path = draws.choice(_PATHS)
    return public(name, arguments | keywords, expected, path=path, writes="out")


def bsr_matmul(draws: Draws) -> Case:
    bsr, dense, shape, vector = operands(draws)
    arguments = {"bsr": bsr, "dense": dense} | epilogue(draws, bsr.dtype, shape, vector=vector)

    def expected(bsr: Any, dense: Any, **more: Any) -> Any:
        return oracle.addmm(None, bsr, dense, **more)

    path = draws.choice(_PATHS)
    return public("bsr_matmul", arguments, expected, path=path, writes="out")


def dense_bsr_matmul(draws: Draws) -> Case:
    bsr, dense, shape, vector = operands(draws, from_the_right=True)
    keywords = epilogue(draws, bsr.dtype, shape, vector=vector)
    arguments = {"dense": dense, "bsr": bsr} | keywords
    if draws.chance(50):
        arguments["beta"] = 1
        arguments["input"] = an_input(draws, arguments, bsr.dtype, shape)

    def expected(dense: Any, bsr: Any, input: Any = None, beta: Any = 0, **more: Any) -> Any:
        return oracle.addmm(input, bsr, dense, beta=beta, from_the_right=True, **more)

    path = draws.choice(_PATHS)
    return public("dense_bsr_matmul", arguments, expected, path=path, writes="out")


def bsr_linear(draws: Draws) -> Case:
    dtype = draws.choice(OPERANDS)
    weight = draws.bsr(dtype, batch=())
    m, k = weight.shape
    lead = draws.choice(((), (3,), (2, 4), (0,), (1, 1, 2)))
    keywords = epilogue(draws, dtype, (*lead, m), vector=True)
    output = oracle.result_dtype(dtype, keywords.get("out"), keywords.get("out_dtype"))
    bias = draws.values((m,), draws.choice((dtype, output))) if draws.chance(60) else None

    def expected(x: Any, weight: Any, bias: Any = None, **more: Any) -> Any:
        require(isinstance(weight, Bsr) and not weight.batch, "one bsr_array")
        x = array(x)
        require(x.ndim > 0, "a dimension")
        oracle.check_operands(weight.dtype, x.dtype)
        require(bias is None or array(bias).shape == weight.shape[:1], "a bias")
        seen = x[:, None] if x.ndim == 1 else x.swapaxes(-1, -2)
        product, size, terms = oracle.bsr_product(weight, seen)
        return oracle.finished(
            product.swapaxes(-1, -2), size.swapaxes(-1, -2), terms, weight.dtype, input=bias,
            vector=-2 if x.ndim == 1 else None, empty=weight.indices.shape[-1] == 0, **more,
        )  # fmt: skip

    x = draws.values((*lead, k), dtype, finite=draws.on_gpu)
    arguments = {"x": x, "weight": weight, "bias": bias} | keywords
    return public("bsr_linear", arguments, expected, writes="out")


def matmul_operator(draws: Draws) -> Case:
    right = draws.chance(50)
    bsr, dense, _, _ = operands(draws, from_the_right=right)

    def expected(bsr: Any, dense: Any) -> Any:
        return oracle.addmm(None, bsr, dense, from_the_right=right)

    call = (lambda bsr, dense: dense @ bsr) if right else (lambda bsr, dense: bsr @ dense)
    # What a spoiled operand's own class does with it is not the library's.
    fixed = frozenset({"bsr", "dense"})
    return Case(
        "x @ A" if right else "A @ x", call, {"bsr": bsr, "dense": dense}, expected, fixed=fixed
    )


#: Kernel paths of sparse times sparse and of sampled products.
_SPGEMM_PATHS = (None, "simt", "model", "small", "mma", "mma_f64", "mma_f64_tiled", "fma")
_SAMPLED_PATHS = (None, "simt", "model", "mma", "wgmma")


def bsr_spgemm(draws: Draws) -> Case:
    dtype, (bm, bk) = draws.choice(OPERANDS), draws.blocksize()
    inner = draws.count(4)
    full = draws.choice((draws.batch(), ()))
    # Matrices of a batch must store as many blocks in the result: only whole ones surely do.
    a = draws.bsr(dtype, blocksize=(bm, bk), counts=(None, inner))
    b = draws.bsr(dtype, blocksize=(bk, draws.choice((1, 2, 5))), counts=(inner, None))
    if full:
        a = Bsr(
            *(np.broadcast_to(x, (*full, *x.shape)) for x in (a.data, a.indices, a.indptr)), a.shape
        )

    def expected(a: Any, b: Any, out_dtype: Any = None) -> Any:
        require(isinstance(a, Bsr) and isinstance(b, Bsr), "two bsr_arrays")
        oracle.check_operands(a.dtype, b.dtype)
        require(a.blocksize[1] == b.blocksize[0] and a.shape[1] == b.shape[0], "sizes")
        return _sparse_product(a, b, oracle.result_dtype(a.dtype, None, out_dtype))

    arguments: dict[str, Any] = {"a": a, "b": b}
    if dtype in FLOATS and draws.chance(30):
        arguments["out_dtype"] = draws.choice(FLOATS)
    documented = sparsegpu.bsr_spgemm
    call = by_path(documented, draws.choice(_SPGEMM_PATHS))
    own_pattern = draws.choice((None, True, False))
    if own_pattern is not None:
        call = partial(_into_out, call, own_pattern)
    return Case("bsr_spgemm", call, arguments, expected, documented=documented)


def _into_out(multiply: Callable[..., Any], own_pattern: bool, a: Any, b: Any, **how: Any) -> Any:
    """Multiply into the memory of another result, of its own pattern or of an equal one."""
    first = multiply(a=a, b=b, **how)
    out, expected = first.copy(), to_host(first.data).tobytes()
    if not own_pattern:
        out = sparsegpu.bsr_array((out.data, out.indices, out.indptr), shape=out.shape)
    out.data.fill(77)
    assert multiply(a=a, b=b, out=out, **how) is out
    assert to_host(out.data).tobytes() == expected, "other values with out="
    assert to_host(first.data).tobytes() == expected, "an earlier result was changed"
    return out


def _sparse_product(a: Bsr, b: Bsr, dtype: np.dtype) -> Close:
    """Multiply stored blocks with stored blocks: what meets no block is not multiplied."""
    wide = oracle.exact_dtype(a.dtype)
    batch = np.broadcast_shapes(a.batch, b.batch)
    product = np.zeros((*batch, a.shape[0], b.shape[1]), wide)
    size, terms = np.zeros(product.shape, np.abs(product).dtype), 0
    (bm, bk), (_, bn) = a.blocksize, b.blocksize
    for at in np.ndindex(*batch):
        of_a, of_b = (
            tuple(0 if n == 1 else i for i, n in zip(at[len(at) - len(x.batch) :], x.batch))
            for x in (a, b)
        )
        right = list(b.blocks(of_b))
        met: dict[tuple[int, int], int] = {}
        for i, j, block in a.blocks(of_a):
            for k, n, other in right:
                if j == k:
                    place = np.s_[i * bm : (i + 1) * bm, n * bn : (n + 1) * bn]
                    one, two = block.astype(wide), other.astype(wide)
                    product[at][place] += one @ two
                    size[at][place] += np.abs(one) @ np.abs(two)
                    met[i, n] = met.get((i, n), 0) + bk
        terms = max(terms, *met.values(), 0)
    u = oracle.rounding(a.dtype)
    return Close(product, 2 * (terms + 5) * u * size.astype(np.float64), dtype)


def sampled_addmm(draws: Draws) -> Case:
    dtype = draws.choice(OPERANDS)
    batch, other = draws.batches()
    own = draws.choice((dtype, np.dtype(bool), *((INT32,) if dtype == INT8 else ())))
    pattern = draws.bsr(own, batch=batch, canonical=True)
    (m, n), k = pattern.shape, draws.columns()
    arguments: dict[str, Any] = {
        "input": pattern,
        "mat1": draws.values((*other, m, k), dtype),
        "mat2": draws.values((*other, k, n), dtype),
    }
    if own.kind == "b" or draws.chance(50):
        arguments["beta"] = 0 if own.kind == "b" else draws.choice(_ALPHAS)
    if draws.chance(40):
        arguments["alpha"] = draws.choice(_ALPHAS)
    if dtype == SINGLE and draws.chance(20):
        arguments["allow_tf32"] = True

    def expected(
        input: Any,
        mat1: Any,
        mat2: Any,
        beta: Any = 1,
        alpha: Any = 1,
        allow_tf32: bool = False,
    ) -> Any:
        require(isinstance(input, Bsr), "a bsr_array")
        mat1, mat2 = array(mat1), array(mat2)
        oracle.check_operands(mat1.dtype, mat2.dtype)
        dtype, stored = mat1.dtype, input.dtype
        alpha, beta = (number(x, complex_allowed=dtype.kind == "c") for x in (alpha, beta))
        require(stored.kind != "b" or beta == 0, "beta of a bool input")
        wanted = INT32 if dtype == INT8 and stored == INT32 else dtype
        wanted = INT8 if dtype == INT8 and stored == INT8 else wanted
        require(
            stored.kind == "b" or stored in {dtype, wanted, *((INT32,) if dtype == INT8 else ())},
            "dtypes",
        )
        require(mat1.shape[-2] == input.shape[0] and mat2.shape[-1] == input.shape[1], "shapes")
        product, size = oracle.dense_product(mat1, mat2)
        np.broadcast_shapes(input.batch, product.shape[:-2])
        kept = input.stored()
        value = input.dense() if beta != 0 and stored.kind != "b" else None
        work = product.dtype if dtype.kind != "i" else np.dtype(np.float64)
        exact = product.astype(work) * alpha if alpha != 0 else np.zeros(product.shape, work)
        size = size * abs(alpha)
        if value is not None:
            exact, size = exact + beta * value, size + abs(beta) * np.abs(value)
        if not np.isfinite(alpha) or not np.isfinite(beta):
            return oracle.Shaped((*np.broadcast_shapes(kept.shape, product.shape),), wanted)
        u = oracle.rounding(dtype)
        tf32 = bool(allow_tf32) and dtype == SINGLE
        operand = accumulator_roundoff(dtype, allow_tf32=tf32)[1]
        if dtype == INT8 and not all(float(x).is_integer() for x in (alpha, beta)):
            u = 2.0**-24
        exact, size = np.where(kept, exact, 0), np.where(kept, size, 0)
        bound = (2 * (mat1.shape[-1] + 5) * u + operand) * size.astype(np.float64)
        return Close(exact, bound, wanted)

    documented = sparsegpu.sampled_addmm
    call = by_path(documented, draws.choice(_SAMPLED_PATHS))
    return Case("sampled_addmm", call, arguments, expected, documented=documented)


def bsr_softmax(draws: Draws) -> Case:
    bsr = draws.bsr(draws.choice(REALS), batch=draws.batch())

    def expected(bsr: Any) -> Any:
        require(isinstance(bsr, Bsr) and bsr.dtype in REALS, "a floating bsr_array")
        stored = bsr.stored()
        x = np.where(stored, bsr.dense().astype(bsr.dtype).astype(np.float64), -np.inf)
        top = x.max(axis=-1, keepdims=True, initial=-np.inf)
        some = stored.any(axis=-1, keepdims=True)
        e = np.where(stored, np.exp(x - np.where(some, top, 0)), 0)
        exact = np.where(stored, e / np.where(some, e.sum(axis=-1, keepdims=True), 1), 0)
        finite = np.isfinite(x)
        high = np.where(finite, x, -np.inf).max(axis=-1, keepdims=True, initial=-np.inf)
        low = np.where(finite, x, np.inf).min(axis=-1, keepdims=True, initial=np.inf)
        spread = np.where(high >= low, high - low, 0)
        u = 2.0**-53 if bsr.dtype == np.float64 else 2.0**-24
        bound = (2 * (x.shape[-1] + 8) + 4 * spread) * u * np.abs(exact) + 2.0**-140
        return Close(exact, bound, bsr.dtype)

    return public("bsr_softmax", {"bsr": bsr}, expected)


def bsr_softmax_backward(draws: Draws) -> Case:
    dtype = draws.choice(REALS)
    softmax = draws.bsr(dtype, batch=draws.batch())
    grad = replace(softmax, data=draws.values(softmax.data.shape, dtype))

    def expected(grad: Any, softmax: Any) -> Any:
        require(isinstance(grad, Bsr) and isinstance(softmax, Bsr), "two bsr_arrays")
        require(grad.dtype in REALS and grad.dtype == softmax.dtype, "one floating dtype")
        require(grad.shape == softmax.shape and grad.blocksize == softmax.blocksize, "shapes")
        stored = softmax.stored()
        require(np.array_equal(stored, grad.stored()), "patterns")
        g, y = (x.dense().astype(x.dtype) for x in (grad, softmax))
        exact, bound = softmax_backward_bound(g, y)
        return Close(np.where(stored, exact, 0), bound, softmax.dtype)

    return public("bsr_softmax_backward", {"grad": grad, "softmax": softmax}, expected)


CASES = (
    bsr_addmm,
    bsr_matmul,
    dense_bsr_matmul,
    bsr_linear,
    matmul_operator,
    bsr_spgemm,
    sampled_addmm,
    bsr_softmax,
    bsr_softmax_backward,
)
