"""The section of compute-sanitizer in the record, part by part as it becomes known."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

from .record import is_of_these_sources, record, record_of_this_gpu

#: Parts of the record that are mappings by kernel, or by kernel and barrier.
_BY_KERNEL = ("whole under delays", "barriers", "without a barrier under delays", "not seen")


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
        """Return the report of an earlier run with these sources, or an empty one."""
        found = record_of_this_gpu().get("sanitizer")
        if not found or not is_of_these_sources(found):
            return cls(kept=True)
        content = {k: v for k, v in found.items() if k not in ("failures", "seconds")}
        return cls(kept=True, content=content, failures=found["failures"], before=found["seconds"])

    @property
    def seconds(self) -> float:
        """How long this run has taken so far."""
        return time.perf_counter() - self.started

    @property
    def inspected(self) -> bool:
        """Whether the inspection is known. A survey alone would replace more than it says."""
        return "same bits in both runs" in self.content

    def add(self, **parts: Any) -> None:
        """Add parts, print them, and record all parts so far, from the inspection on.

        A part that is a mapping by kernel is added to what is known of other kernels.
        """
        for name, part in parts.items():
            print(f"[{self.seconds:.0f} s] {name}: {json.dumps(part, indent=1)}", flush=True)
            if name in _BY_KERNEL:
                part = {**self.content.get(name, {}), **part}
            self.content[name] = part
        if self.kept and self.inspected:
            seconds = round(self.before + self.seconds)
            record("sanitizer", {**self.content, "failures": self.failures, "seconds": seconds})
