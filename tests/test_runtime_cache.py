"""The per-user cache: whole entries or none, under damage, lack of rights and concurrency."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from sparsegpu import _cache
from sparsegpu._cache import cache_directory, write_entry

KEY = "ab" * 32


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("SPARSEGPU_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(_cache, "_warned", set())
    return tmp_path / "cache"


def read_entry(kind: str, key: str) -> bytes | None:
    return _cache.read_entry(kind, key, bytes)


def test_round_trip(directory):
    assert read_entry("kind", KEY) is None
    assert not directory.exists(), "reading writes nothing"
    assert write_entry("kind", KEY, b"payload")
    assert read_entry("kind", KEY) == b"payload"
    assert read_entry("other", KEY) is None
    assert write_entry("kind", KEY, b"")
    assert read_entry("kind", KEY) == b""


def test_an_interrupted_entry_leaves_no_file(directory, monkeypatch):
    """Ctrl-C while it is written, or before it has its name."""

    def interrupted(*arguments, **keywords):
        raise KeyboardInterrupt

    for owner, name in ((_cache.os, "replace"), (_cache, "sha256")):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(owner, name, interrupted)
            write_entry("kind", KEY, b"content")
        assert not [path for path in directory.rglob("*") if path.is_file()]


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
    seen = read_entry("kind", "ab" * 32, bytes)
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


# -- what is not an entry, and who may write one --------------------------------------------------


def test_other_content_counts_as_absent_and_warns_once(directory):
    for key in (KEY, "cd" * 32):
        write_entry("kind", key, b"no number")
    with pytest.warns(RuntimeWarning, match=rf"ignored the cache entry .*{KEY} .*remove it"):
        assert _cache.read_entry("kind", KEY, int) is None
    assert _cache.read_entry("kind", "cd" * 32, int) is None
    write_entry("kind", "ef" * 32, b"17")
    assert list(_cache.read_entries("kind", int)) == [17]
    write_entry("kind", KEY, b"18")
    assert _cache.read_entry("kind", KEY, int) == 18


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757, 0o1777])
def test_a_directory_that_others_can_write_to_is_not_used(directory, mode, capsys):
    from sparsegpu.cli.doctor import _cache as finding

    write_entry("kind", KEY, b"planted")
    there = sorted(directory.rglob("*"))
    directory.chmod(mode)
    said = rf"the cache is not used: other users can write to .*mode {mode & 0o777:o}.*chmod go-w"
    with pytest.warns(RuntimeWarning, match=said):
        assert read_entry("kind", KEY) is None
    assert list(_cache.read_entries("kind", bytes)) == []
    assert not write_entry("kind", "cd" * 32, b"payload")
    assert sorted(directory.rglob("*")) == there, "not even a folder is made in it"
    with pytest.raises(OSError, match="cannot remove from the cache: other users can write"):
        _cache.remove_entries("kind")
    assert "not used: other users can write to" in finding().text
    directory.chmod(0o755)
    assert read_entry("kind", KEY) == b"planted"


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
@pytest.mark.parametrize("folder", ["kind", f"kind/{KEY[:2]}"])
def test_a_folder_that_others_can_write_to_is_not_used(directory, folder):
    write_entry("kind", KEY, b"planted")
    (directory / folder).chmod(0o777)
    assert read_entry("kind", KEY) == b"planted"  # nobody else gets there
    directory.chmod(0o755)
    (directory / "kind").chmod(0o755 if folder != "kind" else 0o777)
    with pytest.warns(RuntimeWarning, match=rf"other users can write to .*{folder} \(mode 777\)"):
        assert read_entry("kind", KEY) is None
    assert list(_cache.read_entries("kind", bytes)) == []
    assert not write_entry("kind", KEY, b"payload")
    with pytest.raises(OSError, match="cannot remove from the cache: other users can write"):
        _cache.remove_entries("kind")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="users are POSIX's")
def test_a_directory_of_another_user_is_not_used(directory, monkeypatch):
    write_entry("kind", KEY, b"planted")
    me, owner = os.geteuid(), directory.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    if owner == 0:  # root's is: it may be a whole machine's
        assert read_entry("kind", KEY) == b"planted"
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        os.chown(directory, 12345, -1)
    with pytest.warns(RuntimeWarning, match="belongs to another user"):
        assert read_entry("kind", KEY) is None


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
@pytest.mark.parametrize("made", [False, True])
def test_new_directories_are_for_their_user_alone(directory, made):
    if made:
        directory.mkdir(mode=0o755)
    before = os.umask(0)
    try:
        write_entry("kind", KEY, b"payload")
    finally:
        os.umask(before)
    assert read_entry("kind", KEY) == b"payload"
    folders = [path for path in (directory, *directory.rglob("*")) if path.is_dir()]
    assert [f.stat().st_mode & 0o777 for f in folders] == [0o755 if made else 0o700, 0o700, 0o700]


PRODUCT = """
import warnings, numpy as np, sparsegpu as sg
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    A = sg.bsr_array(np.ones((64, 64), "float32"), blocksize=(16, 16))
    assert (A @ np.ones((64, 8), "float32") == 64).all()
    from sparsegpu.engines.cuda.winners import snapshot
    snapshot()
print([str(each.message) for each in said])
"""


def product(code: str = "") -> str:
    """Multiply in a process of its own and return what was warned of."""
    command = [sys.executable, "-c", code + PRODUCT]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.skipif(os.name != "posix", reason="limits are POSIX's")
def test_products_on_a_disk_that_takes_no_more(directory):
    said = product("import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))\n")
    assert said.count("sparsegpu: ") == 1 and "cannot write the cache" in said
    assert not [p for p in directory.rglob("*") if p.is_file()]


def test_products_with_other_content_in_the_cache(directory):
    assert product() == "[]\n"
    kept = [p for p in directory.rglob("*") if p.is_file()]
    before = {path: path.read_bytes() for path in kept}
    for path in kept:
        write_entry(path.parents[1].name, path.name, b"other content")
    write_entry("tuned", KEY, b"other content")
    said = product()
    assert said.count("ignored the cache entry") == said.count("sparsegpu: ") == 1
    assert all(before[path][32:100] == path.read_bytes()[32:100] for path in kept)


@pytest.mark.parametrize("place", ["~nouser/x", "/dev/null"])
def test_products_and_doctor_where_there_can_be_no_cache(place, monkeypatch):
    monkeypatch.setenv("SPARSEGPU_CACHE_DIR", place)
    said = product()
    assert said.count("sparsegpu: ") == 1 and "SPARSEGPU_CACHE_DIR" in said
    doctor = [sys.executable, "-m", "sparsegpu", "doctor"]
    told = subprocess.run(doctor, capture_output=True, text=True)
    assert "Traceback" not in told.stderr and place in told.stdout
    (line,) = (line for line in told.stdout.splitlines() if line.split()[1:2] == ["cache"])
    assert "set SPARSEGPU_CACHE_DIR" in line and line.startswith("ok")
    reset = [sys.executable, "-m", "sparsegpu", "tune", "--reset"]
    assert "Traceback" not in subprocess.run(reset, capture_output=True, text=True).stderr
