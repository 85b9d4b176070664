"""What all products share: keywords, the caller's view of the result, checks."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from .._arrays import as_array, common_namespace, is_complex, swap_last
from .._checks import (
    bad_type,
    bad_value,
    check_broadcasts_to,
    check_choice,
    check_flags,
    check_scalar,
    kind_of,
)
from .._epilogue import ACTIVATIONS, Epilogue, transposed_input
from ..engines import check_config
from ..engines.cuda.runtime.replay import Call
from ._common import optional_array, optional_out, prepare_out, resolve_out_dtype

_FLOAT32, _IDENTITY = np.dtype(np.float32), Epilogue()


class Options(NamedTuple):
    """The keywords of every product, as `bsr_addmm` explains them, with their defaults."""

    beta: Any = 1
    alpha: Any = 1
    left_alpha: Any = None
    right_alpha: Any = None
    activation: str | None = None
    out: Any = None
    out_dtype: Any = None
    allow_tf32: bool = False
    config: dict[str, Any] | None = None


#: Of products without ``input``, where there is nothing for beta to scale.
WITHOUT_INPUT = Options(beta=0)


def call_of(
    operation: str, owner: Any, operands: tuple, input: Any, options: Options, *settings: Any
) -> Call:
    """Return a call of a product, to be replayed: ``settings`` are what is not in its options."""
    beta, alpha, left, right, activation, out, out_dtype, allow_tf32, config = options
    how = None if config is None else repr(config)
    arrays = (*operands, input, left, right, out)
    settings = (*settings, beta, alpha, activation, out_dtype, allow_tf32, how)
    return Call(operation, owner, arrays, settings, out)


def check_no_scalar(function: str, argument: str, dense: Any) -> None:
    """Refuse a number where a product takes an array, before its dtype is looked at."""
    if dense.ndim == 0:
        expected = "at least one dimension (A * number scales, as alpha does)"
        raise bad_value(function, argument, expected, "a scalar")


class Side(NamedTuple):
    """How the caller of ``sparse @ dense`` sees the result ``(*batch, m, n)``.

    Attributes
    ----------
    vector : bool
        The dense operand has one dimension: the result is ``(*batch, m)``.
    from_the_right : bool
        The product is the transpose of what was asked for, ``dense @ sparse``.
    """

    vector: bool
    from_the_right: bool

    def operand(self, function: str, argument: str, dense: Any, inner: int) -> Any:
        """Return the dense operand ``(*batch, inner, n)`` as the engine sees it."""
        seen = self.inward(dense)
        if seen.shape[-2] != inner:
            expected = f"(*batch, M, {inner})" if self.from_the_right else f"(*batch, {inner}, N)"
            expected = f"({inner},)" if self.vector else expected
            raise bad_value(function, argument, f"shape {expected}", tuple(dense.shape))
        return seen

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the caller's shape of the result."""
        if self.vector:
            return shape[:-1]
        return (*shape[:-2], shape[-1], shape[-2]) if self.from_the_right else shape

    def check(
        self, function: str, shape: tuple[int, ...], input_name: str, input: Any, out: Any
    ) -> None:
        """Refuse an ``input`` or ``out`` that does not fit, in the caller's shapes."""
        seen = self.shape(shape)
        if input is not None:
            hint = ""
            if len(seen) > 1 and input.shape == seen[-2:-1]:
                hint = f" (one number a row: {input_name}[:, None])"
            check_broadcasts_to(function, input_name, tuple(input.shape), seen, hint)
        if out is not None and tuple(out.shape) != seen:
            raise bad_value(function, "out", f"shape {seen}", tuple(out.shape))

    def inward(self, array: Any) -> Any:
        """Return the engine's view of the caller's ``input`` or ``out``; None as None."""
        if array is None or array.ndim == 0:
            return array
        if self.vector:
            return array[..., None]
        return transposed_input(array) if self.from_the_right else array

    def outward(self, result: Any) -> Any:
        """Return the caller's view of a result."""
        if self.vector:
            return result[..., 0]
        return swap_last(result) if self.from_the_right else result

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, xp: ModuleType) -> Any:
        """Return a new result ``(*batch, m, n)`` that is row-major to the caller."""
        return self.inward(xp.empty(self.shape(shape), dtype))


