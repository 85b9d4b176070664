"""The compile matrix: every kernel for every architecture it declares, without a GPU.

    python -m sparsegpu.engines.cuda.matrix [SOURCE ...] [--sample]

Exit status 1 when a variant does not compile, a tensor-core kernel spills, ptxas makes other
instructions wait for ``wgmma``, a ``.cu`` file belongs to no kernel, or (without SOURCE) an
operation has no path on some architecture.

``--sample`` compiles one variant of each source and dtype, and of each source and architecture: to
see whether another NVRTC than the usual one takes the sources. Whether kernels spill or wait there
does not count.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from ._kernel_source import Defines, KernelSource
from .kernels import OPERATIONS
from .runtime.architectures import ARCHITECTURES, capability_of, runs_on, shared_memory_of
from .runtime.compile import CompileError, compile_kernel, nvrtc_version
from .runtime.cubin import Resources
from .runtime.source import source_names
from .support import kernels


@dataclass(frozen=True, slots=True)
class Build:
    """One kernel to compile."""

    source: str
    arch: str
    defines: Defines
    tensor_core: bool

    def __str__(self) -> str:
        names = " ".join(f"{k}={v}" for k, v in self.defines.items())
        return f"{self.source} sm_{self.arch} {names}".rstrip()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a `Build`."""

    build: Build
    resources: Resources | None
    error: str | None


def builds(rows: Sequence[KernelSource]) -> list[Build]:
    """Return everything that the rows declare."""
    return [
        Build(row.source, arch, variant, row.tensor_core)
        for row in rows
        for variant in (row.variants() if callable(row.variants) else row.variants)
        for arch in row.archs
        if row.fits(variant, shared_memory_of(capability_of(arch)))
    ]


def run(build: Build) -> Outcome:
    """Compile, or take from the cubin cache."""
    try:
        cubin = compile_kernel(build.source, build.arch, dict(build.defines))
    except (CompileError, FileNotFoundError) as error:
        return Outcome(build, None, str(error))
    r = cubin.resources
    if build.tensor_core and r.spills:
        used = f"{r.stack} bytes of local memory, {r.registers} registers"
        return Outcome(build, r, f"{build}: a tensor-core kernel spills: {used}")
    if r.waits_for_wgmma:
        return Outcome(build, r, f"{build}: ptxas makes other instructions wait for wgmma")
    return Outcome(build, r, None)


def gaps(rows: Sequence[KernelSource]) -> list[str]:
    """Return what the table lacks: rows for sources, paths for operations."""
    covered = {row.source for row in rows}
    found = [f"{name}.cu: of no kernel" for name in source_names() if name not in covered]
    named = {op for row in rows for op in row.ops}
    found += [f"{op}: not one of kernels.OPERATIONS" for op in sorted(named - {*OPERATIONS})]
    for op in OPERATIONS:
        missing = [
            arch
            for arch in ARCHITECTURES
            if not any(op in row.ops and _serves(row, arch) for row in rows)
        ]
        if missing:
            found.append(f"{op}: no path on {', '.join(missing)}")
    return found


def _serves(row: KernelSource, arch: str) -> bool:
    return runs_on(row.archs, capability_of(arch))


def table(outcomes: Sequence[Outcome]) -> str:
    """Return one line a source: variants, most registers, shared and local memory."""
    of_source: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        of_source.setdefault(outcome.build.source, []).append(outcome)
    width = max((len(source) for source in of_source), default=6)
    lines = [f"{'source':{width}}  builds  failed  registers  shared  local  architectures"]
    for source, group in of_source.items():
        built = [o.resources for o in group if o.resources is not None]
        failed = sum(o.error is not None for o in group)
        registers = max((r.registers for r in built), default=0)
        shared = max((r.shared for r in built), default=0)
        stack = max((r.stack for r in built), default=0)
        archs = dict.fromkeys(o.build.arch for o in group)
        lines.append(
            f"{source:{width}}  {len(group):6}  {failed:6}  {registers:9}  {shared:6}  "
            f"{stack:5}  {' '.join(archs)}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile the matrix and report; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m sparsegpu.engines.cuda.matrix", description=__doc__.split("\n")[0]
    )
    parser.add_argument("sources", nargs="*", metavar="SOURCE", help="only these sources")
    parser.add_argument("--jobs", type=int, default=2, help="compiler processes (default 2)")
    parser.add_argument(
        "--sample", action="store_true", help="one variant of a source and dtype, or architecture"
    )
    options = parser.parse_args(arguments)
    known = {row.source for row in kernels()}
    unknown = [name for name in options.sources if name not in known]
    if unknown:
        parser.error(f"no kernel {', '.join(unknown)}")
    rows = [row for row in kernels() if not options.sources or row.source in options.sources]
    start = time.perf_counter()
    work = builds(rows)
    outcomes = _run_all(sample(work) if options.sample else work, options.jobs)
    problems = [
        o.error
        for o in outcomes
        if o.error is not None and not (options.sample and o.resources is not None)
    ]
    if not options.sources:
        problems += gaps(rows)
    print(table(outcomes))
    major, minor = nvrtc_version()
    seconds = time.perf_counter() - start
    print(f"{len(outcomes)} kernels, NVRTC {major}.{minor}, {seconds:.1f} s")
    for problem in problems:
        print(f"\n{problem}", file=sys.stderr)
    return 1 if problems else 0


def sample(work: Sequence[Build]) -> list[Build]:
    """Return the first builds of each source and dtype, and of each source and architecture."""
    firsts: dict[tuple[str, str], Build] = {}
    for build in work:
        for name in (str(build.defines.get("T")), build.arch):
            firsts.setdefault((build.source, name), build)
    chosen = set(map(id, firsts.values()))
    return [build for build in work if id(build) in chosen]


def _run_all(work: Sequence[Build], jobs: int) -> list[Outcome]:
    if jobs <= 1 or len(work) <= 1:
        return [run(build) for build in work]
    # spawn: a forked child would inherit whatever the compiler library has started.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        return list(pool.map(run, work, chunksize=4))


if __name__ == "__main__":
    raise SystemExit(main())
