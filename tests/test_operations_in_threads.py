"""Host threads that call an operation on sparse operands at once, on the default stream."""

from __future__ import annotations

import numpy as np
import pytest

import sparsegpu as sg
from in_threads import run_in_threads
from replay_cases import CASES, OF_BLOCKS

pytestmark = pytest.mark.usefixtures("short_switch_interval")


def calls_of(engine, name):
    """Return calls of an operation that write to nothing that threads would share, always equal."""
    made = CASES[name](engine.xp, np.random.default_rng(5))
    calls = {"": made.call, **made.others, **made.never}
    return [call for of, call in calls.items() if "into" not in of and of != "added"]


@pytest.mark.parametrize("name", OF_BLOCKS)
def test_results_are_those_of_one_thread(engine, name):
    """The first calls, of which some build what others wait for, and repeated ones."""
    threads, rounds = (8, 6) if engine.on_gpu else (4, 3)
    with sg.use_engine(engine.name):
        expected = [call() for call in calls_of(engine, name)]
    calls = calls_of(engine, name)
    wrong = [engine.xp.zeros((), np.int64) for _ in range(threads)]

    def work(i):
        with sg.use_engine(engine.name):
            for step in range(rounds * len(calls)):
                which = (i + step) % len(calls)
                wrong[i] += (calls[which]() != expected[which]).sum()

    run_in_threads(work, threads)
    assert [int(w) for w in wrong] == [0] * threads