class Product(NamedTuple):
    """A product whose arguments are checked, all but the memory of ``out``.

    Attributes
    ----------
    shape, dtype
        Of the result ``(*batch, m, n)`` as the engine sees it.
    epilogue : Epilogue
        What the engine does besides multiplying.
    alphas : dict
        The caller's scales by their names, None where there is none.
    input, out
        The arrays that go with it, or None.
    given
        ``out`` as the caller gave it, which may be another library's array over that memory.
    """

    function: str
    xp: ModuleType
    side: Side
    shape: tuple[int, ...]
    dtype: np.dtype
    epilogue: Epilogue
    alphas: dict[str, Any]
    input: Any
    out: Any
    given: Any

    def result(self, operands: dict[str, Any]) -> Any:
        """Return the array for the engine to write: a new one, or ``out`` if that is safe.

        ``operands`` are what the engine reads besides, by the names of the arguments.
        """
        if self.out is None:
            return self.side.empty(self.shape, self.dtype, self.xp)
        return prepare_out(
            self.function,
            self.side.inward(self.out),
            self.shape,
            self.dtype,
            self.xp,
            input=self.input,
            operands=operands | self.alphas,
        )

    def answer(self, result: Any) -> Any:
        """Return what the caller gets, once ``result`` is written."""
        return self.side.outward(result) if self.out is None else self.given


def check_product(
    function: str,
    options: Options,
    input: Any,
    operands: dict[str, Any],
    *,
    side: Side,
    shape: tuple[int, ...],
    dtype: np.dtype,
    alpha_names: tuple[str, str] = ("left_alpha", "right_alpha"),
    input_name: str = "input",
    no_product: bool = False,
    family: str | None = "bsr_addmm",
) -> Product:
    """Check what a product has besides its two operands.

    ``operands`` are their arrays by the names of the arguments, ``dtype`` is theirs and ``shape``
    is the result's ``(*batch, m, n)`` as the engine sees it. With ``no_product`` there is nothing
    for alpha to scale. ``family``: the operation whose kernel paths a ``config`` may
    name; None: the engine checks it.
    """
    check_flags(function, allow_tf32=options.allow_tf32)
    check_config(family, options.config, function)
    input = optional_array(input, function, input_name)
    left, right = alpha_names
    alphas = {
        left: optional_array(options.left_alpha, function, left),
        right: optional_array(options.right_alpha, function, right),
    }
    out = optional_out(options.out, function)
    xp = common_namespace(function, **operands, **{input_name: input}, **alphas, out=out)
    out_dtype = resolve_out_dtype(function, dtype, out, options.out_dtype)
    side.check(function, shape, input_name, input, out)
    if input is not None:
        _check_input_dtype(function, input_name, input, dtype, out_dtype)
    input = side.inward(input)
    epilogue = _epilogue(
        function, options, input, alphas, side, shape, dtype, out_dtype, no_product
    )
    given = options.out
    return Product(function, xp, side, shape, out_dtype, epilogue, alphas, input, out, given)


