"""Reads compute-sanitizer's output: memory errors, API errors, races.

A report begins with a line ``========= Invalid __global__ read of size 4 bytes``; its details are
indented. The formats are those of the manual (docs.nvidia.com/compute-sanitizer, "Memcheck
Tool", "CUDA API Error Checking", "Racecheck Tool").
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

_REPORT = re.compile(r"^=+ (?! )(.+)$")
_DETAIL = re.compile(r"^=+ {2,}(\S.*)$")
_API_ERROR = re.compile(
    r"Program hit (\w+)(?: \(error \d+\))?(?: due to \"[^\"]*\")? on CUDA API call to (\w+)"
)
_RACE = re.compile(r"Race reported between (\w+) access at (.+)")
_OTHER_ACCESS = re.compile(r"and (\w+) access at (.+)")
_PLACE = re.compile(r"(.+?)\+0x[0-9a-f]+(?: in (\S+:\d+))?(?: \[[\d,]+ hazards?\])?\.?\s*$")
#: Other lines without an indent, which are no errors.
_NO_ERROR = re.compile(
    r"COMPUTE-SANITIZER|Warning:|.*Target application returned an error"
    r"|.*process didn't terminate successfully|.*were not printed"
)
#: Libraries find out what a driver can do by looking up functions that it may lack.
_LOOK_UP = "cuGetProcAddress"


@dataclass(frozen=True, slots=True, order=True)
class Access:
    """One side of a race: "Read" or "Write", by which function, at ``file:line`` if known."""

    kind: str
    function: str
    line: str

    def __str__(self) -> str:
        return f"{self.kind} in {self.function}" + (f" at {self.line}" if self.line else "")


@dataclass(frozen=True, slots=True, order=True)
class Race:
    """Two unordered accesses; equal to every other race of the same lines."""

    first: Access
    second: Access

    @property
    def of_cupy(self) -> bool:
        """Whether the race is in CuPy's kernels.

        The name of a function inlined into a kernel may be reported instead of the kernel's: only
        names like those of CuPy's kernels count.
        """
        functions = (self.first.function, self.second.function)
        return all(re.fullmatch(r"cupy_\w+", function) for function in functions)

    def __str__(self) -> str:
        return f"{self.first}, {self.second}"


@dataclass(slots=True)
class Findings:
    """The findings of a tool.

    Attributes
    ----------
    memory : Counter
        Out-of-bounds and misaligned accesses, leaks, and all else that is no API error.
    look_ups, calls : Counter
        API calls that failed, as "function: error": look-ups of symbols, and others.
    races : set of Race
    unexplained : int
        Errors that the summary counts but no report describes.
    summaries : list of str
        One per run.
    """

    memory: Counter[str] = field(default_factory=Counter)
    look_ups: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    races: set[Race] = field(default_factory=set)
    unexplained: int = 0
    summaries: list[str] = field(default_factory=list)

    @property
    def ours(self) -> list[str]:
        """Races in code that may be ours."""
        return [str(race) for race in sorted(self.races) if not race.of_cupy]

    @property
    def of_cupy(self) -> list[str]:
        """Races in CuPy's kernels."""
        return [str(race) for race in sorted(self.races) if race.of_cupy]

    @property
    def harmless(self) -> bool:
        """Whether all findings are look-ups and races in CuPy's kernels, and there are some."""
        return bool(self.look_ups or self.of_cupy) and not self.failures()

    def failures(self) -> list[str]:
        """Return the findings that fail a run, as text."""
        found = [f"{count} x {what}" for what, count in (self.memory + self.calls).items()]
        if self.unexplained:
            found.append(f"{self.unexplained} errors without a report")
        return found + [f"race: {race}" for race in self.ours]


def read(log: str) -> Findings:
    """Return the findings of one run of a tool."""
    found = Findings()
    lines = log.splitlines()
    for number, line in enumerate(lines):
        report = _REPORT.match(line)
        if report is None:
            continue
        details = _details(lines, number + 1)
        if api := _API_ERROR.search(" ".join([report[1], *details[:1]])):  # or two lines
            kind = found.look_ups if api[2].startswith(_LOOK_UP) else found.calls
            kind[f"{api[2]}: {api[1]}"] += 1
        elif race := _RACE.search(line):
            found.races |= _races(_access(*race.groups()), details)
        elif "SUMMARY" in line:
            found.summaries.append(report[1].strip())
        elif not _NO_ERROR.match(report[1]):
            found.memory[_described(report[1], details)] += 1
    if re.search(r"^=.*Race reported", log, re.MULTILINE) and not found.races:
        nowhere = Access("access", "a place that the log does not name in the usual way", "")
        found.races.add(Race(nowhere, nowhere))
    counted = re.search(r"ERROR SUMMARY: ([\d,]+) error", log)
    if counted:
        told = sum((found.memory + found.look_ups + found.calls).values())
        found.unexplained = max(int(counted[1].replace(",", "")) - told, 0)
    return found


def merged(findings: Iterable[Findings]) -> Findings:
    """Return the findings of several runs as one, with the last summary of each run."""
    whole = Findings()
    for one in findings:
        whole.memory += one.memory
        whole.look_ups += one.look_ups
        whole.calls += one.calls
        whole.races |= one.races
        whole.unexplained += one.unexplained
        whole.summaries += one.summaries[-1:]
    return whole


def total(summaries: list[str]) -> str:
    """Return the summaries of several runs as one, their numbers added."""
    summaries = [re.sub(r"(hazard|error|warning)\b", r"\1s", line) for line in summaries]
    if len({re.sub(r"\d+", "#", line) for line in summaries}) != 1:
        return "; ".join(summaries) or "no summary"
    sums = map(sum, zip(*([int(n) for n in re.findall(r"\d+", line)] for line in summaries)))
    return re.sub(r"\d+", lambda _: str(next(sums)), summaries[0])


def _details(lines: list[str], start: int) -> list[str]:
    """Return the indented lines of a report."""
    details = []
    for line in lines[start:]:
        detail = _DETAIL.match(line)
        if detail is None:
            break
        details.append(detail[1])
    return details


def _access(kind: str, place: str) -> Access:
    named = _PLACE.match(place)
    return Access(kind, named[1], named[2] or "") if named else Access(kind, place.strip(), "")


def _races(first: Access, details: list[str]) -> set[Race]:
    """Return the races of an access with the other ones of its report, or with itself."""
    others = [_access(*m.groups()) for line in details if (m := _OTHER_ACCESS.match(line))]
    return {Race(*sorted((first, other))) for other in others or [first]}


def _described(report: str, details: list[str]) -> str:
    """Return the kind of an error, and its place in a kernel if it has one."""
    place = details[0] if details and details[0].startswith("at ") else ""
    return re.sub(r"(?<!\+)\b0x[0-9a-f]+\b", "0x...", f"{report} {place}".strip())
