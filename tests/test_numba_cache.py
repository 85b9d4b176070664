"""The CPU engine's compiled loops on disk: where they lie, when they count, whom they spare."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core.dispatcher import Dispatcher

import sparsegpu
from sparsegpu.engines import cpu

#: A product, then how often its loop was found and how often it was not.
PRODUCT = """
import numpy as np, sparsegpu as sg
A = sg.bsr_array(np.ones((64, 64), dtype), blocksize=(16, 16))
assert (A @ np.ones((64, 8), dtype) == 64).all()
from sparsegpu.engines.cpu._kernels import multiply_narrow
print(multiply_narrow.stats.cache_hits.total(), multiply_narrow.stats.cache_misses.total())
"""

FILES = sorted(set(Path(cpu.__file__).parent.glob("*.py")) - {Path(cpu.__file__)})

LOOP = """
from callee import once
from sparsegpu.engines.cpu._jit import jit

@jit()
def twice(x):
    return once(x) + once(x)"""

CALLEE = """
from sparsegpu.engines.cpu._jit import jit

@jit()
def once(x):
    return x + 1
"""


@pytest.fixture
def directory(tmp_path, monkeypatch) -> Path:
    """An empty cache, for this process and those that it starts."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("SPARSEGPU_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def run(code: str) -> str:
    """Run code in a fresh process and return what it printed."""
    return subprocess.check_output([sys.executable, "-c", code], text=True).strip()


def product(dtype: str = "float32") -> str:
    return f"dtype = {dtype!r}\n{PRODUCT}"


def files_beside_the_sources() -> set[Path]:
    return set(Path(sparsegpu.__file__).parent.rglob("*.nb[ic]"))


def kept(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def test_code_is_kept_in_the_cache_and_nowhere_else(directory):
    before = files_beside_the_sources()
    run("import sparsegpu.engines.cpu.addmm, sparsegpu.engines.cpu.prune")
    assert not directory.exists(), "an import writes nothing"
    assert run(product()) == "0 1"
    assert kept(directory) == kept(directory / "numba") != []
    assert run(product()) == "1 0", "the second process compiles nothing"
    assert files_beside_the_sources() == before


def test_numbas_own_directory_serves_where_ours_is_not_chosen(directory, tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numbas"))
    run(product())
    assert kept(directory) and not kept(tmp_path / "numbas")
    monkeypatch.delenv("SPARSEGPU_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    run(product())
    assert kept(tmp_path / "numbas" / "sparsegpu") == kept(tmp_path / "numbas") != []
    assert not kept(tmp_path / "user")


def test_a_users_own_functions_and_settings_stay_as_they_are(directory, tmp_path):
    (tmp_path / "theirs.py").write_text(
        "import numba\n@numba.njit(cache=True)\ndef add(a, b):\n    return a + b\n"
    )
    code = f"""
import os, sys, numba
from numba.core.caching import FunctionCache
def settings():
    config = {{k: v for k, v in vars(numba.config).items() if k.isupper()}}
    return config, dict(os.environ), list(FunctionCache._impl_class._locator_classes)
before = settings()
{product()}
sys.path.insert(0, {str(tmp_path)!r})
import theirs
assert theirs.add(1, 2) == 3
assert settings() == before
"""
    run(code)
    assert [path.suffix for path in (tmp_path / "__pycache__").glob("theirs.add*.nbi")] == [".nbi"]
    assert not list(directory.rglob("*.nbi"))


def test_a_change_of_what_a_loop_calls_compiles_it_anew(directory, tmp_path):
    (tmp_path / "callee.py").write_text(CALLEE)
    (tmp_path / "loop.py").write_text(LOOP)

    def result() -> str:
        return run(
            f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
            "from loop import twice; print(twice(1), twice.stats.cache_hits.total())"
        )

    assert [result(), result()] == ["4 0", "4 1"]
    (tmp_path / "callee.py").write_text(CALLEE.replace("x + 1", "x + 2"))
    assert [result(), result()] == ["6 0", "6 1"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_loops_use_what_lies_in_their_own_folder(file):
    """What is compiled into them from elsewhere could change and leave the kept code as it was."""
    body = ast.parse(file.read_text(encoding="utf-8")).body
    imports = [node for node in body if isinstance(node, ast.ImportFrom) and node.level != 1]
    foreign = {alias.asname or alias.name for node in imports for alias in node.names}
    module = importlib.import_module(f"{cpu.__name__}.{file.stem}")
    for loop in vars(module).values():
        if isinstance(loop, Dispatcher) and loop.py_func.__module__ == module.__name__:
            assert foreign.isdisjoint(loop.py_func.__code__.co_names), loop


def test_code_without_a_source_file_is_not_kept(directory):
    from sparsegpu.engines.cpu._jit import jit

    names: dict = {}
    exec("def add(a, b):\n    return a + b", names)
    assert jit()(names["add"])(1, 2) == 3
    assert not directory.exists()


def test_a_cache_that_cannot_be_written_is_done_without(directory):
    directory.write_text("a file where the directory should be")
    recorded = f"""
import warnings
with warnings.catch_warnings(record=True) as said:
    exec({product()!r})
print(*[each.message for each in said])
"""
    assert re.match(r"0 1\nsparsegpu: cannot write .* set SPARSEGPU_CACHE_DIR", run(recorded))


def test_a_damaged_entry_is_compiled_anew(directory):
    run(product())
    for path in kept(directory):
        path.write_bytes(path.read_bytes()[:-100])
    assert run(product()) == "0 1"
    assert run(product()) == "1 0"


def test_processes_that_compile_at_once_keep_both(directory):
    dtypes = ["float32", "float64"]
    command = [sys.executable, "-c"]
    processes = [subprocess.Popen([*command, product(dtype)]) for dtype in dtypes]
    assert [process.wait() for process in processes] == [0, 0]
    assert [run(product(dtype)) for dtype in dtypes] == ["1 0"] * 2


def test_threads_may_make_the_first_calls_together(directory):
    code = """
import numpy as np, sparsegpu as sg
from concurrent.futures import ThreadPoolExecutor
def work(i):
    dtype = ("float32", "float64", "complex64", "int8")[i % 4]
    A = sg.bsr_array(np.ones((4, 4), dtype), blocksize=(2, 2))
    return (A @ np.ones((4, 2), dtype) == 4).all()
with ThreadPoolExecutor(8) as pool:
    print(all(pool.map(work, range(16))))
"""
    assert run(code) == "True"
    assert kept(directory)
