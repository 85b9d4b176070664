"""One row of the benchmark: correctness, bits, our time, the peers' times."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from ..tuning import timing
from . import arrays, attention, block_masks, own_kernels, solvers
from .case import Case
from .formats import FORMATS, make_format
from .operations import OPERATIONS, make_operation
from .peer import PEERS, NotAvailableError, Prepared
from .peers import prepare
from .preparation import PREPARATIONS, make_preparation
from .reading import reader
from .sampled import SAMPLED, make_sampled
from .scatter import PAIRS, make_pairs
from .softmax import SOFTMAX, make_softmax
from .solvers import SolverWorkload, make_solver
from .spgemm import OPERATION as SPGEMM
from .spgemm import SpgemmWorkload, make_spgemm
from .workload import Product, Workload, make_matrix, make_product

#: Our own name beside the peers', and that of a kernel that only reads.
_OURS, _READING = "sparsegpu", "reading"
#: The repetitions of calls that are slow take no more than this together, at least `_FEWEST`.
_TIMED_US, _FEWEST = 1e6, 4


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
        Useful operations, bytes that must be moved, bytes of the stored values.
    memory_bound : bool
        Whether the L2 was flushed before every repetition; the rate is then in bytes.
    ms : float
        Our time.
    peers : dict
        Time of each peer in ms, or why there is none.
    notes : dict
        How a peer's parameters were chosen.
    at_rate_of : dict
        By each other case whose rate a bar refers to: the time in ms that this row's work takes at
        that rate, measured alternately with ours.
    reading_ms : float
        Where a bar refers to it: the time of a kernel that only reads the stored blocks, measured
        alternately with ours.
    error : float or str
        Largest error over what is allowed, or what is wrong.
    same_bits : bool
        Whether two runs gave the same bits.
    histories : dict
        Of solvers: by our name and the peers', the residual norms at the start and after each
        iteration.
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
    at_rate_of: dict[str, float] = field(default_factory=dict)
    reading_ms: float = 0.0
    error: float | str = ""
    same_bits: bool = False
    histories: dict[str, list[float]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the row as JSON has it."""
        return asdict(self)


