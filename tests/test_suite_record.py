"""A recorded run of the suite says what was left out, and why."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

#: Runs pytest with the plugin, as if on a GPU.
DRIVER = """\
import sys
from pathlib import Path

import pytest
import suite_record
from tools import record

suite_record.no_gpu = lambda: None
record.environment = lambda: {"gpu": "None"}
record.RESULTS = Path("results")
sys.exit(pytest.main(sys.argv[1:]))
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


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "xdist"])
def test_options_deselections_and_skips(tmp_path, workers):
    if workers:
        pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    (tmp_path / "driver.py").write_text(DRIVER)
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_whole.py").write_text(
        "import pytest\npytest.skip('all', allow_module_level=True)"
    )
    options = ["-p", "suite_record", "--record", *workers, "-k", "not slow", "test_some.py"]
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    outer = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    ran = subprocess.run(
        [sys.executable, "driver.py", *options, "test_whole.py"],
        cwd=tmp_path,
        env=outer | {"PYTHONPATH": path, "PYTEST_ADDOPTS": "-rs"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    suite = json.loads((tmp_path / "results" / "none.json").read_text())["tests"]
    assert suite["options"] == ["-rs", *options, "test_whole.py"]
    assert suite["deselected"] == {"test_some.py": 2}
    assert (suite["passed"], suite["failed"], suite["skipped"], suite["exit"]) == (1, 0, 4, 0)
    assert suite["skips"] == {"no second GPU": 2, "torch is not installed": 1, "all": 1}
