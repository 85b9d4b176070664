"""The CPU engine beside the reference engine and SciPy: ``python -m benchmarks.cpu``.

Times are medians of interleaved runs, so that other load disturbs all of them equally. The CPU
engine uses all cores, SciPy one, and the reference engine those that NumPy's BLAS takes: the lead
is smaller where other processes use the cores.
``--check`` only compares with `BARS` and exits 1 when one is missed; run it alone.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import numpy as np

import sparsegpu
from benchmarks import cpu_scipy, cpu_solvers
from sparsegpu.testing import accuracy_bound, assert_close, random_blocks, random_values
from sparsegpu.tuning.timing import settle

#: Block size, the slower implementation, the ratio of times: 2048 x 2048, density 0.1, float32.
BARS = ((32, "scipy", 10), (32, "reference", 1), (4, "reference", 5))
_TRIES = 8  # until one reaches the bar: what else runs on the machine only slows a try down


def interleaved(
    functions: dict[str, Callable[[], object]], repeats: int, *, settled: bool = False
) -> dict[str, float]:
    """Return the median seconds of each function, after a warm-up call.

    Every second round goes backwards: what the function before left in caches, and in the
    allocator, counts for all. ``settled``: but threads of other libraries do not (`settle`).
    """
    times: dict[str, list[float]] = {name: [] for name in functions}
    order = list(functions)
    for round_number in range(repeats + 1):
        for name in order:
            if settled:
                settle(functions[name])
            start = time.perf_counter()
            functions[name]()
            if round_number:
                times[name].append(time.perf_counter() - start)
        order.reverse()
    return {name: median(t) for name, t in times.items()}


def by_engine(function: Callable[[], object]) -> dict[str, Callable[[], object]]:
    """Return the function bound to each NumPy engine, by the engine's name."""

    def on(engine: str) -> Callable[[], object]:
        def call() -> object:
            with sparsegpu.use_engine(engine):
                return function()

        return call

    return {engine: on(engine) for engine in ("cpu", "reference")}


def product(
    block: int, *, size: int = 2048, columns: int = 2048, density: float = 0.1, scipy: bool = True
) -> dict[str, Callable[[], object]]:
    """Return ``A @ X`` in float32 by each implementation, after a check of the result."""
    rng = np.random.default_rng(0)
    shape = (size, size)
    A = sparsegpu.bsr_array(
        random_blocks(rng, shape, (block, block), density=density, shuffled=False), shape=shape
    )
    X = random_values(rng, (size, columns), "float32")
    implementations = by_engine(lambda: A @ X)
    if scipy:
        theirs = A.to_scipy()
        implementations["scipy"] = lambda: theirs @ X
    exact, bound = accuracy_bound(A.toarray(), X)
    for multiply in implementations.values():
        assert_close(multiply(), exact, bound)
    return implementations


def operations(size: int = 2048) -> Iterator[tuple[str, dict[str, Callable[[], object]]]]:
    """Yield the other operations by name, bound to both engines."""
    rng = np.random.default_rng(0)
    for block in (4, 32):
        triple = random_blocks(rng, (size, size), (block, block), density=0.1)
        A = sparsegpu.bsr_array(triple, shape=(size, size))
        X = random_values(rng, (size, size), "float32")
        name = f"{block} x {block}"
        few = X[:, :256]
        yield f"softmax {name}", by_engine(partial(sparsegpu.bsr_softmax, A))
        yield f"scatter_mm {name}", by_engine(partial(sparsegpu.bsr_scatter_mm, A, few))
        sampled = partial(sparsegpu.sampled_addmm, A, few, few.T, beta=0)
        yield f"sampled_addmm {name}", by_engine(sampled)
    mask = sparsegpu.causal((1024, 1024), (32, 32))
    query = random_values(rng, (4, 1024, 64), "float32")
    attend = sparsegpu.scaled_dot_product_attention
    yield "attention 32 x 32", by_engine(lambda: attend(query, query, query, mask, is_causal=True))
    dense = random_values(rng, (size, size), "float16")
    pruned = sparsegpu.prune_24(dense)
    packed, meta = sparsegpu.semi_structured_from_dense(pruned)
    narrow = random_values(rng, (size, 256), "float16")
    sparse = sparsegpu.to_semi_structured(pruned)
    yield "prune_24", by_engine(lambda: sparsegpu.prune_24(dense))
    yield "prune_tile", by_engine(lambda: sparsegpu.prune_tile(dense))
    yield "compress", by_engine(lambda: sparsegpu.semi_structured_from_dense(pruned))
    yield "expand", by_engine(lambda: sparsegpu.semi_structured_to_dense(packed, meta))
    yield "2:4 @ dense", by_engine(lambda: sparse @ narrow)


