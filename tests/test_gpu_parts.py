"""Which parts `tools.gpu` runs, and what it hands them, without a GPU."""

import os
import subprocess
import sys
import time
from collections import Counter
from multiprocessing import Value

import pytest

from sparsegpu.benchmark.cases import SECTIONS
from sparsegpu.benchmark.report import WRONG
from tools import gallery, gpu, gpu_parts, gpus
from tools.record import ROOT, content_hashes
from tools.runner import NOT_BEGUN

NOW = {"content": dict(content_hashes())}
FILE = "tests/test_gpu_parts.py"
EARLIER = {"content": dict.fromkeys(content_hashes(), "0")}
OTHER_BENCHMARKS = {"content": NOW["content"] | {"benchmarks": "0"}}
WHOLE = {
    "tests": {key: {**NOW, "failed": 0, "error": 0} for key in gpu_parts.test_files()},
    "sanitizer": {**NOW, "not yet looked at": [], "failures": []},
    **dict.fromkeys(("profile", "demo"), NOW),
    **{key: {**NOW, "failures": 0} for key in ("fuzz", "fuzz_cpu")},
    "race": {key: {**NOW, "rows": []} for key in SECTIONS},
    "paths": dict.fromkeys(gpu_parts.entries("paths"), NOW),
    "gallery": {
        name: {**NOW, "source": gallery.digest((gallery.PAGES / f"{name}.py").read_text("utf-8"))}
        for name in gallery.pages()
    },
}


@pytest.fixture
def ran(monkeypatch):
    """Return the runs of a call of `tools.gpu` beside a record."""
    commands = []

    def run(self, *words, environment, beside=""):
        if self.is_over:
            return NOT_BEGUN
        commands.append(words)
        return int(words[0] == "benchmarks.paths")

    monkeypatch.setattr(gpu.Runner, "run", run)
    monkeypatch.setattr(gpu.Parts, "_demo", lambda *given: 0)
    monkeypatch.setattr(gpu, "gpu_here", lambda: "NVIDIA X")
    monkeypatch.setattr(gpu, "model", lambda: "NVIDIA X")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")

    def parts(record, *words):
        commands.clear()
        monkeypatch.setattr(gpu, "evidence_of", lambda gpu: record)
        return gpu.main([*words]), list(commands)

    return parts


def test_all_parts_run_and_a_failure_is_told(ran, capsys):
    status, commands = ran(WHOLE)
    assert status == 1
    assert {words[0] for words in commands} >= {"sparsegpu", "pytest", "tools.gallery"}
    race = next(words for words in commands if words[0] == "benchmarks.race")
    assert race.count("--only") == len(SECTIONS)
    assert "paths: FAILED with status 1" in capsys.readouterr().out


def test_what_is_recorded_is_left_out(ran, capsys):
    status, commands = ran(WHOLE, "--missing")
    assert status == 0 and commands == [("sparsegpu", "doctor")]
    assert "race: recorded of these sources" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("part", "known", "expected"),
    [
        ("sanitizer", {"sanitizer": {}}, ["tools.sanitize"]),
        ("sanitizer", {"sanitizer": {**EARLIER, "failures": []}}, ["tools.sanitize", "--resume"]),
        ("sanitizer", {"sanitizer": {**NOW, "failures": []}}, ["tools.sanitize", "--resume"]),
        ("sanitizer", {"sanitizer": {**NOW, "failures": ["memcheck"]}}, ["tools.sanitize"]),
        ("race", {"race": {"main": EARLIER}}, ["benchmarks.race", "--only", SECTIONS[0]]),
        ("fuzz", {"fuzz": EARLIER}, ["tools.fuzz", "-j"]),
        ("fuzz", {"fuzz": {**NOW, "failures": 1}}, ["tools.fuzz", "-j"]),
        ("paths", {"paths": {}}, ["benchmarks.paths", "--only", "bsr bfloat16"]),
        ("profile", {"profile": OTHER_BENCHMARKS}, ["benchmarks.profile"]),
        ("gallery", {"gallery": {}}, ["tools.gallery", gallery.pages()[0]]),
    ],
)
def test_what_is_missing_runs(ran, part, known, expected):
    _, [words, *_] = ran(WHOLE | known, part, "--missing")
    assert list(words[: len(expected)]) == expected and "--resume" not in words[len(expected) :]


@pytest.mark.parametrize(
    "section", [EARLIER, {**NOW, "rows": [{"verdict": WRONG}]}], ids=["earlier", "wrong"]
)
def test_only_the_missing_sections_of_the_race_run(ran, section):
    known = {**WHOLE["race"], SECTIONS[2]: section}
    status, commands = ran(WHOLE | {"race": known}, "race", "--missing", "--seconds", "500")
    assert status == 0
    assert commands == [("benchmarks.race", "--only", SECTIONS[2], "--limit", "500")]


