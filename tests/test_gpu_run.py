"""`tools.gpu` with processes that really run, record, crash and are killed: only the GPUs are not.

The benchmarks are replaced by one that records what it is asked for, after a moment, and the tests
by two files.
"""

import json
import random
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

import driven_runs
from sparsegpu.benchmark.cases import SECTIONS
from tools.gpu_parts import entries
from tools.record import ROOT

#: In place of `tools.gpu`, on a machine of one model of GPU.
DRIVER = """\
import sys
from pathlib import Path

from tools import gallery, gpu, gpu_parts, gpus, record, runner

runner.ROOT = gpu_parts.ROOT = Path("checkout").resolve()
record.RESULTS = gpu.RESULTS = gpu_parts.RESULTS = Path("results").resolve()
gallery.FOLDER = record.RESULTS / "gallery"
gpu.gpu_here = lambda: "A GPU"
gpus.CORES_A_GPU = 1  # with very many cores no worker would have begun within seconds
sys.exit(gpu.main(sys.argv[1:]))
"""

#: In place of `benchmarks.race` and `benchmarks.paths`, and of a part without sections.
BENCHMARK = """\
import argparse, os, sys, time
from pathlib import Path

from tools import record

record.RESULTS = Path(__file__).resolve().parents[2] / "results"
record.environment = lambda: {"gpu": "A GPU"}
part = Path(__file__).stem
parser = argparse.ArgumentParser()
parser.add_argument("--only", action="append", default=[])
parser.add_argument("--limit", type=float, default=float("inf"))
given = parser.parse_args()
started = time.perf_counter()
for name in given.only or [part]:
    if time.perf_counter() - started > given.limit:
        sys.exit(1)
    print(f"measuring {name}", flush=True)
    time.sleep(float(os.environ.get("PAUSE", "0")))
    if name in os.environ.get("CRASH", "").split(","):
        os.abort()
    if name in os.environ.get("RAISE", "").split(","):
        raise RuntimeError(name)
    gpu = os.environ["CUDA_VISIBLE_DEVICES"]
    content = {"rows": [], "seconds": 1, "gpu": gpu, "measured at": time.time()}
    record.record(part, content, part=name if given.only else "")
"""

#: In place of `conftest`, as if on a GPU.
CONFTEST = """\
import sys
from pathlib import Path

from tools import record

sys.path.append(str(record.ROOT / "tests"))
import suite_record

suite_record.no_gpu = lambda: None
record.RESULTS = Path(__file__).resolve().parents[2] / "results"
record.environment = lambda: {"gpu": "A GPU"}

def pytest_addoption(parser, pluginmanager):
    pluginmanager.register(suite_record)
"""


@pytest.fixture
def start(tmp_path):
    """Return a function that starts `tools.gpu` on four GPUs."""
    (tmp_path / "driver.py").write_text(DRIVER)
    folder = tmp_path / "checkout" / "benchmarks"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    for part in ("race", "paths", "profile"):
        (folder / f"{part}.py").write_text(BENCHMARK)

    # A suite that is started takes no options of the one that starts it.
    alone = {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "PYTEST_ADDOPTS": ""}
    return partial(driven_runs.start, tmp_path, **alone)


@pytest.fixture
def recorded(tmp_path):
    """Return a function that reads the record."""
    path = tmp_path / "results" / "a-gpu.json"
    return lambda: json.loads(path.read_text()) if path.exists() else {}


def test_four_gpus_record_at_once(start, recorded):
    run = start("race", "paths", "profile")
    said = run.communicate()[0]
    assert run.returncode == 0, said
    found = recorded()
    assert set(found["race"]) == set(SECTIONS) and set(found["paths"]) == set(entries("paths"))
    used = {part["gpu"] for part in found["race"].values()}
    assert used == {"0", "1", "2", "3"} and "profile" in found
    assert all(f"[{gpu} race] measuring " in said for gpu in used)
    assert "race: passed" in said and "not recorded of these" not in said