def reached(block: int, over: str, bar: float) -> list[float]:
    """Return the ratio of times in each try, until one reaches the bar."""
    # SciPy takes seconds for 2,048 columns.
    implementations = product(
        block, columns=512 if over == "scipy" else 2048, scipy=over == "scipy"
    )
    pair = {name: implementations[name] for name in ("cpu", over)}
    ratios: list[float] = []
    while len(ratios) < _TRIES and max(ratios, default=0) < bar:
        t = interleaved(pair, 3, settled=True)
        ratios.append(t[over] / t["cpu"])
    return ratios


def beside_scipy(kind: str) -> Iterator[tuple[str, list[float]]]:
    """Yield operations on a matrix, and their time over SciPy's in each try, until one is short."""
    for name, pair in cpu_scipy.implementations(cpu_scipy.MATRICES[kind]()):
        ratios: list[float] = []
        while len(ratios) < _TRIES and min(ratios, default=np.inf) > cpu_scipy.BAR:
            t = interleaved(pair, 4 if name == "A @ A" else 16)
            ratios.append(t["cpu"] / t["scipy"])
        yield name, ratios


def solvers_beside_scipy() -> Iterator[tuple[str, list[float]]]:
    """Yield solvers, and their time over that of SciPy's with the same operand, as above."""
    for name, bound in cpu_solvers.implementations():
        pair = {which: bound[which] for which in ("cpu", "scipy")}
        ratios: list[float] = []
        while len(ratios) < _TRIES and min(ratios, default=np.inf) > cpu_solvers.BAR:
            t = interleaved(pair, 8, settled=True)
            ratios.append(t["cpu"] / t["scipy"])
        yield f"solver {name}", ratios


def check() -> int:
    """Print the ratios for each bar, and return 1 if one is missed."""
    missed = 0
    beside = [(f"{kind} ", beside_scipy(kind), cpu_scipy.BAR) for kind in cpu_scipy.MATRICES]
    for kind, found, bar in (*beside, ("3 x 3 ", solvers_beside_scipy(), cpu_solvers.BAR)):
        for name, ratios in found:
            met = min(ratios) <= bar
            missed += not met
            tries = ", ".join(f"{ratio:.2f}" for ratio in ratios)
            verdict = "met" if met else "MISSED"
            print(f"{kind}{name}: {tries} of SciPy's time, bar {bar}: {verdict}", flush=True)
    for block, over, bar in BARS:
        ratios = reached(block, over, bar)
        missed += max(ratios) < bar
        tries = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        verdict = "met" if max(ratios) >= bar else "MISSED"
        print(f"{block} x {block}: {tries} times {over}, bar {bar}: {verdict}", flush=True)
    return int(missed > 0)


def main() -> None:
    """Print times of the CPU engine, and their ratios to the others."""
    print(f"{'2048 x 2048, density 0.1':<24} {'cpu ms':>9} {'/ reference':>12} {'/ scipy':>9}")
    for block in (4, 8, 16, 32, 64):
        for columns in (1, 64, 2048):
            t = interleaved(product(block, columns=columns), 3, settled=True)
            print(
                f"{f'{block} x {block}, N = {columns}':<24} {t['cpu'] * 1e3:9.2f}"
                f" {t['reference'] / t['cpu']:12.1f} {t['scipy'] / t['cpu']:9.1f}",
                flush=True,
            )
    for name, implementations in operations():
        t = interleaved(implementations, 3, settled=True)
        print(f"{name:<24} {t['cpu'] * 1e3:9.2f} {t['reference'] / t['cpu']:12.1f}", flush=True)
    print(f"\n{'solver, 3 x 3':<24} {'cpu ms':>9} {'/ same operand':>15} {'/ CSR':>7}")
    for name, implementations in cpu_solvers.implementations():
        t = interleaved(implementations, 8, settled=True)
        beside = (t[which] / t["cpu"] for which in ("scipy", "CSR"))
        print("{:<24} {:9.2f} {:15.2f} {:7.2f}".format(name, t["cpu"] * 1e3, *beside), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the bars only")
    sys.exit(check() if parser.parse_args().check else main())
