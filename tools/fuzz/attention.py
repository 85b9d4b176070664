"""Cases of block-sparse attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from sparsegpu.engines.cuda.paths import ATTENTION
from sparsegpu.testing import ATTENTION_TOLERANCE, assert_attention_close, assert_close

from . import oracle
from .case import Case, Holds, public, require
from .draws import REALS, Bsr, Draws
from .oracle import array, number

#: Kernel paths; None is the one that a call takes by itself.
_PATHS = (None, *(path.NAME for path in ATTENTION))


def operands(draws: Draws) -> dict[str, Any]:
    """Return arguments of attention, those that say how included."""
    dtype = draws.choice(REALS)
    batch, kv_batch = draws.batches()
    kv_heads = draws.integer(1, 2)
    heads, width, value_width = (
        kv_heads * draws.integer(1, 2),
        draws.choice((8, 0, 5, 64, 128)) if draws.on_gpu else draws.count(9),
        draws.choice((4, 0, 3, 64, 128)) if draws.on_gpu else draws.count(5),
    )
    lead = (*np.broadcast_shapes(batch, kv_batch), heads)
    mask_batch = draws.choice(((), (), lead, (1, heads), (heads,)))[-len(lead) :]
    mask = draws.bsr(draws.choice((bool, bool, dtype, "float32")), batch=mask_batch, exact=True)
    if draws.chance(50):  # bool ones
        mask = replace(mask, packed=True)
    length, keys = mask.shape
    rng = draws.rng()
    q, k, v = (
        rng.standard_normal(shape).astype(dtype)
        for shape in (
            (*batch, heads, length, width),
            (*kv_batch, kv_heads, keys, width),
            (*kv_batch, kv_heads, keys, value_width),
        )
    )
    arguments: dict[str, Any] = {"query": q, "key": k, "value": v, "mask": mask}
    if draws.chance(30):
        arguments["scale"] = draws.choice((0.5, 0, 1, np.float32(0.25)))
    if draws.chance(30):
        arguments["is_causal"] = True
    if draws.chance(20):
        arguments |= {
            "dropout_p": draws.choice((0.5, 1.0, 0.0)),
            "seed": draws.integer(0, 2**64 - 1),
        }
    if draws.chance(20):
        arguments["softcap"] = draws.choice((1.5, 30, np.float32(0.5)))
    for name in ("slopes", "sinks"):
        if draws.chance(20):
            shape = draws.choice(((heads,), lead))
            arguments[name] = draws.values(shape, of_heads(dtype), exact=True)
    return arguments


def of_heads(dtype: np.dtype) -> np.dtype:
    """Return the dtype of slopes, sinks and lse."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def attention(draws: Draws) -> Case:
    arguments = {**operands(draws), "return_lse": True}
    if arguments["query"].dtype == np.float32 and draws.chance(30):
        arguments["allow_tf32"] = True
    return public(
        "scaled_dot_product_attention",
        arguments,
        _attended,
        path=draws.choice(_PATHS),
        fixed=frozenset({"return_lse"}),
    )


class Formula(NamedTuple):
    """What the formula computes of well-formed arguments, in float64, key heads repeated."""

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    scale: float
    slope: np.ndarray  # of a logit, by the product of query and key
    weights: np.ndarray  # before dropout
    of_sinks: np.ndarray  # their weights
    kept: np.ndarray  # by dropout: 0, or what a weight is multiplied by
    out: np.ndarray
    lse: np.ndarray


