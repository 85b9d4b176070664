"""The search of cuSPARSELt's algorithms: processes that end, and what is tried in them."""

import contextlib
import json
import math
import subprocess
import sys
import types

import numpy as np
import pytest

from cusparselt_bindings import Bindings
from sparsegpu._arrays import bfloat16, float8_e4m3fn
from sparsegpu.engines.cusparselt import availability, library
from sparsegpu.engines.cusparselt.library import Algorithm, Key, Lines
from sparsegpu.tuning import search_cusparselt

HALF = np.dtype(np.float16)
KEY = Key(64, 32, 128, HALF, HALF, Lines(True, 32), Lines(True, 32))

#: Of six algorithms the third ends the process, the fourth is refused, the fifth is the fastest.
PROCESS = """
import json, sys, time
request = json.loads(sys.argv[1])
print("a library's own words")
for number in range(request["first"], 6):
    print(json.dumps({"number": number}), flush=True)
    if number == 2:
        print("an illegal memory access", flush=True)
        sys.exit(1)
    if number == 3:
        print(json.dumps({"skipped": "NOT_SUPPORTED"}))
    else:
        ms = 0.5 if number == 4 else 1.0
        print(json.dumps({"algorithm": [number, 1, 0, 0], "ms": ms}))
"""


@pytest.fixture
def process(monkeypatch):
    """Let another program stand in for the process."""
    monkeypatch.setattr(search_cusparselt, "current_device", lambda: 0)
    monkeypatch.setattr(search_cusparselt, "config_of", lambda found, key: found._asdict())

    def stand_in(program):
        monkeypatch.setattr(search_cusparselt, "_COMMAND", (sys.executable, "-c", program))

    return stand_in


def test_the_search_goes_on_behind_what_ends_its_process(process):
    process(PROCESS)
    told = []
    found = search_cusparselt.fastest(KEY, flush=False, report=lambda *words: told.append(words))
    assert found == Algorithm(4, 1, 0, 0)
    assert [config["config_id"] for config, *_ in told] == [0, 1, 2, 3, 4, 5]
    assert told[2][1:] == (math.inf, "ends its process: an illegal memory access")
    assert told[3][1:] == (math.inf, "NOT_SUPPORTED")


def test_the_search_gives_up_where_one_after_the_other_ends(process):
    process(PROCESS.replace("number == 2", "number > 0"))
    told = []
    found = search_cusparselt.fastest(KEY, flush=False, report=lambda *words: told.append(words))
    assert found == Algorithm(0, 1, 0, 0)
    assert [config["config_id"] for config, *_ in told] == [0, 1, 2, 3, 4]


def test_where_nothing_serves(process):
    process("print('nothing to try')")
    assert search_cusparselt.fastest(KEY, flush=False, report=print) is None


def test_a_process_that_never_begins_says_why(process):
    process("raise MemoryError('all of it')")
    with pytest.raises(RuntimeError, match=r"cannot be tried \(MemoryError: all of it\)"):
        search_cusparselt.fastest(KEY, flush=False, report=print)


def test_a_process_that_hangs_is_ended(process, monkeypatch):
    monkeypatch.setattr(search_cusparselt, "_START_S", 1.0)
    process("import time; print('waiting', flush=True); time.sleep(60)")
    with pytest.raises(RuntimeError, match="waiting"):
        search_cusparselt.fastest(KEY, flush=False, report=print)


def test_an_algorithm_that_hangs_is_ended(process, monkeypatch):
    monkeypatch.setattr(search_cusparselt, "_SILENCE_S", 0.5)
    process(PROCESS.replace("sys.exit(1)", "time.sleep(60)").replace("an illegal", "no illegal"))
    told = []
    found = search_cusparselt.fastest(KEY, flush=False, report=lambda *words: told.append(words))
    assert found == Algorithm(4, 1, 0, 0) and told[2][1] == math.inf
    assert [config["config_id"] for config, *_ in told] == [0, 1, 2, 3, 4, 5]


def test_ctrl_c_ends_the_process_too(process, monkeypatch):
    """At once, though an interactive session keeps the traceback."""
    process(PROCESS.replace("sys.exit(1)", "time.sleep(60)"))
    started = []

    class Popen(subprocess.Popen):
        def __init__(self, *arguments, **keywords):
            super().__init__(*arguments, **keywords)
            started.append(self)

    monkeypatch.setattr(search_cusparselt.subprocess, "Popen", Popen)

    def report(*words):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as kept:
        search_cusparselt.fastest(KEY, flush=False, report=report)
    assert kept.tb is not None
    assert [each.poll() is not None for each in started] == [True]


@pytest.mark.parametrize(
    "key",
    [
        KEY,
        KEY._replace(dtype=bfloat16, out_dtype=bfloat16, dense=Lines(False, 136)),
        KEY._replace(dtype=float8_e4m3fn, out_dtype=np.dtype(np.float32)),
    ],
)
def test_keys_travel(key, monkeypatch):
    monkeypatch.setattr(search_cusparselt, "current_device", lambda: 3)
    entry = json.loads(json.dumps(search_cusparselt._as_json(key)))
    assert entry.pop("device") == 3
    assert search_cusparselt._from_json(entry) == key


# -- in the process -------------------------------------------------------------------------------


def test_every_number_is_said_before_it_is_tried(monkeypatch, capsys):
    lt = Bindings()
    lt.refused_algorithms = {2}  # of eight
    cupy = types.ModuleType("cupy")
    cupy.cuda = types.SimpleNamespace(Device=lambda number: contextlib.nullcontext())
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(availability, "_loaded", {"bindings": lt, "version": (0, 8, 1)})
    monkeypatch.setattr(library, "_handles", {})
    for module in (library, search_cusparselt):
        monkeypatch.setattr(module, "current_device", lambda: 0)
    plans = []

    def product(plan):
        plans.append(plan.algorithm().config_id)

        def run():
            if plan.algorithm().config_id == 5:
                raise RuntimeError("an illegal memory access")

        return run

    made = product, lambda: plans[-1] != 3
    monkeypatch.setattr(search_cusparselt, "_product_by", lambda key: made)
    monkeypatch.setattr(search_cusparselt, "device_ms", lambda run, **keywords: 1.0)
    request = {"key": search_cusparselt._as_json(KEY), "first": 1, "flush": False}
    assert search_cusparselt.main(json.dumps(request)) == 1
    *said, last = capsys.readouterr().out.splitlines()
    assert last == "RuntimeError: an illegal memory access"
    assert list(map(json.loads, said)) == [
        {"number": 1},
        {"algorithm": [1, 1, 0, 0], "ms": 1.0},
        {"number": 2},
        {"skipped": "NOT_SUPPORTED"},
        {"number": 3},
        {"skipped": "its result is wrong"},
        {"number": 4},
        {"algorithm": [4, 1, 0, 0], "ms": 1.0},
        {"number": 5},
    ]
    assert plans == [1, 3, 4, 5]
