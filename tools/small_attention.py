"""Small cases of attention and of its gradients; see `tools.small_cases`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

import sparsegpu as sg

from .operands import Prepare

#: What has a path for gradients.
_GRADIENTS = {
    ("mma", "bfloat16"),
    ("mma", "float32"),
    ("wgmma", "bfloat16"),
    ("fma", "float32"),
}


def attention_cases() -> Iterator[tuple[str, Prepare]]:
    """Yield the cases of attention and of its gradients."""
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        for kind in ("bool", dtype):
            yield f"attention {dtype} {kind}", partial(_attend, (48, 32, 20, 24), dtype, kind)
            yield (
                f"attention gradients {dtype} {kind}",
                partial(_gradients, (48, 32, 20, 24), dtype, kind),
            )
    for name, attend in (("attention", _attend), ("attention gradients", _gradients)):
        yield f"{name} long", partial(attend, (96, 96, 150, 72), "float32", "bool")
    # The paths that take aligned rows: whole tiles and parts of them.
    for path, dtype, sizes, blocksize, fields in (
        ("mma", "bfloat16", (144, 240, 40, 56), (16, 24), {}),
        ("mma", "float32", (144, 240, 40, 56), (16, 24), {}),
        ("wgmma", "bfloat16", (160, 224, 64, 128), (32, 32), {}),
        ("fma", "float32", (144, 240, 40, 72), (16, 24), {}),
        ("fma", "float64", (144, 240, 40, 72), (16, 24), {}),
        ("mma_f64", "float64", (144, 240, 40, 72), (16, 24), {}),
        ("decode", "bfloat16", (6, 1600, 40, 72), (2, 16), {"piece_keys": 512}),
    ):
        how = {"blocksize": blocksize, "config": {"path": path, **fields}}
        how["allow_tf32"] = path == "mma"
        both = (path, dtype) in _GRADIENTS
        for kind in ("bool", "float32"):
            yield f"attention {path} {dtype} {kind}", partial(_attend, sizes, dtype, kind, **how)
            if both:
                gradients = partial(_gradients, sizes, dtype, kind, **how)
                yield f"attention gradients {path} {dtype} {kind}", gradients
        # Rows that are computed again; "long", so that every run has them.
        poisoned = partial(_attend, sizes, dtype, "bool", poisoned=True, **how)
        yield f"attention {path} {dtype} long, NaN that nobody sees", poisoned
        if both:
            gradients = partial(_gradients, sizes, dtype, "bool", poisoned=True, **how)
            yield f"attention gradients {path} {dtype} long, NaN that nobody sees", gradients
    for path in ("mma", "wgmma"):
        yield f"attention {path} global tokens", partial(_global_tokens, path)


def _global_tokens(path, make):
    """Queries that see all keys, beside others that see few: their keys are split."""
    queries, keys, block = 384, 1536, 64
    q, k, v, _ = _attended((queries, keys, 64, 64), "bfloat16", "bool", make, (block, block))
    seen = np.eye(queries // block, keys // block, dtype=bool)
    seen[2] = True
    mask = sg.bsr_array(
        make.xp.asarray(np.kron(seen, np.ones((block, block), bool))), blocksize=(block, block)
    )
    config = {"path": path, "split_kv": 1}
    return lambda: sg.scaled_dot_product_attention(q, k, v, mask, config=config)


def _attend(sizes, dtype, kind, make, *, blocksize=(16, 8), poisoned=False, **given):
    """Grouped heads, causal, dropout."""
    operands = _attended(sizes, dtype, kind, make, blocksize)
    if poisoned:
        _poison(*operands)
    return lambda: sg.scaled_dot_product_attention(*operands, **_HOW, **given)


def _poison(_query, key, value, mask):
    """Put NaN into every other key and value, to which nobody attends."""
    mask.data[..., ::2] = False
    key[..., ::2, :] = value[..., ::2, :] = np.nan


_HOW = {"is_causal": True, "dropout_p": 0.2, "seed": 3}


def _attended(sizes, dtype, kind, make, blocksize):
    """Return query, key, value and mask."""
    queries, keys, features, value_features = sizes
    q = make.dense((2, 4, queries, features), dtype)
    k = make.dense((2, 2, keys, features), dtype)
    v = make.dense((2, 2, keys, value_features), dtype)
    return q, k, v, make.sparse((queries, keys), blocksize, kind, density=0.6)


def _gradients(sizes, dtype, kind, make, *, blocksize=(16, 8), poisoned=False, **given):
    """All five, of scores with all that they may have."""
    q, k, v, mask = _attended(sizes, dtype, kind, make, blocksize)
    if poisoned:
        _poison(q, k, v, mask)
    of_heads = "float64" if dtype == "float64" else "float32"
    numbers = {name: make.dense((4,), of_heads) for name in ("slopes", "sinks")}
    how = {**_HOW, **numbers, "softcap": 4.0}
    out, lse = sg.scaled_dot_product_attention(q, k, v, mask, return_lse=True, **how)
    grad, xp = make.dense(out.shape, dtype), make.xp

    def call():
        found = sg.scaled_dot_product_attention_backward(
            grad, q, k, v, mask, out, lse, grad_lse=lse, mask_gradient=True, **given, **how
        )
        parts = (*found[:3], found.mask.data, found.sinks)
        return xp.concatenate([xp.ascontiguousarray(a).ravel().view(xp.uint8) for a in parts])

    return call
