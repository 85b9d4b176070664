"""``sparsegpu.tune``: measure the configurations of a product and keep the fastest."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

import numpy as np

from .._arrays import as_array, common_namespace, dtype_of
from .._checks import bad_type, bad_value, check_choice
from ..bsr.array import bsr_array
from ..bsr.make import random_bsr
from ..engines.cuda import candidates
from ..engines.cuda.paths._fields import MODEL, ConfigError
from ..engines.cuda.runtime.compile import CompileError
from ..engines.cuda.runtime.launch import LaunchError
from ..engines.cuda.winners import Config, Kind, Winner, keep
from ..ops._common import on_device
from ..ops.addmm import bsr_matmul, dense_bsr_matmul
from ..testing import accumulator_roundoff, unit_roundoff
from .problem import random_values
from .progress import Said, shown
from .timing import device_ms
from .tune_cusparselt import OPS as VENDOR_OPS
from .tune_cusparselt import tune_cusparselt

_OPS: dict[str, Callable[..., Any]] = {
    "bsr_addmm": bsr_matmul,
    "dense_bsr_matmul": lambda a, b, **k: dense_bsr_matmul(b, a, **k),
}
_NEAR = 2.0  # times the best: paths whose tiles are searched
_NOISE = 1.03  # times as fast as the model's choice, from which on it is really faster
_MEMORY_BOUND = 128  # columns, up to which operands come from memory
#: What a configuration may fail with; anything else is an error of the product's.
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

    The winner is used from now on, in this process and those to come (the per-user cache keeps
    it), by calls without ``config`` of the same operation, dtype, block size, layout of ``dense``
    and compute capability whose shape and density are near: less than an octave away, the octaves
    (factors of two) between M, K, N and densities added up. The nearest winner counts; of two
    that are equally near, that of the smaller shape, then density. A call that cannot have it
    (another alignment, epilogue or batch) gets the model's choice instead. Nothing tunes itself
    inside a call.

    Parameters
    ----------
    bsr : bsr_array, optional
        For the last two operations: a SemiStructuredArray of backend "cusparselt".
    dense : array, optional
        Operands to measure with. On the host there is nothing to tune.
    op : {"bsr_addmm", "dense_bsr_matmul", "semi_structured_addmm", "semi_structured_linear"}
        The second for ``dense @ bsr``; the others search cuSPARSELt's algorithms.
    shape : (M, K, N), optional
        Without operands: measure on random ones, (M, K) @ (K, N), with ``blocksize``, ``dtype`` and
        ``density``.
    blocksize : (bm, bk), optional
    dtype : dtype
    density : float
    allow_tf32 : bool
        Tune what float32 does when it is allowed.
    progress : bool
        Say on stderr what was measured, and what was skipped because it does not compile or launch.
    out_dtype : dtype, optional
        What cuSPARSELt is to write: the operands' dtype, bfloat16 for int8 and float8_e4m3fn.

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
        Operands that do not fit, or that leave nothing to multiply.
    RuntimeError
        A configuration whose result leaves the accuracy bound: an error of the library.

    Notes
    -----
    Every path that may serve is measured once, then the fields of those within twice the best time
    are changed one at a time while that helps. Times are medians by CUDA events, with the L2
    flushed where ``dense`` has 128 columns or fewer; every result is compared with the model's by
    the accuracy bound first.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.bsr_array(np.eye(4), blocksize=(2, 2))
    >>> sparsegpu.tune(A, np.ones((4, 3)))
    {}

    On a GPU, with sizes instead of operands::

        config = sparsegpu.tune(shape=(4096, 4096, 512), blocksize=(32, 32), density=0.1)
    """
    check_choice("tune", "op", op, (*_OPS, *VENDOR_OPS))
    if op in VENDOR_OPS:
        if shape is not None or dense is None:
            raise bad_type("tune", "dense", f"both operands of {op}", "a shape or one of them")
        return tune_cusparselt(op, bsr, as_array(dense, "tune", "dense"), out_dtype, progress)
    if (bsr is None) == (shape is None) or (bsr is None) != (dense is None):
        raise bad_type("tune", "shape", "either operands or a shape", "both, half or neither")
    if shape is not None:
        bsr, dense = _random_operands(op, shape, blocksize, dtype_of(dtype), density)
    elif not isinstance(bsr, bsr_array):
        expected = f"a bsr_array for op={op!r} (a SemiStructuredArray: op={VENDOR_OPS[0]!r})"
        raise bad_type("tune", "bsr", expected, type(bsr).__name__)
    dense = as_array(dense, "tune", "dense")
    if common_namespace("tune", bsr=bsr.data, dense=dense) is np:
        _OPS[op](bsr, dense, allow_tf32=allow_tf32)
        return {}
    if dense.ndim < 2:
        dense = dense[None] if op == "dense_bsr_matmul" else dense[:, None]
    # A pattern of its own: what paths that lose keep with it goes when the search is over.
    own = bsr_array((bsr.data, bsr.indices, bsr.indptr), shape=bsr.shape, check=False)
    with on_device(bsr.data):
        return _tuned(op, own, dense, allow_tf32, progress)