PASSED = {**NOW, "failed": 0, "error": 0}
OTHER_TESTS = {**PASSED, "content": NOW["content"] | {"tests": "0"}}


@pytest.mark.parametrize(
    "its",
    [{**PASSED, "failed": 1}, {**PASSED, "error": 1}, OTHER_TESTS, {}],
    ids=["failed", "error", "other tests", "never recorded"],
)
def test_only_the_missing_files_of_the_suite_run(ran, its):
    known = WHOLE["tests"] | {FILE: its}
    status, [words] = ran(WHOLE | {"tests": known}, "suite", "--missing", "--seconds", "500")
    assert status == 0 and words[0] == "pytest" and words[-1] == FILE
    assert words[-4:-1] == ("--record", "--record-seconds", "500")


def test_a_suite_that_was_recorded_as_a_whole_runs(ran):
    known = {**NOW, "passed": 9, "failed": 0, "error": 0, "exit": 0}
    _, [words] = ran(WHOLE | {"tests": known}, "suite", "--missing")
    assert set(gpu_parts.test_files()) < set(words)


def test_files_that_failed_come_first_then_long_ones(ran, monkeypatch):
    """Each of two workers begins with one of them; pytest-xdist shares out in the order given."""
    monkeypatch.setattr(gpu.Gpus, "workers", 2)
    monkeypatch.setattr(gpu_parts, "test_files", lambda: list("abcdef"))
    seconds = dict(zip("abcdef", (5.0, 1.0, 50.0, 20.0, 10.0, 0.0), strict=True))
    known = {file: {**OTHER_TESTS, "seconds": s} for file, s in seconds.items()}
    known["b"] |= {"failed": 1}
    order = gpu_parts.expected("suite", {"tests": known})
    assert list(order) == ["b", "c", "d", "e", "a", "f"]
    assert sum(order.values()) == pytest.approx(86 / gpus.CORES_A_GPU)
    _, [words] = ran(WHOLE | {"tests": known}, "suite", "--missing")
    assert words[-6:] == ("c", "b", "d", "e", "a", "f")


def test_a_suite_that_a_limit_cuts_short_is_unfinished(ran, monkeypatch, capsys):
    def run(self, *words, environment):
        self.deadline = 0.0
        return 2

    monkeypatch.setattr(gpu.Runner, "run", run)
    assert ran(WHOLE | {"tests": {}}, "suite", "--seconds", "500")[0] == 1
    said = capsys.readouterr().out
    assert "suite: unfinished, status 2" in said
    files = gpu_parts.test_files()
    assert f"suite: {files[0]}, " in said and f" and {len(files) - 20} others\n" in said


def test_sections_that_a_limit_would_cut_short_are_left(ran, capsys):
    """A process has those that fit, the next one those that fit into what it left."""
    seconds = {"main": 30, "4096": 180, "host": 60, "dense": 20}
    known = WHOLE["race"] | {name: {**EARLIER, "seconds": s} for name, s in seconds.items()}
    status, commands = ran(WHOLE | {"race": known}, "race", "--missing", "--seconds", "100")
    assert [words[2::2] for words in commands] == [("main", "host", "100"), ("dense", "100")]
    assert status == 1 and "race: unfinished, for lack of time" in capsys.readouterr().out


def test_a_page_of_another_text_runs(ran):
    known = WHOLE["gallery"] | {"how_exact": {**NOW, "source": "of another page"}}
    _, [words] = ran(WHOLE | {"gallery": known}, "gallery", "--missing")
    assert words == ("tools.gallery", "how_exact")


def test_nothing_begins_after_the_limit(ran, capsys):
    status, commands = ran({}, "--seconds", "0")
    assert status == 1 and commands == []
    parts = set(gpu.PARTS) - {"demo"}
    assert capsys.readouterr().out.count("not begun") == len(parts)


def test_an_unknown_part_is_refused(ran, capsys):
    with pytest.raises(SystemExit):
        ran({}, "everything")
    assert "no such part: everything; there are doctor, suite" in capsys.readouterr().err


def test_a_part_that_raises_is_told_and_the_others_run(ran, monkeypatch, capsys):
    def broken(*given):
        raise OSError("no room")

    monkeypatch.setattr(gpu.Parts, "_demo", broken)
    status, commands = ran(WHOLE | {"profile": EARLIER, "demo": EARLIER}, "--missing")
    assert status == 1 and ("benchmarks.profile",) in commands
    said = capsys.readouterr()
    assert "demo: FAILED with status 1" in said.out and "no room" in said.err


