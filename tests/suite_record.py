"""``pytest --record``: a GPU run of the suite writes down what it ran, what not, and why not.

A run that is cut short writes nothing: what was recorded before stays. So that it has told
something all the same, a failure is shown at once. A plugin of pytest, which `conftest` registers.
"""

from __future__ import annotations

import os
import shlex
import time
from collections import Counter
from typing import Any

import pytest

from sparsegpu._arrays import cupy_installed

_DESELECTED = pytest.StashKey[Counter]()
_STARTED = pytest.StashKey[float]()
_CUT_SHORT = pytest.StashKey[str]()
_MOST_LINES = 30


def no_gpu() -> str | None:
    """Return why the cuda engine cannot run here, or None."""
    if not cupy_installed():
        return "CuPy is not installed"
    import cupy

    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"no CUDA device: {error}"
    return None if count else "no CUDA device"


def pytest_addoption(parser):
    """Add the option of a recorded run."""
    parser.addoption(
        "--record",
        action="store_true",
        help="write this run's counts to benchmarks/results (needs a GPU)",
    )


class Failures:
    """Shows failures when they come: their tests, and the ends of their reports."""

    def __init__(self, writer: Any):
        self._writer = writer

    def pytest_runtest_logreport(self, report):
        if report.failed:
            lines = report.longreprtext.splitlines()[-_MOST_LINES:]
            self._writer.line("\n".join(("", f"FAILED {report.nodeid}", *lines)))
            self._writer.flush()


def pytest_sessionstart(session):
    """Begin to count the seconds."""
    config = session.config
    config.stash[_STARTED] = time.perf_counter()
    if config.getoption("--record"):
        config.pluginmanager.register(Failures(config.get_terminal_writer()))


def pytest_deselected(items):
    """Count what is left out, by file."""
    if items:
        counts = items[0].config.stash.setdefault(_DESELECTED, Counter())
        counts.update(item.nodeid.partition("::")[0] for item in items)


def pytest_sessionfinish(session, exitstatus):
    """Send the counts of a pytest-xdist worker, which alone collects, to the one that reports.

    And say whether all tests had their turn.
    """
    if why := session.shouldfail or session.shouldstop:
        session.config.stash[_CUT_SHORT] = str(why)
    elif exitstatus not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
        session.config.stash[_CUT_SHORT] = pytest.ExitCode(exitstatus).name.lower()
    output: Any = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["deselected"] = dict(session.config.stash.get(_DESELECTED, {}))


@pytest.hookimpl(optionalhook=True)  # pytest-xdist need not be there
def pytest_testnodedown(node):
    """Take what a worker sent: each collects the same tests."""
    sent = getattr(node, "workeroutput", {}).get("deselected")
    if sent is not None:
        node.config.stash[_DESELECTED] = Counter(sent)


@pytest.hookimpl(trylast=True)  # unless another summary finds the run to be at fault
def pytest_terminal_summary(terminalreporter, exitstatus, config):
    """Record the run: its options, its end, its counts, and what was skipped for which reason.

    A worker of pytest-xdist, which may come here, too, knows of its own tests alone.
    """
    if not config.getoption("--record") or hasattr(config, "workerinput"):
        return
    missing = no_gpu()
    if missing is not None:
        raise pytest.UsageError(f"--record needs a GPU: {missing}")
    if why := config.stash.get(_CUT_SHORT, ""):
        terminalreporter.write_line(f"not recorded: the run was cut short: {why}")
        return
    from tools.record import record

    stats = terminalreporter.stats
    path = record(
        "tests",
        {
            "arguments": list(config.args),
            "options": [
                *config.getini("addopts"),
                *shlex.split(os.environ.get("PYTEST_ADDOPTS", "")),
                *config.invocation_params.args,
            ],
            "exit": int(exitstatus),
            "seconds": round(time.perf_counter() - config.stash[_STARTED]),
            **{how: len(stats.get(how, [])) for how in ("passed", "failed", "error", "skipped")},
            "skips": Counter(_reason(report) for report in stats.get("skipped", [])),
            "deselected": config.stash.get(_DESELECTED, Counter()),
        },
    )
    terminalreporter.write_line(f"recorded in {path}")


def _reason(report) -> str:
    """Return why a test, or a module, was skipped."""
    _, _, reason = report.longrepr
    return reason.removeprefix("Skipped: ")
