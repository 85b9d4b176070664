"""`tools.sanitize` with processes that really run, hang and are killed: only the GPUs are not.

In place of the trials there are some that tell at once what a good run would.
"""

import json
import os
import signal
import sys
import time
from functools import partial

import pytest

import driven_runs
from tools.barriers import find_barriers
from tools.record import ROOT
from tools.sanitizer_report import PASSED, REMOVALS

KERNELS = ("bsr_addmm_f32", "bsr_softmax", "bsr_scatter")
PLACES = {kernel: len(find_barriers(kernel, ROOT / "cuda_src")) for kernel in KERNELS}

DRIVER = """\
import sys
from pathlib import Path

from tools import record, sanitize, trial_runner

trial_runner.ROOT = Path("checkout").resolve()
record.RESULTS = Path("results").resolve()
record.environment = lambda: {"gpu": "A GPU"}
sanitize.cases = lambda: dict.fromkeys(["one", "two", "three long"])
sanitize.sys.exit(sanitize.main([], float(sys.argv[1]), resume="--resume" in sys.argv))
"""

TRIAL = f"""\
import json, os, sys, time
from pathlib import Path

places = {PLACES}
request = json.loads(Path(sys.argv[1]).read_text())
kernel, barrier = request["kernel"], request["barrier"]
with open("../trials", "a") as log:
    print(os.environ["CUDA_VISIBLE_DEVICES"], kernel, barrier, request["delays"], file=log)
with open(request["answers"], "w") as file:
    def say(**answer):
        print(json.dumps(answer), file=file, flush=True)
    say(wanted=list(places))
    for case in request["cases"]:
        say(case=case, digest="1", kernels=list(places), again=list(places))
    if request["rounds"]:
        if kernel == os.environ.get("HANG") and barrier is not None:
            time.sleep(600)
        seen = barrier is not None and not request["delays"]
        if seen and kernel == "bsr_scatter":  # of the others the results differ
            access = f"access at {{kernel}}+0xe30 in {{kernel}}.cu:3"
            print("========= Error: Race reported between Read", access)
            print("=========     and Write", access, "[4 hazards]")
        number = places.get(kernel, 0)
        passes = {{"passes": [1] * number, "passing": [request["cases"]] * number}}
        say(rounds=1000, differing=int(seen), of=[], launches=1000, **passes)
"""

SANITIZER = f"""\
#!{sys.executable}
import subprocess, sys
command = sys.argv[sys.argv.index({sys.executable!r}):]
status = subprocess.run(command).returncode
print("========= ERROR SUMMARY: 0 errors")
sys.exit(status)
"""


@pytest.fixture
def start(tmp_path):
    """Return a function that starts `tools.sanitize` on two GPUs."""
    (tmp_path / "driver.py").write_text(DRIVER)
    for name, text in (
        ("checkout/tools/__init__.py", ""),
        ("checkout/tools/trial.py", TRIAL),
        ("programs/compute-sanitizer", SANITIZER),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    programs = os.pathsep.join([str(tmp_path / "programs"), os.environ["PATH"]])
    return partial(driven_runs.start, tmp_path, CUDA_VISIBLE_DEVICES="0,1", PATH=programs)


@pytest.fixture
def recorded(tmp_path):
    """Return a function that reads the section."""
    path = tmp_path / "results" / "a-gpu.json"
    return lambda: json.loads(path.read_text())["sanitizer"] if path.exists() else {}


def barriers_of(section):
    return {kernel: len(seen) for kernel, seen in section.get("barriers", {}).items()}


def test_every_kernel_is_looked_at_on_both_gpus(start, recorded, tmp_path):
    run = start("inf")
    said = run.communicate()[0]
    assert run.returncode == 0 and said.endswith("sanitize: passed\n"), said
    section = recorded()
    assert barriers_of(section) == PLACES and section["not yet looked at"] == []
    trials = [line.split() for line in (tmp_path / "trials").read_text().splitlines()]
    assert {gpu for gpu, *_ in trials} == {"0", "1"}
    planted = sum(barrier != "None" and delays == "False" for _, _, barrier, delays in trials)
    delayed = sum(kernel != "None" and delays == "True" for _, kernel, _, delays in trials)
    removals = sum(PLACES.values())
    of_others = removals - PLACES["bsr_scatter"]
    assert planted == removals and delayed == len(KERNELS) + of_others
    by = {kernel: set(seen.values()) for kernel, seen in section["barriers"].items()}
    assert by == {key: {"results"} for key in KERNELS} | {"bsr_scatter": {"racecheck"}}


def test_a_run_that_is_ended_keeps_the_kernels_that_it_knows(start, recorded, tmp_path):
    run = start("inf", HANG="bsr_softmax")  # without one of its barriers
    while not (recorded().get("barriers") and recorded()[REMOVALS]):
        time.sleep(0.05)
        assert run.poll() is None
    run.send_signal(signal.SIGTERM)
    said = run.communicate(timeout=60)[0]
    assert run.returncode == 1 and "sanitize: FAILED: terminated" in said
    assert driven_runs.left_running(tmp_path) == []
    before = recorded()
    assert before["same bits in both runs"] and before["failures"] == []
    assert barriers_of(before) == {"bsr_scatter": PLACES["bsr_scatter"]}
    assert before["not yet looked at"] == ["bsr_addmm_f32", "bsr_softmax"]
    assert set(before[REMOVALS]["bsr_addmm_f32"].values()) == {"results"}  # delays come next
    (tmp_path / "trials").unlink()

    run = start("inf", "--resume")
    said = run.communicate()[0]
    assert run.returncode == 0, said
    section = recorded()
    assert barriers_of(section) == PLACES and section["not yet looked at"] == []
    assert section["barriers"]["bsr_scatter"] == before["barriers"]["bsr_scatter"]
    trials = [line.split() for line in (tmp_path / "trials").read_text().splitlines()]
    assert {kernel for _, kernel, *_ in trials} == {"None", "bsr_addmm_f32", "bsr_softmax"}
    again = {kernel for _, kernel, _, delays in trials if kernel != "None" and delays == "False"}
    assert again == {"bsr_softmax"} and section[REMOVALS] == {}  # under racecheck
    delayed = {barrier != "None" for *_, barrier, delays in trials if delays == "True"}
    assert delayed == {True} and section[PASSED] == {}  # unchanged kernels had been


def test_no_trial_begins_after_the_limit(start, recorded):
    run = start("0")
    said = run.communicate()[0]
    assert run.returncode == 1 and "3 kernels are left to --resume" in said
    assert recorded()["same bits in both runs"] and barriers_of(recorded()) == {}
