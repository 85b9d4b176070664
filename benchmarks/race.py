"""The race: the benchmark of ``python -m sparsegpu bench``, recorded.

``python -m benchmarks.race`` takes some minutes, most of them for peers. Each section is recorded
as soon as its last case is measured: in "race" of this GPU's file in ``benchmarks/results`` it
replaces that section and leaves the others as they are. So ``--only`` records some sections, and a
run that ends early, by ``--limit`` or by losing the GPU, records those that it finished. A section
needs nothing of another's record: the rate of another case that a bar refers to is measured
alternately with the row itself, and a case whose peers' times are used for a row is measured again.

``--quick`` and ``--no-peers`` record nothing.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from sparsegpu.cli import bench
from tools.record import record


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; return 1 if a row is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.race", description=__doc__)
    bench.add_arguments(parser)
    parser.add_argument("--no-peers", action="store_true", help="time our own calls only (GPU)")
    chosen = vars(parser.parse_args(arguments))
    if chosen.pop("no_peers"):
        chosen["peers"] = ()
    elif not chosen["quick"]:
        chosen["finished"] = keep
    return bench.run(**chosen)


def keep(section: str, content: dict[str, Any]) -> None:
    """Record a section."""
    print(f"{section}: recorded in {record('race', content, part=section)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
