"""Runs some of the small cases, with unchanged kernels and with one kernel changed.

``python -m tools.trial REQUEST.json`` is the process that `tools.sanitize` starts, with or without
compute-sanitizer. The answers are lines of JSON in the file that the request names. Each is written
as soon as it is known, so that a process that crashes or is stopped leaves its earlier answers.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from .barriers import find_barriers, takes_several_tiles, write_build
from .operands import Operands, Run
from .small_cases import cases, digest, wanted_kernels


@dataclass(slots=True)
class Request:
    """The request of a trial.

    Attributes
    ----------
    cases : list of str
        Names. Each runs unchanged, then ``rounds`` times with the change; without rounds it runs
        unchanged twice, which tells which kernels it launches again.
    answers : str
        The file for the answers.
    blocks : int
        With the change, the grid of kernels whose thread blocks loop over tiles.
    kernel : str, optional
        The kernel to change; without it only the grids are changed.
    barrier : int, optional
        Number of the barrier to remove, by `barriers.find_barriers`.
    delays : bool
        Let warps sleep at random around the barriers.
    rounds : int
    stop : bool
        Stop after a difference.
    seconds : float
        Start no further round after this time.
    """

    cases: list[str]
    answers: str
    blocks: int = 2
    kernel: str | None = None
    barrier: int | None = None
    delays: bool = False
    rounds: int = 0
    stop: bool = False
    seconds: float = 60.0


@dataclass(slots=True)
class Launches:
    """The launches of the changed kernel: their number, and the modules that were loaded."""

    count: int = 0
    modules: list[Any] = field(default_factory=list)

    def passes(self, places: int) -> list[int]:
        """Return how many warps passed each barrier, in a build with delays."""
        import numpy as np
        from cupy.cuda import runtime

        total = np.zeros(places, dtype=np.uint64)
        for module in self.modules if places else ():
            here = np.empty(places, dtype=np.uint64)
            address = module.get_global_var("passes_of_place")
            runtime.memcpy(here.ctypes.data, int(address), here.nbytes, runtime.memcpyDeviceToHost)
            total += here
        return total.tolist()


@contextmanager
def changed(request: Request) -> Iterator[Launches]:
    """Let the CUDA engine launch the changed kernel, and every kernel with a small grid."""
    import cupy

    from sparsegpu.engines.cuda.runtime import launch
    from sparsegpu.engines.cuda.runtime.compile import compile_kernel
    from sparsegpu.engines.cuda.runtime.device import compute_capability
    from sparsegpu.engines.cuda.runtime.replay import Call
    from sparsegpu.engines.cuda.runtime.source import source_names, source_root

    root = source_root()
    loop = {name for name in source_names() if takes_several_tiles(name, root)}
    launches = Launches()
    compiled_as_it_is = launch._compiled
    prepare_as_it_is, on_as_it_is = launch.Launch.__init__, launch.Launch.on

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "cuda_src")
        folder.mkdir()
        if request.kernel is not None:
            removed = (
                None
                if request.barrier is None
                else find_barriers(request.kernel, root)[request.barrier]
            )
            write_build(request.kernel, root, folder, removed=removed, delays=request.delays)

        def compiled(source: str, defines: dict[str, Any], archs: tuple[str, ...]) -> launch.Kernel:
            if source != request.kernel:
                return compiled_as_it_is(source, defines, archs)
            arch = launch.choose_architecture(source, archs, compute_capability())
            module = cupy.cuda.Module()
            # changed builds must not go into the user's cache
            with mock.patch.dict(os.environ, SPARSEGPU_CACHE_DIR=scratch):
                module.load(compile_kernel(source, arch, defines, root=folder).code)
            launches.modules.append(module)
            return launch.Kernel(source, module.get_function(source))

        def few(source: str, grid: tuple[int, ...]) -> tuple[int, ...]:
            return (min(grid[0], request.blocks), *grid[1:]) if source in loop else grid

        def prepare(
            self: launch.Launch, kernel: launch.Kernel, grid: tuple[int, ...], *rest: Any
        ) -> None:
            prepare_as_it_is(self, kernel, few(kernel.source, grid), *rest)

        def on(self: launch.Launch, stream: int) -> None:
            launches.count += self.source == request.kernel
            on_as_it_is(self, stream)

        launch._kernels.clear()
        with (
            mock.patch.object(launch, "_compiled", compiled),
            mock.patch.object(launch.Launch, "__init__", prepare),
            mock.patch.object(launch.Launch, "on", on),
            # recorded calls would launch the unchanged kernels
            mock.patch.object(Call, "replay", lambda self: None),
        ):
            yield launches
        launch._kernels.clear()


def run(request: Request) -> Iterator[dict[str, Any]]:
    """Run the cases and yield the answers."""
    import cupy

    yield {"wanted": sorted(wanted_kernels())}
    chosen, prepared = cases(), []
    for name in request.cases:
        computes = chosen[name](Operands(cupy, name))
        bits, reached = launched_by(computes)
        prepared.append((name, computes, as_bytes(bits)))
        again = [] if request.rounds else launched_by(computes)[1]
        yield {"case": name, "digest": digest(bits), "kernels": reached, "again": again}
    if not request.rounds:
        return

    with changed(request) as launches:
        places = delayed_places(request)
        passing: list[list[str]] = [[] for _ in range(places)]
        differing = cupy.zeros(len(prepared), dtype=cupy.int64)
        for i, (name, computes, expected) in enumerate(prepared):  # the first round compiles
            before = launches.passes(places)
            differing[i] += unlike(as_bytes(computes()), expected)
            for names, then, now in zip(passing, before, launches.passes(places), strict=True):
                names += [name] * (now > then)
        started, rounds = time.perf_counter(), 1
        while rounds < request.rounds and time.perf_counter() - started < request.seconds:
            if request.stop and rounds % 10 == 0 and int(differing.sum()):  # synchronizes
                break
            for i, (_, computes, expected) in enumerate(prepared):
                differing[i] += unlike(as_bytes(computes()), expected)
            rounds += 1
        answer: dict[str, Any] = {
            "rounds": rounds,
            "differing": int(differing.sum()),
            "of": [case[0] for case, n in zip(prepared, differing.tolist(), strict=True) if n],
            "launches": launches.count,
        }
        if places:
            answer |= {"passes": launches.passes(places), "passing": passing}
        yield answer


def delayed_places(request: Request) -> int:
    """Return the number of barriers around which the changed kernel's warps sleep."""
    from sparsegpu.engines.cuda.runtime.source import source_root

    if not request.delays or request.kernel is None:
        return 0
    return len(find_barriers(request.kernel, source_root()))


def launched_by(computes: Run) -> tuple[Any, list[str]]:
    """Return a case's result and the kernels that it launched."""
    from sparsegpu.engines.cuda.runtime.launch import launch_counts

    before = launch_counts()
    result = computes()
    after = launch_counts()
    return result, sorted(kernel for kernel in after if after[kernel] > before.get(kernel, 0))


def as_bytes(array: Any) -> Any:
    """Return the bytes of an array."""
    import cupy

    return cupy.ascontiguousarray(array).ravel().view(cupy.uint8)


def unlike(bits: Any, expected: Any) -> Any:
    """Return whether two results differ; without synchronisation if they have the same size."""
    return (bits != expected).any() if bits.size == expected.size else 1


def main(path: str) -> int:
    """Run a request."""
    request = Request(**json.loads(Path(path).read_text()))
    with open(request.answers, "w") as file:
        for answer in run(request):
            file.write(json.dumps(answer) + "\n")
            file.flush()
    return 0


def written(request: Request, path: Path) -> Path:
    """Write a request to a file and return its path."""
    path.write_text(json.dumps(asdict(request)))
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tools.trial", description=__doc__)
    parser.add_argument("request", metavar="REQUEST.json")
    sys.exit(main(parser.parse_args().request))