def _tuned(op: str, bsr: bsr_array, dense: Any, allow_tf32: bool, progress: bool) -> Config:
    from ..engines.cuda.paths._tuned import kind_of

    call = partial(_OPS[op], bsr, dense, allow_tf32=allow_tf32)
    transposed = op == "dense_bsr_matmul"
    inward = dense.swapaxes(-1, -2) if transposed else dense
    kind = kind_of(bsr.pattern, inward, transposed=transposed, allow_tf32=allow_tf32)
    expected = call(config=MODEL)
    if not expected.size or not bsr.nnzb:
        raise bad_value("tune", "shape", "a product that multiplies something", expected.shape)
    bound = _bound(op, bsr, dense, expected, kind, allow_tf32)
    out, expected = expected.copy(), expected.astype(np.promote_types(expected.dtype, np.float32))
    unknown = ~(abs(expected) < inf)  # an infinity or NaN of the operands' or of the output's

    def measure(config: Config) -> float:
        run = partial(call, out=out, config=config)
        run()
        near = abs(out.astype(expected.dtype) - expected) <= bound
        if not bool((near | unknown).all()):
            raise RuntimeError(f"tune: {config} leaves the accuracy bound for {kind}")
        return device_ms(run, flush=kind.shape[-1] <= _MEMORY_BOUND)

    with shown(progress) as said:
        winner = search(kind, measure, said)
    keep(winner)
    return dict(winner.config)


def search(kind: Kind, measure: Callable[[Config], float], said: Said) -> Winner:
    """Return the fastest configuration: every path once, then the near ones field by field.

    Parameters
    ----------
    kind : Kind
    measure : callable
        Returns the time of a configuration in milliseconds; raises `ConfigError`, `CompileError`
        or `LaunchError` where it is to be skipped.
    said : callable
        Is told every configuration, its time, and why it was skipped.
    """
    times: dict[str, float] = {}
    best, model_ms = MODEL, measure(MODEL)
    best_ms = model_ms / _NOISE
    said(MODEL, model_ms, "")

    def timed(config: Config) -> float:
        nonlocal best, best_ms
        key = repr(config)
        if key not in times:
            why = ""
            try:
                times[key] = measure(config)
            except _SKIPPED as error:
                times[key], why = inf, f"{type(error).__name__}: {error}".splitlines()[0]
            said(config, times[key], why)
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


def _random_operands(
    op: str, shape: Any, blocksize: Any, dtype: np.dtype, density: float
) -> tuple[bsr_array, Any]:
    import cupy

    if blocksize is None or len(shape) != 3:
        raise bad_type("tune", "blocksize", "a block size and a shape (M, K, N)", repr(blocksize))
    m, k, n = shape
    sparse, other = ((k, n), (m, k)) if op == "dense_bsr_matmul" else ((m, k), (k, n))
    bsr = random_bsr(sparse, blocksize, density, dtype=dtype, rng=0, xp=cupy)
    return bsr, random_values(cupy, other, dtype, seed=1)


def _bound(op: str, bsr: bsr_array, dense: Any, out: Any, kind: Kind, allow_tf32: bool) -> Any:
    """Return how far two right results may be apart: twice the contract's bound, elementwise."""
    if out.dtype.kind == "i":
        return 0
    real = np.float32 if dense.dtype.itemsize <= 4 else np.float64
    size = _OPS[op](bsr.with_data(abs(bsr.data).astype(real)), abs(dense).astype(real))
    u, operand = accumulator_roundoff(dense.dtype, allow_tf32=kind.family.dtype == "tf32")
    terms = kind.shape[1] + 5
    rounding = unit_roundoff(np.dtype(out.real.dtype)) * abs(out).astype(real)
    return 2 * ((2 * terms * u + operand) * size + 2 * rounding)
