"""Cases of attention's gradients: the chain rule in float64 over the formula of attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsegpu.engines.cuda.paths import ATTENTION_BACKWARD
from sparsegpu.testing import ATTENTION_TOLERANCE, assert_gradient_close

from .attention import Formula, formula, of_heads, operands
from .case import Case, Holds, as_dense, public, require
from .draws import Draws
from .oracle import array, number

_PATHS = (None, *(path.NAME for path in ATTENTION_BACKWARD))


def attention_backward(draws: Draws) -> Case:
    """What the forward call returned is what the formula says, rounded to its dtypes."""
    arguments = operands(draws)
    own = arguments["query"].dtype
    if "slopes" in arguments:
        # Weights are found again from lse, whose rounding is an error of all of them: where float32
        # has few digits behind the point, that alone would be more than the bound.
        arguments["slopes"] /= 8
    with np.errstate(all="ignore"):
        forward = formula(**arguments)
    arguments = {
        "grad": draws.rng().standard_normal(forward.out.shape).astype(own),
        **arguments,
        "out": forward.out.astype(own),
        "lse": forward.lse.astype(of_heads(own)),
    }
    if draws.chance(40):
        arguments["grad_lse"] = draws.rng().standard_normal(forward.lse.shape).astype(of_heads(own))
    if draws.chance(50):
        arguments["mask_gradient"] = True
    return public(
        "scaled_dot_product_attention_backward",
        arguments,
        _gradients,
        path=draws.choice(_PATHS),
    )


def _gradients(
    grad: Any, out: Any, lse: Any, grad_lse: Any = None, mask_gradient: Any = False,
    dropout_p: Any = 0.0, seed: Any = None, **arguments: Any,
) -> tuple[Holds, ...]:  # fmt: skip
    found = formula(dropout_p=dropout_p, seed=seed, **arguments)
    own = {name: array(arguments[name]) for name in ("query", "key", "value")}
    dtype, mask = own["query"].dtype, arguments["mask"]
    require(not number(dropout_p) or seed is not None, "the forward call's seed")
    require(isinstance(mask_gradient, bool), "a flag")
    grad, out, lse = array(grad), array(out), array(lse)
    require(grad.dtype == out.dtype == dtype and lse.dtype == of_heads(dtype), "dtypes")
    require(grad.shape == out.shape == found.out.shape, "the shape of out")
    of_lse = np.zeros(found.lse.shape, lse.dtype) if grad_lse is None else array(grad_lse)
    require(lse.shape == of_lse.shape == found.lse.shape, "the shape of lse")
    require(of_lse.dtype == lse.dtype, "the dtype of grad_lse")
    grad, of_lse = grad.astype(np.float64), of_lse.astype(np.float64)
    exact = _through(found, grad, of_lse, -1)
    # The same of magnitudes are the sums of absolute products.
    magnitudes = _with_underflow(Formula(*map(np.abs, found)), dtype)
    sizes = _through(magnitudes, np.abs(grad), np.abs(of_lse), 1)
    own["mask"] = np.zeros((*mask.batch, *mask.shape), np.float32) if mask_gradient else None
    own["sinks"] = None if arguments.get("sinks") is None else array(arguments["sinks"])
    # A spoiled scale, say, may be legal, and have nothing to do with the forward call's results.
    of_forward = all(
        np.array_equal(wide.astype(given.dtype), given, equal_nan=True)
        for wide, given in ((found.out, out), (found.lse, lse))
    )

    def check(name: str) -> Holds:
        like = own[name]

        def rule(got: Any) -> None:
            if like is None:
                assert got is None, f"a gradient of {name}"
                return
            dense = as_dense(got)
            assert dense.dtype == like.dtype, f"gradient of {name}: {dense.dtype}"
            assert dense.shape == like.shape, f"gradient of {name}: {dense.shape}"
            if of_forward:
                parts = (_summed_to(like.shape, of[name]) for of in (exact, sizes))
                assert_gradient_close(dense, *parts, dtype)

        return Holds(rule)

    return tuple(check(name) for name in ("query", "key", "value", "mask", "sinks"))


def _with_underflow(of: Formula, dtype: np.dtype) -> Formula:
    """Return weights that are larger by what the smallest ones lose: they may round to zero."""
    lost = np.finfo(of_heads(dtype)).tiny / (2 * ATTENTION_TOLERANCE[dtype.name])
    weights, of_sinks = (np.where(x > 0, x + lost, 0) for x in (of.weights, of.of_sinks))
    return of._replace(weights=weights, of_sinks=of_sinks)


def _through(
    of: Formula, grad: np.ndarray, grad_lse: np.ndarray, sign: int
) -> dict[str, np.ndarray]:
    """Return gradients by operand, before they are summed over what broadcasts.

    With ``sign`` 1 nothing is subtracted.
    """
    of_weight = of.kept * (grad @ of.value.swapaxes(-1, -2))
    # A logit moves its own weight, and all others by the normaliser, which lse is the log of.
    of_normaliser = (of.weights * of_weight).sum(axis=-1) + sign * grad_lse
    of_logit = of.weights * (of_weight + sign * of_normaliser[..., None])
    of_product = of_logit * of.slope
    return {
        "query": of_product @ of.key,
        "key": of_product.swapaxes(-1, -2) @ of.query,
        "value": (of.weights * of.kept).swapaxes(-1, -2) @ grad,
        "mask": of_logit,
        "sinks": sign * (of.of_sinks * of_normaliser).sum(axis=-1),
    }


def _summed_to(shape: tuple[int, ...], array: np.ndarray) -> np.ndarray:
    """Return an array summed over the axes that ``shape`` lacks or has once.

    Heads are summed in groups where there are fewer of them.
    """
    array = array.sum(axis=tuple(range(array.ndim - len(shape))))
    for axis, length in enumerate(shape):
        if array.shape[axis] != length:
            parts = (length, array.shape[axis] // length)
            split = (*array.shape[:axis], *parts, *array.shape[axis + 1 :])
            array = array.reshape(split).sum(axis=axis + 1)
    return array


CASES = (attention_backward,)
