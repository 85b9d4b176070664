"""A recorded run of the suite: file by file, with what was left out, and why."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import driven_runs

ROOT = Path(__file__).parents[1]

#: As if on a GPU; on another one in the workers of pytest-xdist.
CONFTEST = """\
import os
from pathlib import Path

import suite_record
from tools import record

name = "worker" if "PYTEST_XDIST_WORKER" in os.environ else "None"
os.environ.setdefault("RUN", str(os.getpid()))
suite_record.no_gpu = lambda: os.environ.get("NO_GPU")
suite_record._PAUSE_S = float(os.environ.get("PAUSE", suite_record._PAUSE_S))
record.environment = lambda: {"gpu": name}
record.RESULTS = Path("results")
"""

SOME = """\
import pytest

@pytest.mark.parametrize("n", [1, 2])
def test_slow(n):
    pass

def test_plain(record_property):
    record_property("with", "a property")

@pytest.mark.skipif(True, reason="no second GPU")
@pytest.mark.parametrize("n", [1, 2])
def test_two(n):
    pass

def test_torch():
    pytest.importorskip("no_such_module", reason="torch is not installed")
"""

WHOLE = "import pytest\npytest.skip('all', allow_module_level=True)"

#: Tests of which the first ends all processes of the run while there are others.
KILLS = """\
import os
import time

import pytest

@pytest.mark.parametrize("n", range(5))
def test_kills(n):
    time.sleep(2)  # until the file before has ended
    os.killpg(int(os.environ["RUN"]), int(os.environ["SIGNAL"]))
    time.sleep(5)
"""


def heed_interrupts():
    """Undo what a shell does to a background job, and so to all that it starts: ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


#: Tests of which one ends its worker.
DIES = """\
import os
from pathlib import Path

import pytest
import suite_record

@pytest.mark.parametrize("n", range(6))
def test_dies(n, request):
    Path(f"until-{os.getpid()}").write_text(str(request.config.stash[suite_record._UNTIL]))
    if n == 1:
        os.abort()
"""


