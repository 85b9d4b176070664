"""The tables of docs/scipy.md: complete, and compared rightly."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import sparsegpu
from tools import parity


def test_every_public_name_of_scipys_array_is_tried():
    assert {*parity.CALLS, *parity.UFUNCS} == parity.public_names()


def test_every_function_of_scipy_that_takes_an_array_is_tried():
    takes_none = {
        "bmat", "diags_array", "eye_array", "get_index_dtype", "load_npz", "rand",
        "random", "random_array", "safely_cast_index_arrays", "spdiags",
        "matrix_transpose",  # of SciPy 1.18: A.mT
    }  # fmt: skip
    found = {
        name
        for name in scipy.sparse.__all__
        if callable(f := getattr(scipy.sparse, name)) and not isinstance(f, type)
    }
    found = {name for name in found if not name.startswith("isspmatrix")} - takes_none
    assert found == {name for name in parity.FUNCTIONS if "." not in name}


DENSE = np.diag([1.0, 2.0])
THEIRS = scipy.sparse.csr_array(DENSE).tobsr((1, 1))
OURS = sparsegpu.bsr_array(THEIRS)


@pytest.mark.parametrize(
    "ours, theirs, expected",
    [
        (OURS, THEIRS, []),
        (OURS * 2, THEIRS, ["other values"]),
        (OURS.astype("float32"), THEIRS, ["float32, SciPy's is float64"]),
        (OURS, THEIRS.tocsr(), ["format bsr, SciPy's is csr"]),
        (OURS.tobsr((2, 2)), THEIRS, ["blocksize (2, 2), SciPy's is (1, 1)"]),
        (DENSE, THEIRS, ["dense, SciPy's is sparse"]),
        (DENSE[:1], DENSE, ["shape (1, 2), SciPy's is (2, 2)"]),
        (np.float64(2), 2.0, []),
        (np.int64(2), 2, []),
        (2.5, 2, ["float64, SciPy's is int64", "other values"]),
        (True, False, ["True, SciPy's is False"]),
        (3, 2, ["3, SciPy's is 2"]),
        ((DENSE, 1.0), (DENSE, 2.0), ["other values"]),
        (
            (np.array([1, 0]), np.array([2, 3])),
            (np.array([0, 1]), np.array([3, 2])),
            ["in another order"],
        ),
        ("csr", "bsr", ["`'csr'`, SciPy's is `'bsr'`"]),
    ],
)
def test_differences(ours, theirs, expected):
    assert parity._differences(ours, theirs) == expected


def test_calls_that_fail():
    assert parity.compared("A.nothing").verdict == "same"  # both refuse
    assert parity.compared("S.setdiag(1.0)") == ("different", "SciPy refuses: AttributeError")
    refused = parity.compared("A.astype('int64')")
    assert refused.verdict == "different" and refused.how.startswith("TypeError: astype: ")
    assert parity.compared("A / B").verdict == "not offered"
    assert parity.compared("A.sum()") == ("same", "")


def test_scipys_published_tests_end_in_no_bad_error():
    """In a process of its own: SciPy's tests have marks that pytest does not know here."""
    pytest.importorskip("scipy.sparse.tests")
    command = [sys.executable, "-m", "tools.scipys_tests"]
    root = Path(__file__).parents[1]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    counts = json.loads(run.stdout.splitlines()[0])
    assert counts["tests"]["same"] >= 60 and counts["tests"]["outside"] <= 3
    assert counts["statements"]["same"] >= 1500
