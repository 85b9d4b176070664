"""Which parts `tools.gpu` runs, and what it hands them, without a GPU."""

import os
import time
from collections import Counter

import pytest

from sparsegpu.benchmark.cases import SECTIONS
from tools import gpu, gpus
from tools.record import content_hashes

NOW = {"content": dict(content_hashes())}
EARLIER = {"content": dict.fromkeys(content_hashes(), "0")}
WHOLE = {
    "tests": {**NOW, "exit": 0},
    "sanitizer": {**NOW, "not yet looked at": [], "failures": []},
    **dict.fromkeys(("fuzz", "fuzz_cpu", "paths", "profile", "demo"), NOW),
    "race": dict.fromkeys(SECTIONS, NOW),
}


@pytest.fixture
def ran(monkeypatch):
    """Return the runs of a call of `tools.gpu` beside a record."""
    commands = []

    def run(*words, environment=None):
        commands.append(words)
        return int(words[0] == "benchmarks.paths")

    monkeypatch.setattr(gpu, "run", run)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")

    def parts(record, *words):
        commands.clear()
        monkeypatch.setattr(gpu, "record_of_this_gpu", lambda: record)
        return gpu.main([*words]), list(commands)

    return parts


def test_all_parts_run_and_a_failure_is_told(ran, capsys, monkeypatch):
    monkeypatch.setitem(gpu.PARTS, "demo", lambda wanted: 0)
    status, commands = ran(WHOLE)
    assert status == 1 and len(commands) == len(gpu.PARTS) - 1
    race = next(words for words in commands if words[0] == "benchmarks.race")
    assert race.count("--only") == len(SECTIONS)
    assert "paths: FAILED with status 1" in capsys.readouterr().out


def test_what_is_recorded_is_left_out(ran):
    status, commands = ran(WHOLE, "--missing")
    assert status == 0 and [words[0] for words in commands] == ["sparsegpu", "tools.gallery"]


@pytest.mark.parametrize(
    ("part", "known", "expected"),
    [
        ("suite", {"tests": {**NOW, "exit": 1}}, ["pytest"]),
        ("suite", {"tests": {"content": NOW["content"] | {"tests": "0"}, "exit": 0}}, ["pytest"]),
        ("sanitizer", {"sanitizer": EARLIER}, ["tools.sanitize"]),
        ("sanitizer", {"sanitizer": {**NOW, "failures": []}}, ["tools.sanitize", "--resume"]),
        ("sanitizer", {"sanitizer": {**NOW, "failures": ["memcheck"]}}, ["tools.sanitize"]),
        ("race", {"race": {"main": EARLIER}}, ["benchmarks.race", "--only", SECTIONS[0]]),
        ("fuzz", {"fuzz": EARLIER}, ["tools.fuzz", "-j", "16", "--record"]),
    ],
)
def test_what_is_missing_runs(ran, part, known, expected):
    _, [words] = ran(WHOLE | known, part, "--missing")
    assert list(words[: len(expected)]) == expected and "--resume" not in words[len(expected) :]


def test_only_the_missing_sections_of_the_race_run(ran):
    known = {**WHOLE["race"], SECTIONS[2]: EARLIER}
    status, commands = ran(WHOLE | {"race": known}, "race", "--missing", "--seconds", "500")
    assert status == 0
    assert commands == [("benchmarks.race", "--only", SECTIONS[2], "--limit", "500")]


def test_nothing_begins_after_the_limit(ran, capsys):
    status, commands = ran({}, "--seconds", "0")
    assert status == 1 and commands == []
    assert capsys.readouterr().out.count("not begun") == len(gpu.PARTS)


def test_an_unknown_part_is_refused(ran, capsys):
    with pytest.raises(SystemExit):
        ran({}, "everything")
    assert "no such part: everything; there are doctor, suite" in capsys.readouterr().err


def test_the_benchmark_is_shared_out_among_gpus(monkeypatch, capsys):
    """Sections that take long come first; none is measured beside another on the same GPU."""
    runs, used = [], Counter()

    def run(*words, environment):
        name = environment.get("CUDA_VISIBLE_DEVICES")
        used[name] += 1
        assert used[name] == 1
        time.sleep(0.01)
        used[name] -= 1
        runs.append((name, words))
        return 0

    monkeypatch.setattr(gpu, "run", run)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7,9")
    seconds = dict.fromkeys(SECTIONS, 10.0) | {"2:4": 300.0, "attention": 200.0}
    known = {name: {**EARLIER, "seconds": spent} for name, spent in seconds.items()}
    monkeypatch.setattr(gpu, "record_of_this_gpu", lambda: {"race": known})
    assert gpu.main(["race", "paths", "gallery"]) == 0
    race = [words[2::2] for _, words in runs if words[0] == "benchmarks.race"]
    assert sorted(name for share in race for name in share) == sorted(SECTIONS)
    assert ("2:4",) in race and max(map(len, race)) > 12
    assert {name for name, _ in runs} == {"4", "7", "9"} and len(runs) == 5


def test_what_is_not_begun_is_told(monkeypatch, capsys):
    monkeypatch.setattr(gpu, "record_of_this_gpu", dict)
    monkeypatch.setattr(gpu.Wanted, "measure", lambda self, *words, limit=None: gpu._NOT_BEGUN)
    assert gpu.main(["race"]) == 1
    assert "race: not begun" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("worker", "expected"),
    [("gw0", "a,b,c"), ("gw1", "b,c,a"), ("gw5", "c,a,b"), ("master", "a,b,c"), ("", "a,b,c")],
)
def test_workers_begin_with_different_gpus(monkeypatch, worker, expected):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "a,b,c")
    gpus.take_turns(worker)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == expected


def test_a_machine_without_a_gpu_has_one_place(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpus.shutil, "which", lambda name: None)
    assert gpus.gpu_names() == [] and gpus.Gpus().count == 1
    with gpus.Gpus(2).one() as environment:
        assert environment == {}
