"""Cases of 2:4 operands: products, and the arrays' own methods."""

from __future__ import annotations

import io
import operator
import pickle
from typing import Any

import numpy as np

import sparsegpu
from sparsegpu.engines.cuda.paths import SEMI_STRUCTURED

from . import formats, oracle
from .case import Case, Close, Same, positional, public, require
from .draws import FP8, HALVES, TWO_OF_FOUR, Bsr, Draws, TwoOfFour
from .oracle import INT8, SINGLE, array
from .products import an_input, epilogue

#: Kernel paths of the products; None is the one that a call takes by itself.
_PATHS = (None, *(path.NAME for path in SEMI_STRUCTURED))


def _product(sparse: Any, dense: Any, *, right: bool = False, **keywords: Any) -> Close | Same:
    """A product of ``sparse`` (M, K), or of a dense matrix with it from the right.

    Dense operands are finite: what is not kept is not multiplied, and zeros may be kept or not.
    """
    require(isinstance(sparse, TwoOfFour), "a SemiStructuredArray")
    dense, matrix = array(dense), sparse.matrix
    require(dense.ndim > 0 and dense.dtype == sparse.dtype, "a dense operand of the same dtype")
    vector, inner = dense.ndim == 1, matrix.shape[0 if right else 1]
    require(dense.shape[-1 if right or vector else -2] == inner, "inner sizes")
    seen = (dense[None] if right else dense[:, None]) if vector else dense
    product, size = oracle.dense_product(*((seen, matrix) if right else (matrix, seen)))
    if vector and right:
        product, size = product.swapaxes(-1, -2), size.swapaxes(-1, -2)
    terms = inner if right else inner // 2
    return oracle.finished(
        product,
        size,
        terms,
        sparse.dtype,
        vector=-1 if vector else None,
        empty=inner == 0,
        **keywords,
    )


def addmm(draws: Draws) -> Case:
    name = draws.choice(("semi_structured_addmm", "semi_structured_matmul"))
    sparse = draws.two_of_four(draws.choice(TWO_OF_FOUR))
    dtype, (m, k) = sparse.dtype, sparse.shape
    batch, n = draws.choice(((), (), (2,), (0,), (2, 1))), draws.columns()
    vector = draws.chance(15)
    shape = (m,) if vector else (*batch, m, n)
    arguments = {
        "sparse": sparse,
        "dense": draws.values((k,) if vector else (*batch, k, n), dtype, finite=True),
    }
    arguments |= epilogue(draws, dtype, shape, vector=vector)
    if name.endswith("addmm"):
        arguments = {"input": an_input(draws, arguments, dtype, shape)} | arguments

    def expected(sparse: Any, dense: Any, **keywords: Any) -> Any:
        return _product(sparse, dense, **keywords)

    path = draws.choice(_PATHS)
    return public(name, arguments, expected, path=path, writes="out")


def linear(draws: Draws) -> Case:
    weight = draws.two_of_four(draws.choice(TWO_OF_FOUR))
    dtype, (m, k) = weight.dtype, weight.shape
    lead = draws.choice(((), (3,), (2, 4), (0,), (1, 1, 2)))
    keywords = epilogue(draws, dtype, (*lead, m), vector=True)
    output = oracle.result_dtype(dtype, keywords.get("out"), keywords.get("out_dtype"))
    bias = draws.values((m,), draws.choice((dtype, output))) if draws.chance(60) else None

    def expected(x: Any, weight: Any, bias: Any = None, **more: Any) -> Any:
        require(isinstance(weight, TwoOfFour), "a SemiStructuredArray")
        x = array(x)
        require(x.ndim > 0 and x.dtype == weight.dtype and x.shape[-1] == k, "x")
        require(bias is None or array(bias).shape == (m,), "a bias")
        rows = x[None] if x.ndim == 1 else x
        product, size = oracle.dense_product(rows, weight.matrix.T)
        if x.ndim == 1:
            product, size = product.swapaxes(-1, -2), size.swapaxes(-1, -2)
        return oracle.finished(
            product, size, k // 2, dtype, input=bias, vector=-1 if x.ndim == 1 else None, **more
        )

    arguments = {
        "x": draws.values((*lead, k), dtype, finite=True),
        "weight": weight,
        "bias": bias,
    } | keywords
    return public("semi_structured_linear", arguments, expected, writes="out")


def matmul_operator(draws: Draws) -> Case:
    sparse, right = draws.two_of_four(draws.choice(TWO_OF_FOUR)), draws.chance(50)
    transposed = draws.chance(30)
    m, k = sparse.shape[::-1] if transposed else sparse.shape
    n = draws.columns()
    dense = draws.values((n, m) if right else (k, n), sparse.dtype, finite=True)

    def call(sparse: Any, dense: Any) -> Any:
        sparse = sparse.T if transposed else sparse
        return dense @ sparse if right else sparse @ dense

    def expected(sparse: Any, dense: Any) -> Any:
        seen = TwoOfFour(sparse.matrix.T if transposed else sparse.matrix)
        # Either half may be the one that is split in two: then every element is summed.
        product, size = oracle.dense_product(
            *((dense, seen.matrix) if right else (seen.matrix, dense))
        )
        return oracle.finished(product, size, 2 * max(seen.shape), seen.dtype)

    name = "x @ SemiStructuredArray" if right else "SemiStructuredArray @ x"
    return Case(
        name,
        call,
        {"sparse": sparse, "dense": dense},
        expected,
        fixed=frozenset({"sparse", "dense"}),
    )


