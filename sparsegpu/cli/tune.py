"""``tune``: measure configurations for given sizes and keep the winners for this user."""

from __future__ import annotations

import argparse
import sys
from json import dumps
from typing import Any

from .._arrays import REAL_DTYPES
from ..bsr.elements import check_divides
from ..engines.cuda.paths._fields import MODEL
from ..engines.cuda.winners import Winner, forget, users_winners
from ..kernels.winners import forget as forget_kernels
from ..tuning.progress import fields
from ..tuning.tune import tune
from .arguments import INTERRUPTED, new_file, number, write_file
from .demo import choose_library
from .table import print_table

Size = tuple[int, int, int]
_LARGEST_BLOCK = 256


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `run` takes to a parser."""
    parser.add_argument(
        "--shape",
        nargs=3,
        type=number(int, "a positive integer", lambda n: n > 0),
        action="append",
        metavar=("M", "K", "N"),
        default=[],
        help="a size, may be repeated (default: 4096 4096 4096)",
    )
    parser.add_argument(
        "--blocksize",
        nargs=2,
        type=number(int, f"an integer in 1..{_LARGEST_BLOCK}", lambda n: 0 < n <= _LARGEST_BLOCK),
        metavar=("BM", "BK"),
        default=(32, 32),
        help="height and width of a block (default: 32 32)",
    )
    parser.add_argument(
        "--dtype",
        choices=[dtype.name for dtype in REAL_DTYPES],
        default="bfloat16",
        help="dtype of the operands: %(choices)s (default: bfloat16)",
        metavar="DTYPE",
    )
    parser.add_argument(
        "--density",
        type=number(float, "a number above 0 and at most 1", lambda x: 0 < x <= 1),
        default=0.1,
        metavar="SHARE",
        help="share of the blocks that is stored (default: 0.1)",
    )
    parser.add_argument(
        "--op",
        choices=("bsr_addmm", "dense_bsr_matmul", "scaled_dot_product_attention"),
        default="bsr_addmm",
        help="bsr_addmm is A @ x (default), dense_bsr_matmul is x @ A; attention has 16 heads, "
        "M queries, K keys and N features",
    )
    parser.add_argument(
        "--allow-tf32",
        action="store_true",
        help="tune products of float32 on tensor cores, which round operands to TF32",
    )
    parser.add_argument("--show", action="store_true", help="print what was kept, measure nothing")
    parser.add_argument("--reset", action="store_true", help="forget it, measure nothing")
    parser.add_argument(
        "--export",
        metavar="FILE",
        type=new_file,
        help="write, as JSON, what was faster than the configuration chosen without tuning",
    )


def run(
    *,
    shape: list[Size],
    show: bool = False,
    reset: bool = False,
    export: str | None = None,
    **keywords: Any,
) -> int:
    """Tune, show or reset, and return the exit status.

    Parameters
    ----------
    shape : list of (M, K, N)
    show, reset, export
        As on the command line (`add_arguments`).
    **keywords
        Of `sparsegpu.tune`.
    """
    status = 0
    if reset:
        try:
            print(f"{forget() + forget_kernels()} forgotten")
        except OSError as error:
            print(f"sparsegpu tune: {error}", file=sys.stderr)
            return 2
    elif not (show or export):
        sizes = shape or [(4096, 4096, 4096)]
        for size in sizes:
            held = size[1:] if keywords.get("op") == "dense_bsr_matmul" else size[:2]
            try:
                check_divides("sparsegpu tune", held, keywords["blocksize"])
            except ValueError as error:
                print(error, file=sys.stderr)
                return 2
        _, where = choose_library("gpu")
        print(f"tuning on {where}", flush=True)
        for size in sizes:
            try:
                tune(shape=(size[0], size[1], size[2]), **keywords)
            except KeyboardInterrupt:
                at = " x ".join(map(str, size))
                print(f"interrupted at {at}: of this size nothing is kept", file=sys.stderr)
                status = INTERRUPTED
                break
    winners = users_winners()
    print_table([described(winner) for winner in winners])
    if show and not winners:
        print("nothing tuned yet: python -m sparsegpu tune --shape M K N")
    if export:
        better = [winner for winner in winners if winner.config != MODEL]
        text = ",\n ".join(dumps(winner.as_dict()) for winner in better)
        write_file(export, f"[{text}]\n".encode())
        print(f"{len(better)} of {len(winners)} configurations written to {export}")
    return status


def described(winner: Winner) -> dict[str, str]:
    """Return a winner as a row of a table."""
    family, shape, bucket = winner.kind
    return {
        "product": f"{family.op} {'x'.join(map(str, shape))} {family.dtype}",
        "blocks": "x".join(map(str, family.blocksize)),
        "density": f"{2 ** (bucket / 2):.2g}",
        "layout": family.layout,
        "on": family.arch,
        "configuration": fields(winner.config),
        "ms": f"{winner.ms:.4g}",
        "speed-up": f"{winner.model_ms / winner.ms:.2f}",
    }
