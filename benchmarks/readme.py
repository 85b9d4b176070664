"""Write the generated parts of the README: the support table and the measured figures.

``python -m benchmarks.readme`` rewrites them, ``--check`` fails when they are out of date. Figures
come from ``benchmarks/results`` alone, so nobody types one by hand.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from sparsegpu._support import support_table

from .record import RESULTS, ROOT

_README = ROOT / "README.md"


def generated() -> dict[str, str]:
    """Return the text that belongs between each pair of markers."""
    return {"support table": support_table().strip(), "figures": figures()}


def figures() -> str:
    """Return the tables of all recorded GPUs as Markdown."""
    parts = [
        part
        for path in sorted(RESULTS.glob("*.json"))
        for part in gpu_figures(json.loads(path.read_text()), path.name)
    ]
    return "\n\n".join(parts) or "No GPU run is recorded yet."


def gpu_figures(sections: dict[str, Any], name: str) -> list[str]:
    """Return one GPU's paragraphs."""
    gpu = next(iter(sections.values()))["environment"]["gpu"]
    parts = [f"**{gpu}** (all from [`benchmarks/results/{name}`](benchmarks/results/{name}))"]
    tests = sections.get("tests")
    if tests:
        parts.append(
            f"Test suite on the GPU: {tests['passed']} passed, {tests['failed']} failed, "
            f"{tests['skipped']} skipped."
        )
    sanitizer = sections.get("sanitizer")
    if sanitizer:
        planted = [v["barriers"] for k, v in sections.items() if k.startswith("races planted")]
        seen = sum(set(barriers.values()) != {"not seen"} for barriers in planted)
        memcheck = sanitizer["memcheck"]["summary"][0].strip("= ")
        races = len(sanitizer["racecheck"]["races in our kernels"])
        parts.append(
            f"compute-sanitizer over every kernel: memcheck `{memcheck}`; races in our kernels: "
            f"{races}; planted races (a barrier removed) seen in {seen} of the {len(planted)} "
            "kernels with barriers."
        )
    demo = sections.get("demo")
    if demo:
        parts.append("`demo`, conjugate gradients on an elasticity matrix:")
        parts.append(table(demo["elasticity"]))
        parts.append("`demo`, a trained network pruned:")
        parts.append(table(demo["digits"]))
    race = sections.get("race")
    if race:
        parts.append(
            "`python -m benchmarks.race`, every row checked against float64 in the same run:"
        )
        parts.append(table(race["rows"]))
    return parts


def table(rows: list[dict[str, Any]]) -> str:
    """Return rows as a Markdown table over the union of their keys."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    lines = [f"| {' | '.join(keys)} |", f"|{'---|' * len(keys)}"]
    lines += [f"| {' | '.join(cell(row.get(key, '')) for key in keys)} |" for row in rows]
    return "\n".join(lines)


def cell(value: Any) -> str:
    """Return a table cell; floats to three significant digits."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def filled(text: str) -> str:
    """Return the README's text with its generated parts replaced."""
    for name, content in generated().items():
        pattern = rf"(<!-- {name}: [^\n]*-->\n).*?(<!-- end of {name} -->)"
        text, count = re.subn(
            pattern, lambda m, c=content: f"{m[1]}{c}\n{m[2]}", text, flags=re.DOTALL
        )
        if count != 1:
            raise ValueError(
                f"{_README.name}: expected one pair of markers for '{name}', got {count}"
            )
    return text


def main(arguments: list[str]) -> int:
    """Write, or with ``--check`` compare; return the exit status."""
    old = _README.read_text(encoding="utf-8")
    new = filled(old)
    if arguments == ["--check"]:
        if new != old:
            print("README.md is out of date: run python -m benchmarks.readme")
        return int(new != old)
    _README.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
