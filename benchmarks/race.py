"""The race: the whole benchmark of ``python -m sparsegpu bench``, recorded.

``python -m benchmarks.race`` takes some minutes, most of them for peers, and replaces the section
"race" of this GPU's file in ``benchmarks/results``. ``--quick`` and ``--only`` run a part and
record nothing.
"""

from __future__ import annotations

import argparse
import sys

from sparsegpu.cli import bench
from tools.record import record


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; return 1 if a row is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.race", description=__doc__)
    bench.add_arguments(parser)
    chosen = vars(parser.parse_args(arguments))
    if not (chosen["quick"] or chosen["only"]):
        chosen["keep"] = lambda content: print("recorded in", record("race", content))
    return bench.run(**chosen)


if __name__ == "__main__":
    sys.exit(main())
