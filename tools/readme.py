"""Write the generated parts of the README and the docs: the support table and measured figures.

``python -m tools.readme`` rewrites them, ``--check`` fails when they are out of date, ``--plot``
draws the pictures (which needs matplotlib). Figures come from ``benchmarks/results`` or from
`benchmarks.pruning`, which computes them: none is typed by hand.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.pruning import accuracy_table, kept_table
from sparsegpu.benchmark.cases import SECTIONS, about
from sparsegpu.benchmark.plot import roofline
from sparsegpu.benchmark.report import summary, table_rows
from sparsegpu.engines.cuda.support import paths_page, support_table

from .parity import parity_tables
from .record import RESULTS, ROOT

_README = ROOT / "README.md"
_PERFORMANCE = ROOT / "docs" / "performance.md"
_MEASUREMENTS = ROOT / "docs" / "measurements.md"
_PATHS = ROOT / "docs" / "paths.md"
_SCIPY = ROOT / "docs" / "scipy.md"
_FORMATS = ROOT / "docs" / "formats.md"
_PRUNING = ROOT / "docs" / "pruning.md"
#: The part of the race that the README shows; the docs show all of it.
_README_SECTION = "main"
#: What the performance page asks, the section of the record that knows, the stem of the plot that
#: answers (docs/_ext/figures.py), and what to see in it.
_QUESTIONS = (
    (
        "What do blocks gain?",
        "main",
        "blocks",
        "bfloat16, 8192 x 8192 times 8192 columns, by the share of blocks that is stored. Above "
        "the line ours is faster.",
    ),
    (
        "What does attention gain from its mask?",
        "attention",
        "attention",
        "By the share of the scores that the mask stores, one point a mask. Left: the time of the "
        "fastest other library over ours. Middle: useful operations in a second. Right: the time "
        "of 64 heads of 4096 queries and keys, and of dense attention.",
    ),
    (
        "What does 2:4 gain?",
        "2:4",
        "two_four",
        "By the work of a product, one point a case. A value above 2 over the dense product is "
        "one whose dense product is slow for its dtype.",
    ),
    (
        "How fast are a few vectors?",
        "vectors",
        "vectors",
        "Small blocks at random places, times 1 to 8 vectors: how many bytes that must move are "
        "moved in a second. [Products with a few vectors](vectors.md) says what limits them.",
    ),
    (
        "How fast do solvers converge?",
        "solvers",
        "solvers",
        "Conjugate gradients on the demo's elasticity problem, float64, with multigrid and "
        "without, beside other libraries on the same matrix as CSR. What multigrid's set-up takes "
        "is not counted. [Solvers](solvers.md) says what an iteration is.",
    ),
)
_README_COLUMNS = ("case", "ours, ms", "ours", "bar", "verdict", "best peer", "x faster")


def generated() -> dict[Path, dict[str, str]]:
    """Return the text between each pair of markers of each file."""
    return {
        _README: {
            "support table": support_table().strip(),
            "figures": of_all_gpus(gpu_figures),
        },
        _PATHS: {"paths": paths_page()},
        _PERFORMANCE: {
            "path gains": of_all_gpus(path_figures),
            "race": of_all_gpus(race_figures),
        },
        _SCIPY: {"parity": parity_tables()},
        _MEASUREMENTS: {"rows": of_all_gpus(race_rows)},
        _FORMATS: {"formats": of_all_gpus(format_figures)},
        _PRUNING: {"kept": kept_table(), "accuracy": accuracy_table()},
    }


def of_all_gpus(figures: Callable[[dict[str, Any], str], list[str]]) -> str:
    """Return the paragraphs of all recorded GPUs as Markdown."""
    parts = [
        part
        for path in sorted(RESULTS.glob("*.json"))
        for part in figures(json.loads(path.read_text()), path.name)
    ]
    return "\n\n".join(parts) or "No GPU run is recorded yet."


def gpu_figures(sections: dict[str, Any], name: str) -> list[str]:
    """Return one GPU's paragraphs."""
    gpu = next(iter(sections.values()))["environment"]["gpu"]
    parts = [f"**{gpu}** (all from [`benchmarks/results/{name}`](benchmarks/results/{name}))"]
    tests = sections.get("tests")
    if tests:
        parts.append(suite_figures(tests))
    sanitizer = sections.get("sanitizer")
    if sanitizer:
        parts.append(sanitizer_figures(sanitizer))
    demo = sections.get("demo")
    if demo:
        parts.append("`demo`, conjugate gradients on an elasticity matrix:")
        parts.append(table(demo["elasticity"]))
        parts.append("`demo`, a trained network pruned:")
        parts.append(table(demo["digits"]))
    race = sections.get("race")
    if race:
        parts.append(
            "`python -m benchmarks.race`, every row checked against float64 in the same run "
            f"({summary(race['rows'])}; all rows in [docs/measurements.md](docs/measurements.md)), "
            f"{about(_README_SECTION)}:"
        )
        lines = table_rows([r for r in race["rows"] if r["section"] == _README_SECTION])
        parts.append(table([{key: line[key] for key in _README_COLUMNS} for line in lines]))
    return parts


