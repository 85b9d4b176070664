"""The search for the fastest configuration of a wrapped kernel."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from .._arrays import is_cupy
from ..engines.cuda.runtime.launch import LaunchError
from ..tuning import timing
from ..tuning.progress import reporting
from .config import Config
from .memory import library

_FLOATS = (np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn))  # not NumPy's own


class Candidate(NamedTuple):
    """A configuration of the list, and what launches the kernel with it.

    ``prepare`` compiles it; both raise ValueError or RuntimeError where it is to be left out.
    """

    config: Config
    prepare: Callable[[], Any]
    run: Callable[[], Any]


def fastest(
    name: str,
    candidates: Sequence[Candidate],
    written: Mapping[Any, Any],
    poisoned: Sequence[Any],
    expected: Sequence[np.ndarray] | None,
    progress: bool,
) -> Config:
    """Return the fastest configuration of those that agree; every written byte is as before.

    Parameters
    ----------
    name : str
        The kernel's.
    candidates : sequence of Candidate
    written : mapping of name to array
        What they write.
    poisoned : sequence of names
        Those of them that no candidate reads: they hold poison before each.
    expected : sequence of numpy.ndarray, optional
        What a reference writes to them. Without, results are held to each other.
    progress : bool
        Print every configuration and its time.

    Raises
    ------
    ValueError
        No configuration is left, or no two agree where there is no reference.
    """
    before = {n: a.copy() for n, a in written.items()}

    def restore(poison: bool) -> None:
        for n, array in written.items():
            array[...] = poison_like(array) if poison and n in poisoned else before[n]

    with reporting(progress) as report:
        compiled = _compiled(name, candidates, report)
        results: dict[int, list[np.ndarray]] = {}
        try:
            for number, candidate in compiled.items():
                restore(poison=True)
                try:
                    candidate.run()
                except LaunchError as error:  # as of clusters that no multiprocessors hold
                    report(_named(name, candidate.config), inf, str(error).splitlines()[0])
                    last = error
                    continue
                results[number] = [on_host(array) for array in written.values()]
            if not results:
                raise ValueError(
                    f"tune: {name}: no configuration is left, the last because: {last}"
                )
            agreeing = _agreeing(name, candidates, results, expected)
            restore(poison=False)
            best, best_ms = -1, inf
            for number in agreeing:
                ms = timing.device_ms(candidates[number].run)
                report(_named(name, candidates[number].config), ms, "")
                if ms < best_ms / (timing.NOISE if best >= 0 else 1):
                    best, best_ms = number, ms
        finally:
            restore(poison=False)
    return candidates[best].config


def poison_like(array: Any) -> Any:
    """Return what an array is filled with: all bits are set, so that a float is NaN."""
    dtype = array.dtype
    poison = (
        np.ones((), bool)
        if dtype.kind == "b"
        else np.frombuffer(b"\xff" * dtype.itemsize, dtype)[0]
    )
    return library(array).asarray(poison)


def _compiled(
    name: str, candidates: Sequence[Candidate], report: Callable[..., Any]
) -> dict[int, Candidate]:
    """Compile all, side by side; leave out, and say, what the device cannot run."""
    left: dict[int, Candidate] = {}
    with ThreadPoolExecutor() as threads:
        waiting = [threads.submit(candidate.prepare) for candidate in candidates]
        for number, (candidate, build) in enumerate(zip(candidates, waiting, strict=True)):
            error = build.exception()
            if error is None:
                left[number] = candidate
            elif isinstance(error, ValueError | RuntimeError):
                report(_named(name, candidate.config), inf, str(error).splitlines()[0])
                last = error
            else:
                raise error
    if not left:
        raise ValueError(f"tune: {name}: no configuration is left, the last because: {last}")
    return left


def _named(name: str, config: Config) -> dict[str, Any]:
    rest = {
        "block": config.block,
        "shared_memory": config.shared_memory or None,
        "cluster": config.cluster,
    }
    return {"path": name, **config.defines, **{k: v for k, v in rest.items() if v is not None}}


def on_host(array: Any) -> np.ndarray:
    """Return an array's elements in memory of their own."""
    return array.get() if is_cupy(array) else array.copy()


def _agreeing(
    name: str,
    candidates: Sequence[Candidate],
    results: Mapping[int, Sequence[np.ndarray]],
    expected: Sequence[np.ndarray] | None,
) -> list[int]:
    """Return the candidates whose results are right: the reference's, or most others'."""
    if expected is not None:
        right = [n for n, found in results.items() if _alike(found, expected)]
    else:
        groups = [[n for n in results if _alike(results[n], results[m])] for m in results]
        right = max(groups, key=len)
        if len(right) == 1 < len(results):
            raise ValueError(f"tune: {name}: no two configurations agree; ref= in wrap decides")
    if not right:
        raise ValueError(f"tune: {name}: no configuration gives what ref gives")
    for number in results.keys() - set(right):
        config = candidates[number].config
        warnings.warn(f"tune: {name}: left out, its result is another: {config}", stacklevel=4)
    return right


def _alike(found: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> bool:
    return all(map(are_near, found, others))


def are_near(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two results may be of the same sums in another order.

    Of floats half of the digits count, of the largest element.
    """
    if a.dtype.kind not in "fc" and a.dtype not in _FLOATS:
        return np.array_equal(a, b)
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    x, y = a.astype(wide), b.astype(wide)
    finite = np.isfinite(x)
    if not np.array_equal(x[~finite], y[~finite], equal_nan=True):
        return False
    x, y = x[finite], y[finite]
    tolerance = float(ml_dtypes.finfo(a.real.dtype).eps) ** 0.5
    return not x.size or bool(abs(x - y).max() <= tolerance * abs(x).max())
