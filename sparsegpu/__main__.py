"""``sparsegpu`` or ``python -m sparsegpu``: doctor, info, demo, bench and tune."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from pathlib import Path

from ._version import __version__

_PIPE_CLOSED = 141  # as shells report it
_FULL = {errno.ENOSPC, errno.EDQUOT}


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit status.

    A reader that closes its end of a pipe ends it quietly; Ctrl-C, and what cannot be written,
    with one line.
    """
    from .cli.arguments import INTERRUPTED, NotWritten

    if sys.stderr is None:  # closed by the shell: then nobody wants to read it
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        return _not_written("standard output is closed")
    try:
        try:
            return _run(arguments)
        finally:  # a help text, too, meets its reader here and not when Python ends
            sys.stdout.flush()
    except KeyboardInterrupt:
        line = "\n" * sys.stderr.isatty()  # ends the one that tells of progress
        print(f"{line}sparsegpu: interrupted", file=sys.stderr)
        return INTERRUPTED
    except NotWritten as error:
        return _not_written(error)
    except OSError as error:
        if error.errno not in {errno.EPIPE, *_FULL}:
            raise
        # What is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:
            return _PIPE_CLOSED
        return _not_written(error.strerror)


def _not_written(why: object) -> int:
    with suppress(OSError):  # standard error may be on the same full disk
        print(f"sparsegpu: the result is not written: {why}", file=sys.stderr, flush=True)
    return 2


def _run(arguments: list[str] | None) -> int:
    from .cli import bench, tune
    from .cli.arguments import Parser, add_command, add_json

    script = Path(sys.argv[0]).stem == "sparsegpu"
    parser = Parser(
        prog="sparsegpu" if script else "python -m sparsegpu",
        description="Block-sparse (BSR) and 2:4 linear algebra for CuPy and NumPy.",
    )
    parser.add_argument("--version", action="version", version=f"sparsegpu {__version__}")
    commands = parser.add_subparsers(dest="command")
    doctor = add_command(commands, "doctor", "say what was found, what works and what to mend")
    demo = add_command(commands, "demo", "solve a real problem and prune a real network")
    demo.add_argument(
        "--size",
        choices=("small", "full"),
        default="full",
        help="small: for a first look; full: large enough to measure (default)",
    )
    demo.add_argument(
        "--device",
        choices=("auto", "cpu", "gpu"),
        default="auto",
        help="auto: the GPU if there is one, else NumPy",
    )
    add_json(doctor)
    add_json(add_command(commands, "info", "say what is installed, to report a fault with"))
    add_json(demo)
    bench.add_arguments(
        add_command(commands, "bench", "time our products beside cuBLAS, SciPy and peers")
    )
    tune.add_arguments(
        add_command(commands, "tune", "measure configurations on a GPU and keep the best")
    )
    chosen = parser.parse_args(arguments)
    if chosen.command in {"doctor", "info"}:
        from .cli.doctor import info, run

        return (run if chosen.command == "doctor" else info)(json_path=chosen.json)
    if chosen.command == "bench":
        return bench.run(**{k: v for k, v in vars(chosen).items() if k != "command"})
    if chosen.command == "tune":
        return tune.run(**{k: v for k, v in vars(chosen).items() if k != "command"})
    from .cli.demo import run as run_demo

    return run_demo(size=chosen.size, device=chosen.device, json_path=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
