"""The per-user cache: whole entries or none, under damage, lack of rights and concurrency."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from sparsegpu import _cache
from sparsegpu._cache import cache_directory, read_entry, write_entry

KEY = "ab" * 32


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("SPARSEGPU_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(_cache, "_warned", False)
    return tmp_path / "cache"


def test_round_trip(directory):
    assert read_entry("kind", KEY) is None
    assert not directory.exists(), "reading writes nothing"
    assert write_entry("kind", KEY, b"payload")
    assert read_entry("kind", KEY) == b"payload"
    assert read_entry("other", KEY) is None
    assert write_entry("kind", KEY, b"")
    assert read_entry("kind", KEY) == b""


@pytest.mark.parametrize("keep", [0, 10, 32, 35])
def test_truncated_entries_count_as_absent(directory, keep):
    write_entry("kind", KEY, b"payload")
    (path,) = (p for p in directory.rglob("*") if p.is_file())
    path.write_bytes(path.read_bytes()[:keep])
    assert read_entry("kind", KEY) is None


@pytest.mark.skipif(sys.platform != "linux", reason="XDG rules are Linux's")
def test_directory_rules(monkeypatch):
    monkeypatch.delenv("SPARSEGPU_CACHE_DIR")
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_directory() == Path("/home/someone/.cache/sparsegpu")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/xdg")
    assert cache_directory() == Path("/var/xdg/sparsegpu")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_directory() == Path("/home/someone/.cache/sparsegpu")
    monkeypatch.setenv("SPARSEGPU_CACHE_DIR", "~/kernels")
    assert cache_directory() == Path("/home/someone/kernels")


def test_an_unwritable_cache_warns_once_and_goes_on(directory, monkeypatch):
    directory.write_text("a file where the directory should be")
    with pytest.warns(RuntimeWarning, match=r"cannot write the cache .*SPARSEGPU_CACHE_DIR"):
        assert not write_entry("kind", KEY, b"payload")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not write_entry("kind", KEY, b"payload")
    assert read_entry("kind", KEY) is None


def test_a_full_disk_leaves_nothing_behind(directory, monkeypatch):
    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        assert not write_entry("kind", KEY, b"payload")
    assert not [p for p in directory.rglob("*") if p.is_file()]


def test_no_home_directory_is_no_error(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("SPARSEGPU_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert read_entry("kind", KEY) is None
    with pytest.warns(RuntimeWarning, match="home directory"):
        assert not write_entry("kind", KEY, b"payload")


HAMMER = """
import sys
from sparsegpu._cache import read_entry, write_entry
me = int(sys.argv[1])
for i in range(150):
    assert write_entry("kind", "ab" * 32, bytes([me]) * (1000 + 4001 * me + i))
    seen = read_entry("kind", "ab" * 32)
    assert seen is not None and set(seen) == {seen[0]}, "a reader saw half of a write"
"""


def test_writers_and_readers_of_one_entry_at_once(directory):
    processes = [
        subprocess.Popen([sys.executable, "-c", HAMMER, str(me)], stderr=subprocess.PIPE)
        for me in (1, 2, 3)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors.decode()
    assert len([p for p in directory.rglob("*") if p.is_file()]) == 1
