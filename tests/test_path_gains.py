"""What `benchmarks.paths` measures, without a GPU."""

import json
from collections import Counter
from functools import partial
from itertools import count
from types import SimpleNamespace

import pytest

from benchmarks import paths as gains
from sparsegpu.engines.cuda.paths import FAMILY_OF, family_of
from tools import record
from tools.readme import path_figures


def test_every_path_of_every_family_is_measured():
    cases = list(gains.cases())
    assert max(Counter(case.name for case in cases).values()) == 1
    measured = list(gains._FAMILIES.values())
    assert all(family_of(operation) in measured for operation in FAMILY_OF)
    for operation, family in gains._FAMILIES.items():
        dtypes = {case.dtype for case in cases if case.operation == operation}
        for path in family:
            assert dtypes & set(path.DTYPES), f"{operation}: no case of {path.NAME}'s dtypes"


@pytest.fixture
def recorded(monkeypatch, tmp_path):
    """Let each path be twice as fast as the next; return a function that reads the record."""

    def on_paths(case):
        if case.dtype == "int8":
            raise RuntimeError("the device is lost")
        workload = SimpleNamespace(call=None)
        return dict.fromkeys((f"first of {case.operation}", "second", "third"), workload)

    def times(calls, flush):
        return {name: 2.0**number for number, name in enumerate(calls)}

    monkeypatch.setattr(gains, "on_paths", on_paths)
    monkeypatch.setattr(gains, "interleaved_ms", times)
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    monkeypatch.setattr(record, "environment", lambda: {"gpu": "NVIDIA X"})

    def read():
        path = tmp_path / "nvidia-x.json"
        return json.loads(path.read_text()) if path.exists() else {}

    return read


def test_every_case_is_of_a_section():
    found = gains.sections()
    assert sum(map(len, found.values())) == len(list(gains.cases()))
    assert {"bsr tf32", "bsr float32", "2:4 float8_e4m3fn"} <= set(found)


def test_sections_are_recorded_one_by_one(recorded):
    assert gains.main(["--only", "bsr float64", "--only", "attention float32"]) == 0
    first = recorded()["paths"]
    assert list(first) == ["attention float32", "bsr float64"]
    assert len(first["bsr float64"]["rows"]) == 2 * len(gains.sections()["bsr float64"])
    with pytest.raises(RuntimeError):  # what was measured before it is kept
        gains.main(["--only", "bsr int8", "--only", "bsr bfloat16"])
    second = recorded()["paths"]
    assert set(second) == {*first, "bsr bfloat16"}
    assert {name: second[name] for name in first} == first
    about, table = path_figures(recorded(), "nvidia-x.json")
    assert about.startswith("NVIDIA X; ") and about.endswith("these sources:")
    rows = sum(len(part["rows"]) for part in second.values())
    assert table.count("2.00") == rows


def test_sections_that_the_limit_leaves_are_named(recorded, monkeypatch, capsys):
    monkeypatch.setattr(gains, "time", SimpleNamespace(perf_counter=partial(next, count())))
    only = ["--only", "bsr float64", "--only", "attention float32", "--only", "bsr tf32"]
    assert gains.main([*only, "--limit", "4"]) == 1
    assert list(recorded()["paths"]) == ["bsr tf32"]
    assert "left by the limit: bsr float64, attention float32" in capsys.readouterr().out
