"""Write the generated parts of the README and the docs: the support table and measured figures.

``python -m tools.readme`` rewrites them, ``--check`` fails when they are out of date.
Figures come from ``benchmarks/results`` or from `benchmarks.pruning`, which computes them: none is
typed by hand.
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
from sparsegpu.benchmark.report import summary, table_rows
from sparsegpu.engines.cuda.support import paths_page, support_table

from .parity import parity_tables
from .record import RESULTS, ROOT, is_of_these_sources
from .shortfalls import shortfalls
from .suite_figures import failures, is_of_these, suite_figures

_README = ROOT / "README.md"
_PERFORMANCE = ROOT / "docs" / "performance.md"
_MEASUREMENTS = ROOT / "docs" / "measurements.md"
_PATHS = ROOT / "docs" / "paths.md"
_SCIPY = ROOT / "docs" / "scipy.md"
_FORMATS = ROOT / "docs" / "formats.md"
_PRUNING = ROOT / "docs" / "pruning.md"
#: The part of the race that the README shows; the docs show all of it.
_README_SECTION = "main"
#: What says what a row is about: the demo's and the profile's.
_NAMES = ("case", "layers", "product", "product and solver")
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
        "of 64 heads of 4096 queries and keys with 128 features, and of dense attention.",
    ),
    (
        "What does 2:4 gain?",
        "2:4",
        "two_four",
        "One point a case, by the number of useful operations of its product. Sparse tensor cores "
        "do twice as much as dense ones at most: where more is gained, the dense product is slow "
        "for its dtype.",
    ),
    (
        "How fast are a few vectors?",
        "vectors",
        "vectors",
        "Small blocks at random places, times 1 to 8 vectors: values, indices, vectors and result, "
        "each counted once, over the time. [Products with a few vectors](vectors.md) says what "
        "limits them.",
    ),
    (
        "How fast do solvers converge?",
        "solvers",
        "solvers",
        "Conjugate gradients on the beam of [Solvers](solvers.md), float64, with multigrid and "
        "without, beside other libraries on the same matrix as CSR. The three without it "
        "make the same iterations: on the left they lie on one another. What multigrid's set-up "
        "takes is not counted.",
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
    """Return the paragraphs of all recorded GPUs as Markdown.

    First come those where fewest tests failed; of these, those that ran with these sources.
    """
    recorded = {path.name: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    suites = {name: sections.get("tests", {}) for name, sections in recorded.items()}
    rank = {name: (failures(its), not is_of_these(its)) for name, its in suites.items()}
    order = sorted(recorded, key=rank.__getitem__)
    parts = [part for name in order for part in figures(recorded[name], name)]
    return "\n\n".join(parts) or "No GPU run is recorded yet."


def gpu_figures(sections: dict[str, Any], name: str) -> list[str]:
    """Return one GPU's paragraphs."""
    file = f"[`benchmarks/results/{name}`](benchmarks/results/{name})"
    parts = [f"**{gpu_of(sections)}** (all from {file})"]
    tests = sections.get("tests")
    if tests:
        parts.append(suite_figures(tests))
    sanitizer = sections.get("sanitizer")
    if sanitizer:
        parts.append(sanitizer_figures(sanitizer))
    demo = sections.get("demo")
    if demo:
        parts.append(f"`demo`, conjugate gradients on an elasticity matrix; {state(demo)}:")
        parts.append(table(named_first(demo["elasticity"])))
        parts.append(
            "`demo`, a trained network pruned. Logit error: the norm of the difference from the "
            "dense network's logits over the norm of these. Stored: the share of the weights; "
            f"{state(demo)}:"
        )
        parts.append(table(named_first(demo["digits"])))
    race = sections.get("race", {})
    if _README_SECTION in race:
        shown = race[_README_SECTION]
        parts.append(
            "`python -m benchmarks.race`, every row checked against float64 in the same run "
            f"({verdicts(race)}; all rows in [docs/measurements.md](docs/measurements.md)). "
            f"{about(_README_SECTION)}; {state(shown)}:"
        )
        lines = table_rows(shown["rows"])
        parts.append(table([{key: line[key] for key in _README_COLUMNS} for line in lines]))
    return parts


