"""The hashes of 2,800 results, which a change of structure must not change.

``python -m tools.golden [--engine cpu]``

Runs the cases of `tools.small_cases`, each with several draws of its operands, and compares a hash
of every result with the golden file ``tools/golden/<name>.json`` of this machine's GPU, or of the
engine (``--engine cpu``, ``reference``). ``--write`` makes the file. It must not be made after the
change that it is to judge, so an existing file is only replaced with ``--replace``. Results of the
CPU engines depend on the processor and on library versions: compare them in the environment that
the file names. Exit code 1 when a result differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

import numpy as np

import sparsegpu

from .operands import Operands
from .record import ROOT, content_hashes, environment
from .small_cases import cases, digest

FOLDER = ROOT / "tools" / "golden"
DRAWS = 5
#: Cases of functions that only the CUDA engine has.
_ON_GPU_ONLY = ("row_groups", "row_order", "transpose_pattern")


def case_results(name: str, engine: str) -> dict[str, str]:
    """Return the hash of every draw of a case, by name."""
    if engine == "cuda":
        import cupy

        # The engine follows from the arrays: a case may prepare some operands in NumPy.
        xp, chosen = cupy, nullcontext()
    else:
        xp, chosen = np, sparsegpu.use_engine(engine)
    prepare = cases()[name]
    with chosen:
        named = [f"{name}, draw {draw}" for draw in range(DRAWS)]
        return {full: digest(prepare(Operands(xp, full))()) for full in named}


def results(engine: str) -> dict[str, str]:
    """Return the hash of every result, by name; on a GPU many processes compile the kernels."""
    if engine != "cuda":
        names = [name for name in cases() if not name.startswith(_ON_GPU_ONLY)]
        answers = [case_results(name, engine) for name in names]
    else:
        with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
            answers = list(pool.map(case_results, cases(), repeat(engine), chunksize=4))
    return {full: hashed for answer in answers for full, hashed in answer.items()}


def environment_of(engine: str) -> dict[str, str]:
    """Return the hardware and the versions that the bits of an engine depend on."""
    if engine == "cuda":
        from cuda.bindings import nvrtc

        return environment() | {"nvrtc": ".".join(map(str, nvrtc.nvrtcVersion()[1:]))}
    import llvmlite.binding
    import numba
    import scipy

    return {
        # numba and the BLAS of NumPy choose instructions by it.
        "processor": llvmlite.binding.get_host_cpu_name(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "numba": numba.__version__,
    }


def golden_file(engine: str, here: dict[str, str]) -> Path:
    """Return where the golden hashes of an engine are."""
    name = here["gpu"].lower().replace(" ", "-") if engine == "cuda" else engine
    return FOLDER / f"{name}.json"


def write(path: Path, here: dict[str, str], found: dict[str, str]) -> None:
    """Write a golden file."""
    content = {"environment": here, "content": content_hashes(), "results": found}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=0, sort_keys=True) + "\n")
    print(f"{len(found)} results written to {path}")


def compare(path: Path, here: dict[str, str], found: dict[str, str]) -> int:
    """Print what differs from a golden file; return 1 when anything does."""
    golden = json.loads(path.read_text())
    if golden["environment"] != here:
        print(f"another environment: {golden['environment']} then, {here} now")
    wanted = golden["results"]
    missing = sorted(wanted.keys() - found.keys())
    others = sorted(name for name in found if found[name] != wanted.get(name))
    for name in missing:
        print(f"missing: {name}")
    for name in others:
        print(f"{'other bits' if name in wanted else 'new'}: {name}")
    print(f"{len(found) - len(others)} of {len(wanted)} results have the bits that they had")
    return int(bool(missing or others))


def main(arguments: list[str] | None = None) -> int:
    """Write the golden file, or compare with it."""
    parser = argparse.ArgumentParser(prog="python -m tools.golden", description=__doc__)
    parser.add_argument("--engine", choices=("cuda", "cpu", "reference"), default="cuda")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--replace", action="store_true", help="write over a file that is there")
    chosen = parser.parse_args(arguments)
    here = environment_of(chosen.engine)
    path = golden_file(chosen.engine, here)
    if chosen.write and path.exists() and not chosen.replace:
        parser.error(f"{path.name} is there already; --replace writes over it")
    found = results(chosen.engine)
    if chosen.write or chosen.replace:
        write(path, here, found)
        return 0
    return compare(path, here, found)


if __name__ == "__main__":
    sys.exit(main())
