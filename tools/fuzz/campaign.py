"""Many cases, in chunks with seeds of their own, by several processes."""

from __future__ import annotations

import faulthandler
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import NamedTuple

from ..gpus import take_next_turn
from . import (
    assembling,
    attention,
    attention_gradients,
    containers,
    files,
    makers,
    masks,
    metadata,
    operators,
    preconditioners,
    products,
    products_24,
    scatter,
    solvers,
    two_of_four,
)
from .machine import Machine
from .runner import REFUSED, RIGHT, fuzz

MODULES = (
    products,
    attention,
    attention_gradients,
    scatter,
    solvers,
    containers,
    files,
    operators,
    preconditioners,
    two_of_four,
    products_24,
    makers,
    masks,
    metadata,
    assembling,
)
#: Every drawing function, by module and name.
CASES = {
    f"{module.__name__.rpartition('.')[2]}.{function.__name__}": function
    for module in MODULES
    for function in module.CASES
}
_CHUNK, _CHUNK_ON_GPU = 200, 50  # where most first calls compile a kernel
_STUCK_S = 900  # a chunk takes seconds, and minutes where kernels are compiled or cores are few


class Chunk(NamedTuple):
    """Cases of one drawing function, which one process runs."""

    name: str
    engine: str
    cases: int
    seed: int

    def again(self) -> str:
        """Return the words that run it again."""
        return (
            f"python -m tools.fuzz --engine {self.engine} --only {self.name} "
            f"--cases {self.cases} --seed {self.seed} -j 1"
        )


class Ended(NamedTuple):
    """What a chunk counted, and its failure in words, if it has one."""

    counts: Counter
    failure: str


def run_chunk(chunk: Chunk) -> Ended:
    """Run a chunk in this process."""
    faulthandler.enable()
    faulthandler.dump_traceback_later(_STUCK_S, exit=True)  # a hang is a failure with a traceback
    machine = Machine(chunk.engine)
    try:
        # On a GPU each step of minimising may compile a kernel: the first failing call is told.
        counts = fuzz(
            CASES[chunk.name],
            machine,
            cases=chunk.cases,
            seed_of=chunk.seed,
            minimise=not machine.on_gpu,
        )
        return Ended(counts, "")
    except Exception as error:
        of_hypothesis = "while generating"
        notes = dict.fromkeys(getattr(error, "__notes__", ()))
        told = "\n".join(note for note in notes if not note.startswith(of_hypothesis))
        _leave_a_lost_device(chunk, machine)
        said = "".join(traceback.format_exception(error, limit=-4))
        return Ended(Counter(), f"{said}{told}\nagain: {chunk.again()}")
    finally:
        faulthandler.cancel_dump_traceback_later()


def _leave_a_lost_device(chunk: Chunk, machine: Machine) -> None:
    """End this process where an error sticks to the device: no later call could answer."""
    try:
        machine.settle()
    except Exception:
        traceback.print_exc()
        print(f"the device is lost\nagain: {chunk.again()}", file=sys.stderr, flush=True)
        os._exit(1)


def chunks(names: list[str], engines: list[str], cases: int, seed: int) -> Iterator[Chunk]:
    """Yield chunks of all functions and engines in turn, so that a limit cuts all alike.

    No two of a function have the same seed: an engine's begin a million after the one before.
    """
    kinds = [(name, engine) for name in names for engine in engines]
    left = {kind: cases // len(kinds) + (i < cases % len(kinds)) for i, kind in enumerate(kinds)}
    while any(left.values()):
        for name, engine in kinds:
            most = _CHUNK_ON_GPU if engine == "cuda" else _CHUNK
            count = min(left[name, engine], most)
            if count:
                left[name, engine] -= count
                yield Chunk(name, engine, count, seed + 10**6 * engines.index(engine))
        seed += 1


def run(todo: Iterator[Chunk], jobs: int, seconds: float, total: int) -> tuple[Counter, list[str]]:
    """Run chunks in processes until they are through or time is up; return counts and failures.

    A function that failed is not run again: each chunk would minimise the same fault.
    """
    counts: Counter = Counter()
    failures: list[str] = []
    started = said = time.monotonic()
    in_flight: dict[Future, Chunk] = {}
    failed: set[str] = set()
    spawn = get_context("spawn")
    turns = (spawn.Value("i", 0),)  # the processes begin with different GPUs
    with ProcessPoolExecutor(jobs, spawn, initializer=take_next_turn, initargs=turns) as pool:
        while True:
            late = time.monotonic() - started > seconds
            while not late and len(in_flight) < 2 * jobs and (chunk := next(todo, None)):
                if chunk.name in failed:
                    continue
                in_flight[pool.submit(run_chunk, chunk)] = chunk
            if not in_flight:
                break
            done, _ = wait(in_flight, return_when=FIRST_COMPLETED)
            for future in done:
                chunk = in_flight.pop(future)
                try:
                    ended = future.result()
                except BrokenProcessPool:
                    those = "\n  ".join(c.again() for c in (chunk, *in_flight.values()))
                    failures.append(f"a process died or hung in one of\n  {those}")
                    return counts, failures
                counts += ended.counts
                if ended.failure:
                    failures.append(ended.failure)
                    failed.add(chunk.name)
                    print(f"\nFAILED {chunk.name} on {chunk.engine}\n{ended.failure}", flush=True)
            if time.monotonic() - said > 10:
                said = time.monotonic()
                passed = f"{counts.total():,} of {total:,} cases, {said - started:.0f} s"
                print(f"{passed}, {len(failures)} failures", flush=True)
    return counts, failures


def table(counts: Counter) -> dict[str, dict[str, int]]:
    """Return the counts by name, and by outcome."""
    names = sorted({name for name, _ in counts})
    return {name: {how: counts[name, how] for how in (RIGHT, REFUSED)} for name in names}
