"""One row of the race: correctness, bits, our time, the peers' times."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from . import timing
from .case import PEERS, Case
from .check import error_in_bounds, same_bits
from .contest import Contestant, NotAvailableError
from .formats import FORMATS, FormatProblem, make_format_problem
from .peers import prepare
from .problem import Problem, make_matrix, make_problem

#: Among the names of peers.
_OURS = "sparsegpu"


@dataclass
class Row:
    """What was measured of a case.

    Attributes
    ----------
    case, section, dtype, pattern, layout, measure : str
    block : list of two int
    shape : list of int, M K N
    density : float
        Of what is stored.
    flops, bytes, stored_bytes : int
        Useful operations, bytes that must move, bytes of the stored values.
    memory_bound : bool
        The L2 was flushed before every repetition, and the rate counts bytes.
    ms : float
        Our time.
    peers : dict
        Time of each peer in ms, or why there is none.
    notes : dict
        How a peer was brought to its best.
    beside : dict
        Time of each other case whose rate a bar refers to, measured in the same turns, in ms.
    error : float or str
        Worst error over what the contract allows, or what is wrong.
    same_bits : bool
        Two runs into poisoned memory agreed bit by bit.
    """

    case: str
    section: str
    dtype: str
    block: list[int]
    shape: list[int]
    density: float
    pattern: str
    layout: str
    measure: str
    memory_bound: bool
    flops: int
    bytes: int
    stored_bytes: int
    ms: float = 0.0
    peers: dict[str, float | str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    beside: dict[str, float] = field(default_factory=dict)
    error: float | str = ""
    same_bits: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return the row as JSON has it."""
        return asdict(self)


def measure(
    case: Case,
    *,
    others: Iterable[Case] = (),
    peers: Collection[str] = PEERS,
    tuning_s: float = 3.0,
) -> Row:
    """Check and time a case on the current device.

    Parameters
    ----------
    case : Case
    others : iterable of Case
        Those whose rates the case's bars refer to.
    peers : collection of str
        Which of the case's peers to time; those that a bar refers to are timed always.
    tuning_s : float
        Longest time for a peer that searches its parameters.
    """
    problem = posed(case)
    row = described(problem)
    try:
        if isinstance(problem, FormatProblem):
            row.same_bits, row.error = problem.same_bits(), problem.error()
        else:
            row.same_bits, row.error = same_bits(problem), error_in_bounds(problem)
    except AssertionError as error:
        row.error = str(error)
    needed = {bar.of for bar in case.bars}
    wanted = [peer for peer in case.peers if peer in peers or peer in needed]
    contestants = _prepared(wanted, row, problem, tuning_s)
    references = {other.name: posed(other) for other in others}
    ready = {_OURS: problem, **contestants, **references}
    times = _times({name: each.call for name, each in ready.items()}, problem)
    row.ms = times[_OURS]
    row.peers |= {name: times[name] for name in contestants}
    row.beside = {name: times[name] for name in references}
    return row


def posed(case: Case, xp: ModuleType | None = None) -> Problem | FormatProblem:
    """Draw a case's problem in the given array library, by default CuPy."""
    make = make_format_problem if case.operation in FORMATS else make_problem
    return make(case, xp or import_module("cupy"))


def described(problem: Problem | FormatProblem) -> Row:
    """Return a problem's row before anything is measured."""
    case = problem.case
    m, k, n = case.shape
    return Row(
        case=case.name,
        section=case.section,
        dtype="tf32" if case.tf32 else case.dtype,
        block=list(case.block),
        shape=[m, k, n],
        density=problem.stored / (m * k * (case.batch or 1)),
        pattern=case.pattern,
        layout=case.layout,
        measure=case.measure,
        memory_bound=case.flush,
        flops=problem.flops,
        bytes=problem.bytes,
        stored_bytes=problem.stored_bytes,
    )


def _prepared(
    peers: Iterable[str], row: Row, problem: Problem | FormatProblem, tuning_s: float
) -> dict[str, Contestant]:
    """Return the peers that are ready; the row says why others are not."""
    ready = {}
    for peer in peers:
        started = time.perf_counter()
        try:
            ready[peer] = prepare(peer, problem, tuning_s)
        except NotAvailableError as reason:
            row.peers[peer] = str(reason)
            continue
        if ready[peer].note:
            row.notes[peer] = f"{ready[peer].note}, {time.perf_counter() - started:.1f} s"
    return ready


def _times(calls: dict[str, timing.Call], problem: Problem | FormatProblem) -> dict[str, float]:
    """Return the time of each call in ms, as the case has it measured."""
    case = problem.case
    if case.measure == "host":
        return {name: _host_ms(call) for name, call in calls.items()}
    if case.measure == "device":
        return timing.in_turns(calls, flush=case.flush)
    assert isinstance(problem, Problem)
    return {_OURS: first_call_ms(problem) if case.measure == "first call" else schedule_ms(problem)}


def _host_ms(call: timing.Call) -> float:
    in_a_loop = timing.host_us(call, loops=timing.REPEATS)
    return max(in_a_loop, timing.single_host_us(call)) / 1e3


def schedule_ms(problem: Problem) -> float:
    """Return the time until all arrays of a pattern's schedule are ready, in ms.

    What looking up a kept schedule takes does not count.
    """
    from ..engines.cuda._row_order import similar_row_groups
    from ..engines.cuda._schedule import row_groups
    from ..engines.cuda.paths import bsr_addmm_sm90
    from ..engines.cuda.paths._facts import Facts
    from ..engines.cuda.paths._fields import Fields

    build = row_groups if problem.case.measure == "schedule" else similar_row_groups
    (m, k), (dtype, n) = problem.case.shape[:2], (problem.dense.dtype, problem.dense.shape[-1])
    facts = Facts(dtype=dtype, shape=(m, k, n), blocksize=problem.case.block)
    tile = bsr_addmm_sm90.tile(facts, Fields())
    rows = 1 if tile is None else tile.rows
    return _first_ms(problem, lambda matrix: build(matrix.pattern, rows))


def first_call_ms(problem: Problem) -> float:
    """Return what the first call on a pattern takes longer than the next ones, in ms."""
    import sparsegpu as sg

    return _first_ms(problem, lambda matrix: sg.bsr_matmul(matrix, problem.dense, out=problem.out))


def _first_ms(problem: Problem, work: Callable[[Any], Any], repeats: int = 21) -> float:
    """Return what some work takes longer the first time than when it is done again, in ms.

    Every repetition has a matrix with a pattern of its own; kernels are compiled and loaded.
    """
    import cupy

    spans = []
    for seed in range(repeats):
        call = partial(work, make_matrix(problem.case, cupy, seed + 1))
        first = timing.whole_us(call)
        spans.append(first - min(timing.whole_us(call) for _ in range(3)))
    return float(np.median(spans)) / 1e3
