"""The search of cuSPARSELt's algorithms, in a process of its own.

The library offers algorithms by number, and one may break off in the middle of a kernel, after
which nothing runs any more in that process. ``cusparseLtMatmulSearch`` tries them all, so it is
never called: that of 0.8.0 ends with an illegal instruction on compute capability 9.0 where float16
operands lie by rows and the result by columns, whatever the workspace: at its number 34 of 50, and
at all seen behind it. Here each number is tried in a process that may end; another goes on behind
it, and the caller's process never runs an algorithm that was not seen to do what it should.

Source: cuSPARSELt documentation, ``cusparseLtMatmulAlgAttribute_t``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from math import inf
from threading import Timer
from typing import Any

from .._arrays import dtype_of, float8_e4m3fn
from .._epilogue import Epilogue
from ..engines.cusparselt.library import Algorithm, Key, Lines, Plan, current_device, handle
from ..engines.cusparselt.semi_structured import Matmul, config_of, memory_for
from .problem import random_values
from .progress import Said
from .timing import device_ms

#: Longest time to the first number, for which kernels are compiled, and from one to the next.
_START_S, _SILENCE_S = 90.0, 15.0
#: So many algorithms in a row that end their processes are enough.
_GIVEN_UP = 4
_REPEATS = 5
#: Two right results may differ by this share of the largest element.
_AGREEMENT = 0.02
_COMMAND = (sys.executable, "-m", "sparsegpu.benchmark.search_cusparselt")

Answer = dict[str, Any]


def fastest(key: Key, *, flush: bool, said: Said) -> Algorithm | None:
    """Return the fastest algorithm of a plan, of those that compute what they should.

    Parameters
    ----------
    key : Key
    flush : bool
        As of `timing.device_ms`.
    said : callable
        Is told every algorithm, its time in ms, and why it was skipped.

    Returns
    -------
    Algorithm, or None where none does

    Raises
    ------
    RuntimeError
        The process ended before it tried anything; the message has its last words.
    """
    best, best_ms = None, inf
    first, in_a_row, done = 0, 0, False
    while not done and in_a_row < _GIVEN_UP:
        number, status, words = None, 0, ""
        for answer in _answers({"key": _as_json(key), "first": first, "flush": flush}):
            number = answer.get("number", number)
            if "ms" in answer:
                algorithm = Algorithm(*answer["algorithm"])
                said(config_of(algorithm, key), answer["ms"], "")
                if answer["ms"] < best_ms:
                    best, best_ms = algorithm, answer["ms"]
            elif "skipped" in answer:
                said(_numbered(number), inf, answer["skipped"])
            elif "status" in answer:
                status, words = answer["status"], answer["words"]
        done = status == 0
        if not done:
            if number is None:
                raise RuntimeError(f"tune: cuSPARSELt's algorithms cannot be tried ({words})")
            said(_numbered(number), inf, f"ends its process: {words}")
            in_a_row = in_a_row + 1 if number == first else 1
            first = number + 1
    return best


def _numbered(number: Any) -> dict[str, Any]:
    return {"path": "cusparselt", "config_id": number}


def _answers(request: dict[str, Any]) -> Iterator[Answer]:
    """Yield what a process says, then its exit status and its last words."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    words = "it said nothing"
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
                    watch, words = _ended_after(_SILENCE_S, process), "it did not come to an end"
                    yield json.loads(line)
                elif line.strip():
                    words = line.strip()
        finally:
            watch.cancel()
            process.kill()
    yield {"status": process.returncode, "words": words}


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
    """Try the algorithms of a plan from some number on, saying each before it runs."""
    import cupy

    entry = request["key"]
    with cupy.cuda.Device(entry.pop("device")):
        key = _from_json(entry)
        product, near = _posed(key)
        own = Plan(handle(), key)
        refused = handle().lt.cuSPARSELtError
        for number in range(request["first"], own.count()):
            _say(number=number)
            wanted = own.algorithm()._replace(config_id=number)
            try:
                plan = Plan(handle(), key._replace(algorithm=wanted))
            except refused as error:
                _say(skipped=str(error))
                continue
            run = product(plan)
            run()
            if not near():
                _say(skipped="its result is wrong")
                continue
            ms = device_ms(run, flush=request["flush"], repeats=_REPEATS)
            _say(algorithm=plan.algorithm(), ms=ms)


def _posed(key: Key) -> tuple[Any, Any]:
    """Return a product of random operands by a plan, and what tells whether it came out right."""
    import cupy

    import sparsegpu as sg

    from ..ops._product import Options
    from ..ops._product_24 import addmm

    keep = "1:2" if key.dtype.itemsize == 4 else "2:4"
    pruned = sg.prune_24(random_values(cupy, (key.m, key.k), key.dtype, 0), keep=keep)
    native = sg.to_semi_structured(pruned)
    sparse = native.to_backend("cusparselt").half().vendor
    dense = _lying(key.dense, (key.k, key.n), lambda s: random_values(cupy, s, key.dtype, 1))
    out = _lying(key.out, (key.m, key.n), lambda s: cupy.empty(s, key.out_dtype))
    expected = cupy.empty((key.m, key.n), key.out_dtype)
    options = Options(beta=0, out=expected, allow_tf32=True)
    fp8 = key.dtype if key.dtype == float8_e4m3fn else None
    addmm("tune", None, native, dense, options, operand_dtype=fp8)
    expected = expected.astype("float32")
    largest = float(abs(expected).max())

    def product(plan: Plan) -> Matmul:
        out.fill(0)
        return Matmul(plan, memory_for(plan), sparse, dense, out, None, Epilogue())

    def near() -> bool:
        return bool(abs(out.astype("float32") - expected).max() <= _AGREEMENT * largest)

    return product, near


def _lying(lines: Lines, shape: tuple[int, int], made: Callable[[tuple[int, int]], Any]) -> Any:
    """Return a matrix that lies as described, in memory that is made for it."""
    rows, columns = shape if lines.by_rows else shape[::-1]
    whole = made((rows, lines.pitch))[:, :columns]
    return whole if lines.by_rows else whole.T


def _say(**answer: Any) -> None:
    print(json.dumps(answer), flush=True)


def main(request: str) -> int:
    """Try what was asked for; an algorithm that breaks off leaves 1."""
    try:
        try_all(json.loads(request))
    except (RuntimeError, handle().lt.cuSPARSELtError) as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    _status = main(sys.argv[1])
    sys.stdout.flush()
    os._exit(_status)  # what is left would be destroyed on a device that may be broken
