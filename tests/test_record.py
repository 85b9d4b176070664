"""The record's tree hashes are git's own."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from tools import record
from tools.record import ROOT, tree_hash


def _git(*words: str, **environment: str) -> str:
    result = subprocess.run(
        ["git", *words],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout.strip()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")
@pytest.mark.parametrize("folder", ["sparsegpu", "cuda_src", "tests", "benchmarks"])
def test_recorded_hashes_are_git_s(folder, tmp_path):
    """Of all that a run depends on: `benchmarks` without the results, which the run writes."""
    index = str(tmp_path / "index")
    objects = str(tmp_path / "objects")
    os.mkdir(objects)
    environment = {"GIT_INDEX_FILE": index, "GIT_OBJECT_DIRECTORY": objects}
    _git("add", "--", folder, ":!benchmarks/results", **environment)
    expected = _git("write-tree", f"--prefix={folder}/", **environment)
    assert record.content_hashes()[folder] == expected


def test_content_and_name_change_the_hash(tmp_path):
    (tmp_path / "a.cu").write_text("one")
    first = tree_hash(tmp_path)
    (tmp_path / "a.cu").write_text("two")
    second = tree_hash(tmp_path)
    (tmp_path / "a.cu").rename(tmp_path / "b.cu")
    assert len({first, second, tree_hash(tmp_path)}) == 3


@pytest.mark.parametrize("left", ["__pycache__", ".hypothesis", ".pytest_cache"])
def test_what_a_test_run_leaves_is_not_hashed(tmp_path, left):
    (tmp_path / "a.py").write_text("one")
    before = tree_hash(tmp_path)
    (tmp_path / left).mkdir()
    (tmp_path / left / "b").write_text("two")
    assert tree_hash(tmp_path) == before


@pytest.mark.parametrize("version", [None, "0.8.0"])
def test_the_environment_names_the_vendor_s_library(monkeypatch, version):
    properties = {"name": b"NVIDIA X", "major": 9, "minor": 0}
    runtime = SimpleNamespace(
        getDeviceProperties=lambda device: properties,
        driverGetVersion=lambda: 13000,
        runtimeGetVersion=lambda: 13020,
    )
    cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime), __version__="14.2.0")
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    missing = None if version else ImportError("not installed")
    monkeypatch.setattr(record, "why_not", lambda function: missing)
    monkeypatch.setattr(record, "version", lambda: version)
    found = record.environment()
    assert found["gpu"] == "NVIDIA X" and found.get("cusparselt") == version


def test_what_is_recorded_during_a_run_is_no_source(tmp_path, monkeypatch):
    """Also where a test has put its own records elsewhere."""
    monkeypatch.setattr(record, "ROOT", tmp_path)
    monkeypatch.setattr(record, "RESULTS", tmp_path / "elsewhere")
    monkeypatch.setattr(record, "_NO_SOURCES", tmp_path / "benchmarks" / "results")
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    (tmp_path / "benchmarks" / "race.py").write_text("")
    before = record.tree_hash(tmp_path / "benchmarks")
    (tmp_path / "benchmarks" / "results" / "a.json").write_text("{}")
    assert record.tree_hash(tmp_path / "benchmarks") == before
    (tmp_path / "benchmarks" / "race.py").write_text("more")
    assert record.tree_hash(tmp_path / "benchmarks") != before


def test_runs_that_record_at_once_lose_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    monkeypatch.setattr(record, "environment", lambda: {"gpu": "A GPU"})
    parts = [f"part {i}" for i in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda part: record.record("race", {"rows": []}, part=part), parts))
    assert sorted(record.record_of_this_gpu()["race"]) == sorted(parts)
