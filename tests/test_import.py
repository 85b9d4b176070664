"""The door: names without weight."""

from __future__ import annotations

import configparser
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import sparsegpu


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_import_brings_in_nothing_heavy():
    code = (
        "import sys, sparsegpu; "
        "print([m for m in ('cupy', 'scipy', 'numba', 'matplotlib', 'cuda') if m in sys.modules])"
    )
    assert run(code) == "[]"


def test_bsr_array_does_without_what_others_need():
    code = (
        "import sys, numpy as np; before = {*sys.modules}; from sparsegpu import bsr_array\n"
        "A = bsr_array((np.ones((1, 2, 2)), np.zeros(1, 'i4'), np.arange(2)), shape=(2, 2))\n"
        "others = {'sparsegpu.linalg', 'numpy.ma', 'tempfile', 'zipfile', 'html'}\n"
        "print(A.nnzb, others & {*sys.modules} - before)"
    )
    assert run(code) == "1 set()"


def test_a_product_does_without_the_paths_of_other_operations():
    code = """
import sys
from sparsegpu.engines.cuda import addmm
rooms = {name for name in sys.modules if ".paths." in name and ".paths._" not in name}
print(rooms == {path.__name__ for path in addmm.BSR})
"""
    assert run(code) == "True"


def test_bsr_array_needs_no_cupy_scipy_or_numba():
    code = (
        "import sys, sparsegpu; sys.modules.update(cupy=None, scipy=None, numba=None)\n"
        "A = sparsegpu.bsr_array([[1.0, 0], [0, 2.0]], blocksize=(1, 1))\n"
        "with sparsegpu.use_engine('reference'): print((A @ [1.0, 1.0]).tolist(), A.nnzb)"
    )
    assert run(code) == "[1.0, 2.0] 2"


def test_without_numba_and_scipy_the_reference_engine_computes_and_says_so_once():
    code = """
import sys, warnings
import numpy as np, sparsegpu
sys.modules.update(scipy=None, numba=None)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    A = sparsegpu.bsr_array(np.eye(6), blocksize=(3, 2))
    x = np.arange(6.0)
    y = sparsegpu.bsr_matmul(A, x, activation="gelu_erf")
    sparsegpu.testing.assert_within_bound(y, A.toarray(), x, activation="gelu_erf")
    assert (A.T @ x == x).all() and ((A @ A.tobsr((2, 3))).toarray() == np.eye(6)).all()
    assert (sparsegpu.bsr_softmax(A).sum(axis=1) == 1).all() and A.diagonal().sum() == 6
(said,) = {str(w.message) for w in caught}
assert len(caught) == 1 and caught[0].category is RuntimeWarning
print(said)
for refused in (A.tocsr, A.to_scipy, A.tocoo, A.tocsc, A.aslinearoperator):
    try:
        refused()
    except ImportError as error:
        print(error)
try:
    with sparsegpu.use_engine("cpu"):
        pass
except ImportError as error:
    print(error)
"""
    lines = run(code).splitlines()
    install = f"pip install -e '{Path(sparsegpu.__file__).parents[1]}[cpu]'"
    assert lines == [
        "sparsegpu: without numba and scipy NumPy arrays are computed by the engine 'reference', "
        f"which is slow; {install}",
        *(
            f"{name}: SciPy is not installed; {install}"
            for name in ("tocsr", "to_scipy", "tocoo", "tocsc", "aslinearoperator")
        ),
        f"use_engine: the engine 'cpu' needs numba and scipy; {install}",
    ]


def test_dir_shows_what_users_use():
    assert [name for name in dir(sparsegpu) if not name.startswith("__")] == sorted(
        name for name in sparsegpu.__all__ if not name.startswith("__")
    )


@pytest.mark.parametrize("name", ["kernels", "linalg", "masks", "testing"])
def test_dir_of_a_public_module_shows_what_users_use(name):
    module = getattr(sparsegpu, name)
    assert dir(module) == sorted(module.__all__)


def test_import_time():
    code = (
        "import numpy, ml_dtypes, time; t = time.perf_counter(); import sparsegpu; "
        "print(time.perf_counter() - t)"
    )
    # Other work on the machine only slows a run down.
    assert any(float(run(code)) < 0.3 for _ in range(10))


@pytest.mark.parametrize("name", sparsegpu.__all__)
def test_every_public_name_is_there(name):
    assert getattr(sparsegpu, name) is not None
    assert name in dir(sparsegpu)


def test_all_lists_every_name_once():
    expected = {*sparsegpu._MODULE_OF, *sparsegpu._SUBMODULES, "__version__"}
    assert sorted(sparsegpu.__all__) == sorted(expected)


def test_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'bsr_matrix'"):
        _ = sparsegpu.bsr_matrix


def test_signatures_show_no_path():
    functions = [getattr(sparsegpu, name) for name in sparsegpu.__all__]
    functions += [getattr(sparsegpu.masks, name) for name in sparsegpu.masks.__all__]
    shown = [str(inspect.signature(f)) for f in functions if inspect.isfunction(f)]
    assert [text for text in shown if "<module" in text] == []
    assert sum("xp: 'ModuleType' = numpy" in text for text in shown) >= 10
    assert sparsegpu.eye(2).data is not None  # the real default is the module


def test_every_package_is_in_the_wheel():
    root = Path(__file__).parents[1]
    settings = configparser.ConfigParser()
    settings.read(root / "setup.cfg")
    listed = set(settings["options"]["packages"].split()) - {"sparsegpu._cuda_src"}
    found = {path.parent.relative_to(root) for path in root.glob("sparsegpu/**/__init__.py")}
    assert listed == {".".join(folder.parts) for folder in found}


def test_metadata_is_a_project_table_and_has_every_extra_that_is_named():
    root = Path(__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["license"] == "MIT" and project["dynamic"] == ["version"]
    settings = configparser.ConfigParser()
    settings.read(root / "setup.cfg")
    assert not settings.has_section("metadata")  # two homes would disagree one day
    files = [root / name for name in ("README.md", "CONTRIBUTING.md", "pyproject.toml", ".ci/run")]
    files += [*root.glob("docs/*.md"), *root.glob("sparsegpu/**/*.py")]
    install = re.compile(r"(?:'\.|sparsegpu)\[([a-z0-9,]+)\]")
    named = {
        extra
        for path in files
        for found in install.findall(path.read_text(encoding="utf-8"))
        for extra in found.split(",")
    }
    assert {"demo", "cuda13", "gallery"} <= named <= set(project["optional-dependencies"])
