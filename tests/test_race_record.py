"""The race without a GPU: which sections are measured, finished and recorded."""

import json
import sys
from dataclasses import replace
from functools import partial
from itertools import count
from types import SimpleNamespace

import pytest

from benchmarks import race as benchmarks_race
from race_rows import COPY_GBS, row
from sparsegpu.benchmark import cases, measure, race
from sparsegpu.benchmark.case import Case
from sparsegpu.benchmark.peer import DENSE
from sparsegpu.cli import bench
from sparsegpu.engines.cuda.paths._fields import ConfigError
from tools import record


@pytest.fixture
def without_a_gpu(monkeypatch):
    """Let the race invent its times; return what was given to each case's measurement."""
    told: dict[str, dict] = {}

    def measure_case(case, **given):
        told[case.name] = given
        if case.path == "wgmma":
            raise ConfigError("not here")
        rates = {bar.of: 2.0 for bar in case.bars if bar.kind == "case rate"}
        return measure.Row(**row(case, 1.0, at_rate_of=rates, peers={DENSE: 3.0}))

    free = SimpleNamespace(free_all_blocks=lambda: None)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(get_default_memory_pool=lambda: free))
    monkeypatch.setattr(race, "measure_case", measure_case)
    monkeypatch.setattr(race, "copy_gbs", lambda: COPY_GBS)
    return told


@pytest.mark.usefixtures("without_a_gpu")
def test_a_path_that_refuses_is_told_and_passed_over(monkeypatch):
    plain = Case("main", (64, 64), 0.1, (256, 256, 64))
    forced = replace(plain, path="wgmma")
    monkeypatch.setattr(race, "cases", lambda sections: [forced, plain])
    parts = {}
    found = race.race(["main"], finished=parts.__setitem__)
    assert [r["case"] for r in found["rows"]] == [plain.name] and found["cases left out"] == 0
    assert found["refused"] == {forced.name: "ConfigError: not here"}
    assert parts["main"]["refused"] == found["refused"] and parts["main"]["rows"] == found["rows"]


def test_a_section_is_finished_by_itself(without_a_gpu):
    parts = {}
    found = race.race(["8.0 path", "unbalanced"], finished=parts.__setitem__)
    assert list(parts) == ["8.0 path", "unbalanced"]  # main's rows are there for their peers only
    assert [r["section"] for r in found["rows"]].count("main") == 12
    assert all(r["peers"] == {DENSE: 3.0} for r in parts["8.0 path"]["rows"])
    assert {r["section"] for r in parts["unbalanced"]["rows"]} == {"unbalanced"}
    power_law = next(c for c in cases.cases(["unbalanced"]) if c.pattern == "power law")
    (other,) = without_a_gpu[power_law.name]["others"]
    assert other.section == "main"
    (judged_row,) = [r for r in parts["unbalanced"]["rows"] if r["case"] == power_law.name]
    assert [bar["limit ms"] for bar in judged_row["bars"]] == [2.0 / 0.7]


@pytest.mark.usefixtures("without_a_gpu")
def test_a_section_that_the_limit_cuts_short_is_not_finished(monkeypatch):
    monkeypatch.setattr(race, "time", SimpleNamespace(perf_counter=partial(next, count())))
    parts = {}
    found = race.race(["4096", "unbalanced"], limit_s=9.0, finished=parts.__setitem__)
    assert [r["section"] for r in found["rows"]].count("4096") == 4 and list(parts) == ["4096"]
    assert {r["section"] for r in found["rows"]} == {"4096", "unbalanced"}
    assert found["cases left out"] == 10 - len(found["rows"]) > 0


# -- the race recorded ----------------------------------------------------------------------


@pytest.fixture
def recorded(without_a_gpu, monkeypatch, tmp_path):
    """Let `benchmarks.race` record in a file of one GPU; return a function that reads it."""
    monkeypatch.setattr(bench, "choose_library", lambda device: (None, "a test"))
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    monkeypatch.setattr(record, "environment", lambda: {"gpu": "NVIDIA X"})

    def read() -> dict:
        path = tmp_path / "nvidia-x.json"
        return json.loads(path.read_text()) if path.exists() else {}

    return read


def test_sections_are_replaced_one_by_one(recorded, monkeypatch):
    record.record("demo", {"answer": 42})
    assert benchmarks_race.main(["--only", "4096", "--only", "unbalanced"]) == 0
    first = recorded()
    assert set(first) == {"demo", "race"} and set(first["race"]) == {"4096", "unbalanced"}
    assert [len(part["rows"]) for part in first["race"].values()] == [4, 6]
    for part in first["race"].values():
        assert part["content"] == record.content_hashes() and part["refused"] == {}
        assert {"date", "environment", "seconds", "copy GB/s"} < set(part)
    monkeypatch.setattr(record, "content_hashes", lambda: {"sparsegpu": "later"})
    assert benchmarks_race.main(["--only", "unbalanced"]) == 0
    second = recorded()
    assert second["race"]["4096"] == first["race"]["4096"] and second["demo"] == first["demo"]
    assert second["race"]["unbalanced"]["content"] == {"sparsegpu": "later"}
    assert second["race"]["unbalanced"]["rows"] == first["race"]["unbalanced"]["rows"]


@pytest.mark.parametrize("options", ["--quick", "--no-peers --only 4096", "--only 4096 --limit 0"])
def test_what_is_not_recorded(recorded, without_a_gpu, options, monkeypatch, capsys):
    monkeypatch.setattr(race, "time", SimpleNamespace(perf_counter=partial(next, count())))
    cut_short = "--limit" in options
    assert benchmarks_race.main(options.split()) == int(cut_short)
    assert recorded() == {}
    assert ("not recorded: 4096" in capsys.readouterr().out) is cut_short
    peers = {name for given in without_a_gpu.values() for name in given["peers"]}
    assert peers == ({DENSE} if options == "--quick" else set())