def suite_figures(tests: dict[str, Any]) -> str:
    """Return the counts of the test suite, and what its record holds of what was left out."""
    options = f" (`pytest {' '.join(tests['options'])}`)" if "options" in tests else ""
    counts = [f"{tests[how]} {how}" for how in ("passed", "failed", "skipped")]
    if tests.get("skips"):
        counts[-1] += f" (for {len(tests['skips'])} reasons, in the file)"
    if "deselected" in tests:
        counts.append(f"{sum(tests['deselected'].values())} deselected")
    return f"Test suite on the GPU{options}: {', '.join(counts)}."


def race_figures(sections: dict[str, Any], name: str) -> list[str]:
    """Return one GPU's race: when it ran, a plot for each question, and the roofline."""
    race = sections.get("race")
    if not race:
        return []
    found = race["environment"]
    stem = name.removesuffix(".json")
    named = {key: key for key in ("driver", "cuda_runtime", "cupy")} | {"cusparselt": "cuSPARSELt"}
    versions = ", ".join(f"{name} {found[key]}" for key, name in named.items() if key in found)
    parts = [
        f"## {found['gpu']}",
        f"Run of {race['date']}, {race['seconds']:.0f} s ({versions}); copy bandwidth "
        f"{race['copy GB/s'] / 1e3:.2f} TB/s; {summary(race['rows'])}.",
    ]
    recorded = {row["section"] for row in race["rows"]}
    for question, _, plot, said in (q for q in _QUESTIONS if q[1] in recorded):
        parts += [f"### {question}", f"![{question}](generated/{plot}-{stem}.svg)", said]
    parts += [
        "### How near is that to what the chip can do?",
        f"![Roofline of the bfloat16 products](_static/roofline-{stem}.png)",
        "What to see: a product is limited by the sloping roof (memory) on the left and by the "
        "flat one (arithmetic) on the right. Large blocks come near; small ones are limited by "
        "what they read again from L2, of which this roofline knows nothing "
        "([the Hopper product](hopper.md)).",
    ]
    profile = sections.get("profile")
    if profile:
        parts += [
            "### profile",
            f"How busy the chip was while `{profile['kernel']}` ran alone under Nsight Compute "
            "(`python -m benchmarks.profile`).",
            table(profile["rows"]),
        ]
    return parts


def race_rows(sections: dict[str, Any], name: str) -> list[str]:
    """Return one GPU's race in one table, after what its sections are."""
    race = sections.get("race")
    if not race:
        return []
    held = {row["section"] for row in race["rows"]}
    present = [section for section in SECTIONS if section in held]
    explained = [{"section": section, "what": about(section)} for section in present]
    lines = [
        {"section": section} | line
        for section in present
        for line in table_rows([row for row in race["rows"] if row["section"] == section])
    ]
    return [f"## {race['environment']['gpu']}", table(explained), table(lines)]


def path_figures(sections: dict[str, Any], name: str) -> list[str]:
    """Return what each path of one GPU gains over the next one."""
    paths = sections.get("paths")
    if not paths:
        return []
    lines = [
        {
            "path": f"`{row['path']}`",
            "next": f"`{row['next']}`",
            "case": row["case"],
            "ms": row["ms"],
            "next, ms": row["next, ms"],
            "times as fast": f"{row['next, ms'] / row['ms']:.2f}",
        }
        for row in sorted(paths["rows"], key=lambda row: (row["path"], row["next"]))
    ]
    return [f"{paths['environment']['gpu']}, run of {paths['date']}:", table(lines)]


