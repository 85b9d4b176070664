"""What `sparsegpu.tune` measures of ``scatter_mm``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .._arrays import as_array, common_namespace
from .._checks import bad_type, bad_value
from ..bsr.array import bsr_array
from ..engines.cuda.paths._fields import MODEL
from ..engines.cuda.winners import Config, Kind
from ..ops._canonical import distinct_blocks
from ..ops._common import on_device
from ..ops.scatter_indices import FORMATS, IndicesData, bsr_scatter_mm_indices_data
from ..ops.scatter_mm import scatter_mm
from ..testing import accumulator_roundoff, unit_roundoff
from .timing import device_ms

OP = "scatter_mm"

Operands = tuple[Any, Any, IndicesData]


def scatter_operands(bsr: Any, dense: Any) -> Operands:
    """Return the blocks of a bsr_array, what they are multiplied by, and the lists.

    Raises
    ------
    TypeError
        No bsr_array; lists that `bsr_scatter_mm_indices_data` has not made, which every call reads.
    """
    if not isinstance(bsr, bsr_array):
        raise bad_type("tune", "bsr", f"a bsr_array for op={OP!r}", type(bsr).__name__)
    if isinstance(dense, (tuple, list)):
        others, lists = dense if len(dense) == 2 else (None, None)
    else:
        others, lists = dense, bsr_scatter_mm_indices_data(bsr, dense)
    if not isinstance(lists, IndicesData):
        expected = "an array, or one with lists of bsr_scatter_mm_indices_data"
        raise bad_type("tune", "dense", expected, type(dense).__name__)
    with on_device(bsr.data):
        _, blocks = distinct_blocks(bsr, "tune", "bsr")
    return blocks, as_array(others, "tune", "dense"), lists


def on_host(operands: Operands) -> bool:
    """Return whether there is nothing to tune."""
    blocks, others, _ = operands
    return common_namespace("tune", bsr=blocks, dense=others) is np


def scatter_search(operands: Operands) -> tuple[Kind, Callable[[Config], float]]:
    """Return the kind of a product, and what measures a configuration of it in ms.

    Raises
    ------
    ValueError
        A product of nothing.
    """
    call = partial(scatter_mm, *operands)
    out = call(config=MODEL)
    if not (out.size and operands[0].size):
        raise bad_value("tune", "shape", "a product that multiplies something", out.shape)
    kind = _kind_of(operands, out)
    wide = np.promote_types(out.dtype, np.float32)
    expected = out.astype(wide)
    bound = 0 if out.dtype.kind == "i" else _bound(operands, expected, out.dtype)

    def measure(config: Config) -> float:
        if not bool((abs(call(config=config).astype(wide) - expected) <= bound).all()):
            raise RuntimeError(f"tune: {config} leaves the accuracy bound for {kind}")
        return device_ms(partial(call, accumulators=out, config=config))

    return kind, measure


def _kind_of(operands: Operands, out: Any) -> Kind:
    """Return the kind of a product, as a call of it looks it up."""
    from ..engines.cuda.paths._scatter import FORMS, Scatter
    from ..engines.cuda.paths._tuned import scatter_kind

    blocks, others, lists = operands
    form = dict(zip(FORMATS, FORMS, strict=True))[lists[0]]
    by_name = lists.arrays
    starts = by_name["c_offsets" if form == "pairs" else "c_indices"]
    arrays = starts, by_name.get("r_offsets"), by_name.get("p_offsets"), by_name.get("q_offsets")
    if form == "pairs":
        arrays = starts, None, by_name["pq"], None
    split = 1 if form == "pairs" else lists.fit.split_n
    return scatter_kind(Scatter(form, out, blocks, others, arrays, split))


def _bound(operands: Operands, expected: Any, dtype: np.dtype) -> Any:
    """Return how far two correct results may be apart: twice the accuracy bound, elementwise."""
    blocks, others, lists = operands
    real = np.float32 if blocks.dtype.itemsize <= 4 else np.float64
    size = scatter_mm(abs(blocks).astype(real), abs(others).astype(real), lists)
    u, _ = accumulator_roundoff(blocks.dtype)
    rounding = unit_roundoff(np.dtype(dtype.type(0).real.dtype)) * abs(expected).astype(real)
    terms = lists.fit.longest * blocks.shape[2] + 5
    return 2 * (2 * terms * u * size + 2 * rounding)
