"""A forked child never waits for a lock that a thread of its parent holds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sparsegpu

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")

#: Another thread is inside ``slow`` while this one forks; the child then does ``work``.
FORK = """
import os, signal, sys, threading, time, warnings
import numpy as np, sparsegpu as sg
warnings.simplefilter("ignore", DeprecationWarning)  # of forks of processes with threads

def forked(work):
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        assert status == 0, f"the child ended with status {status} (14: it hung)"
    else:
        signal.alarm(60)
        try:
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)

def while_another_thread_is_in(owner, name, enter, work):
    real, inside, go_on = getattr(owner, name), threading.Event(), threading.Event()
    def slow(*arguments):
        inside.set()
        assert go_on.wait(100)
        return real(*arguments)
    setattr(owner, name, slow)
    thread = threading.Thread(target=enter)
    thread.start()
    assert inside.wait(100)
    setattr(owner, name, real)
    forked(work)
    go_on.set()
    thread.join()
    work()

def slow_import(inside, seconds, module="sparsegpu.engines.cpu.addmm"):
    class Slow:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == module:
                inside.set()
                time.sleep(seconds)
    sys.meta_path.insert(0, Slow)

def blocks():
    return sg.bsr_array(np.kron(np.eye(4, dtype="float32"), np.ones((32, 32), "float32")),
                        blocksize=(32, 32))
x = np.ones((128, 8), "float32")
"""


def run(code: str, tmp_path: Path, *, first: str = "") -> None:
    environment = os.environ | {"SPARSEGPU_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", first + FORK + code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


def test_while_a_plan_is_made(tmp_path):
    code = """
from sparsegpu.pattern import Pattern
A = blocks()
def work():
    assert A.pattern.transposed()[1].tolist() == [0, 1, 2, 3] and (A @ x == 32).all()
while_another_thread_is_in(Pattern, "_in_order", A.pattern.transposed, work)
"""
    run(code, tmp_path)


def test_while_the_other_half_of_a_24_matrix_is_made(tmp_path):
    code = """
from sparsegpu.semi_structured.layout import Halves
W = sg.to_semi_structured(np.kron(np.eye(64), [[1, 0]]).astype("float16"), pad=True)
x = np.ones((8, 64), "float16")
def work():
    assert ((x @ W).sum() == 512)
while_another_thread_is_in(Halves, "_build", lambda: x @ W, work)
"""
    run(code, tmp_path)


def test_while_winners_are_read(tmp_path):
    code = """
from sparsegpu.engines.cuda import winners
while_another_thread_is_in(winners, "_read", winners.snapshot, winners.snapshot)
"""
    run(code, tmp_path)


def test_while_the_cpu_engine_starts_its_threads(tmp_path):
    code = """
from sparsegpu.engines.cpu import _threads
_threads.thread_count = lambda: 2
def work():
    found = []
    _threads.for_each(found.append, range(8))
    assert sorted(found) == list(range(8))
while_another_thread_is_in(_threads, "ThreadPoolExecutor", work, work)
"""
    run(code, tmp_path)


def test_while_loops_are_compiled(tmp_path):
    """Parent and child compile what the other has not; a fork waits for what is being compiled."""
    code = """
A = blocks()
def work(dtype):
    assert (A.astype(dtype) @ x.astype(dtype) == 32).all()
thread = threading.Thread(target=lambda: [work(d) for d in ("float32", "float64", "complex64")])
thread.start()
children = 0
while thread.is_alive():
    forked(lambda: work("complex128"))
    children += 1
    thread.join(0.05)
assert children
"""
    run(code, tmp_path)


def test_while_an_engine_is_imported(tmp_path):
    """Python holds a lock for each module that is being imported; a fork waits for ours."""
    code = """
A, inside = blocks(), threading.Event()
slow_import(inside, 1)
thread = threading.Thread(target=lambda: A @ x)
thread.start()
assert inside.wait(100)
forked(lambda: A @ x)
thread.join()
"""
    run(code, tmp_path)


def test_while_kernel_paths_are_imported(tmp_path):
    """A ``config`` is checked by the paths of its operation, which are imported for it."""
    code = """
A, inside = blocks(), threading.Event()
slow_import(inside, 1, "sparsegpu.engines.cuda.paths.bsr_addmm_simt")
def work():
    assert (sg.bsr_matmul(A, x, config={"path": "model"}) == 32).all()
thread = threading.Thread(target=work)
thread.start()
assert inside.wait(100)
forked(work)
thread.join()
"""
    run(code, tmp_path)


def test_what_a_fork_waits_for_may_log(tmp_path):
    """A fork takes the lock of `logging`, too: behind ours, or both would wait."""
    code = """
import logging
from sparsegpu import _locks
signal.alarm(60)
lock, inside = _locks.awaited_by_forks(threading.RLock()), threading.Event()
def compiles():
    with lock:
        inside.set()
        time.sleep(0.5)
        logging.getLogger("compiler").debug("a step")
thread = threading.Thread(target=compiles)
thread.start()
assert inside.wait(100)
forked(lambda: None)
thread.join()
"""
    run(code, tmp_path)


def test_numba_is_imported_and_compiles_while_a_fork_waits(tmp_path):
    """What the import that a fork waits for brings along, is waited for in the same fork."""
    first = """
import os, time
starts = []
os.register_at_fork(before=lambda: starts and time.sleep(1))  # runs after sparsegpu's own
"""
    code = """
A, inside = blocks(), threading.Event()
slow_import(inside, 0.5)
assert "numba" not in sys.modules
thread = threading.Thread(target=lambda: A @ x)
thread.start()
assert inside.wait(100)
starts.append(True)
forked(lambda: A @ x)
thread.join()
"""
    run(code, tmp_path, first=first)


def test_a_fork_inside_the_making_of_a_plan(tmp_path):
    """What the forking thread holds itself, it holds in the child, too."""
    code = """
A = blocks()
def build():
    forked(lambda: A.pattern.rows)
    return "built"
assert A.pattern.memo("mine", build) == "built" and A.pattern.memo("mine", None) == "built"
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
else:
    A.pattern.memo("another", lambda: forked(lambda: A.pattern.rows) or "built")
    os._exit(0)
"""
    run(code, tmp_path)


def test_every_lock_is_free_in_a_child():
    root = Path(sparsegpu.__file__).parent
    for path in root.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        made = re.findall(r"\b(?:R?Lock|Condition|Semaphore)\(", text)
        safe = re.findall(r"\b(?:fork_safe|awaited_by_forks)\(\s*(?:threading\.)?R?Lock\(", text)
        assert len(made) == len(safe), f"{path}: wrap locks in _locks.fork_safe or awaited_by_forks"