def test_sources_that_change_meanwhile_are_told(ran, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "tree_hash", lambda folder: "another")
    assert ran(WHOLE, "--missing")[0] == 1
    assert "sources: FAILED" in capsys.readouterr().out


# -- several GPUs ---------------------------------------------------------------------------


def test_what_measures_is_shared_out_among_gpus(ran, monkeypatch):
    """Sections that take long come first; none is measured beside another on the same GPU."""
    runs, used = [], Counter()

    def run(self, *words, environment, beside):
        name = environment["CUDA_VISIBLE_DEVICES"]
        used[name] += 1
        assert used[name] == 1 and beside.startswith(f"[{name} ")
        time.sleep(0.01)
        used[name] -= 1
        runs.append((name, words))
        return 0

    monkeypatch.setattr(gpu.Runner, "run", run)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, GPU-7,9")
    seconds = dict.fromkeys(SECTIONS, 10.0) | {"2:4": 900.0, "attention": 200.0}
    known = {name: {**EARLIER, "seconds": spent} for name, spent in seconds.items()}
    assert ran({"race": known}, "race", "paths", "gallery")[0] == 0
    race = [words[2::2] for _, words in runs if words[0] == "benchmarks.race"]
    assert sorted(name for share in race for name in share) == sorted(SECTIONS)
    assert ("2:4",) in race
    pages = [page for _, words in runs if words[0] == "tools.gallery" for page in words[1:]]
    assert sorted(pages) == gallery.pages()
    assert {name for name, _ in runs} == {"4", "GPU-7", "9"}


def test_the_plan_says_what_where_and_how_long(ran, monkeypatch, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    seconds = {key: {**NOW, "rows": [], "seconds": 1} for key in SECTIONS}
    seconds |= {"2:4": {**EARLIER, "seconds": 70}, "solvers": {**EARLIER, "seconds": 50}}
    files = {key: {**PASSED, "seconds": 1} for key in gpu_parts.test_files()}
    known = {"race": seconds, "tests": files | {FILE: {**OTHER_TESTS, "seconds": 3200}}}
    status, commands = ran(WHOLE | known, "suite", "race", "--plan", "--missing")
    assert status == 0 and commands == []
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "NVIDIA X: 2 GPUs (0, 1)"
    assert said[1:3] == [
        f"  suite: {len(files) - 1} of {len(files)} recorded of these sources",
        f"  race: {len(SECTIONS) - 2} of {len(SECTIONS)} recorded of these sources",
    ]
    assert said[-4:] == [
        "    100 s  all GPUs: suite, 100 s",
        "    170 s  GPU 0: race: 2:4",
        "    150 s  GPU 1: race: solvers",
        "    170 s in all, by the last records",
    ]


def test_a_plan_without_a_gpu_needs_no_cupy():
    code = "import sys; sys.modules['cupy'] = None; from tools import gpu; gpu.main(['--plan'])"
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "0,1,2,3", "PATH": ""}
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr
    assert "nvidia-h200: 4 GPUs (0, 1, 2, 3)" in told.stdout and "GPU 3: race: " in told.stdout
    assert "sanitizer: compute-sanitizer is needed and not here" in told.stdout


@pytest.mark.parametrize(
    ("worker", "expected"),
    [("gw0", "a,b,c"), ("gw1", "b,c,a"), ("gw5", "c,a,b"), ("master", "a,b,c"), ("", "a,b,c")],
)
def test_workers_begin_with_different_gpus(monkeypatch, worker, expected):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "a,b,c")
    gpus.take_turns(worker)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == expected


def test_processes_of_random_calls_begin_with_different_gpus(monkeypatch):
    turns, seen = Value("i", 0), []
    for _ in range(3):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "a,b")
        gpus.take_next_turn(turns)
        seen.append(os.environ["CUDA_VISIBLE_DEVICES"])
    assert seen == ["a,b", "b,a", "a,b"]


def test_a_machine_without_a_gpu_has_one_place(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpus.shutil, "which", lambda name: None)
    assert gpus.gpu_names() == [] and gpus.Gpus().count == 1 and gpus.model() is None
    with gpus.Gpus(2).one() as environment:
        assert environment == {}


def test_gpus_are_numbered_as_nvidia_smi_does(monkeypatch):
    """Those of another model than the first are left out: a record is of one."""
    listed = ["0, NVIDIA X", "1, NVIDIA Y", "2, NVIDIA X"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpus, "_nvidia_smi", lambda what: listed)
    first, second = gpus.Gpus().each
    assert first == {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert second["CUDA_VISIBLE_DEVICES"] == "2"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1,")  # and in the user's order
    assert gpus.Gpus().each == [{"CUDA_VISIBLE_DEVICES": "MIG-1"}]
