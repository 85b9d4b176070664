"""The race: the benchmark of ``python -m sparsegpu bench``, recorded.

``python -m benchmarks.race`` takes some minutes, most of them for peers. Each section is recorded
as soon as its last case is measured: in "race" of this GPU's file in ``benchmarks/results`` it
replaces that section and leaves the others as they are. So ``--only`` records some sections, and a
run that ends early, by ``--limit`` (exit status 1) or by losing the GPU, records those that it
finished. A section needs nothing of another's record: the rate of another case that a bar refers to
is measured alternately with the row itself, and a case whose peers' times are used for a row is
measured again.

``--quick`` and ``--no-peers`` record nothing.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from sparsegpu.benchmark.cases import SECTIONS
from sparsegpu.cli import bench
from tools.record import record


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; return 1 if a row is wrong, or if the limit left a section to record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.race", description=__doc__)
    bench.add_arguments(parser)
    parser.add_argument("--no-peers", action="store_true", help="time our own calls only (GPU)")
    chosen = vars(parser.parse_args(arguments))
    left: list[str] = []

    def keep(section: str, content: dict[str, Any]) -> None:
        print(f"{section}: recorded in {record('race', content, part=section)}", flush=True)
        left.remove(section)

    if chosen.pop("no_peers"):
        chosen["peers"] = ()
    elif not chosen["quick"]:
        left += dict.fromkeys(chosen["only"] or SECTIONS)
        chosen["finished"] = keep
    status = bench.run(**chosen)
    if left:
        print(f"not recorded: {', '.join(left)}")
    return status or int(bool(left))


if __name__ == "__main__":
    sys.exit(main())