def format_figures(sections: dict[str, Any], _: str) -> list[str]:
    """Return one GPU's times of 2:4 conversions beside the time to copy as many bytes."""
    race = sections.get("race", {"rows": []})
    rows = [row for row in race["rows"] if row["section"] == "2:4 formats"]
    if not rows:
        return []
    found = race["environment"]["gpu"]
    lines = [
        {
            "case": row["case"],
            "moved, MB": f"{row['bytes'] / 1e6:.0f}",
            "floor, ms": row["bytes"] / race["copy GB/s"] / 1e6,
            "measured, ms": row["ms"],
        }
        for row in rows
    ]
    copy = (
        f"the floor is at the {race['copy GB/s'] / 1e3:.2f} TB/s of a device copy in the same run"
    )
    return [f"{found}; {copy}:", table(lines)]


def sanitizer_figures(sanitizer: dict[str, Any]) -> str:
    """Return the findings of the sanitizer harness as a paragraph."""
    parts = [
        f"compute-sanitizer over every kernel: memcheck {memcheck_figures(sanitizer['memcheck'])}",
        f"races in our kernels: {len(sanitizer['racecheck']['races in our kernels'])}",
    ]
    if "barriers" in sanitizer:
        by = Counter(by for found in sanitizer["barriers"].values() for by in found.values())
        kinds = ", ".join(f"{kind} {by[kind]}" for kind in ("racecheck", "results", "delays"))
        seen = by.total() - by["not seen"]
        parts.append(f"planted races (a barrier removed) seen: {seen} of {by.total()} ({kinds})")
    if "whole under delays" in sanitizer:
        count = len(sanitizer["whole under delays"])
        parts.append(f"unmodified kernels run under random delays: {count}")
    if sanitizer.get("failures"):
        parts.append(f"findings that fail the run: {len(sanitizer['failures'])}")
    return "; ".join(parts) + "."


def memcheck_figures(memcheck: dict[str, Any]) -> str:
    """Return the number of memcheck's errors by kind."""
    accesses, calls = (sum(memcheck[kind].values()) for kind in ("memory errors", "API errors"))
    look_ups = sum(memcheck["look-ups of symbols that the driver lacks"].values())
    return (
        f"{accesses} memory errors, {calls} errors of API calls"
        f" ({look_ups} look-ups of symbols that the driver lacks left out)"
    )


def table(rows: list[dict[str, Any]]) -> str:
    """Return rows as a Markdown table; its columns are all their keys."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    lines = [f"| {' | '.join(keys)} |", f"|{'---|' * len(keys)}"]
    lines += [f"| {' | '.join(cell(row.get(key, '')) for key in keys)} |" for row in rows]
    return "\n".join(lines)


def cell(value: Any) -> str:
    """Return a table cell; floats to three significant digits."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def filled(text: str, contents: dict[str, str], name: str) -> str:
    """Return a file's text with its generated parts replaced."""
    for part, content in contents.items():
        pattern = rf"(<!-- {part}: [^\n]*-->\n).*?(<!-- end of {part} -->)"
        text, count = re.subn(
            pattern, lambda m, c=content: f"{m[1]}{c}\n{m[2]}", text, flags=re.DOTALL
        )
        if count != 1:
            raise ValueError(f"{name}: expected one pair of markers for '{part}', got {count}")
    return text


def draw() -> None:
    """Draw the roofline of every GPU whose race is recorded."""
    for path in sorted(RESULTS.glob("*.json")):
        race = json.loads(path.read_text()).get("race")
        if race:
            target = ROOT / "docs" / "_static" / f"roofline-{path.stem}.png"
            target.parent.mkdir(exist_ok=True)
            roofline(race, f"bfloat16 block-sparse products, {race['environment']['gpu']}", target)
            print(target.relative_to(ROOT))


def main(arguments: list[str]) -> int:
    """Write, or with ``--check`` compare, or ``--plot``; return the exit status."""
    if arguments == ["--plot"]:
        draw()
        return 0
    status = 0
    for path, contents in generated().items():
        old = path.read_text(encoding="utf-8")
        new = filled(old, contents, path.name)
        if arguments != ["--check"]:
            path.write_text(new, encoding="utf-8")
        elif new != old:
            print(f"{path.name} is out of date: run python -m tools.readme")
            status = 1
    return status


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tools.readme", description=__doc__)
    what = parser.add_mutually_exclusive_group()
    for option in ("--check", "--plot"):
        what.add_argument(option, dest="chosen", action="append_const", const=option)
    sys.exit(main(parser.parse_args().chosen or []))