def scaled_mm(draws: Draws) -> Case:
    sparse = draws.two_of_four(draws.choice((FP8, INT8)), exact=True)
    (m, k), n, rng = sparse.shape, draws.columns(), draws.rng()
    dense = draws.values((k, n), sparse.dtype, exact=True)
    per_row, per_column = draws.chance(50), draws.chance(50)
    arguments: dict[str, Any] = {
        "sparse": sparse,
        "dense": dense,
        "scale_sparse": rng.random(m).astype(np.float32)
        if per_row
        else draws.choice((1.0, 0.25, 2)),
        "scale_dense": rng.random(n).astype(np.float32)
        if per_column
        else draws.choice((1.0, 0.5, np.float32(3))),
        "out_dtype": draws.choice((None, *HALVES, SINGLE, "float32")),
        "activation": draws.choice(oracle.ACTIVATIONS),
    }

    def call(dense: Any, **more: Any) -> Any:
        return sparsegpu.scaled_mm(dense=dense, **more, dense_dtype=sparse.dtype.name)

    def expected(
        sparse: Any,
        dense: Any,
        scale_sparse: Any,
        scale_dense: Any,
        out_dtype: Any,
        activation: Any,
    ) -> Any:
        require(isinstance(sparse, TwoOfFour), "a SemiStructuredArray")
        dense = array(dense)
        require(dense.dtype == sparse.dtype and dense.ndim >= 2 and dense.shape[-2] == k, "dense")
        numbers = [float(s) if isinstance(s, int) else s for s in (scale_sparse, scale_dense)]
        scales = [array(s).astype(np.float32) for s in numbers]
        sides = [
            np.broadcast_to(s.reshape(-1), (size,)) for s, size in zip(scales, (m, dense.shape[-1]))
        ]
        product, size = oracle.dense_product(sparse.matrix, dense)
        wanted = oracle.BFLOAT16 if out_dtype is None else oracle.dtype_named(out_dtype)
        require(wanted in (*HALVES, SINGLE), "out_dtype")
        return oracle.finished(
            product, size, k // 2, sparse.dtype, left_alpha=sides[0], right_alpha=sides[1],
            activation=activation, out_dtype=wanted,
        )  # fmt: skip

    return Case("scaled_mm", call, arguments, expected, documented=sparsegpu.scaled_mm)


# -- arrays ---------------------------------------------------------------------------------


def _by_file(A: Any) -> Any:
    file = io.BytesIO()
    A.save_npz(file)
    file.seek(0)
    loaded = type(A).load_npz(file)
    return loaded if A.device == "cpu" else loaded.to_device()


_METHODS: dict[str, tuple[Any, Any]] = {
    "todense": (lambda A: A.todense(), lambda d: d),
    "T": (lambda A: A.T.todense(), lambda d: d.T),
    "copy": (lambda A: A.copy().todense(), lambda d: d),
    "pickle": (lambda A: pickle.loads(pickle.dumps(A)).todense(), lambda d: d),
    "save_npz, load_npz": (lambda A: _by_file(A).todense(), lambda d: d),
    "A != 0": (lambda A: A != 0, lambda d: d.astype(np.float64) != 0),
    "A == A": (lambda A: A == A, lambda d: np.ones(d.shape, bool)),
    "A > 1": (lambda A: A > 1, lambda d: d.astype(np.float64) > 1),
    "astype": (lambda A: A.astype(A.dtype).todense(), lambda d: d),
}


def methods(draws: Draws) -> Case:
    sparse = draws.two_of_four(draws.choice(TWO_OF_FOUR), exact=True)
    name = draws.choice(list(_METHODS))
    call, expected = _METHODS[name]
    fixed = frozenset({"A"})
    return Case(
        f"SemiStructuredArray: {name}",
        positional(call),
        {"A": sparse},
        lambda A: Same(expected(A.matrix)),
        fixed=fixed,
    )


def blocks(draws: Draws) -> Case:
    """`BsrSemiStructuredArray`: pruned block by block, then multiplied or expanded."""
    dtype = draws.choice(TWO_OF_FOUR)
    rows, columns = formats.multiples(dtype)
    size = (rows * draws.integer(1, 2), columns * draws.integer(1, 2))
    bsr = draws.bsr(dtype, blocksize=size, counts=(draws.count(2), draws.count(2)), exact=True)
    how = draws.choice(("@", "tobsr", "toarray"))
    n = draws.columns()
    dense = draws.values((bsr.shape[1], n), dtype, exact=True)
    calls = {
        "@": operator.matmul,
        "tobsr": lambda A, x: A.tobsr(),
        "toarray": lambda A, x: A.toarray(),
    }

    def call(bsr: Any, dense: Any) -> Any:
        return calls[how](bsr.semi_structured(prune=True), dense)

    def expected(bsr: Any, dense: Any) -> Any:
        group = 2 if dtype == SINGLE else 4
        pruned = Bsr(formats.prune_24(bsr.data, group), bsr.indices, bsr.indptr, bsr.shape)
        if how != "@":
            return Same(pruned.dense().astype(dtype))
        return oracle.addmm(None, pruned, dense)

    name = f"BsrSemiStructuredArray: {how}"
    return Case(
        name, call, {"bsr": bsr, "dense": dense}, expected, fixed=frozenset({"bsr", "dense"})
    )


CASES = (addmm, linear, matmul_operator, scaled_mm, methods, blocks)