def _epilogue(
    function: str,
    options: Options,
    input: Any,
    alphas: dict[str, Any],
    side: Side,
    shape: tuple[int, ...],
    dtype: np.dtype,
    out_dtype: np.dtype,
    no_product: bool,
) -> Epilogue:
    """Check what happens to the accumulator.

    ``alphas`` are the caller's scales of the rows and of the columns of the result, by the names
    that messages give them; the engine may see the result transposed.
    """
    activation = options.activation
    check_choice(function, "activation", activation, ACTIVATIONS)
    complex_allowed = is_complex(dtype)
    if complex_allowed and activation is not None:
        raise bad_type(function, "activation", "None for complex operands", repr(activation))
    alpha = check_scalar(function, "alpha", options.alpha, complex_allowed=complex_allowed)
    beta = check_scalar(function, "beta", options.beta, complex_allowed=complex_allowed)
    left, right = alphas.values()
    if left is not None or right is not None:
        lengths = reversed(shape[-2:]) if side.from_the_right else shape[-2:]
        for (name, array), n in zip(alphas.items(), lengths):
            if array is not None:
                _check_scale(function, name, array, (*shape[:-2], n), {dtype, out_dtype, _FLOAT32})
    if alpha == 0 or no_product:  # nothing that scales the product is read
        alpha, left, right = 0, None, None
    if input is None or beta == 0:  # an engine never reads what must not show
        beta, input = 0, None
    if alpha == 1 and input is left is right is activation is None:
        return _IDENTITY
    if side.from_the_right:
        left, right = right, left
    return Epilogue(alpha, beta, input, left, right, activation)


def _check_input_dtype(
    function: str, argument: str, input: Any, dtype: np.dtype, out_dtype: np.dtype
) -> None:
    """Refuse an ``input`` that neither the operands nor the result have the dtype of."""
    allowed = {dtype, out_dtype} | ({np.dtype(np.int32)} if dtype == np.int8 else set())
    if input.dtype not in allowed:
        names = " or ".join(sorted(d.name for d in allowed))
        raise bad_type(function, argument, f"dtype {names}", input.dtype)


def _check_scale(
    function: str, argument: str, array: Any, target: tuple[int, ...], allowed: set[np.dtype]
) -> None:
    """Refuse scales that are not one for each of ``target``'s last dimension."""
    if array.dtype not in allowed:
        names = " or ".join(sorted(d.name for d in allowed))
        raise bad_type(function, argument, f"dtype {names}", array.dtype)
    check_broadcasts_to(function, argument, tuple(array.shape), target)
    if array.ndim == 0 or array.shape[-1] != target[-1]:
        raise bad_value(function, argument, f"a last dimension of {target[-1]}", array.shape)


def linear(
    function: str, x: Any, weight: Any, bias: Any, options: Options, multiply: Callable[..., Any]
) -> Any:
    """Return ``x @ weight.T + bias`` by a product of the left side, that of ``weight``."""
    check_dense_operand(function, "x", x, weight)
    x, bias = as_array(x, function, "x"), optional_array(bias, function, "bias")
    m = (weight.pattern if hasattr(weight, "pattern") else weight).shape[0]
    if bias is not None and tuple(bias.shape) != (m,):
        raise bad_value(function, "bias", f"shape {(m,)}", tuple(bias.shape))
    wide = x.ndim > 2 and x.flags.c_contiguous and x.shape[-1]
    # One wide product instead of a batch of narrow ones, unless something follows the batch of x.
    wide = wide and options.out is options.left_alpha is options.right_alpha is None
    rows = x.reshape(-1, x.shape[-1]) if wide else x
    result = multiply(
        function,
        bias,
        weight,
        rows,
        options,
        names=("weight", "x"),
        input_name="bias",
        from_the_right=True,
    )
    return result.reshape(*x.shape[:-1], m) if wide else result


def check_dense_operand(function: str, argument: str, x: Any, sparse: Any) -> None:
    """Refuse a second sparse operand, ours or another library's: hardware has no such product."""
    if hasattr(x, "packed") or hasattr(x, "tocsr"):
        hint = "A @ B multiplies two bsr_array"
        if hasattr(sparse, "packed") or hasattr(x, "packed"):
            hint = "sparse @ sparse is not possible with 2:4; use todense() of one"
        expected = f"a dense array beside a {type(sparse).__name__} ({hint})"
        raise bad_value(function, argument, expected, kind_of(x))
