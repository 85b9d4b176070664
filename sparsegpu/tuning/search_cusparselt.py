"""The search of cuSPARSELt's algorithms, in a process of its own.

The library numbers its algorithms. One may fault inside a kernel, and then the process has lost its
device. ``cusparseLtMatmulSearch`` tries all of them, so it is never called: in 0.8.0, on compute
capability 9.0, with row-major float16 operands and a column-major result, algorithm 34 of 50 and
all that were tried after it end with an illegal instruction, whatever the workspace. Here a process
of its own tries the numbers in order. If one ends it, a new process continues with the next number;
the caller's process only runs an algorithm that has given a correct result there.

Source: cuSPARSELt documentation, ``cusparseLtMatmulAlgAttribute_t``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from threading import Timer
from typing import Any

from .._arrays import dtype_of, float8_e4m3fn
from .._epilogue import Epilogue
from ..engines.cuda.runtime.launch import submit
from ..engines.cusparselt.library import Algorithm, Key, Lines, Plan, current_device, handle
from ..engines.cusparselt.semi_structured import Matmul, config_of, memory_for
from .operands import random_array
from .progress import Report
from .timing import device_ms

#: Longest time until the first answer, since kernels are compiled for it, and between answers.
_START_S, _SILENCE_S = 90.0, 15.0
#: The search ends after so many consecutive algorithms that end their process.
_MOST_ENDED = 4
_REPEATS = 5
#: Two correct results may differ by this fraction of the largest element.
_AGREEMENT = 0.02
_COMMAND = (sys.executable, "-m", "sparsegpu.tuning.search_cusparselt")

Answer = dict[str, Any]


def fastest(key: Key, *, flush: bool, report: Report) -> Algorithm | None:
    """Return the fastest of the algorithms that compute a plan's product correctly.

    Parameters
    ----------
    key : Key
    flush : bool
        As of `timing.device_ms`.
    report : callable
        Called with every algorithm, its time in ms, and why it was skipped.

    Returns
    -------
    Algorithm, or None if there is none

    Raises
    ------
    RuntimeError
        The process ended before it tried anything; the message has its last line of output.
    """
    best, best_ms = None, inf
    first, in_a_row, done = 0, 0, False
    while not done and in_a_row < _MOST_ENDED:
        number, status, last_line = None, 0, ""
        for answer in _answers({"key": _as_json(key), "first": first, "flush": flush}):
            number = answer.get("number", number)
            if "ms" in answer:
                algorithm = Algorithm(*answer["algorithm"])
                report(config_of(algorithm, key), answer["ms"], "")
                if answer["ms"] < best_ms:
                    best, best_ms = algorithm, answer["ms"]
            elif "skipped" in answer:
                report(_numbered(number), inf, answer["skipped"])
            elif "status" in answer:
                status, last_line = answer["status"], answer["last line"]
        done = status == 0
        if not done:
            if number is None:
                raise RuntimeError(f"tune: cuSPARSELt's algorithms cannot be tried ({last_line})")
            report(_numbered(number), inf, f"ends its process: {last_line}")
            in_a_row = in_a_row + 1 if number == first else 1
            first = number + 1
    return best


def _numbered(number: Any) -> dict[str, Any]:
    return {"path": "cusparselt", "config_id": number}


def _answers(request: dict[str, Any]) -> Iterator[Answer]:
    """Yield the answers of a process, then its exit status and its last line of output."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    last_line = "no output"
    with subprocess.Popen(
        [*_COMMAND, json.dumps(request)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    ) as process:
        watch = _ended_after(_START_S, process)
        try:
            for line in process.stdout or ():
                if line.startswith("{"):
                    watch.cancel()
                    watch, last_line = _ended_after(_SILENCE_S, process), "it did not end"
                    yield json.loads(line)
                elif line.strip():
                    last_line = line.strip()
        finally:
            watch.cancel()
            process.kill()
    yield {"status": process.returncode, "last line": last_line}


def _ended_after(seconds: float, process: subprocess.Popen[str]) -> Timer:
    watch = Timer(seconds, process.kill)
    watch.daemon = True
    watch.start()
    return watch


def _as_json(key: Key) -> dict[str, Any]:
    """Return a key as JSON has it, with the device that it is for."""
    return {
        **key._asdict(),
        "dtype": key.dtype.name,
        "out_dtype": key.out_dtype.name,
        "algorithm": None,
        "device": current_device(),
    }


def _from_json(entry: dict[str, Any]) -> Key:
    """Return the key that `_as_json` was given."""
    lines = {name: Lines(*entry[name]) for name in ("dense", "out")}
    dtypes = {name: dtype_of(entry[name]) for name in ("dtype", "out_dtype")}
    return Key(**entry | lines | dtypes)


# -- in the process ------------------------------------------------------------------------------


def try_all(request: dict[str, Any]) -> None:
    """Try the algorithms of a plan from some number on; print each number before it runs."""
    import cupy

    entry = request["key"]
    with cupy.cuda.Device(entry.pop("device")):
        key = _from_json(entry)
        product, is_correct = _product_by(key)
        own = Plan(handle(), key)
        refused = handle().lt.cuSPARSELtError
        for number in range(request["first"], own.count()):
            _print_answer(number=number)
            wanted = own.algorithm()._replace(config_id=number)
            try:
                plan = Plan(handle(), key._replace(algorithm=wanted))
            except refused as error:
                _print_answer(skipped=str(error))
                continue
            run = product(plan)
            run()
            if not is_correct():
                _print_answer(skipped="its result is wrong")
                continue
            ms = device_ms(run, flush=request["flush"], repeats=_REPEATS)
            _print_answer(algorithm=plan.algorithm(), ms=ms)


def _product_by(key: Key) -> tuple[Any, Any]:
    """Return what makes the product of random operands by a plan, and what checks its result."""
    import cupy

    from ..ops._product import Options
    from ..ops._product_24 import addmm
    from ..ops.prune import prune_24
    from ..semi_structured import to_semi_structured

    keep = "1:2" if key.dtype.itemsize == 4 else "2:4"
    pruned = prune_24(random_array(cupy, (key.m, key.k), key.dtype, 0), keep=keep)
    native = to_semi_structured(pruned)
    sparse = native.to_backend("cusparselt").half().vendor
    dense = _laid_out(key.dense, (key.k, key.n), lambda s: random_array(cupy, s, key.dtype, 1))
    out = _laid_out(key.out, (key.m, key.n), lambda s: cupy.empty(s, key.out_dtype))
    expected = cupy.empty((key.m, key.n), key.out_dtype)
    options = Options(beta=0, out=expected, allow_tf32=True)
    fp8 = key.dtype if key.dtype == float8_e4m3fn else None
    addmm("tune", None, native, dense, options, operand_dtype=fp8)
    expected = expected.astype("float32")
    largest = float(abs(expected).max())

    def product(plan: Plan) -> Callable[[], None]:
        out.fill(0)
        matmul = Matmul(plan, memory_for(plan), sparse, dense, out, None, Epilogue())
        return partial(submit, matmul)

    def is_correct() -> bool:
        return bool(abs(out.astype("float32") - expected).max() <= _AGREEMENT * largest)

    return product, is_correct


def _laid_out(lines: Lines, shape: tuple[int, int], made: Callable[[tuple[int, int]], Any]) -> Any:
    """Return a matrix of a layout, in memory that ``made`` allocates."""
    rows, columns = shape if lines.by_rows else shape[::-1]
    whole = made((rows, lines.pitch))[:, :columns]
    return whole if lines.by_rows else whole.T


def _print_answer(**answer: Any) -> None:
    print(json.dumps(answer), flush=True)


def main(request: str) -> int:
    """Try the algorithms of a request; return 1 if one of them faults."""
    try:
        try_all(json.loads(request))
    except (RuntimeError, handle().lt.cuSPARSELtError) as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    _parser = argparse.ArgumentParser(description=__doc__)
    _parser.add_argument("request", help="of the process that starts this one")
    _status = main(_parser.parse_args().request)
    sys.stdout.flush()
    os._exit(_status)  # no destructors: they would run on a device that may be lost