def state(recorded: dict[str, Any]) -> str:
    """Return when something was measured, and whether the sources have changed since."""
    return f"{recorded['date']}, {sources(recorded)} sources"


def sources(recorded: dict[str, Any]) -> str:
    """Return whether something was measured with these sources or with earlier ones."""
    return "these" if is_of_these_sources(recorded) else "earlier"


def verdicts(race: dict[str, Any]) -> str:
    """Return the verdicts on all rows of a race, and how many sections are of earlier sources."""
    earlier = sum(sources(part) == "earlier" for part in race.values())
    of_earlier = f"; {earlier} of {len(race)} sections are of earlier sources" if earlier else ""
    return summary(all_rows(race)) + of_earlier


def all_rows(race: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of all sections of a race, in the order of the sections."""
    return [row for section in SECTIONS if section in race for row in race[section]["rows"]]


def race_figures(sections: dict[str, Any], name: str) -> list[str]:
    """Return one GPU's race: its verdicts, a plot for each question, and the roofline."""
    race = sections.get("race")
    if not race:
        return []
    stem = name.removesuffix(".json")
    parts = [
        f"## {gpu_of(race)}",
        f"{verdicts(race)}. [The table of sections](measurements.md) says when each was measured "
        "and with which libraries.",
    ]
    for question, section, plot, said in (q for q in _QUESTIONS if q[1] in race):
        picture = f"![{question}](generated/{plot}-{stem}.svg)"
        parts += [f"### {question}", picture, f"{said} Measured: {state(race[section])}."]
    if "main" in race:
        parts += [
            "### How near is that to what the chip can do?",
            f"![Roofline of the bfloat16 products](generated/roofline-{stem}.png)",
            "What to see: a product is limited by the sloping roof (memory) on the left and by the "
            "flat one (arithmetic) on the right. Large blocks come near; small ones are limited by "
            "what they read again from L2, of which this roofline knows nothing "
            f"([the Hopper product](hopper.md)). Measured: {state(race['main'])}.",
        ]
    if short := shortfalls(all_rows(race), gpu_of(race)):
        parts += ["### Which rows miss a bar, and why?", table(short)]
    profile = sections.get("profile")
    if profile:
        parts += [
            "### How busy is the chip?",
            f"How busy the chip was while `{profile['kernel']}` ran alone under Nsight Compute "
            f"(`python -m benchmarks.profile`; {state(profile)}).",
            table(named_first(profile["rows"])),
        ]
    return parts


def race_rows(sections: dict[str, Any], name: str) -> list[str]:
    """Return one GPU's race in one table, after what its sections are and when they were run."""
    race = sections.get("race")
    if not race:
        return []
    explained = [
        {
            "section": section,
            "what": about(section),
            "measured": race[section]["date"],
            "sources": sources(race[section]),
            "s": race[section].get("seconds", ""),
            "copy, TB/s": race[section]["copy GB/s"] / 1e3,
            "with": versions(race[section]["environment"]),
        }
        for section in SECTIONS
        if section in race
    ]
    rows = all_rows(race)
    lines = [
        {"section": row["section"]} | line for row, line in zip(rows, table_rows(rows), strict=True)
    ]
    return [f"## {gpu_of(race)}", table(explained), table(lines)]


def gpu_of(recorded: dict[str, Any]) -> str:
    """Return the GPU that everything in a file, or in its race, was recorded on."""
    while "environment" not in recorded:
        recorded = next(iter(recorded.values()))
    gpu: str = recorded["environment"]["gpu"]
    return gpu


def versions(environment: dict[str, str]) -> str:
    """Return the versions of what a race depends on besides our sources."""
    named = {"driver": "driver for CUDA", "cuda_runtime": "CUDA runtime", "cupy": "CuPy"}
    named["cusparselt"] = "cuSPARSELt"
    shown = dict(environment)
    for key in ("driver", "cuda_runtime"):  # 13020 is CUDA 13.2
        major, rest = divmod(int(shown[key]), 1000)
        shown[key] = f"{major}.{rest // 10}"
    return ", ".join(f"{named[key]} {shown[key]}" for key in named if key in shown)


def path_figures(sections: dict[str, Any], name: str) -> list[str]:
    """Return what each path of one GPU gains over the next one."""
    paths = sections.get("paths")
    if not paths:
        return []
    rows = [row for part in paths.values() for row in part["rows"]]
    lines = [
        {
            "path": f"`{row['path']}`",
            "next": f"`{row['next']}`",
            "case": row["case"],
            "ms": row["ms"],
            "next, ms": row["next, ms"],
            "times as fast": f"{row['next, ms'] / row['ms']:.2f}",
        }
        for row in sorted(rows, key=lambda row: (row["path"], row["next"], row["case"]))
    ]
    states = ", ".join(sorted({state(part) for part in paths.values()}))
    return [f"{gpu_of(paths)}; {states}:", table(lines)]


def format_figures(sections: dict[str, Any], _: str) -> list[str]:
    """Return one GPU's times of 2:4 conversions beside the time to copy as many bytes."""
    part = sections.get("race", {}).get("2:4 formats")
    if not part:
        return []
    lines = [
        {
            "case": row["case"],
            "moved, MB": f"{row['bytes'] / 1e6:.0f}",
            "floor, ms": row["bytes"] / part["copy GB/s"] / 1e6,
            "measured, ms": row["ms"],
        }
        for row in part["rows"]
        if row["measure"] == "device"
    ]
    copy = (
        f"the floor is at the {part['copy GB/s'] / 1e3:.2f} TB/s of a device copy in the same run"
    )
    return [f"{part['environment']['gpu']}; {state(part)}; {copy}:", table(lines)]


def sanitizer_figures(sanitizer: dict[str, Any]) -> str:
    """Return the findings of the sanitizer harness as a paragraph."""
    parts = [
        f"compute-sanitizer over every kernel: memcheck {memcheck_figures(sanitizer['memcheck'])}",
        f"races in our kernels: {len(sanitizer['racecheck']['races in our kernels'])}",
    ]
    if known := sanitizer.get("barriers", {}):
        by = Counter(by for found in known.values() for by in found.values())
        kinds = ", ".join(f"{kind} {by[kind]}" for kind in ("racecheck", "results", "delays"))
        seen = by.total() - by["not seen"]
        parts.append(f"planted races (a barrier removed) seen: {seen} of {by.total()} ({kinds})")
    if delayed := sanitizer.get("whole under delays", {}):
        parts.append(f"unmodified kernels run under random delays: {len(delayed)}")
    # earlier runs that were ended early have no list
    if left := sanitizer.get("not yet looked at", delayed.keys() - known.keys()):
        parts.append(f"kernels left to another run: {len(left)}")
    if sanitizer.get("failures"):
        parts.append(f"findings that fail the run: {len(sanitizer['failures'])} (in the file)")
    return "; ".join([*parts, state(sanitizer)]) + "."


def memcheck_figures(memcheck: dict[str, Any]) -> str:
    """Return the number of memcheck's errors by kind."""
    accesses, calls = (sum(memcheck[kind].values()) for kind in ("memory errors", "API errors"))
    look_ups = sum(memcheck["look-ups of symbols that the driver lacks"].values())
    return (
        f"{accesses} memory errors, {calls} errors of API calls"
        f" ({look_ups} look-ups of symbols that the driver lacks left out)"
    )


def named_first(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of a record, whose keys are sorted, with what they are about in front."""
    order = sorted(rows[0], key=lambda key: key not in _NAMES)
    return [{key: row[key] for key in order if key in row} for row in rows]


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


def main(arguments: list[str]) -> int:
    """Write, or with ``--check`` compare; return the exit status."""
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
    parser.add_argument("--check", dest="chosen", action="append_const", const="--check")
    sys.exit(main(parser.parse_args().chosen or []))
