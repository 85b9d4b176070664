"""What every kernel of the library reads and writes, as the analysis of its PTX finds it.

``python -m tools.accesses [SOURCE ...] [--write]``

Compiles every variant of the compile matrix for the first architecture that it declares, without a
GPU, and compares with the golden file ``tools/golden/accesses.json``; ``--write`` makes it, or its
lines of SOURCE. Exit code 1 when something differs, a kernel is opaque, or it writes what its
source declares const.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from sparsegpu._ptx.access import report
from sparsegpu.engines.cuda.matrix import Build, builds
from sparsegpu.engines.cuda.runtime import compile as compiler
from sparsegpu.engines.cuda.runtime.source import expand
from sparsegpu.engines.cuda.support import kernels
from sparsegpu.kernels.build import told
from sparsegpu.kernels.declaration import parameters_of

from .record import ROOT

GOLDEN = ROOT / "tools" / "golden" / "accesses.json"


def first_builds() -> Iterator[Build]:
    """Yield every variant once, for the first architecture that its row declares."""
    for row in kernels():
        yield from (build for build in builds([row]) if build.arch == row.archs[0])


def names_of(build: Build) -> list[str]:
    """Return the names of a kernel's parameters."""
    declared = parameters_of(expand(build.source), build.source)
    if declared is None:
        raise ValueError(f"{build.source}: its declaration is not plain")
    return [parameter.name for parameter in declared]


def access_of(build: Build) -> dict[str, Any]:
    """Compile and analyse one build."""
    text = expand(build.source)
    flags = [f"--gpu-architecture=sm_{build.arch}", "--std=c++17"]
    flags += ["--device-as-default-execution-space"]
    flags += [f"-D{k}={compiler.as_text(v)}" for k, v in sorted(build.defines.items())]
    flags += [f"--include-path={path}" for path in compiler.include_paths()]
    ptx = compiler.compile_text(build.source, text, tuple(flags)).ptx
    declared = parameters_of(text, build.source)
    found = report(ptx, build.source, *told(declared)).access(names_of(build))
    const = {p.name for p in declared or () if p.pointer and p.const}
    return {
        "reads": sorted(map(str, found.reads)),
        "writes": sorted(map(str, found.writes)),
        "opaque": found.opaque,
        "const": sorted(const & found.writes),
    }


def main(arguments: list[str] | None = None) -> int:
    """Write the golden file, or compare with it."""
    parser = argparse.ArgumentParser(prog="python -m tools.accesses", description=__doc__)
    parser.add_argument("sources", nargs="*", metavar="SOURCE", help="only these sources")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--jobs", type=int, default=2, help="compiler processes (default 2)")
    chosen = parser.parse_args(arguments)
    work = [b for b in first_builds() if not chosen.sources or b.source in chosen.sources]
    with ProcessPoolExecutor(chosen.jobs, mp_context=get_context("spawn")) as pool:
        found = dict(zip(map(str, work), pool.map(access_of, work, chunksize=4), strict=True))
    wrong = [f"opaque: {name}" for name, access in found.items() if access["opaque"]]
    wrong += [f"writes const: {name} {a['const']}" for name, a in found.items() if a["const"]]
    kept = {n: {k: a[k] for k in ("reads", "writes")} for n, a in found.items()}
    if chosen.write:
        of_others = {row.source for row in kernels()}.difference(chosen.sources)
        if chosen.sources:
            golden = json.loads(GOLDEN.read_text())
            kept |= {n: a for n, a in golden.items() if n.split()[0] in of_others}
        GOLDEN.write_text(json.dumps(kept, indent=0, sort_keys=True) + "\n")
    else:
        golden = json.loads(GOLDEN.read_text())
        wrong += [f"differs: {n} {kept[n]}" for n in sorted(kept) if kept[n] != golden.get(n)]
        if not chosen.sources:
            wrong += [f"missing: {name}" for name in sorted(golden.keys() - kept.keys())]
    print("\n".join([*wrong, f"{len(found)} kernels, {len(wrong)} findings"]))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
