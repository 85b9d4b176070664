"""A recorded run of the suite says what was left out, and why."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

#: As if on a GPU; on another one in the workers of pytest-xdist.
CONFTEST = """\
import os
from pathlib import Path

import suite_record
from tools import record

name = "worker" if "PYTEST_XDIST_WORKER" in os.environ else "None"
suite_record.no_gpu = lambda: None
record.environment = lambda: {"gpu": name}
record.RESULTS = Path("results")
"""

TESTS = """\
import pytest

@pytest.mark.parametrize("n", [1, 2])
def test_slow(n):
    pass

def test_plain():
    pass

@pytest.mark.skipif(True, reason="no second GPU")
@pytest.mark.parametrize("n", [1, 2])
def test_two(n):
    pass

def test_torch():
    pytest.importorskip("no_such_module", reason="torch is not installed")
"""


@pytest.fixture(params=[[], ["-n", "2"]], ids=["alone", "xdist"])
def run(request, tmp_path):
    """Return a function that runs the tests, and the options that it adds."""
    if request.param:
        pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_whole.py").write_text(
        "import pytest\npytest.skip('all', allow_module_level=True)"
    )
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    outer = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}

    def ran(*options):
        return subprocess.run(
            [sys.executable, "-m", "pytest", *options],
            cwd=tmp_path,
            env=outer | {"PYTHONPATH": path, "PYTEST_ADDOPTS": "-rs"},
            capture_output=True,
            text=True,
            check=False,
        )

    return ran, request.param


def test_options_deselections_and_skips(run, tmp_path):
    ran, workers = run
    options = ["-p", "suite_record", "--record", *workers, "-k", "not slow", "test_some.py"]
    ended = ran(*options, "test_whole.py")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    suite = json.loads((tmp_path / "results" / "none.json").read_text())["tests"]
    assert suite["options"] == ["-rs", *options, "test_whole.py"]
    assert suite["deselected"] == {"test_some.py": 2}
    assert (suite["passed"], suite["failed"], suite["skipped"], suite["exit"]) == (1, 0, 4, 0)
    assert suite["skips"] == {"no second GPU": 2, "torch is not installed": 1, "all": 1}
    assert suite["seconds"] >= 0
    assert [path.name for path in (tmp_path / "results").glob("*.json")] == ["none.json"]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("def test_fails():\n    assert False", ["-x"]),
        ("import pytest\ndef test_ends():\n    pytest.exit('interrupted')", []),
    ],
    ids=["stopped", "interrupted"],
)
def test_a_run_that_is_cut_short_keeps_the_record(run, tmp_path, text, options):
    ran, workers = run
    words = ["-p", "suite_record", "--record", *workers, *options]
    assert ran(*words, "test_some.py").returncode == 0
    path = tmp_path / "results" / "none.json"
    before = path.read_text()
    (tmp_path / "test_more.py").write_text(text)
    ended = ran(*words, "test_more.py", "test_some.py")
    assert ended.returncode != 0
    if "-x" in options:
        shown = ended.stdout.partition("short test summary")[0]
        assert shown.count("FAILED test_more.py::test_fails\n") == 1
    assert "not recorded: the run was cut short: " in ended.stdout, ended.stdout + ended.stderr
    assert path.read_text() == before


def test_a_run_with_a_failure_is_recorded(run, tmp_path):
    ran, workers = run
    (tmp_path / "test_more.py").write_text("def test_fails():\n    assert False")
    assert ran("-p", "suite_record", "--record", *workers).returncode == 1
    suite = json.loads((tmp_path / "results" / "none.json").read_text())["tests"]
    assert (suite["passed"], suite["failed"], suite["exit"]) == (3, 1, 1)
