"""Which parts `tools.gpu` runs, and what it hands them, without a GPU."""

import pytest

from sparsegpu.benchmark.cases import SECTIONS
from tools import gpu
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

    def run(*words):
        commands.append(words)
        return int(words[0] == "benchmarks.paths")

    monkeypatch.setattr(gpu, "run", run)

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
