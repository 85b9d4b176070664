"""``pytest --record``: a GPU run of the suite writes down what it ran, what not, and why not.

A file of tests is recorded soon after the last of them has ended, so that a run that is cut short
costs little: files of which tests are left stay as they were recorded before, and the run fails.
``--record-seconds`` begins no test later. A failure is shown at once. A plugin of pytest, which
`conftest` registers.
"""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections import Counter
from typing import Any

import pytest

from sparsegpu._arrays import cupy_installed

_UNTIL = pytest.StashKey[float]()
_COLLECTED = pytest.StashKey[dict[str, dict[str, Any]]]()
_RECORDER = pytest.StashKey["Recorder"]()
_MOST_LINES = 30
_DESELECTED = "deselected"  # of the file of a test; among the properties of its reports
_COUNTED = ("passed", "failed", "error", "skipped")
_PAUSE_S = 10.0  # between two replacements of the record


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
    """Add the options of a recorded run."""
    parser.addoption(
        "--record",
        action="store_true",
        help="record each file of tests in benchmarks/results (needs a GPU)",
    )
    parser.addoption(
        "--record-seconds",
        type=float,
        default=float("inf"),
        metavar="S",
        help="begin no test later than this after the start of the run",
    )


def pytest_configure(config):
    """Begin to count the seconds, and refuse what cannot be recorded."""
    sent = getattr(config, "workerinput", {})
    config.stash[_UNTIL] = sent.get(
        "record until", time.monotonic() + config.getoption("--record-seconds")
    )
    if not config.getoption("--record"):
        return
    config.pluginmanager.register(Collection())
    if sent:  # a worker of pytest-xdist: the one that started it records
        return
    missing = no_gpu()
    if missing is not None:
        raise pytest.UsageError(f"--record needs a GPU: {missing}")
    if parts := [word for word in config.args if "::" in word]:
        raise pytest.UsageError(f"--record takes whole files, not {' '.join(parts)}")
    config.stash[_RECORDER] = Recorder(config)
    config.pluginmanager.register(config.stash[_RECORDER])
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it ends as with Ctrl-C


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    """Pass over a test for which it is too late.

    The run does not stop: pytest-xdist would hand tests to workers that have just ended. To pass
    over all that are left takes no time.
    """
    return True if time.monotonic() >= item.config.stash[_UNTIL] else None


class Collection:
    """What was collected: in a worker of pytest-xdist, or in the one process that there is."""

    def __init__(self):
        self._files: dict[str, dict[str, Any]] = {}

    def _of(self, nodeid: str) -> dict[str, Any]:
        file = nodeid.partition("::")[0]
        return self._files.setdefault(file, {_DESELECTED: 0, "skips": {}})

    def pytest_collectreport(self, report):
        """Note a file, and why all of it is skipped."""
        if report.nodeid.endswith(".py") and not report.failed:
            its = self._of(report.nodeid)
            if report.skipped:
                its["skips"] = {_reason(report): 1}

    def pytest_deselected(self, items):
        """Count what is left out."""
        for item in items:
            self._of(item.nodeid)[_DESELECTED] += 1

    def pytest_collection_finish(self, session):
        """Let each test say how many of its file are left out."""
        for item in session.items:
            item.user_properties.append((_DESELECTED, self._of(item.nodeid)[_DESELECTED]))
        session.config.stash[_COLLECTED] = self._files

    def pytest_sessionfinish(self, session):
        """Send what was collected to the process that records: of files without tests, too."""
        output: Any = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["collected"] = session.config.stash.get(_COLLECTED, {})


