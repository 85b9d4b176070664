"""A report as text, for the cache of kernels."""

from __future__ import annotations

import json
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

from .access import Formal, Report

_PLACES = ("reads", "writes", "escapes")


@cache
def version() -> str:
    """Return what tells one state of the analysis from another: the hash of its sources."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def to_text(report: Report) -> str:
    """Return everything that a report says."""
    fields = {name: list(getattr(report, name)) for name in _PLACES}
    return json.dumps(
        fields
        | {
            "formals": [(f.kind, f.size, f.type) for f in report.formals],
            "reads_all": report.reads_all,
            "opaque": report.opaque,
            "side_effects": list(report.side_effects),
            "because": list(report.because.items()),  # a name may be a number
        }
    )


def from_text(text: str) -> Report:
    """Return the report of which `to_text` made a text."""
    found = json.loads(text)
    return Report(
        formals=tuple(Formal(*each) for each in found["formals"]),
        **{name: frozenset(map(tuple, found[name])) for name in _PLACES},
        reads_all=found["reads_all"],
        opaque=found["opaque"],
        side_effects=frozenset(found["side_effects"]),
        because=MappingProxyType({name: tuple(lines) for name, lines in found["because"]}),
    )
