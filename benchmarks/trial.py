"""Some of the small cases in a process of their own, as they are and with one kernel changed.

``python -m benchmarks.trial REQUEST.json`` is how `benchmarks.sanitize` runs everything, with
compute-sanitizer around it or without. The answers are lines of JSON in the file that the request
names, each written as soon as it is known: a run that crashes or is stopped keeps what it said.
"""

from __future__ import annotations

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
    """What a trial is to do.

    Attributes
    ----------
    cases : list of str
        By name. Each runs as it is, then ``rounds`` times with the change; without rounds it runs
        as it is twice, to tell what it launches again.
    answers : str
        The file for the answers.
    blocks : int
        With the change, kernels whose thread blocks loop over tiles get so few of them.
    kernel : str, optional
        The one to change; without it only ``blocks`` is another.
    barrier : int, optional
        Number of the barrier to take out (`barriers.find_barriers`).
    delays : bool
        Let warps sleep at random around the barriers' places.
    rounds : int
    stop : bool
        Stop after a difference.
    seconds : float
        Start no further round so long after the first.
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
    """What happened to the changed kernel: how often it was launched, and its modules."""

    count: int = 0
    modules: list[Any] = field(default_factory=list)

    def passes(self, places: int) -> list[int]:
        """Return how many warps came past each barrier's place, in a build with delays."""
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
    """Let the cuda engine launch the changed kernel, and few thread blocks of every kernel."""
    import cupy

    from sparsegpu.engines.cuda.runtime import launch
    from sparsegpu.engines.cuda.runtime.compile import compile_kernel
    from sparsegpu.engines.cuda.runtime.replay import Call
    from sparsegpu.engines.cuda.runtime.source import source_names, source_root

    root = source_root()
    loop = {name for name in source_names() if takes_several_tiles(name, root)}
    launches = Launches()
    load_as_it_is = launch._load
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

        def load(source: str, defines: dict[str, Any], *rest: Any) -> launch.Kernel:
            if source != request.kernel:
                return load_as_it_is(source, defines, *rest)
            arch = launch.choose_architecture(source, launch.compute_capability())
            module = cupy.cuda.Module()
            # such builds have no place in the user's cache
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
            mock.patch.object(launch, "_load", load),
            mock.patch.object(launch.Launch, "__init__", prepare),
            mock.patch.object(launch.Launch, "on", on),
            # what was recorded is not to be replayed
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
        differing = cupy.zeros((), dtype=cupy.int64)
        for name, computes, expected in prepared:  # the first round, which compiles
            before = launches.passes(places)
            differing += unlike(as_bytes(computes()), expected)
            for names, then, now in zip(passing, before, launches.passes(places), strict=True):
                names += [name] * (now > then)
        started, rounds = time.perf_counter(), 1
        while rounds < request.rounds and time.perf_counter() - started < request.seconds:
            if request.stop and rounds % 10 == 0 and int(differing):  # waits for the device
                break
            for _, computes, expected in prepared:
                differing += unlike(as_bytes(computes()), expected)
            rounds += 1
        answer: dict[str, Any] = {
            "rounds": rounds,
            "differing": int(differing),
            "launches": launches.count,
        }
        if places:
            answer |= {"passes": launches.passes(places), "passing": passing}
        yield answer


def delayed_places(request: Request) -> int:
    """Return the number of places at which the changed kernel's warps sleep and are counted."""
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
    """Return an array's bits in a form that compares equal exactly when they are."""
    import cupy

    return cupy.ascontiguousarray(array).ravel().view(cupy.uint8)


def unlike(bits: Any, expected: Any) -> Any:
    """Return whether two results differ; for those of one size the device knows, later."""
    return (bits != expected).any() if bits.size == expected.size else 1


def main(path: str) -> int:
    """Do what a request says; a failure is left to speak for itself."""
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
    sys.exit(main(sys.argv[1]))