def formula(
    query: Any, key: Any, value: Any, mask: Any, scale: Any = None, is_causal: Any = False,
    dropout_p: Any = 0.0, seed: Any = None, softcap: Any = None, slopes: Any = None,
    sinks: Any = None,
) -> Formula:  # fmt: skip
    """Return attention by its formula; without a seed, as if nothing were dropped."""
    q, k, v = (array(a) for a in (query, key, value))
    require(isinstance(mask, Bsr), "a bsr_array")
    require(q.dtype == k.dtype == v.dtype and q.dtype in REALS, "dtypes")
    require(mask.dtype in {np.dtype(bool), q.dtype, np.dtype(np.float32)}, "the mask's dtype")
    require(k.shape[-3:-1] == v.shape[-3:-1] and q.shape[-1] == k.shape[-1], "shapes")
    require(mask.shape == (q.shape[-2], k.shape[-2]), "the mask's shape")
    p = number(dropout_p)
    require(0 <= p <= 1, "a probability")
    wide = [a.astype(np.float64) for a in (q, k, v)]
    group = q.shape[-3] // k.shape[-3] if k.shape[-3] else 1
    q64, k64, v64 = wide[0], *(a.repeat(group, axis=-3) for a in wide[1:])
    scale = number(scale) if scale is not None else q.shape[-1] ** -0.5 if q.shape[-1] else 1.0
    allowed, added = mask.stored(), np.zeros(mask.stored().shape)
    dense = mask.dense()
    if mask.dtype.kind == "b":
        allowed = allowed & dense
    else:
        dense = dense.astype(mask.dtype).astype(np.float64)
        allowed, added = allowed & (dense != -np.inf), np.where(dense == -np.inf, 0, dense)
    if is_causal:
        allowed = allowed & (np.arange(k.shape[-2]) <= np.arange(q.shape[-2])[:, None])
    score = scale * (q64 @ k64.swapaxes(-1, -2))
    slope = np.full(score.shape, scale, np.float64)
    if softcap is not None:
        cap = number(softcap)
        require(0 < cap < np.inf and np.float32(cap) > 0, "a cap")
        slope = slope / np.cosh(score / cap) ** 2
        score = cap * np.tanh(score / cap)
    wanted = of_heads(q.dtype)
    lead = np.broadcast_shapes(score.shape[:-2], v64.shape[:-2])
    numbers_of_heads = []
    for of in (slopes, sinks):
        numbers = None if of is None else array(of)
        if numbers is not None:
            require(numbers.dtype == wanted, "the dtype of slopes and sinks")
            require(numbers.shape in {lead[-1:], lead}, "a number a head")
            numbers = numbers.astype(np.float64)[..., None, None]
        numbers_of_heads.append(numbers)
    slopes, sinks = numbers_of_heads
    if slopes is not None:
        score = score + slopes * (np.arange(k.shape[-2]) - np.arange(q.shape[-2])[:, None])
    score = np.where(allowed, score + added, -np.inf)
    allowed = np.broadcast_to(allowed, score.shape)
    top = score.max(axis=-1, keepdims=True, initial=-np.inf)
    if sinks is not None:
        top = np.maximum(top, sinks)
    top = np.where(np.isfinite(top), top, 0)
    e = np.where(allowed, np.exp(score - top), 0)
    total = e.sum(axis=-1, keepdims=True)
    of_sinks = np.zeros_like(total) if sinks is None else np.exp(sinks - top)
    total = total + of_sinks
    divisor = np.where(total == 0, 1, total)
    # Each head of each matrix of the result drops weights of its own.
    weights = np.broadcast_to(e / divisor, (*lead, *e.shape[-2:]))
    of_sinks = np.broadcast_to(of_sinks / divisor, (*lead, *total.shape[-2:]))[..., 0]
    kept = np.ones(weights.shape)
    if p and seed is not None:
        require(isinstance(seed, int) and 0 <= seed < 2**64, "a seed")
        kept = _kept(weights.shape, p, seed) / (1 - p) if p < 1 else np.zeros(weights.shape)
    out, lse = (weights * kept) @ v64, (np.log(total) + top)[..., 0]
    lse = np.broadcast_to(lse, out.shape[:-1])
    return Formula(q64, k64, v64, scale, slope, weights, of_sinks, kept, out, lse)


def _attended(
    return_lse: bool,
    dropout_p: Any = 0.0,
    seed: Any = None,
    allow_tf32: bool = False,
    **arguments: Any,
) -> tuple[Any, Holds]:
    found = formula(dropout_p=dropout_p, seed=seed, **arguments)
    own = array(arguments["query"]).dtype
    if number(dropout_p) and seed is None:  # one is drawn
        return oracle.Shaped(found.out.shape, own), Holds(lambda got: None)

    def check(got: Any, exact: np.ndarray, dtype: np.dtype) -> None:
        assert got.dtype == dtype
        assert_attention_close(got, exact)

    out, lse = found.out, found.lse
    if allow_tf32:
        return _rounded(found)
    return Holds(lambda got: check(got, out, own)), Holds(
        lambda got: check(got, lse, of_heads(own))
    )


def _rounded(found: Formula) -> tuple[Holds, Holds]:
    """Return what holds for operands and weights that are rounded to TF32, by 2**-11 each.

    A score that is off by d changes weights by a factor of exp(2 d) at most.
    """
    weights, rounding = found.weights, 2.0**-10 + 2.0**-22
    with np.errstate(invalid="ignore"):
        size = np.abs(found.query) @ np.abs(found.key).swapaxes(-1, -2) * abs(found.scale)
        off = rounding * np.where(weights > 0, size, 0).max(axis=-1, keepdims=True, initial=0)
        sums = np.where(weights > 0, weights * found.kept, 0) @ np.abs(found.value)
    of_weights = np.expm1(2 * off) + rounding
    usual = ATTENTION_TOLERANCE["float32"]
    of_out = of_weights * sums + usual * (1 + np.abs(found.out))
    of_lse = off[..., 0] + usual * (1 + np.abs(found.lse))
    return (
        Holds(lambda got: assert_close(got, found.out, of_out)),
        Holds(lambda got: assert_close(got, found.lse, of_lse)),
    )


def _kept(shape: tuple[int, ...], p: float, seed: int) -> np.ndarray:
    """Return which weights Philox4x32-10 keeps: word ``index % 4`` at counter ``index // 4``."""
    index = np.arange(int(np.prod(shape)), dtype=np.uint64)
    low = np.uint64(0xFFFFFFFF)
    c = [index // 4 & low, index // 4 >> np.uint64(32), index * 0, index * 0]
    k = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)]
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [b >> np.uint64(32) ^ c[1] ^ k[0], b & low, a >> np.uint64(32) ^ c[3] ^ k[1], a & low]
        k = [(k[0] + np.uint64(0x9E3779B9)) & low, (k[1] + np.uint64(0xBB67AE85)) & low]
    word = np.choose((index % 4).astype(int), c) if index.size else index
    return (word.astype(np.float64) / 2**32 >= p).reshape(shape)


CASES = (attention,)