class Run:
    """Runs tests in a folder and reads what they recorded."""

    def __init__(self, folder: Path, workers: list[str]):
        self.folder, self.workers = folder, workers
        self.said = ""
        (folder / "conftest.py").write_text(CONFTEST)
        self.write(test_some=SOME)

    def write(self, **texts: str) -> None:
        for name, text in texts.items():
            (self.folder / f"{name}.py").write_text(text)

    def __call__(self, *options: str, **variables: str) -> int:
        """Return the exit status."""
        path = os.pathsep.join([str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
        outer = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        words = ["-p", "suite_record", "--record", *self.workers, *options]
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", *words],
            cwd=self.folder,
            env=outer | {"PYTHONPATH": path, "PYTEST_ADDOPTS": "-rs", **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            process_group=0,
            preexec_fn=heed_interrupts,
        )
        self.said = ended.stdout
        return ended.returncode

    @property
    def recorded(self) -> dict:
        """What is recorded of each file, on the one GPU that there is."""
        paths = list((self.folder / "results").glob("*.json"))
        assert [path.name for path in paths] in ([], ["none.json"])
        return json.loads(paths[0].read_text())["tests"] if paths else {}


@pytest.fixture(params=[[], ["-n", "2", "--dist", "worksteal"]], ids=["alone", "xdist"])
def run(request, tmp_path):
    if request.param:
        pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    return Run(tmp_path, request.param)


def counts(recorded: dict) -> tuple[int, ...]:
    """Return how many tests of a file had which end, and how many were left out."""
    return tuple(recorded[how] for how in ("passed", "failed", "error", "skipped", "deselected"))


def test_options_deselections_and_skips(run):
    run.write(test_whole=WHOLE, test_slow="def test_slow(): pass", test_nothing="")
    assert run("-k", "not slow") == 0, run.said
    found = run.recorded
    assert set(found) == {"test_some.py", "test_whole.py", "test_slow.py", "test_nothing.py"}
    some = found["test_some.py"]
    assert counts(some) == (1, 0, 0, 3, 2) and some["seconds"] >= 0
    assert some["skips"] == {"no second GPU": 2, "torch is not installed": 1}
    words = ["-rs", "-p", "suite_record", "--record", *run.workers, "-k", "'not slow'"]
    assert some["options"] == " ".join(words)
    assert counts(found["test_whole.py"]) == (0, 0, 0, 1, 0)
    assert found["test_whole.py"]["skips"] == {"all": 1}
    assert counts(found["test_slow.py"]) == (0, 0, 0, 0, 1)
    assert counts(found["test_nothing.py"]) == (0, 0, 0, 0, 0)
    assert all(its["content"] and its["date"] for its in found.values())


def test_files_without_a_test_to_run_are_a_run_that_passes(run):
    run.write(test_whole=WHOLE, test_slow="def test_slow(): pass")
    assert run("-k", "not slow", "test_whole.py", "test_slow.py") == 0, run.said
    assert set(run.recorded) == {"test_whole.py", "test_slow.py"}


def test_a_run_that_stops_keeps_what_is_whole(run):
    """And of the others what was recorded before."""
    run.write(test_more="def test_fails(): pass", test_tail=driven_runs.LONG_TESTS)
    assert run() == 0, run.said
    before = run.recorded
    run.write(test_more="def test_fails():\n    assert False")
    (run.folder / "test_some.py").unlink()
    assert run("-x", "--record-seconds", "4", "test_more.py", "test_tail.py") != 0
    shown = run.said.partition("short test summary")[0]
    assert shown.count("FAILED test_more.py::test_fails\n") == 1
    assert "not recorded, tests are left: test_tail.py" in run.said
    after = run.recorded
    assert set(after) == {"test_more.py", "test_tail.py"}  # a file that is gone is dropped
    assert counts(after["test_more.py"]) == (0, 1, 0, 0, 0)
    assert after["test_tail.py"] == before["test_tail.py"]


def test_no_test_begins_after_the_limit_and_another_run_does_the_rest(run):
    run.write(test_tail=driven_runs.LONG_TESTS)
    assert run("--record-seconds", "0") == pytest.ExitCode.INTERRUPTED
    assert "tests are left: test_some.py, test_tail.py" in run.said and run.recorded == {}
    assert run("--record-seconds", "6") == pytest.ExitCode.INTERRUPTED
    assert "not recorded, tests are left: test_tail.py" in run.said
    first = run.recorded
    assert set(first) == {"test_some.py"} and counts(first["test_some.py"]) == (3, 0, 0, 3, 0)
    assert run("test_tail.py") == 0, run.said
    assert counts(run.recorded["test_tail.py"]) == (99, 0, 0, 0, 0)
    assert run.recorded["test_some.py"] == first["test_some.py"]


@pytest.mark.parametrize(
    ("number", "pause"),
    [(signal.SIGTERM, "1000"), (signal.SIGINT, "1000"), (signal.SIGKILL, "0")],
    ids=["terminated", "interrupted", "killed"],
)
def test_what_is_whole_stays_when_a_run_is_ended(run, number, pause):
    """Between two replacements of the record SIGKILL alone would lose it."""
    run.write(test_tail=KILLS)
    assert run(SIGNAL=str(int(number)), PAUSE=pause) != 0
    assert set(run.recorded) == {"test_some.py"}, run.said


def test_failures_are_recorded(run):
    run.write(test_more="def test_fails():\n    assert False\ndef test_passes(): pass")
    run.write(test_raises="def test_raises(no_fixture): pass")
    assert run() == 1, run.said
    found = run.recorded
    assert counts(found["test_more.py"]) == (1, 1, 0, 0, 0)
    assert counts(found["test_raises.py"]) == (0, 0, 1, 0, 0)
    assert counts(found["test_some.py"]) == (3, 0, 0, 3, 0)


def test_a_worker_that_dies_is_replaced_by_one_with_the_same_limit(tmp_path):
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    run = Run(tmp_path, ["-n", "1"])
    run.write(test_tail=DIES)
    assert run("--record-seconds", "600") == 1 and "tests are left" not in run.said, run.said
    assert counts(run.recorded["test_tail.py"]) == (5, 1, 0, 0, 0)
    assert counts(run.recorded["test_some.py"]) == (3, 0, 0, 3, 0)
    first, second = (path.read_text() for path in tmp_path.glob("until-*"))
    assert first == second


@pytest.mark.parametrize(
    ("options", "variables", "why"),
    [
        (["test_some.py"], {"NO_GPU": "no CUDA device"}, "--record needs a GPU: no CUDA device"),
        (["test_some.py::test_plain"], {}, "--record takes whole files, not test_some.py::test_"),
    ],
    ids=["no GPU", "a part of a file"],
)
def test_what_cannot_be_recorded_is_refused(run, options, variables, why):
    assert run(*options, **variables) == pytest.ExitCode.USAGE_ERROR
    assert why in run.said and run.recorded == {}
