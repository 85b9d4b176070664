"""The cases of attention, of its gradients and of block masks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from .._arrays import dtype_of
from ..engines.cuda.paths import ATTENTION, ATTENTION_BACKWARD
from ..engines.cuda.paths._attention import AttentionFacts
from ..engines.cuda.paths._fields import Fields
from .bars import Bar
from .case import Case
from .peer import CUDNN, FLASH, FLEX, FLEX_MASK, GATHERED, TRITON

#: A path and fields of its configuration.
Variant = tuple[str, dict[str, int]]

_MMA: tuple[Variant, ...] = (
    ("mma", {}),
    ("mma", {"tile_q": 128}),
    ("mma", {"tile_k": 32}),
    ("mma", {"tile_k": 32, "blocks": 2}),
    ("mma", {"blocks": 2}),
)
_WGMMA: tuple[Variant, ...] = (
    ("wgmma", {}),
    ("wgmma", {"tile_q": 64}),
    ("wgmma", {"tile_q": 128, "tile_k": 64}),
    ("wgmma", {"tile_q": 64, "tile_k": 64}),
    ("wgmma", {"stages": 2}),
)
_DECODE: tuple[Variant, ...] = (
    ("decode", {}),
    ("decode", {"stages": 4}),
    ("decode", {"tile_k": 32, "stages": 2}),
    ("decode", {"piece_keys": 1024}),
    ("decode", {"piece_keys": 4096}),
)

_BACKWARD: tuple[Variant, ...] = (
    ("mma", {}),
    ("mma", {"tile_own": 128}),
    ("mma", {"tile_other": 16}),
    ("mma", {"tile_other": 64}),
    ("wgmma", {}),
    ("wgmma", {"tile_own": 64}),
    ("wgmma", {"tile_keys": 64}),
    ("wgmma", {"tile_queries": 32}),
    ("wgmma", {"stages": 2}),
)
_FMA: tuple[Variant, ...] = (("fma", {}), ("fma", {"tile_k": 32}))
_TF32: tuple[Variant, ...] = (
    ("mma", {}),
    ("mma", {"tile_q": 64, "tile_k": 32}),
    ("mma", {"tile_q": 128, "tile_k": 64}),
    ("mma", {"tile_k": 16}),
    ("fma", {}),
)
_MMA_F64: tuple[Variant, ...] = (
    ("mma_f64", {}),
    ("mma_f64", {"tile_k": 16}),
    ("mma_f64", {"tile_q": 128}),
)
#: The path of every dtype and block: one row of each family, as it is slow.
_PLAIN: tuple[Variant, ...] = (("simt", {}),)


def _squares(block: int, features: int, **more: Any) -> Case:
    """Return 4 x 16 heads of 4096 queries and keys, random blocks and the diagonal."""
    size = (4096, 4096, features)
    case = Case("attention", (block, block), 0.1, size, pattern="diagonal", batch=64)
    return replace(case, operation="attention", **more)


def _ms(bar: float, *goals: float) -> dict[str, Any]:
    """Return the bar of a case, and what it should come to in the end, in milliseconds."""
    return {"bars": (Bar("ms", bar),), "goals": tuple(Bar("ms", goal) for goal in goals)}


def _variants(case: Case, variants: Iterable[Variant]) -> Iterator[Case]:
    """Yield a case and, on the same operands, the paths and tiles that it is compared with.

    None is measured twice: a variant with the tile of the case itself, or of another, is left out.
    """
    yield case
    tiles = [tile_on_hopper(case)]
    for path, fields in variants:
        same = replace(case, path=path, fields=tuple(fields.items()), peers=())
        tile = tile_on_hopper(same)
        if tile not in tiles:
            tiles.append(tile)
            yield replace(same, peers_of=case.name, bars=(), goals=())


def tile_on_hopper(case: Case) -> tuple[str, Any]:
    """Return the path that a case takes on Hopper, and its tile."""
    dtype, features = dtype_of(case.dtype), case.size[2]
    facts = AttentionFacts(
        dtype=dtype,
        out_dtype=dtype,
        mask_dtype=np.dtype(bool),
        blocksize=case.block,
        features=features,
        value_features=features,
        packed=True,
        group=case.group,
        allow_tf32=case.tf32,
    )
    fields = Fields(case.config.get("config", {}))
    family = ATTENTION if case.operation == "attention" else ATTENTION_BACKWARD
    tiles = (
        (path.NAME, path.tile(facts, fields))
        for path in family
        if case.dtype in path.DTYPES and (case.path == path.NAME if case.path else path.pays(facts))
    )
    return next((name, tile) for name, tile in tiles if tile is not None)


def forward() -> Iterable[Case]:
    """Attention over block masks: what a call takes, and each path by its tiles."""
    for (block, features), limits in {
        (128, 64): (0.100, 0.085),
        (64, 64): (0.100, 0.085),
        (128, 128): (0.165, 0.140),
        (64, 128): (0.175, 0.150),
    }.items():
        case = _squares(block, features, peers=(FLEX, TRITON), **_ms(*limits))
        plain = _PLAIN if (block, features) == (64, 64) else ()
        yield from _variants(case, (*_MMA, *_WGMMA, *plain))
        of_case = Bar("case time", 1.6, case.name)
        yield replace(case, dropout=0.1, peers=(), bars=(of_case,), goals=())
    # Time by density, up to a full mask, which dense attention computes, too.
    for density in (0.02, 0.05, 0.2, 0.5, 1.0):
        peers = (CUDNN, FLASH) if density == 1 else ()
        yield replace(_squares(128, 128, peers=peers), density=density)
    for block, limits in {32: (0.20, 0.15), 16: (0.40, 0.30)}.items():
        case = _squares(block, 64, **_ms(*limits))
        yield from _variants(case, (*_MMA[:3], ("wgmma", {})))
    long = replace(_squares(128, 128), size=(16384, 16384, 128), batch=32)
    best: tuple[Variant, ...] = (("mma", {}), ("wgmma", {}))
    yield from _variants(replace(long, peers=(FLEX,), **_ms(0.85, 0.78)), best)
    triangle = replace(long, size=(8192, 8192, 128), pattern="causal", density=0.5)
    dense = (FLEX, CUDNN, FLASH)
    yield from _variants(replace(triangle, peers=dense, **_ms(0.88, 0.82)), best)
    # Of few heads, whose tiles of all lengths have to be shared out evenly.
    yield replace(triangle, batch=8, peers=(CUDNN, FLASH))
    yield replace(triangle, batch=16, size=(16384, 16384, 128), peers=(CUDNN, FLASH))
    video = replace(long, block=(64, 64), size=(109632, 109632, 128), batch=7, pattern="strata")
    video = replace(video, density=64 / 1713, peers=(FLEX,), **_ms(3.4, 3.2))
    yield from _variants(video, best)
    tokens = replace(long, size=(32768, 32768, 128), batch=8, pattern="full row", density=0.02)
    split: tuple[Variant, ...] = (("mma", {"split_kv": 0}), ("wgmma", {"split_kv": 0}))
    yield from _variants(replace(tokens, peers=(FLEX,)), (*best, *split))
    pages = replace(long, block=(1, 64), size=(64, 524288, 128), pattern="pages", group=4)
    pages = replace(pages, density=1 / 64, flush=True, peers=(GATHERED,), **_ms(0.50, 0.47))
    yield from _variants(pages, _DECODE)
    for dtype, rate, variants in (
        ("float32", 25, _FMA),
        ("float64", 15, (*_FMA, *_MMA_F64)),
    ):
        full = _squares(64, 64, dtype=dtype, bars=(Bar("TF", rate),))
        yield from _variants(full, variants)
    for features in (64, 128):
        rounded = _squares(128, features, dtype="float32", tf32=True, peers=(FLEX,))
        yield from _variants(rounded, _TF32)
    small = replace(_squares(64, 64), size=(512, 512, 64), batch=4, measure="host")
    yield replace(small, bars=(Bar("ms", 0.015),))


def gradients() -> Iterable[Case]:
    """Gradients of attention's query, key and value: what a call takes, and each path."""
    best: tuple[Variant, ...] = (("mma", {}), ("wgmma", {}))
    for features, limits in {128: (0.55, 0.48), 64: (0.42, 0.34)}.items():
        plain = _PLAIN if features == 64 else ()
        yield from _variants(_gradients(_squares(128, features), *limits), (*_BACKWARD, *plain))
    long = replace(_squares(128, 128), size=(16384, 16384, 128), batch=32)
    yield from _variants(_gradients(long, 2.7, 2.3), best)
    triangle = replace(long, size=(8192, 8192, 128), pattern="causal", density=0.5)
    dense = replace(_gradients(triangle, 2.9, 2.55), peers=(FLEX, CUDNN, FLASH))
    yield from _variants(dense, best)
    yield replace(dense, batch=8, peers=(CUDNN, FLASH), bars=(), goals=())
    for tf32, variants in (
        (False, (("fma", {"tile_other": 32}),)),
        (True, (("mma", {"tile_other": 32}), ("fma", {}))),
    ):
        full = _gradients(_squares(128, 64, dtype="float32", tf32=tf32), 0)
        yield from _variants(replace(full, bars=()), variants)
    small = replace(_squares(64, 64), size=(512, 512, 64), batch=4, measure="host")
    yield replace(_gradients(small, 0.015), peers=())


def _gradients(case: Case, *limits: float) -> Case:
    case = replace(case, section="gradients", operation="attention gradients")
    return replace(case, peers=(FLEX,), **_ms(*limits))


def masks() -> Iterable[Case]:
    """Block masks made on the device; that of indices with what attention plans of it."""
    large = Case("masks", (128, 128), 0.5, (131072, 131072, 1), "bool")
    yield replace(large, operation="causal mask", peers=(FLEX_MASK,), bars=(Bar("ms", 0.1),))
    yield replace(large, operation="documents mask")
    yield replace(large, operation="sliding window mask", density=1 / 16)
    # Its random blocks are drawn on the host.
    drawn = replace(large, size=(32768, 32768, 1), density=1 / 64)
    yield replace(drawn, operation="bigbird mask", measure="whole call")
    video = replace(large, block=(64, 64), size=(109632, 109632, 1), batch=7, density=64 / 1713)
    yield replace(video, operation="mask of indices", bars=(Bar("ms", 0.2),))
    yield replace(video, operation="mask of top k")
