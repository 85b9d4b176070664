"""Calls a case, compares the answer, and counts how it ended."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st

from . import defects
from .case import Case, documented_errors
from .draws import Bsr, Draws
from .machine import Machine, contents

RIGHT, REFUSED = "right", "refused"
_LONGEST_MESSAGE = 3000


def run(case: Case, draws: Draws, machine: Machine) -> str:
    """Call, and return how it ended; raise AssertionError where that is wrong."""
    spoiled = case.refused or (draws.chance(35) and defects.spoil(case, draws))
    with machine.chosen():
        given = {
            name: machine.give(value, draws, writable=name == case.writes)
            for name, value in case.arguments.items()
        }
        if spoiled is False and draws.chance(15):
            defects.share_input(case, given)
        must_refuse = (
            spoiled is False and draws.chance(15) and defects.spoil_out(case, given, draws, machine)
        )
        note(describe(case, spoiled or must_refuse or "well-formed", machine.engine))
        out = given.get(case.writes) if case.writes else None
        shared = out is not None and any(v is out for k, v in given.items() if k != case.writes)
        before = {name: contents(value) for name, value in given.items()}
        try:
            with np.errstate(all="ignore"):
                got = case.call(**given)
                # An equal call, which a GPU replays. What is added to cannot be equal.
                twice = draws.chance(20) and case.writes in {None, "out"} and not shared
                again = [case.call(**given)] if twice else []
        except (KeyboardInterrupt, SystemExit, MemoryError):
            raise
        except Exception as error:
            machine.settle()
            if not (spoiled or must_refuse):
                raise AssertionError(f"{case.name} refused what is well-formed") from error
            _check_refusal(case, error)
            _check_untouched(before, given, "a refused call")
            return REFUSED
        machine.settle()
    assert not must_refuse, f"{case.name} accepted {must_refuse}"
    try:
        with np.errstate(all="ignore"):
            expected = case.oracle(**case.arguments)
    except Exception as error:
        if not spoiled:
            raise
        raise AssertionError(f"{case.name} accepted {spoiled}: {error}") from error
    kept = {k: v for k, v in given.items() if v is not out and k != case.writes}
    _check_untouched(before, kept, "a call")
    _check_answer(case, given, got, expected)
    if again:
        _check_answer(case, given, again[0], expected)
    return RIGHT


def _check_refusal(case: Case, error: Exception) -> None:
    kind, documented = type(error).__name__, documented_errors(case.documented)
    if kind not in documented:
        names = ", ".join(sorted(documented)) or "none"
        raise AssertionError(f"{case.name} raised {kind}: {error}; documented: {names}") from error
    assert str(error), f"{case.name}: an empty message"
    assert len(str(error)) < _LONGEST_MESSAGE, f"{case.name}: {len(str(error))} characters"


def _check_untouched(before: dict[str, Any], given: dict[str, Any], by: str) -> None:
    for name, value in given.items():
        assert contents(value) == before[name], f"{name} was changed by {by}"


def _check_answer(case: Case, given: dict[str, Any], got: Any, expected: Any) -> None:
    if case.writes and given.get(case.writes) is not None:
        assert got is given[case.writes], f"{case.name} does not return '{case.writes}'"
    if not isinstance(expected, tuple):
        expected, got = (expected,), (got,)
    assert len(got) == len(expected), f"{len(got)} results, expected {len(expected)}"
    for one, wanted in zip(got, expected):
        wanted.check(one)


def describe(case: Case, what: str, engine: str) -> str:
    """Return a case in words, for the report of a failure."""
    return "\n  ".join(
        [
            f"{case.name} on {engine}, {what}:",
            *(f"{k} = {_shown(v)}" for k, v in case.arguments.items()),
        ]
    )


def _shown(value: Any) -> str:
    if isinstance(value, Bsr):
        parts = f"indices {value.indices.tolist()}, indptr {value.indptr.tolist()}"
        return f"Bsr {value.shape}, {value.dtype} blocks {value.data.shape}, {parts}"
    if isinstance(value, np.ndarray):
        shown = np.array2string(value, threshold=40) if value.size <= 40 else ""
        return f"array {value.shape} {value.dtype} {shown}"
    return repr(value)[:300]


def fuzz(
    draw_case: Any, machine: Machine, *, cases: int, seed_of: int, minimise: bool = True
) -> Counter:
    """Run so many cases of one drawing function; raise what failed, minimised.

    Returns
    -------
    Counter of (name, outcome)
    """
    ended: Counter = Counter()

    # All of it is one draw, so that a failure is reported in the words of `describe` alone.
    @st.composite
    def one_case(draw: Any) -> None:
        draws = Draws(draw, on_gpu=machine.on_gpu)
        case = draw_case(draws)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # nobody was promised a warning
            warnings.simplefilter("ignore", np.exceptions.ComplexWarning)  # NumPy's, of astype
            ended[case.name, run(case, draws, machine)] += 1

    def body(_: None) -> None:
        pass

    phases = [Phase.generate, Phase.shrink] if minimise else [Phase.generate]
    limits = settings(
        max_examples=cases,
        database=None,
        deadline=None,
        phases=phases,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    seed(seed_of)(limits(given(one_case())(body)))()
    return ended
