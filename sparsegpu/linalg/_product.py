"""A product that is made again and again, with what does not change checked once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._arrays import namespace
from .._epilogue import Epilogue
from ..engines import computing_engine, engine_module
from ..ops.addmm import bsr_addmm, bsr_matmul


def bound_product(function: str, bsr: Any) -> Callable[..., Any]:
    """Return ``product(v, out, *, alpha=1, beta=0, input=None)`` of one `bsr_array`.

    It writes ``beta * input + alpha * (bsr @ v)`` to ``out``, which may be ``input``, and returns
    it. All are contiguous, (K, r) and (M, r), r at least 1, in the dtype of ``bsr``, on its device.
    """
    if namespace(bsr.data) is not np:  # a repeated call is replayed, which checks nothing either

        def replayed(v: Any, out: Any, *, alpha: Any = 1, beta: Any = 0, input: Any = None) -> Any:
            if input is None:
                return bsr_matmul(bsr, v, alpha=alpha, out=out)
            return bsr_addmm(input, bsr, v, alpha=alpha, beta=beta, out=out)

        return replayed
    pattern, data = bsr.pattern, bsr.data
    engine, short, most = engine_module(np, "addmm", function), None, 0
    if computing_engine(np) == "cpu" and data.ndim == 3 and data.flags.c_contiguous:
        of_short = engine_module(np, "short_product", function)
        most = of_short.most_columns(pattern, data.dtype)
        short = of_short.ShortProduct(pattern, data.dtype) if most else None

    def product(v: Any, out: Any, *, alpha: Any = 1, beta: Any = 0, input: Any = None) -> Any:
        if short is not None and out.shape[1] <= most and input is None and alpha == 1:
            short(out, data, v)
        elif out.size:
            engine.bsr_addmm(out, pattern, data, v, Epilogue(alpha, beta, input))
        return out

    return product