def test_a_section_that_crashes_costs_itself_alone(start, recorded):
    lost = {"2:4", "attention", "solvers"}
    run = start("race", CRASH="2:4,attention", RAISE="solvers")
    said = run.communicate()[0]
    assert run.returncode == 1 and "race: FAILED with status" in said
    assert "not recorded of these sources: race: 2:4, solvers, attention" in said
    before = recorded()["race"]
    assert set(before) == set(SECTIONS) - lost

    run = start("race", "--missing")
    said = run.communicate()[0]
    assert run.returncode == 0 and said.count("] measuring ") == len(lost), said
    after = recorded()["race"]
    assert {name: after[name] for name in before} == before and set(after) == set(SECTIONS)

    run = start("race", "--missing")
    assert "recorded of these sources" in run.communicate()[0]
    assert run.returncode == 0 and recorded()["race"] == after


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_is_gone_on_with(start, recorded, tmp_path, how):
    run = start("race", "paths", "--missing", PAUSE="0.5")
    while len(recorded().get("race", {})) < 5:
        time.sleep(0.05)
        assert run.poll() is None
    run.send_signal(how)
    said = run.communicate(timeout=30)[0]  # until no process has its output
    if how != signal.SIGKILL:
        assert run.returncode == 1 and "race: unfinished, status -15" in said
        assert "paths: not begun" in said or "paths: unfinished" in said
        assert driven_runs.left_running(tmp_path) == []
    before = recorded()
    assert len(before["race"]) >= 5 and len(before.get("paths", {})) < len(entries("paths"))

    run = start("race", "paths", "--missing")
    said = run.communicate()[0]
    assert run.returncode == 0, said
    after = recorded()
    for part, names in before.items():
        assert {name: after[part][name] for name in names} == names
    assert set(after["race"]) == set(SECTIONS) and set(after["paths"]) == set(entries("paths"))


def test_no_section_begins_after_the_limit(start, recorded):
    start("race").communicate()
    before = recorded()["race"]
    run = start("race", "paths", "--seconds", "7", PAUSE="2")
    said = run.communicate()[0]
    assert run.returncode == 1 and "race: unfinished" in said and "paths: passed" not in said, said
    again = [name for name, part in recorded()["race"].items() if part != before[name]]
    assert 1 <= len(again) < len(SECTIONS)  # on a busy machine it takes seconds to begin


def test_a_suite_that_a_limit_cuts_short_is_gone_on_with(start, recorded, tmp_path):
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    (tmp_path / "checkout" / "pytest.ini").touch()
    tests = tmp_path / "checkout" / "tests"
    tests.mkdir()
    (tests / "conftest.py").write_text(CONFTEST)
    (tests / "test_short.py").write_text("def test_passes(): pass")
    (tests / "test_waits.py").write_text(driven_runs.LONG_TESTS)
    run = start("suite", "--seconds", "8")
    said = run.communicate()[0]
    assert run.returncode == 1 and "suite: unfinished, status 2" in said, said
    assert "not recorded of these sources: suite: tests/test_waits.py\n" in said
    first = recorded()["tests"]
    assert set(first) == {"tests/test_short.py"}
    run = start("suite", "--missing")
    said = run.communicate()[0]
    assert run.returncode == 0 and "suite: 1 of 2 recorded of these sources" in said, said
    second = recorded()["tests"]
    assert second["tests/test_waits.py"]["passed"] == 99
    assert second["tests/test_short.py"] == first["tests/test_short.py"]


def test_a_process_killed_while_it_records_damages_nothing(tmp_path):
    """Four write to the file without a pause; each is killed at any moment, again and again."""
    code = f"""\
import sys
from itertools import count
from pathlib import Path
from tools import record
record.RESULTS = Path({str(tmp_path)!r})
record.environment = lambda: {{"gpu": "A GPU"}}
for i in count():
    record.record("race", {{"rows": ["x" * 10_000]}}, part=f"{{sys.argv[1]}}-{{i % 20}}")
    print(i % 20, flush=True)
"""
    chance = random.Random(1)
    known: set[str] = set()
    for _ in range(6):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", code, str(i)],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                text=True,
            )
            for i in range(4)
        ]
        for i, writer in enumerate(writers):
            known.add(f"{i}-{int(writer.stdout.readline())}")
        time.sleep(chance.uniform(0, 0.2))
        for i, writer in enumerate(writers):
            writer.kill()
            known |= {f"{i}-{line.strip()}" for line in writer.communicate()[0].splitlines()}
            found = json.loads((tmp_path / "a-gpu.json").read_text())
            assert known <= set(found["race"])
