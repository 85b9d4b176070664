"""The record of GPU runs, ``benchmarks/results/<gpu>.json``, which the runs themselves write.

Each kind of run (tests, sanitizer, demo, race, profile, paths) replaces its own section; tests,
race and paths are recorded in parts, each as soon as it is known. The file is replaced as a whole,
by one process at a time: a run that is killed leaves what was recorded before. A run records git's
tree hashes of what it depends on: ``sparsegpu/``, ``cuda_src/``, ``tests/``, and ``benchmarks/``
without its results.
They are computed from the files, so the run needs no git checkout to be compared with
``git rev-parse HEAD:cuda_src``; ``python -m tools.record`` prints a checkout's.
"""

from __future__ import annotations

import argparse
import datetime
import fcntl
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparsegpu.engines.cusparselt.availability import version, why_not

ROOT = Path(__file__).resolve().parent.parent
RESULTS = _NO_SOURCES = ROOT / "benchmarks" / "results"  # tests record elsewhere
_NOT_TRACKED = {"__pycache__", ".DS_Store", ".hypothesis", ".pytest_cache"}
_LIBRARY = ("sparsegpu", "cuda_src")
_FOLDERS = (*_LIBRARY, "tests", "benchmarks")


def tree_hash(folder: Path) -> str:
    """Return git's tree hash of a folder, computed from its files.

    A tree object lists mode, name and hash of its entries, sorted as if the names of folders ended
    in a slash (git-scm.com/book, "Git Internals - Git Objects").
    """
    return _tree(folder).hex()


def _tree(folder: Path) -> bytes:
    entries = []
    for path in folder.iterdir():
        if path == _NO_SOURCES:  # a record cannot hold its own hash
            continue
        if path.name in _NOT_TRACKED or path.suffix in {".pyc", ".nbi", ".nbc"}:
            continue
        if path.is_dir():
            if any(p.is_file() for p in path.rglob("*")):
                entries.append((path.name + "/", b"40000", path.name, _tree(path)))
        else:
            mode = b"100755" if os.access(path, os.X_OK) else b"100644"
            entries.append((path.name, mode, path.name, _object(b"blob", path.read_bytes())))
    lines = [
        mode + b" " + name.encode() + b"\0" + digest for _, mode, name, digest in sorted(entries)
    ]
    return _object(b"tree", b"".join(lines))


def _object(kind: bytes, content: bytes) -> bytes:
    header = kind + b" " + str(len(content)).encode() + b"\0"
    return hashlib.sha1(header + content, usedforsecurity=False).digest()


@functools.cache
def content_hashes() -> Mapping[str, str]:
    """Return the tree hashes of the folders that a run depends on."""
    return {name: tree_hash(ROOT / name) for name in _FOLDERS}


def is_of_these_sources(recorded: Mapping[str, Any], *more: str) -> bool:
    """Return whether what was recorded ran with the library and the kernels of this checkout.

    And with ``more`` of its folders, where a run depends on them.
    """
    return all(
        recorded["content"].get(name) == content_hashes()[name] for name in (*_LIBRARY, *more)
    )


def environment() -> dict[str, str]:
    """Return the GPU, driver and library versions of this machine; cuSPARSELt's where it is."""
    import cupy
    import numpy

    vendor = {} if why_not("record") else {"cusparselt": version()}
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    return {
        "gpu": properties["name"].decode(),
        "compute_capability": f"{properties['major']}.{properties['minor']}",
        "driver": str(cupy.cuda.runtime.driverGetVersion()),
        "cuda_runtime": str(cupy.cuda.runtime.runtimeGetVersion()),
        "cupy": cupy.__version__,
        "numpy": numpy.__version__,
        **vendor,
    }


def stem_of(gpu: str) -> str:
    """Return how a GPU's files are called."""
    return gpu.lower().replace(" ", "-")


def record_of_this_gpu() -> dict[str, Any]:
    """Return all sections of this GPU's file."""
    return recorded_in(_file(environment()))


def _file(about: Mapping[str, str]) -> Path:
    return RESULTS / f"{stem_of(about['gpu'])}.json"


def recorded_in(path: Path) -> dict[str, Any]:
    """Return what a file of records holds; nothing if there is none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


@contextmanager
def replaced(path: Path) -> Iterator[dict[str, Any]]:
    """Yield what a file of records holds, and replace the file by what became of that.

    Others that do so wait meanwhile: runs on several GPUs record at once. After an error the file
    is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        content = recorded_in(path)
        yield content
        temporary = path.with_suffix(".tmp")
        text = json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False)
        temporary.write_text(text + "\n", encoding="utf-8")
        os.replace(temporary, path)


def stamp(about: Mapping[str, str]) -> dict[str, Any]:
    """Return what is recorded of every run: its day, its sources and its environment."""
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "content": dict(content_hashes()),
        "environment": dict(about),
    }


def record(section: str, content: Mapping[str, Any], *, part: str = "") -> Path:
    """Replace a section of this GPU's file, or a part of it, and return the file's path."""
    found = environment()
    path = _file(found)
    with replaced(path) as sections:
        its = sections.setdefault(section, {}) if part else sections
        its[part or section] = {**stamp(found), **content}
    return path


def record_parts(
    section: str, contents: Mapping[str, Mapping[str, Any]], *, kept: Callable[[str], bool]
) -> Path:
    """Replace parts of a section, keep of the others those of which that is said."""
    about = environment()
    path = _file(about)
    with replaced(path) as sections:
        old = {name: its for name, its in sections.get(section, {}).items() if kept(name)}
        new = {name: {**stamp(about), **content} for name, content in contents.items()}
        sections[section] = old | new
    return path


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m tools.record", description=__doc__).parse_args()
    for folder, digest in content_hashes().items():
        print(digest, folder)
