"""Ours beside the peers, in one run, recorded: ``python -m benchmarks.race``.

The cases, the peers and the way of measuring are `sparsegpu.benchmark`'s, the same that ``python -m
sparsegpu bench`` runs. A full run takes about four minutes and replaces the section "race" of this
GPU's file in ``benchmarks/results``; ``--quick`` and ``--only`` look at a part and record nothing.
"""

from __future__ import annotations

import argparse
import sys

from sparsegpu.cli import bench

from .record import record


def main(arguments: list[str] | None = None) -> int:
    """Run the race; return 1 when a row is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.race", description=__doc__)
    bench.add_arguments(parser)
    chosen = vars(parser.parse_args(arguments))
    if not (chosen["quick"] or chosen["only"]):
        chosen["keep"] = lambda content: print("recorded in", record("race", content))
    return bench.run(**chosen)


if __name__ == "__main__":
    sys.exit(main())
