"""What kind of product a call is, and which configuration was measured best for it."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ...._math import ceil_div
from ....pattern import Pattern
from .._transpose import transpose_pattern
from ..runtime.device import architecture
from ..winners import Config, Family, Kind, density_bucket, snapshot
from ._product import Product, layout_of

if TYPE_CHECKING:  # a product needs no other operation's
    from ._attention import Attention
    from ._sampled import Sampled, SampledFacts
    from ._scatter import Scatter


def tuned_config(p: Product) -> Config | None:
    """Return the configuration that `sparsegpu.tune` found; None where nothing near was tuned."""
    if p.empty:
        return None
    known = snapshot()
    if not known.winners:
        return None
    dtype = _name(p.data.dtype, p.allow_tf32)
    return known.config(_kind(p.pattern, p.dense, dtype, p.layout, p.transposed))


def kind_of(pattern: Pattern, dense: Any, *, transposed: bool, allow_tf32: bool) -> Kind:
    """Return the kind of a product of operands as `bsr_addmm` of this engine gets them."""
    dtype = _name(dense.dtype, allow_tf32)
    multiplied = transpose_pattern(pattern)[0] if transposed else pattern
    return _kind(multiplied, dense, dtype, layout_of(dense), transposed)


def tuned_spgemm_config(
    left: Pattern, right: Pattern, result: Pattern, dtype: np.dtype
) -> Config | None:
    """Return what `sparsegpu.tune` found for a product of two patterns, None as above."""
    known = snapshot()
    return known.config(spgemm_kind(left, right, result, dtype)) if known.winners else None


def spgemm_kind(left: Pattern, right: Pattern, result: Pattern, dtype: np.dtype) -> Kind:
    """Return the kind of a product of two patterns; its density is their geometric mean."""
    (m, k), n, blocksize = left.shape, right.shape[1], left.blocksize
    stored = (p.nnzb / prod(p.block_shape) for p in (left, right))
    return Kind(
        Family("bsr_spgemm", architecture(), dtype.name, blocksize, str(right.blocksize[1])),
        (m * result.batch_size, k, n),
        density_bucket(prod(stored) ** 0.5),
    )


def attention_kind(p: Attention) -> Kind:
    """Return the kind of an attention: (queries of all heads, keys, features), density."""
    facts, pattern = p.facts(), p.pattern
    places = max(pattern.block_shape[0] * pattern.block_shape[1], 1)
    return Kind(
        Family(
            "scaled_dot_product_attention",
            architecture(),
            _name(facts.dtype, facts.allow_tf32),
            facts.blocksize,
            facts.layout(),
        ),
        (prod(p.query.shape[:-1]), p.key.shape[-2], facts.features),
        density_bucket(pattern.nnzb / places),
    )


def tuned_attention(p: Attention) -> Config | None:
    """Do for attention what `tuned_config` does."""
    known = snapshot()
    return known.config(attention_kind(p)) if known.winners else None


def _kind(pattern: Pattern, dense: Any, dtype: str, layout: str, transposed: bool) -> Kind:
    (m, k), (bm, bk) = pattern.shape, pattern.blocksize
    places = max(pattern.block_shape[0] * pattern.block_shape[1], 1)
    op = "dense_bsr_matmul" if transposed else "bsr_addmm"
    return Kind(
        Family(op, architecture(), dtype, (bm, bk), layout),
        (m * max(pattern.batch_size, 1), k, dense.shape[-1]),
        density_bucket(pattern.nnzb / places),
    )


def tuned_sampled_config(p: Sampled) -> Config | None:
    """Return the configuration that `sparsegpu.tune` found for a sampled product, or None."""
    known = snapshot()
    if not p.inner or not known.winners:
        return None
    return known.config(sampled_kind(p.facts()))


def sampled_kind(f: SampledFacts) -> Kind:
    """Return the kind of a sampled product; its layout is that of both matrices."""
    (bm, bn), block_columns = f.blocksize, max(f.shape[2] // f.blocksize[1], 1)
    dtype, layout = _name(f.dtype, f.allow_tf32), f"{f.mat1} {f.mat2}"
    family = Family("sampled_addmm", architecture(), dtype, (bm, bn), layout)
    return Kind(family, f.shape, density_bucket(f.row_blocks / block_columns))


def tuned_scatter_config(p: Scatter) -> Config | None:
    """Return the configuration that `sparsegpu.tune` found for a scattered product, or None."""
    known = snapshot()
    return known.config(scatter_kind(p)) if known.winners else None


def scatter_kind(p: Scatter) -> Kind:
    """Return the kind of a scattered product: (rows of all tiles, terms of one on average, Ns)."""
    _, ms, ks = p.blocks.shape
    terms = ceil_div(p.pairs, p.tiles) * ks if p.tiles else 0
    family = Family("scatter_mm", architecture(), p.dtype.name, (ms, ks), p.form)
    return Kind(family, (p.tiles * p.batches * ms, terms, p.columns), density_bucket(1))


@cache
def _name(dtype: np.dtype, allow_tf32: bool) -> str:
    return "tf32" if allow_tf32 and dtype == np.float32 else dtype.name
