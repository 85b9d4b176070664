"""What of a GPU's evidence is recorded of these sources, what is not, and how long that takes."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Hashable, Mapping
from typing import Any, TypeVar

from benchmarks import paths
from sparsegpu.benchmark.cases import SECTIONS
from sparsegpu.benchmark.report import WRONG

from . import gallery
from .gpus import CORES_A_GPU
from .record import RESULTS, ROOT, is_of_these_sources, recorded_in, stem_of

#: The parts that have all GPUs, one after the other; then those that measure, each on one GPU.
ON_ALL = ("doctor", "suite", "sanitizer", "fuzz", "fuzz_cpu")
ON_ONE = ("race", "paths", "profile", "demo", "gallery")
PARTS = ON_ALL + ON_ONE

_SECTION = {"suite": "tests"}  # of the record, where it is not called as the part
#: Folders that a part depends on besides the library and its kernels.
_FOLDERS = {"suite": ("tests",), "paths": ("benchmarks",), "profile": ("benchmarks",)}
#: Seconds of an entry that was never recorded; of those that have all GPUs, of one GPU's; of the
#: suite those of one worker.
_SECONDS = {"doctor": 20.0, "suite": 90.0, "sanitizer": 900.0, "fuzz": 60.0, "fuzz_cpu": 40.0}
_SECONDS |= {"race": 20.0, "profile": 60.0, "demo": 40.0, "gallery": 20.0}
_A_CASE_OF_PATHS = 5.0
#: What a part needs: programs, and modules of Python.
_PROGRAMS = {"sanitizer": ("compute-sanitizer",), "profile": ("ncu",)}
_MODULES = {"suite": ("pytest", "xdist", "hypothesis"), "gallery": ("matplotlib", "PIL")}
_MODULES |= {"fuzz": ("hypothesis",), "fuzz_cpu": ("hypothesis",)}

#: What was recorded of a GPU: the sections of its file, and the gallery.
Evidence = Mapping[str, Any]
Name = TypeVar("Name", bound=Hashable)


def evidence_of(gpu: str) -> Evidence:
    """Return what was recorded of a GPU."""
    file = f"{stem_of(gpu)}.json"
    return recorded_in(RESULTS / file) | {"gallery": recorded_in(gallery.FOLDER / file)}


def entries(part: str) -> dict[str, float]:
    """Return what a part records by itself, in its order, with the seconds where none is known."""
    if part == "paths":
        return {name: _A_CASE_OF_PATHS * len(cases) for name, cases in paths.sections().items()}
    names = {"suite": test_files(), "race": SECTIONS, "gallery": gallery.pages()}.get(part, (part,))
    return dict.fromkeys(names, _SECONDS[part])


def test_files() -> list[str]:
    """Return the files of tests, as pytest names them."""
    found = (ROOT / "tests").rglob("test_*.py")
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def found(part: str, entry: str, evidence: Evidence) -> Mapping[str, Any]:
    """Return what was recorded of an entry of a part."""
    section: Mapping[str, Any] = evidence.get(_SECTION.get(part, part), {})
    return section if entry == part else section.get(entry, {})


def is_current(part: str, entry: str, evidence: Evidence) -> bool:
    """Return whether an entry was recorded with these sources, whole and without a failure."""
    it = found(part, entry, evidence)
    if not it or not is_of_these_sources(it, *_FOLDERS.get(part, ())):
        return False
    if part == "suite":
        return it["failed"] + it["error"] == 0
    if part == "sanitizer":
        return it.get("not yet looked at") == [] and not it["failures"]
    if part == "gallery":
        return gallery.is_of_this_page(it, entry)
    wrong = any(row["verdict"] == WRONG for row in it["rows"]) if part == "race" else False
    return not wrong and not it.get("failures")


def expected(part: str, evidence: Evidence, *, gpus: int = 1) -> dict[str, float]:
    """Return the entries of a part and the seconds that they took last, with whatever sources.

    Files of tests are shared out among workers. Those that were never recorded or that failed come
    first, then those that take long: what takes little fills the end.
    """
    if part == "suite":
        its = {file: found(part, file, evidence) for file in entries(part)}
        workers = CORES_A_GPU * gpus
        last = {file: it.get("seconds", _SECONDS[part]) / workers for file, it in its.items()}
        well = {file: it.get("failed", 1) + it.get("error", 1) == 0 for file, it in its.items()}
        return {file: last[file] for file in sorted(last, key=lambda f: (well[f], -last[f]))}
    seconds = {}
    for entry, unknown in entries(part).items():
        it = found(part, entry, evidence)
        whole = part != "sanitizer" or it.get("not yet looked at") == []
        known = it.get("seconds") if whole else None
        seconds[entry] = known or (unknown / gpus if part in ON_ALL else unknown)
    return seconds


def left(part: str, evidence: Evidence) -> list[str]:
    """Return the entries of a part that are not current."""
    return [entry for entry in entries(part) if not is_current(part, entry, evidence)]


def needed(part: str) -> list[str]:
    """Return the programs and modules that a part needs and that are not here."""
    programs, modules = _PROGRAMS.get(part, ()), _MODULES.get(part, ())
    return [name for name in programs if shutil.which(name) is None] + [
        name for name in modules if importlib.util.find_spec(name) is None
    ]


def shared_out(seconds: Mapping[Name, float], count: int) -> list[list[Name]]:
    """Return names in shares that take about the same time: long ones first, to who has least.

    Each share is in the order of the names.
    """
    shares: list[list[Name]] = [[] for _ in range(count)]
    for name in sorted(seconds, key=seconds.__getitem__, reverse=True):
        min(shares, key=lambda share: sum(map(seconds.__getitem__, share))).append(name)
    order = {name: number for number, name in enumerate(seconds)}
    return [sorted(share, key=order.__getitem__) for share in shares]
