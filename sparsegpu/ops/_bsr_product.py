"""BSR @ dense from either side: what the functions and operators that multiply have in common."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .._arrays import as_array
from .._checks import broadcast_shape, not_offered
from ..engines import computing_engine, engine_module
from ..engines.cuda.runtime.replay import Call
from ..pattern import Pattern
from ._blocks_24 import check_blocks, is_sparse_blocks
from ._common import check_operand_dtypes, check_sparse, check_values, not_sparse, on_device
from ._long_sums import CutPattern, add_rows, cut_pattern, may_be_long
from ._product import (
    WITHOUT_INPUT,
    Options,
    Side,
    call_of,
    check_dense_operand,
    check_no_scalar,
    check_product,
)


def matmul(
    function: str,
    bsr: Any,
    dense: Any,
    *,
    names: tuple[str, str] = ("self", "other"),
    from_the_right: bool = False,
    check: Callable[[], Any] | None = None,
    **keywords: Any,
) -> Any:
    """Do the product from either side for a caller of another name, such as an operator."""
    options = Options(beta=0, **keywords) if keywords else WITHOUT_INPUT
    return addmm(
        function,
        None,
        bsr,
        dense,
        options,
        names=names,
        from_the_right=from_the_right,
        transposed=from_the_right,
        check=check,
    )


def short_product(
    function: str, bsr: Any, dense: np.ndarray, from_the_right: bool
) -> np.ndarray | None:
    """Return ``bsr @ dense``, or ``dense @ bsr``, that `addmm` would plan longer than multiply.

    That is one matrix, and a few columns on the host (from the right a vector). None for others,
    and what is wrong: `addmm` says so.
    """
    pattern, data, dtype = bsr.pattern, bsr.data, dense.dtype
    m, k = pattern.shape[::-1] if from_the_right else pattern.shape
    fits = dense.shape[:1] == (k,) and dense.ndim <= (1 if from_the_right else 2)
    if type(data) is not np.ndarray or dtype != data.dtype or pattern.batch_shape or not fits:
        return None
    if computing_engine(np) != "cpu" or not data.flags.carray:
        return None
    check_values(function, "self", pattern, data)
    engine: Any = engine_module(np, "short_product", function)
    how, columns = (pattern, dtype, from_the_right), dense if dense.ndim == 2 else dense[:, None]
    if not 0 < columns.shape[1] <= engine.most_columns(*how):
        return None
    product = pattern.memo(("short product", *how[1:]), partial(engine.ShortProduct, *how))
    out = np.empty((m, columns.shape[1]), dtype)
    product(out, data, columns)
    return out if dense.ndim == 2 else out[:, 0]


class Operand(NamedTuple):
    """What an operation needs of a block-sparse operand."""

    pattern: Pattern
    data: Any


def transposed_operand(bsr: Any, function: str) -> Operand:
    """Return a block-sparse operand seen from its other side: transposed pattern and values."""
    check_sparse(function, "self", bsr)
    xp = bsr.pattern.xp
    convert = engine_module(xp, "convert", function)
    with on_device(bsr.data):
        pattern, order = convert.transpose_pattern(bsr.pattern)
    call = Call("transpose", bsr.pattern, (bsr.data,))
    replayed = call.replay()
    if replayed is not None:
        return Operand(pattern, *replayed)
    with on_device(bsr.data, bsr.pattern, call):
        data = xp.empty((*bsr.data.shape[:-2], *pattern.blocksize), bsr.data.dtype)
        if data.size:
            blocks = bsr.data.reshape(-1, *bsr.data.shape[-2:])
            convert.transpose_blocks(data.reshape(-1, *pattern.blocksize), blocks, order)
            if bsr.data.flags.c_contiguous:  # else `blocks` are a copy
                call.keep(data)
    return Operand(pattern, data)


def addmm(
    function: str,
    input: Any,
    bsr: Any,
    dense: Any,
    options: Options,
    *,
    names: tuple[str, str] = ("bsr", "dense"),
    input_name: str = "input",
    from_the_right: bool = False,
    transposed: bool = False,
    check: Callable[[], Any] | None = None,
) -> Any:
    """Do the product from either side.

    ``from_the_right`` is ``dense @ bsr.T``, as ``(bsr @ dense.T).T``; with ``transposed``, which
    multiplies by the transpose of what is stored, ``dense @ bsr``. ``check`` refuses what only
    this caller refuses: its calls are kept apart from others, and none that is replayed needs it.
    """
    sparse_blocks = is_sparse_blocks(bsr)
    if sparse_blocks and transposed:
        what = "dense @ A with 2:4 blocks (their transposes are not 2:4)"
        raise not_offered(function, what, "A @ dense, dense @ A.tobsr()")
    try:
        pattern = bsr.pattern
        parts: tuple[Any, ...] = (bsr.packed, bsr.meta) if sparse_blocks else (bsr.data,)
    except AttributeError:
        raise not_sparse(function, names[0], bsr) from None
    data = parts[0]
    sides = (from_the_right, transposed)
    operation = "bsr_addmm" if check is None else function
    call = call_of(operation, pattern, (*parts, dense), input, options, *sides)
    replayed = call.replay()
    if replayed is not None:
        return replayed[0]
    # A call that is replayed was checked when it was recorded.
    if check is not None:
        check()
    if sparse_blocks:
        check_blocks(function, names[0], pattern, *parts)
    else:
        check_values(function, names[0], pattern, data)
    if sparse_blocks or hasattr(dense, "packed"):  # 2:4
        check_dense_operand(function, names[1], dense, bsr)
    dense = as_array(dense, function, names[1])
    check_no_scalar(function, names[1], dense)
    check_operand_dtypes(function, names, data.dtype, dense.dtype)
    m, k = reversed(pattern.shape) if transposed else pattern.shape
    side = Side(dense.ndim == 1, from_the_right)
    dense = side.operand(function, names[1], dense, k)
    batch = broadcast_shape(function, names[1], pattern.batch_shape, dense.shape[:-2])
    operands = dict(zip(names, (data, dense)))
    product = check_product(
        function,
        options,
        input,
        operands,
        side=side,
        shape=(*batch, m, dense.shape[-1]),
        dtype=data.dtype,
        input_name=input_name,
        no_product=pattern.nnzb == 0,
        family="bsr_semi_structured_addmm" if sparse_blocks else "bsr_addmm",
    )
    with on_device(data, pattern, call):
        if sparse_blocks:
            operands[f"{names[0]}.meta"] = parts[1]
        result, rows = product.result(operands), None
        if result.size:
            stem = "bsr_semi_structured" if sparse_blocks else "addmm"
            engine: Any = engine_module(product.xp, stem, function)
            how: dict[str, Any] = {"allow_tf32": bool(options.allow_tf32), "config": options.config}
            compute = engine.bsr_semi_structured_addmm if sparse_blocks else engine.bsr_addmm
            if data.dtype == np.int8 and product.epilogue.alpha != 0:
                rows, parts = _long_rows(function, bsr, parts, transposed)
            if rows is not None:
                add_rows(partial(compute, **how), result, rows, (*parts, dense), product.epilogue)
            else:
                if not sparse_blocks:
                    how["transposed"] = transposed
                compute(result, pattern, *parts, dense, product.epilogue, **how)
        answer = product.answer(result)
        if rows is None:
            call.keep(answer)
    return answer


def _long_rows(
    function: str, bsr: Any, parts: tuple, transposed: bool
) -> tuple[CutPattern | None, tuple]:
    """Return the pattern of an int8 product with its long rows cut, and its blocks' arrays.

    Both as seen from the left. Without long rows it is None, and the arrays are those given.
    """
    pattern, (bm, bk) = bsr.pattern, bsr.pattern.blocksize
    products = bm if transposed else bk // len(parts)  # of 2:4 blocks half is stored
    if not may_be_long(parts[0].dtype, pattern.nnzb, products):
        return None, parts
    if transposed:
        pattern, _ = engine_module(pattern.xp, "convert", function).transpose_pattern(pattern)
    rows = cut_pattern(pattern, products)
    if rows is not None and transposed:
        parts = (transposed_operand(bsr, function).data,)
    return rows, parts
