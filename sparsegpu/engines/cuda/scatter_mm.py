"""Products of blocks, added where index lists say, on the device: the first path that serves.

The tiles of one call do not overlap (`ops.scatter_mm` ensures that), so each belongs to one thread
block and its sum is rounded once.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from .paths import SCATTER
from .paths._dispatch import tuned_works, works_of
from .paths._fields import MODEL, ConfigError, refused
from .paths._scatter import Scatter
from .paths._tuned import tuned_scatter_config
from .runtime.launch import Memset, Work, submit
from .winners import Config

_FUNCTION = "scatter_mm"
#: The names in the meta dictionary that are fields of a tile.
_FIELDS = {"TILE_M": "tile_m", "TILE_N": "tile_n"}


def clear(accumulators: Any) -> None:
    """Write zeros, which the first sums are added to."""
    if accumulators.flags.c_contiguous:
        submit(Memset(accumulators.data.ptr, accumulators.nbytes), whole=True)
    else:
        accumulators.fill(0)
        submit()  # not `whole`: what this call submits is not all that it does


def scatter_mm(
    accumulators: Any,
    blocks: Any,
    others: Any,
    c_offsets: Any,
    pq: Any,
    *,
    config: Config | None = None,
    meta: Mapping[str, int] | None = None,
) -> None:
    """Add ``blocks[p] @ others[q]`` to ``accumulators[r]``, (p, q) = pq[c_offsets[r]:...].

    ``config={"path": name, field: value, ...}`` chooses one of `paths.SCATTER` and fields of its
    tile. ``TILE_M`` and ``TILE_N`` of ``meta`` are such fields, of whatever path; ``GROUP_SIZE``
    is that of a configuration without one. Without any, the configuration that was measured best
    for such products is used if they can have it, else the order of the paths.

    Raises
    ------
    paths._fields.ConfigError
        A ``config`` or a tile that these operands cannot have.
    """
    lists = c_offsets, None, pq, None
    _add("pairs", accumulators, blocks, others, lists, 1, config, meta)


def bsr_strided_mm(
    accumulators: Any,
    blocks: Any,
    others: Any,
    c_indices: Any,
    r_offsets: Any,
    p_offsets: Any,
    q_offsets: Any,
    split_n: int,
    *,
    config: Config | None = None,
    meta: Mapping[str, int] | None = None,
) -> None:
    """Add block products to tiles of (*B, M, N); offsets are ``row * N + column``."""
    lists = c_indices, r_offsets, p_offsets, q_offsets
    _add("strided", accumulators, blocks, others, lists, split_n, config, meta)


def bsr_strided_mm_compressed(
    accumulators: Any,
    blocks: Any,
    others: Any,
    c_indices: Any,
    r_offsets: Any,
    q_offsets: Any,
    split_n: int,
    *,
    config: Config | None = None,
    meta: Mapping[str, int] | None = None,
) -> None:
    """Do the same with ``c_indices`` = indptr: a tile's blocks are those of its block row."""
    lists = c_indices, r_offsets, None, q_offsets
    _add("compressed", accumulators, blocks, others, lists, split_n, config, meta)


def _add(
    form: str,
    accumulators: Any,
    blocks: Any,
    others: Any,
    given: tuple,
    split: int,
    config: Config | None,
    meta: Mapping[str, int] | None,
) -> None:
    lists, meta = _uniform(given), meta or {}  # may be copies: they have to outlive the launch
    asked = {"group_size": meta["GROUP_SIZE"]} if "GROUP_SIZE" in meta else {}
    product = Scatter(form, accumulators, blocks, others, lists, split, **asked)
    fields = {field: meta[name] for name, field in _FIELDS.items() if name in meta}
    works = _works(product, config, fields)
    submit(*works, whole=all(a is b for a, b in zip(lists, given, strict=True)))


def _works(product: Scatter, config: Config | None, fields: Config) -> tuple[Work, ...]:
    if config and config["path"] != MODEL["path"]:
        return works_of(SCATTER, product, {**fields, **config}, _FUNCTION)
    if fields:
        return _with_tile(product, fields)
    if config:
        return works_of(SCATTER, product, config, _FUNCTION)
    return tuned_works(SCATTER, product, tuned_scatter_config(product), _FUNCTION)


def _with_tile(product: Scatter, fields: Config) -> tuple[Work, ...]:
    """Return the launches of a path whose tile has such fields, the model's if it can."""
    facts = product.facts()
    for path in sorted(SCATTER, key=lambda path: not path.pays(facts)):
        with suppress(ConfigError):
            return works_of(SCATTER, product, {"path": path.NAME, **fields}, _FUNCTION)
    expected = "TILE_M and TILE_N of a kernel for these operands"
    raise refused("indices_data", expected, tuple(fields.values()), _FUNCTION)


def _uniform(lists: tuple) -> tuple:
    """Return the lists as contiguous arrays of one dtype, int32 or int64."""
    int32 = np.dtype(np.int32)
    all_int32 = all(a is None or a.dtype == int32 for a in lists)
    index = int32 if all_int32 else np.dtype(np.int64)
    return tuple(None if a is None else a.astype(index, order="C", copy=False) for a in lists)
