"""``python -m sparsegpu``: doctor, demo, bench and tune."""

from __future__ import annotations

import argparse
import sys

from ._version import __version__


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m sparsegpu",
        description="Block-sparse (BSR) and 2:4 linear algebra for CuPy and NumPy.",
    )
    parser.add_argument("--version", action="version", version=f"sparsegpu {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor", help="say what was found and whether the GPU path can work")
    demo = commands.add_parser("demo", help="solve a real problem and prune a real network")
    demo.add_argument("--size", choices=("small", "full"), default="full")
    demo.add_argument(
        "--device",
        choices=("auto", "cpu", "gpu"),
        default="auto",
        help="auto: the GPU if there is one, else NumPy",
    )
    from .cli import bench, tune
    from .cli.arguments import new_file

    demo.add_argument("--json", metavar="FILE", type=new_file, help="write the table as JSON too")
    bench.add_arguments(commands.add_parser("bench", help="our kernels beside cuBLAS and peers"))
    tune.add_arguments(commands.add_parser("tune", help="measure configurations, keep the best"))
    chosen = parser.parse_args(arguments)
    if chosen.command == "doctor":
        from .cli.doctor import run

        return run()
    if chosen.command == "bench":
        return bench.run(**{k: v for k, v in vars(chosen).items() if k != "command"})
    if chosen.command == "tune":
        return tune.run(**{k: v for k, v in vars(chosen).items() if k != "command"})
    from .cli.demo import run as run_demo

    return run_demo(size=chosen.size, device=chosen.device, json_path=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
