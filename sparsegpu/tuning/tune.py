"""``sparsegpu.tune``: measure the configurations of a product and keep the fastest."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

import numpy as np

from .._arrays import as_array, common_namespace
from .._checks import bad_type, bad_value, check_choice, check_flags
from ..bsr.array import bsr_array
from ..bsr.make import random_bsr
from ..engines.cuda import candidates
from ..engines.cuda.paths._fields import MODEL, ConfigError
from ..engines.cuda.runtime.compile import CompileError
from ..engines.cuda.runtime.launch import LaunchError
from ..engines.cuda.winners import Config, Kind, Winner, keep
from ..ops._bsr_product import matmul
from ..ops._common import on_device
from ..ops.scatter_mm import scatter_mm
from ..ops.spgemm import spgemm
from ..testing import accumulator_roundoff, unit_roundoff
from . import attention
from .operands import Random, checked_random, random_array
from .progress import Report, reporting
from .timing import MEMORY_BOUND_COLUMNS, NOISE, device_ms
from .tune_cusparselt import OPS as VENDOR_OPS
from .tune_cusparselt import tune_cusparselt
from .tune_sampled import (
    SAMPLED,
    random_sampled,
    sampled_kind_of,
    sampled_operands,
    sampled_product,
)
from .tune_scatter import OP as SCATTER
from .tune_scatter import on_host, scatter_operands, scatter_search
from .tune_spgemm import OP as SPGEMM
from .tune_spgemm import spgemm_search

#: Whether the block-sparse operand is the right one.
_OPS = {"bsr_addmm": False, "dense_bsr_matmul": True}
#: The fields of a path are searched if its first time is within this factor of the best.
_NEAR = 2.0
#: Errors that skip a configuration; any other one ends the search.
_SKIPPED = (ConfigError, CompileError, LaunchError)


def tune(
    bsr: Any = None,
    dense: Any = None,
    *,
    op: str = "bsr_addmm",
    shape: tuple[int, int, int] | None = None,
    blocksize: tuple[int, int] | None = None,
    dtype: Any = "bfloat16",
    density: float = 0.1,
    allow_tf32: bool = False,
    progress: bool = True,
    out_dtype: Any = None,
) -> Config:
    """Measure the configurations of a product on this GPU and keep the fastest.

    From now on calls without ``config`` use the winner, in this process and in later ones: the
    per-user cache keeps it, unless it cannot be written or others can write to it (a warning). They
    do so if operation, dtype, block size, layout of ``dense`` and compute capability are the same,
    and shape and density are near: the distances in M, K, N and density, as base-2 logarithms of
    the ratios, add up to less than one. The nearest winner counts; of two that are equally near,
    that of the smaller shape, then density. Where its path does not serve a call
    (because of alignment, epilogue or batch), the model's choice is used. No call tunes itself.

    Parameters
    ----------
    bsr : bsr_array, optional
        For cuSPARSELt: a SemiStructuredArray of that backend. For attention: the mask.
    dense : array, optional
        Operands to measure with; of a sampled product ``(mat1, mat2)``, at the blocks of ``bsr``;
        for attention ``(query, key, value)``; for "scatter_mm" the others, or ``(others, lists)``
        with lists of `bsr_scatter_mm_indices_data`. On the host there is nothing to tune.
    op : str
        "bsr_addmm", "dense_bsr_matmul" (for ``dense @ bsr``), "sampled_addmm", "scatter_mm",
        "bsr_spgemm" (``dense`` is a bsr_array, too) or "scaled_dot_product_attention"; of
        "semi_structured_addmm" and "semi_structured_linear" cuSPARSELt's algorithms are searched.
    shape : (M, K, N), optional
        Without operands: measure on random ones, (M, K) @ (K, N), with ``blocksize``, ``dtype`` and
        ``density``. For attention (L, S, E): queries, keys and features of each of 16 heads.
    blocksize : (bm, bk), optional
    dtype : dtype
    density : float
    allow_tf32 : bool
        Tune what float32 does when it is allowed.
    progress : bool
        Print to stderr what is measured, and what is skipped because it does not compile or launch.
    out_dtype : dtype, optional
        Of cuSPARSELt's result. Default: the operands' dtype, bfloat16 for int8 and float8_e4m3fn.

    Returns
    -------
    dict
        ``{"path": name, field: value, ...}``, as ``config=`` takes it; ``{"path": "model"}`` where
        nothing was faster than the model's choice by more than 3%. Empty on the host.

    Raises
    ------
    TypeError
        Neither operands nor a shape with a block size, or both; no bsr_array.
    ValueError
        Operands that do not fit, or that leave nothing to multiply; ``out_dtype`` of an ``op``
        that has none.
    ImportError
        A shape, and CuPy is not installed.
    RuntimeError
        A shape, and no CUDA device, or a driver that CuPy does not work with. A configuration
        whose result leaves the accuracy bound: an error of the library.

    Notes
    -----
    Every path that may serve is measured once, then the fields of those within twice the best time
    are changed one at a time while that helps. Times are medians by CUDA events; the L2 is flushed
    between them if ``dense`` has at most 128 columns. Every result is first compared with the
    model's by the accuracy bound.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.bsr_array(np.eye(4), blocksize=(2, 2))
    >>> sparsegpu.tune(A, np.ones((4, 3)))
    {}

    On a GPU, with sizes instead of operands::

        config = sparsegpu.tune(shape=(4096, 4096, 512), blocksize=(32, 32), density=0.1)
        config = sparsegpu.tune(
            shape=(4096, 4096, 128), blocksize=(64, 64), op="scaled_dot_product_attention"
        )
    """
    check_flags("tune", allow_tf32=allow_tf32, progress=progress)
    check_choice("tune", "op", op, (*_OPS, SAMPLED, SCATTER, SPGEMM, attention.OP, *VENDOR_OPS))
    if op in VENDOR_OPS:
        if shape is not None or dense is None:
            raise bad_type("tune", "dense", f"both operands of {op}", "a shape or one of them")
        return tune_cusparselt(op, bsr, as_array(dense, "tune", "dense"), out_dtype, progress)
    if (bsr is None) == (shape is None) or (bsr is None) != (dense is None):
        raise bad_type("tune", "shape", "either operands or a shape", "both, half or neither")
    if out_dtype is not None:
        raise bad_value("tune", "out_dtype", f"None for op={op!r}: cuSPARSELt has it", out_dtype)
    drawn = None if shape is None else checked_random(shape, blocksize, dtype, density)
    if op == SAMPLED:
        if drawn is not None:
            bsr, dense = random_sampled(*drawn)
        return _tuned_sampled(*sampled_operands(bsr, dense), allow_tf32, progress)
    if op == attention.OP:
        return _tune_attention(bsr, dense, drawn, allow_tf32, progress)
    if drawn is not None:
        bsr, dense = _random_operands(op, drawn)
    elif not isinstance(bsr, bsr_array):
        expected = f"a bsr_array for op={op!r} (a SemiStructuredArray: op={VENDOR_OPS[0]!r})"
        raise bad_type("tune", "bsr", expected, type(bsr).__name__)
    if op == SPGEMM:
        return _tuned_spgemm(bsr, dense, progress)
    if op == SCATTER:
        return _tuned_scatter(bsr, dense, progress)
    dense = as_array(dense, "tune", "dense")
    if common_namespace("tune", bsr=bsr.data, dense=dense) is np:
        _product(op, bsr, dense, allow_tf32)()
        return {}
    if dense.ndim < 2:
        dense = dense[None] if op == "dense_bsr_matmul" else dense[:, None]
    # A copy of the pattern: the schedules that slower paths keep in its memo are freed with it.
    own = bsr_array((bsr.data, bsr.indices, bsr.indptr), shape=bsr.shape, check=False)
    with on_device(bsr.data):
        return _tuned(op, own, dense, allow_tf32, progress)


def _product(op: str, bsr: bsr_array, dense: Any, allow_tf32: bool) -> Callable[..., Any]:
    how: dict[str, Any] = {"from_the_right": _OPS[op], "allow_tf32": allow_tf32}
    return partial(matmul, "tune", bsr, dense, names=("bsr", "dense"), **how)


def _tuned(op: str, bsr: bsr_array, dense: Any, allow_tf32: bool, progress: bool) -> Config:
    from ..engines.cuda.paths._tuned import kind_of

    call, transposed = _product(op, bsr, dense, allow_tf32), _OPS[op]
    inward = dense.swapaxes(-1, -2) if transposed else dense
    kind = kind_of(bsr.pattern, inward, transposed=transposed, allow_tf32=allow_tf32)
    real = np.float32 if dense.dtype.itemsize <= 4 else np.float64
    sizes = bsr.with_data(abs(bsr.data).astype(real)), abs(dense).astype(real)
    return _fastest(call, _product(op, *sizes, False), kind, dense.dtype, bsr.nnzb, progress)


def _tuned_sampled(
    bsr: bsr_array, mats: tuple[Any, Any], allow_tf32: bool, progress: bool
) -> Config:
    call, dtype = sampled_product(bsr, mats, allow_tf32), mats[0].dtype
    if common_namespace("tune", bsr=bsr.data, mat1=mats[0], mat2=mats[1]) is np:
        call()
        return {}
    with on_device(bsr.data):
        real = np.float32 if dtype.itemsize <= 4 else np.float64
        mat1, mat2 = (abs(a).astype(real) for a in mats)
        kind = sampled_kind_of(bsr, mats, allow_tf32)
        terms = mats[0].shape[-1] * bsr.nnzb
        return _fastest(
            call, sampled_product(bsr, (mat1, mat2), False), kind, dtype, terms, progress
        )


def _fastest(
    call: Callable[..., Any],
    size_of: Callable[[], Any],
    kind: Kind,
    dtype: np.dtype,
    terms: int,
    progress: bool,
) -> Config:
    """Return the fastest configuration of ``call(config=, out=)``, and keep it.

    ``size_of`` computes the product of the operands' absolute values, ``terms`` is 0 where
    nothing is multiplied.
    """
    expected = call(config=MODEL)
    if not expected.size or not terms:
        raise bad_value("tune", "shape", "a product that multiplies something", expected.shape)
    bound = _bound(size_of, expected, kind, dtype)
    out, expected = expected.copy(), expected.astype(np.promote_types(expected.dtype, np.float32))
    few = kind.shape[-1] <= MEMORY_BOUND_COLUMNS
    return _searched(kind, _measured(call, out, expected, bound, kind, few), progress)


def _tune_attention(
    mask: Any, dense: Any, drawn: Random | None, allow_tf32: bool, progress: bool
) -> Config:
    if drawn is None:
        operands = attention.given_operands(mask, dense)
    else:
        operands = attention.random_operands(*drawn)
    call = attention.call_of(operands, allow_tf32)
    if attention.on_host(operands):
        call()
        return {}
    query, pattern = operands[0], operands[3].pattern
    with on_device(query):
        out = call(config=MODEL)
        if not out.size or not query.shape[-1] or not pattern.nnzb:
            raise bad_value("tune", "shape", "an attention that attends to something", out.shape)
        kind = attention.kind_of(operands, out, allow_tf32)
        expected = out.astype(np.promote_types(out.dtype, np.float32))
        measure = _measured(call, out, expected, attention.bound(expected, kind), kind)
        return _searched(kind, measure, progress)


def _measured(
    call: Callable[..., Any], out: Any, expected: Any, bound: Any, kind: Kind, flush: bool = False
) -> Callable[[Config], float]:
    """Return what measures a configuration, once its result is within the bound."""
    unknown = ~(abs(expected) < inf)  # an infinity or NaN of the operands' or of the output's

    def measure(config: Config) -> float:
        run = partial(call, out=out, config=config)
        run()
        near = abs(out.astype(expected.dtype) - expected) <= bound
        if not bool((near | unknown).all()):
            raise RuntimeError(f"tune: {config} leaves the accuracy bound for {kind}")
        return device_ms(run, flush=flush)

    return measure


def _tuned_spgemm(a: bsr_array, b: Any, progress: bool) -> Config:
    """Tune a product of two block-sparse arrays."""
    if not isinstance(b, bsr_array):
        raise bad_type("tune", "dense", f"a bsr_array for op={SPGEMM!r}", type(b).__name__)
    if common_namespace("tune", bsr=a.data, dense=b.data) is np:
        spgemm("tune", ("bsr", "dense"), a, b)
        return {}
    with on_device(a.data):
        return _searched(*spgemm_search(a, b), progress)


def _tuned_scatter(bsr: bsr_array, dense: Any, progress: bool) -> Config:
    """Tune a product of blocks that are added where lists say."""
    operands = scatter_operands(bsr, dense)
    if on_host(operands):
        scatter_mm(*operands)
        return {}
    with on_device(operands[0]):
        return _searched(*scatter_search(operands), progress)


def _searched(kind: Kind, measure: Callable[[Config], float], progress: bool) -> Config:
    """Search, keep the winner and return its configuration."""
    with reporting(progress) as report:
        winner = search(kind, measure, report)
    keep(winner)
    return dict(winner.config)


def search(kind: Kind, measure: Callable[[Config], float], report: Report) -> Winner:
    """Return the fastest configuration: each path once, then the fields of the fast ones.

    Parameters
    ----------
    kind : Kind
    measure : callable
        Returns the time of a configuration in milliseconds; raises `ConfigError`, `CompileError`
        or `LaunchError` where it is to be skipped.
    report : callable
        Called with every configuration, its time, and why it was skipped.
    """
    times: dict[str, float] = {}
    best, model_ms = MODEL, measure(MODEL)
    best_ms = model_ms / NOISE
    report(MODEL, model_ms, "")

    def timed(config: Config) -> float:
        nonlocal best, best_ms
        key = repr(config)
        if key not in times:
            why = ""
            try:
                times[key] = measure(config)
            except _SKIPPED as error:
                times[key], why = inf, f"{type(error).__name__}: {error}".splitlines()[0]
            report(config, times[key], why)
            if times[key] < best_ms:
                best, best_ms = config, times[key]
        return times[key]

    starts = sorted(candidates.starts(kind), key=timed)
    for config in starts:
        while timed(config) <= _NEAR * best_ms:
            moved = min(candidates.neighbours(kind, config), key=timed, default=config)
            if timed(moved) >= timed(config):
                break
            config = moved
    return Winner(kind, dict(best), model_ms if best is MODEL else best_ms, model_ms)


def _random_operands(op: str, drawn: Random) -> tuple[bsr_array, Any]:
    import cupy

    (m, k, n), blocksize, dtype, density = drawn
    if op == SPGEMM:
        a = random_bsr((m, k), blocksize, density, dtype=dtype, rng=0, xp=cupy)
        square = blocksize[1], blocksize[1]
        return a, random_bsr((k, n), square, density, dtype=dtype, rng=1, xp=cupy)
    sparse, other = ((k, n), (m, k)) if op == "dense_bsr_matmul" else ((m, k), (k, n))
    bsr = random_bsr(sparse, blocksize, density, dtype=dtype, rng=0, xp=cupy)
    return bsr, random_array(cupy, other, dtype, seed=1)


def _bound(size_of: Callable[[], Any], out: Any, kind: Kind, dtype: np.dtype) -> Any:
    """Return how far two correct results may be apart: twice the accuracy bound, elementwise."""
    if out.dtype.kind == "i":
        return 0
    real = np.float32 if dtype.itemsize <= 4 else np.float64
    u, operand = accumulator_roundoff(dtype, allow_tf32=kind.family.dtype == "tf32")
    terms = kind.shape[1] + 5
    rounding = unit_roundoff(np.dtype(out.real.dtype)) * abs(out).astype(real)
    return 2 * ((2 * terms * u + operand) * size_of() + 2 * rounding)
