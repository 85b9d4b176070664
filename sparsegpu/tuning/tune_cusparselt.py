"""``sparsegpu.tune`` for the 2:4 backend "cusparselt": each of its algorithms is tried once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from .._arrays import bfloat16, dtype_of
from .._checks import bad_type
from .._epilogue import Epilogue
from ..engines.cuda.paths._fields import MODEL
from ..engines.cuda.runtime.launch import submit
from ..engines.cuda.winners import Config, Winner, keep
from ..ops._common import on_device
from ..ops._product import Side
from .progress import reporting
from .timing import MEMORY_BOUND_COLUMNS, NOISE, device_ms

OPS = ("semi_structured_addmm", "semi_structured_linear")


def tune_cusparselt(op: str, sparse: Any, dense: Any, out_dtype: Any, progress: bool) -> Config:
    """Search the algorithms of a product through cuSPARSELt and keep the fastest."""
    winner = searched(op, sparse, dense, out_dtype, progress)
    keep(winner)
    return dict(winner.config)


def searched(op: str, sparse: Any, dense: Any, out_dtype: Any, progress: bool) -> Winner:
    """Return the fastest algorithm of a product.

    The one that `search_cusparselt.fastest` finds is measured beside the library's own choice,
    which wins where that is not faster. Operands that a call would copy or pad are copied or
    padded first: the algorithm is searched for what is really multiplied.
    """
    from ..engines.cusparselt import semi_structured as vendor
    from ..engines.cusparselt.epilogue import fused
    from ..engines.cusparselt.library import Plan
    from .search_cusparselt import fastest

    backend = getattr(sparse, "backend", None)
    if backend != "cusparselt":
        expected = "a SemiStructuredArray of backend 'cusparselt' (native tiles are not searched)"
        got = type(sparse).__name__ + ("" if backend is None else f" of backend {backend!r}")
        raise bad_type("tune", "bsr", expected, got)
    side = Side(False, op == "semi_structured_linear")
    dense = side.operand("tune", "dense", dense, sparse.shape[1])
    dtype = sparse.dtype
    if out_dtype is None:  # scaled_mm's for one-byte operands
        out_dtype = bfloat16 if dtype.itemsize == 1 else dtype
    with on_device(dense), reporting(progress) as report:
        import cupy

        half = sparse.half()
        shape = (*dense.shape[:-2], half.vendor.shape[0], dense.shape[-1])
        out = side.empty(shape, dtype_of(out_dtype), cupy)
        how = fused("tune", Epilogue(), dtype, out)
        described, written, _ = vendor.operands(out, half.vendor, dense, Epilogue(), how)
        key = vendor.key_of(written, half.vendor, described, Epilogue(), how)

        def product(plan: Plan) -> Callable[[], None]:
            first = (0,) * (written.ndim - 2)
            operand = described[(0,) * (described.ndim - 2)]
            operands = half.vendor, operand, written[first], None
            matmul = vendor.Matmul(plan, vendor.memory_for(plan), *operands, Epilogue())
            return partial(submit, matmul)

        flush = key.n <= MEMORY_BOUND_COLUMNS
        model_ms = device_ms(product(vendor.chosen_plan(key, MODEL)), flush=flush)
        report(MODEL, model_ms, "")
        config, ms = dict(MODEL), model_ms
        cupy.get_default_memory_pool().free_all_blocks()  # the search's process needs memory, too
        found = fastest(key, flush=flush, report=report)
        if found is not None:
            chosen = vendor.config_of(found, key)
            chosen_ms = device_ms(product(vendor.chosen_plan(key, chosen)), flush=flush)
            report(chosen, chosen_ms, "")
            if chosen_ms * NOISE < model_ms:
                config, ms = chosen, chosen_ms
        return Winner(vendor.kind_of(key), config, ms, model_ms)