def measure_case(
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
        The cases whose rates the bars refer to.
    peers : collection of str
        Which of the case's peers to time.
    tuning_s : float
        Longest search for a peer's parameters.
    """
    workload = make_workload(case)
    row = describe(workload)
    try:
        row.same_bits, row.error = workload.same_bits(), workload.error()
    except AssertionError as error:
        row.error = str(error)
    wanted = [peer for peer in case.peers if peer in peers]
    prepared = _prepare(wanted, row, workload, tuning_s)
    if isinstance(workload, SolverWorkload):
        row.histories = workload.histories
    references = {other.name: make_workload(other) for other in others}
    timed = {_OURS: workload, **prepared, **references}
    calls = {name: each.call for name, each in timed.items()}
    if any(bar.kind == "reading" for bar in case.bars):
        assert isinstance(workload, Product)
        calls[_READING], _ = reader(workload)
    times = _times(calls, workload)
    row.ms, row.reading_ms = times[_OURS], times.get(_READING, 0.0)
    row.peers |= {name: times[name] for name in prepared}
    row.at_rate_of = {
        name: times[name] * row.flops / other.flops for name, other in references.items()
    }
    return row


def make_workload(case: Case, xp: ModuleType | None = None) -> Workload:
    """Draw the operands of a case in the given array library, by default CuPy."""
    make: Callable[[Case, ModuleType], Workload] = make_product
    if case.operation in FORMATS:
        make = make_format
    elif case.operation == SAMPLED:
        make = make_sampled
    elif case.operation in OPERATIONS:
        make = make_operation
    elif case.operation == SPGEMM:
        make = make_spgemm
    elif case.operation in attention.OPERATIONS:
        make = attention.make_attention
    elif case.operation in block_masks.OPERATIONS:
        make = block_masks.make_block_mask
    elif case.operation in solvers.OPERATIONS:
        make = make_solver
    elif case.operation in arrays.OPERATIONS:
        make = arrays.make_array
    elif case.operation in own_kernels.OPERATIONS:
        make = own_kernels.make_kernel
    elif case.operation in PREPARATIONS:
        make = make_preparation
    elif case.operation in SOFTMAX:
        make = make_softmax
    elif case.operation in PAIRS:
        make = make_pairs
    return make(case, xp or import_module("cupy"))


def describe(workload: Workload) -> Row:
    """Return the row of a workload before anything is measured."""
    case = workload.case
    m, k, n = case.shape
    return Row(
        case=case.name,
        section=case.section,
        dtype="tf32" if case.tf32 else case.dtype,
        block=list(case.block),
        shape=[m, k, n],
        density=workload.stored / (m * k * (case.batch or 1)),
        pattern=case.pattern,
        layout=case.layout,
        measure=case.measure,
        memory_bound=case.flush,
        flops=workload.flops,
        bytes=workload.bytes,
        stored_bytes=int(workload.values.nbytes),
    )


def _prepare(
    peers: Iterable[str], row: Row, workload: Workload, tuning_s: float
) -> dict[str, Prepared]:
    """Return the peers that are available; the row gets the reason why others are not."""
    ready = {}
    for peer in peers:
        started = time.perf_counter()
        try:
            ready[peer] = prepare(peer, workload, tuning_s)
        except NotAvailableError as reason:
            row.peers[peer] = str(reason)
            continue
        if ready[peer].note:
            row.notes[peer] = f"{ready[peer].note}, {time.perf_counter() - started:.1f} s"
    return ready


def _times(calls: dict[str, timing.Call], workload: Workload) -> dict[str, float]:
    """Return the time of each call in ms: the one that the case measures."""
    case = workload.case
    if case.measure == "host":
        return {name: _host_ms(call) for name, call in calls.items()}
    if case.measure == "device":
        slowest = max(timing.whole_us(call) for call in calls.values())
        repeats = max(_FEWEST, min(timing.REPEATS, int(_TIMED_US / slowest)))
        return timing.interleaved_ms(calls, flush=case.flush, repeats=repeats)
    if case.measure in {"solve", "whole call"}:
        return {name: _whole_ms(call) for name, call in calls.items()}
    if isinstance(workload, SpgemmWorkload):
        return {_OURS: workload.first_ms()}
    assert isinstance(workload, Product)
    if case.measure == "making index lists":
        peers = {name: _whole_ms(call) for name, call in calls.items() if name != _OURS}
        return {_OURS: index_lists_ms(workload), **peers}
    time_of = first_call_ms if case.measure == "first call" else schedule_ms
    return {_OURS: time_of(workload)}


def _host_ms(call: timing.Call) -> float:
    in_a_loop = timing.host_us(call, loops=timing.REPEATS)
    return max(in_a_loop, timing.single_host_us(call)) / 1e3


def _whole_ms(call: timing.Call) -> float:
    """Return the best time of the whole call, of several unless they take seconds."""
    times = [timing.whole_us(call)]
    while len(times) < _FEWEST and sum(times) < _TIMED_US:
        times.append(timing.whole_us(call))
    return min(times) / 1e3


def schedule_ms(product: Product) -> float:
    """Return the time to build a pattern's schedule in ms, less the time to look it up."""
    from ..engines.cuda._row_order import similar_row_groups
    from ..engines.cuda._schedule import row_groups
    from ..engines.cuda.paths import bsr_addmm_sm90
    from ..engines.cuda.paths._facts import Facts
    from ..engines.cuda.paths._fields import Fields

    build = row_groups if product.case.measure == "schedule" else similar_row_groups
    (m, k), (dtype, n) = product.case.shape[:2], (product.dense.dtype, product.dense.shape[-1])
    facts = Facts(dtype=dtype, shape=(m, k, n), blocksize=product.case.block)
    tile = bsr_addmm_sm90.tile(facts, Fields())
    rows = 1 if tile is None else tile.rows
    return _first_ms(product, lambda matrix: build(matrix.pattern, rows))


def index_lists_ms(product: Product) -> float:
    """Return the time to build the index lists of `scatter_mm`, less the time to look them up."""
    import sparsegpu as sg

    return _first_ms(product, lambda matrix: sg.bsr_scatter_mm_indices_data(matrix, product.dense))


def first_call_ms(product: Product) -> float:
    """Return by how much the first call on a pattern is slower than later ones, in ms."""
    import sparsegpu as sg

    return _first_ms(product, lambda matrix: sg.bsr_matmul(matrix, product.dense, out=product.out))


def _first_ms(product: Product, work: Callable[[Any], Any], repeats: int = 21) -> float:
    """Return by how much work is slower the first time than later, in ms.

    Every repetition has a new pattern. Kernels are compiled and loaded after the first.
    """
    import cupy

    spans = []
    for seed in range(repeats):
        call = partial(work, make_matrix(product.case, cupy, seed + 1))
        first = timing.whole_us(call)
        spans.append(first - min(timing.whole_us(call) for _ in range(3)))
    return float(np.median(spans)) / 1e3