class Recorder:
    """Shows failures when they come, and records files when they are whole."""

    def __init__(self, config: pytest.Config):
        from tools.record import content_hashes

        content_hashes()  # of the sources as they are now
        self._config = config
        words = config.invocation_params.args
        self._options = shlex.join(
            [
                *config.getini("addopts"),
                *shlex.split(os.environ.get("PYTEST_ADDOPTS", "")),
                *(str(word) for word in words if word not in config.args),
            ]
        )
        self._left: dict[str, set[str]] | None = None
        self._found: dict[str, dict[str, Any]] = {}
        self._whole: dict[str, dict[str, Any]] = {}
        self._written = time.monotonic()
        self._lines: list[str] = []

    def _begin(self, nodeids: list[str]) -> None:
        """Take the names of all tests; workers that replace others collect them again."""
        if self._left is None:
            self._left = {}
            for nodeid in nodeids:
                self._left.setdefault(nodeid.partition("::")[0], set()).add(nodeid)

    def pytest_collection_finish(self, session):
        """Begin, without pytest-xdist."""
        self._begin([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)  # pytest-xdist need not be there
    def pytest_xdist_node_collection_finished(self, ids):
        """Begin, with pytest-xdist."""
        self._begin(ids)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node):
        """Tell a worker when it is too late."""
        node.workerinput["record until"] = self._config.stash[_UNTIL]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        """Take what a worker has collected: each collects the same."""
        if sent := getattr(node, "workeroutput", {}).get("collected"):
            self._config.stash[_COLLECTED] = sent

    def pytest_runtest_logreport(self, report):
        """Count a report; after the last of a file record this, unless that was done just now."""
        if report.failed:
            self._show(report)
        file = report.nodeid.partition("::")[0]
        its = self._found.setdefault(file, _nothing())
        its[_DESELECTED] = dict(report.user_properties).get(_DESELECTED, its[_DESELECTED])
        its["seconds"] += report.duration
        how = self._config.hook.pytest_report_teststatus(report=report, config=self._config)[0]
        if how in _COUNTED:
            its[how] += 1
        if how == "skipped":
            its["skips"][_reason(report)] += 1
        if report.when in {"setup", "call"}:  # teardown, or a crash, is the end
            return
        left = (self._left or {}).get(file, set())
        left.discard(report.nodeid)
        if not left:
            self._whole[file] = its
            if time.monotonic() - self._written >= _PAUSE_S:
                self._write()

    def _show(self, report: Any) -> None:
        writer = self._config.get_terminal_writer()
        lines = report.longreprtext.splitlines()[-_MOST_LINES:]
        writer.line("\n".join(("", f"FAILED {report.nodeid}", *lines)))
        writer.flush()

    def _write(self) -> None:
        """Record the files that are whole; the record drops those that are not there any more."""
        from tools.record import record_parts

        root = self._config.rootpath
        contents = {
            file: its | {"options": self._options, "seconds": round(its["seconds"], 1)}
            for file, its in self._whole.items()
        }
        path = record_parts("tests", contents, kept=lambda file: (root / file).is_file())
        self._lines = [f"recorded {len(contents)} files of tests in {path}"]
        self._written = time.monotonic()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session):
        """Record the rest: also files without tests, which a run of nothing else may have."""
        left = sorted(file for file, its in (self._left or {}).items() if its)
        if self._left is not None:
            for file, its in self._config.stash.get(_COLLECTED, {}).items():
                if file not in self._left:
                    skips = Counter(its["skips"])
                    self._whole[file] = _nothing() | its | {"skipped": skips.total()}
        if self._whole:
            self._write()
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self._whole:
            session.exitstatus = pytest.ExitCode.OK
        if left:
            self._lines.append(f"not recorded, tests are left: {', '.join(left)}")
            if session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.INTERRUPTED

    def pytest_terminal_summary(self, terminalreporter):
        """Say what was recorded and what is left."""
        for line in self._lines or ["not recorded: no file of tests is whole"]:
            terminalreporter.write_line(line)


def _nothing() -> dict[str, Any]:
    """Return what is recorded of a file whose tests were all left out."""
    return dict.fromkeys((*_COUNTED, _DESELECTED), 0) | {"seconds": 0.0, "skips": Counter()}


def _reason(report) -> str:
    """Return why a test, or a module, was skipped."""
    _, _, reason = report.longrepr
    return reason.removeprefix("Skipped: ")
