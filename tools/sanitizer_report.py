"""The section of compute-sanitizer in the record, part by part as it becomes known."""

from __future__ import annotations

import functools
import hashlib
import json
import re
import time
from dataclasses import dataclass, field
from typing import Any

from sparsegpu.engines.cuda.runtime.source import expand, source_names

from .record import is_of_these_sources, record, record_of_this_gpu

#: The part of kernels that ran under delays: for each barrier the cases in which warps passed it.
PASSED = "cases that pass each barrier"
#: The part of kernels for which delays are still to tell whether they see what racecheck did not.
REMOVALS = "removals under racecheck"
#: Parts of the record that are mappings by kernel, or by kernel and barrier.
_BY_KERNEL = (
    "sources",
    "whole under delays",
    PASSED,
    REMOVALS,
    "barriers",
    "without a barrier under delays",
    "not seen",
)


@functools.cache
def source_hash(kernel: str) -> str:
    """Return a hash of a kernel's source and of the headers that it includes."""
    return hashlib.sha256(expand(kernel).encode()).hexdigest()[:16]


def _is_of_source(kernel: str, digest: str) -> bool:
    return kernel in source_names() and source_hash(kernel) == digest


def _kernel_of(text: str) -> str:
    """Return the kernel with which a key or a failure begins; of others some other word."""
    return re.split(r"\W", text, maxsplit=1)[0]


@dataclass(slots=True)
class Report:
    """The recorded section, and the reasons for which the run fails."""

    kept: bool
    content: dict[str, Any] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    before: float = 0  # seconds of the runs that this one goes on with
    started: float = field(default_factory=time.perf_counter)

    @classmethod
    def resumed(cls) -> Report:
        """Return what an earlier run found that holds for these sources.

        All of it, if the library and the kernels are the same. Otherwise what it found about the
        kernels whose own sources are: the inspection is of all.
        """
        found = record_of_this_gpu().get("sanitizer", {})
        failures, seconds = found.get("failures", []), found.get("seconds", 0)
        content = {k: v for k, v in found.items() if k not in ("failures", "seconds")}
        if found and not is_of_these_sources(found):
            hashes = found.get("sources", {})
            same = {kernel for kernel, its in hashes.items() if _is_of_source(kernel, its)}
            failures = [failure for failure in failures if _kernel_of(failure) in same]
            content = {
                name: {
                    key: its for key, its in found.get(name, {}).items() if _kernel_of(key) in same
                }
                for name in _BY_KERNEL
            }
            seconds = 0
        return cls(kept=True, content=content, failures=failures, before=seconds)

    @property
    def seconds(self) -> float:
        """How long this run has taken so far."""
        return time.perf_counter() - self.started

    def failed(self, words: str) -> bool:
        """Return whether a failure begins with these words."""
        return any(failure.startswith(words) for failure in self.failures)

    def forget(self, kernel: str) -> None:
        """Take away what is needed only until everything about a kernel is known."""
        for name in (PASSED, REMOVALS):
            self.content.get(name, {}).pop(kernel, None)

    @property
    def inspected(self) -> bool:
        """Whether the inspection is known. A survey alone would replace more than it says."""
        return "same bits in both runs" in self.content

    def add(self, **parts: Any) -> None:
        """Add parts, print most of them, and record all parts so far, from the inspection on.

        A part that is a mapping by kernel is added to what is known of other kernels.
        """
        for name, part in parts.items():
            if name != PASSED:
                print(f"[{self.seconds:.0f} s] {name}: {json.dumps(part, indent=1)}", flush=True)
            if name in _BY_KERNEL:
                part = {**self.content.get(name, {}), **part}
            self.content[name] = part
        if self.kept and self.inspected:
            seconds = round(self.before + self.seconds)
            record("sanitizer", {**self.content, "failures": self.failures, "seconds": seconds})
