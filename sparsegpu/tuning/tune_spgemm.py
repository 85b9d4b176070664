"""What `sparsegpu.tune` measures of sparse times sparse."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .._checks import bad_value
from ..bsr.array import bsr_array
from ..engines.cuda.paths._fields import MODEL
from ..engines.cuda.winners import Config, Kind
from ..ops.spgemm import spgemm
from ..testing import accumulator_roundoff, unit_roundoff
from .timing import device_ms

OP = "bsr_spgemm"


def spgemm_search(a: bsr_array, b: bsr_array) -> tuple[Kind, Callable[[Config], float]]:
    """Return the kind of a product, and what measures a configuration of it in ms.

    Raises
    ------
    ValueError
        A product of nothing.
    """
    from ..engines.cuda.paths._tuned import spgemm_kind

    call = partial(spgemm, "tune", ("bsr", "dense"), a, b)
    out = call(config=MODEL)
    if not out.nnzb:
        raise bad_value("tune", "shape", "a product that multiplies something", out.shape)
    kind = spgemm_kind(a.pattern, b.pattern, out.pattern, a.dtype)
    wide = np.promote_types(out.dtype, np.float32)
    expected = out.data.astype(wide)
    bound = 0 if out.dtype.kind == "i" else _bound(a, b, expected, out.dtype)

    def measure(config: Config) -> float:
        run = partial(call, out=out, config=config)
        run()
        if not bool((abs(out.data.astype(wide) - expected) <= bound).all()):
            raise RuntimeError(f"tune: {config} leaves the accuracy bound for {kind}")
        return device_ms(run)

    return kind, measure


def _bound(a: bsr_array, b: bsr_array, expected: Any, dtype: np.dtype) -> Any:
    """Return how far two correct results may be apart: twice the accuracy bound, elementwise."""
    real = np.float32 if a.dtype.itemsize <= 4 else np.float64
    x, y = (m.with_data(abs(m.data).astype(real)) for m in (a, b))
    size = spgemm("tune", ("bsr", "dense"), x, y).data
    u, _ = accumulator_roundoff(a.dtype)
    rounding = unit_roundoff(np.dtype(dtype.type(0).real.dtype)) * abs(expected).astype(real)
    return 2 * (2 * (a.shape[-1] + 5) * u * size + 2 * rounding)
