"""The 2:4 product: checks, padding and the one call of the engine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from .._arrays import as_array
from .._checks import bad_type, bad_value, kind_of, not_offered
from .._epilogue import Epilogue
from ..engines import engine_module
from ._blocks_24 import is_semi_structured
from ._common import check_same_dtype, on_device
from ._long_sums import MOST, may_be_long, semi_structured_in_slices
from ._product import (
    Options,
    Product,
    Side,
    call_of,
    check_dense_operand,
    check_no_scalar,
    check_product,
)
from .compress import check_packed

#: Memory for a call: of a shape and a dtype, with undefined contents.
Buffer = Callable[[tuple[int, ...], np.dtype], Any]


class Half(NamedTuple):
    """One orientation of a 2:4 operand, as the left operand of a product.

    Attributes
    ----------
    packed, meta : arrays
        Of a matrix at least as large as the logical one: the rest is zero padding.
    split : bool
        The matrix is ``[first | rest]`` of `ops.compress.split_24`, to multiply by ``[x; x]``.
    vendor : engines.cusparselt.compress.Compressed, or None
        The same matrix for the backend "cusparselt", which then computes.
    """

    packed: Any
    meta: Any
    split: bool = False
    vendor: Any = None

    def viewed(self) -> Half:
        """Return the same half over new views, whose shapes no caller can set."""
        return Half(self.packed.view(), self.meta.view(), self.split, self.vendor)


def check_semi_structured(function: str, argument: str, x: Any) -> None:
    """Refuse what has no packed values and metadata, or has them block by block."""
    if not is_semi_structured(x):
        raise bad_type(function, argument, "a SemiStructuredArray", kind_of(x))


def half_of(function: str, sparse: Any, transposed: bool = False) -> Half:
    """Return the half of a 2:4 operand that a product from this side needs.

    What holds the two halves may build a missing one in its own ``half`` method.
    """
    if hasattr(sparse, "half"):
        return sparse.half(transposed)
    names = ("packed_t", "meta_t") if transposed else ("packed", "meta")
    packed, meta = (getattr(sparse, name, None) for name in names)
    if packed is None or meta is None:
        raise bad_value(function, "sparse", f"an operand that holds {' and '.join(names)}", "None")
    packed, meta = as_array(packed, function, names[0]), as_array(meta, function, names[1])
    check_packed(function, packed, meta, names)
    m, k = reversed(sparse.shape) if transposed else sparse.shape
    if packed.shape[0] < m or 2 * packed.shape[1] < k:
        raise bad_value(function, names[0], f"values of a {(m, k)} matrix", tuple(packed.shape))
    return Half(packed, meta)


def addmm(
    function: str,
    input: Any,
    sparse: Any,
    dense: Any,
    options: Options,
    *,
    names: tuple[str, str] = ("sparse", "dense"),
    alpha_names: tuple[str, str] = ("left_alpha", "right_alpha"),
    input_name: str = "input",
    stored_transposed: bool = False,
    from_the_right: bool = False,
    operand_dtype: np.dtype | None = None,
) -> Any:
    """Do the product from either side.

    ``from_the_right`` is ``dense @ sparse.T``, as ``(sparse @ dense.T).T``; with
    ``stored_transposed`` the other half stands for ``sparse``, which makes it ``dense @ sparse``.
    ``operand_dtype`` is what ``dense`` stands for when its own dtype cannot say (uint8).
    """
    # Calls are recorded beside the halves, which never change there: they are no part of the key.
    holder, which = sparse.held(stored_transposed) if hasattr(sparse, "held") else (None, ())
    call = None
    if holder is not None:
        which = (*which, from_the_right, operand_dtype)
        call = call_of("semi_structured_addmm", holder, (dense,), input, options, *which)
        replayed = call.replay()
        if replayed is not None:
            return replayed[0]
    check_semi_structured(function, names[0], sparse)
    check_dense_operand(function, names[1], dense, sparse)
    dense = as_array(dense, function, names[1])
    check_no_scalar(function, names[1], dense)
    dtype, backend = sparse.dtype, getattr(sparse, "backend", "native")
    _check_dense_dtype(function, names[1], dense, dtype, operand_dtype)
    m, k = reversed(sparse.shape) if stored_transposed else sparse.shape
    side = Side(dense.ndim == 1, from_the_right)
    dense = side.operand(function, names[1], dense, k)
    packed = sparse.packed if sparse.packed is not None else sparse.packed_t
    product = check_product(
        function,
        options,
        input,
        {names[0]: packed, names[1]: dense},
        side=side,
        shape=(*dense.shape[:-2], m, dense.shape[-1]),
        dtype=dtype,
        alpha_names=alpha_names,
        input_name=input_name,
        no_product=k == 0,
        # The algorithms of the vendor's library are its engine's to check.
        family="semi_structured_addmm" if backend == "native" else None,
    )
    with on_device(dense, holder):  # apart, for it may be built
        half = half_of(function, sparse, stored_transposed)
    with on_device(dense, holder, call):
        result = product.result(
            {names[0]: half.packed, f"{names[0]}.meta": half.meta, names[1]: dense}
        )
        answer, long = product.answer(result), _is_long(half, product)
        if result.size:
            copied = _multiply(
                result,
                half,
                dense,
                product.epilogue,
                partial(_buffer, product.xp),
                _engine(function, product, half, options.config, long),
                operand_dtype=dtype,
                allow_tf32=bool(options.allow_tf32),
                config=options.config,
            )
            if call is not None and not (copied or long):
                call.keep(answer)
    return answer


def _is_long(half: Half, product: Product) -> bool:
    """Whether sums of int8 may be longer than int32 holds."""
    return may_be_long(half.packed.dtype, half.packed.shape[1], 1) and product.epilogue.alpha != 0


def _engine(function: str, product: Product, half: Half, config: dict | None, long: bool) -> Any:
    """Return the engine's product over the arrays of a half.

    ``long`` sums of int8 are left to the native engine even where the half has the vendor's buffer,
    which cannot be sliced.
    """
    if half.vendor is None or long:
        if half.vendor is not None and config is not None:
            raise not_offered(
                function,
                f"an algorithm of cuSPARSELt's for int8 rows of more than {MOST:,} products",
                "config=None, with which the native backend computes them",
            )
        compute = engine_module(product.xp, "semi_structured", function).semi_structured_addmm
        return semi_structured_in_slices(compute, product.xp) if long else compute
    from ..engines.cusparselt.semi_structured import semi_structured_addmm

    def by_vendor(out: Any, packed: Any, meta: Any, *operands: Any, **keywords: Any) -> Any:
        return semi_structured_addmm(out, half.vendor, *operands, **keywords)

    return by_vendor


def _check_dense_dtype(
    function: str, argument: str, dense: Any, dtype: np.dtype, operand_dtype: np.dtype | None
) -> None:
    if operand_dtype is None and dense.dtype == np.uint8:
        raise bad_type(
            function,
            argument,
            f"dtype {dtype} like the other operand (float8_e4m3fn bytes: scaled_mm with "
            "dense_dtype says so)",
            "uint8",
        )
    check_same_dtype(function, argument, operand_dtype or dense.dtype, dtype)


def _buffer(xp: ModuleType, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """Return memory for this call, on a GPU of what calls of the operand share."""
    if xp is np:
        return xp.empty(shape, dtype)
    from ..engines.cuda.runtime.submission import workspace

    return xp.ndarray(shape, dtype, workspace(prod(shape) * dtype.itemsize).data)


def _multiply(
    result: Any,
    half: Half,
    dense: Any,
    epilogue: Epilogue,
    buffer: Buffer,
    engine_addmm: Any,
    **keywords: Any,
) -> bool:
    """Call the engine with operands padded to the size of the stored matrix.

    Only padded and split operands are copied: ``dense``, and the result where rows were padded.
    Returns whether any was.
    """
    (stored_m, half_k), k, m = half.packed.shape, dense.shape[-2], result.shape[-2]
    given = dense
    if half.split or 2 * half_k != k:
        dense = buffer((*dense.shape[:-2], 2 * half_k, dense.shape[-1]), dense.dtype)
        copies = 2 if half.split else 1
        for first in range(0, copies * k, max(k, 1)):
            dense[..., first : first + k, :] = given
        dense[..., copies * k :, :] = 0
    if stored_m == m:
        engine_addmm(result, half.packed, half.meta, dense, epilogue, **keywords)
        return dense is not given
    padded = buffer((*result.shape[:-2], stored_m, result.shape[-1]), result.dtype)
    longer = _padded_rows(epilogue, m, stored_m, buffer)
    engine_addmm(padded, half.packed, half.meta, dense, longer, **keywords)
    result[...] = padded[..., :m, :]
    return True


def _padded_rows(epilogue: Epilogue, m: int, stored_m: int, buffer: Buffer) -> Epilogue:
    """Return the epilogue with zeros for the rows of padding, whose results are dropped."""
    input, left = epilogue.input, epilogue.left_alpha
    if input is not None and input.ndim > 1 and input.shape[-2] == m and m != 1:
        shape = (*input.shape[:-2], stored_m, input.shape[-1])
        longer = buffer(shape, input.dtype)
        longer[..., :m, :] = input
        longer[..., m:, :] = 0
        input = longer
    if left is not None:
        longer = buffer((*left.shape[:-1], stored_m), left.dtype)
        longer[..., :m] = left
        longer[..., m:] = 0
        left = longer
    return Epilogue(
        epilogue.alpha, epilogue.beta, input, left, epilogue.right_alpha, epilogue.activation
    )
