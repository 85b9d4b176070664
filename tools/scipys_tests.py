"""SciPy's published tests of its BSR array, applied to ours: ``python -m tools.scipys_tests``.

What is the same and what differs is in docs/scipy.md. Here every test passes, finds a result that
differs, or is stopped by an error of ours that names the function and what it expected. Anything
else is a bad error.
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import json
import re
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import sparsegpu

#: Dtypes that are not held, and what their numbers are given in.
HELD = {"uint8": "int32", "int16": "int32", "uint16": "int32", "uint32": "int32"}
HELD |= {"int64": "int32", "uint64": "int32", "float128": "float64", "complex256": "complex128"}
DTYPES = [np.bool_, np.int32, np.float32, np.float64, np.complex64, np.complex128]
#: docs/scipy.md: not offered, or dense where SciPy's is sparse.
NO_ATTRIBUTE = {"resize", "maxprint", "tolil", "todok", "todia", "toarray", "__dict__"}
#: Functions of SciPy's own that want its arrays, and a write to an index of an immutable pattern.
OUTSIDE = {"test_inv", "test_solve", "test_astype"}


def created(arg: Any, shape: Any = None, dtype: Any = None, copy: bool = False, **keywords: Any):
    """Return our array of what SciPy's constructor makes."""
    theirs = arg.to_scipy() if isinstance(arg, sparsegpu.bsr_array) else arg
    made = scipy.sparse.bsr_array(theirs, shape=shape, dtype=dtype, copy=copy, **keywords)
    return sparsegpu.bsr_array(made.astype(HELD.get(made.dtype.name, made.dtype), copy=False))


def ours() -> type:
    """Return the published class with our arrays; `outcomes` runs its tests."""
    # It has marks of its own, which pytest knows only with SciPy's settings.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from scipy.sparse.tests import test_base as published

    class Ours(published.TestBSR):
        spcreator = staticmethod(created)
        math_dtypes = DTYPES

        @classmethod
        def init_class(cls) -> None:
            cls.dat = np.array([[1, 0, 0, 2], [3, 0, 1, 0], [0, 2, 0, 0]], "d")
            cls.datsp = created(cls.dat)
            cls.dat_dtypes = {dtype: cls.dat.astype(dtype) for dtype in DTYPES}
            cls.datsp_dtypes = {dtype: created(dense) for dtype, dense in cls.dat_dtypes.items()}

    return Ours


def calls(test: Any) -> Iterator[dict]:
    """Yield the arguments that a test is parametrized by."""
    sets = []
    for mark in getattr(test, "pytestmark", []):
        if mark.name == "parametrize":
            names, values = mark.args
            names = names.replace(" ", "").split(",") if isinstance(names, str) else names
            sets.append([dict(zip(names, v if len(names) > 1 else [v])) for v in values])
    for chosen in itertools.product(*sets):
        yield {name: value for part in chosen for name, value in part.items()}


def is_named(error: BaseException) -> bool:
    """Return whether an error is one of ours that says what was asked of which function."""
    where = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    ours = Path(sparsegpu.__file__).parent in where.parents
    kinds = (TypeError, ValueError, NotImplementedError, IndexError)
    return ours and isinstance(error, kinds) and re.match(r"\S.*: \S", str(error)) is not None


def outcome(error: BaseException) -> str:
    if isinstance(error, pytest.skip.Exception):
        return "skipped"
    if isinstance(error, (AssertionError, pytest.fail.Exception)):
        return "differs"
    if isinstance(error, AttributeError) and error.name in NO_ATTRIBUTE:
        return "not offered"
    if isinstance(error, TypeError) and "unexpected keyword argument 'explicit'" in str(error):
        return "not offered"
    return "refused" if is_named(error) else "bad"


def outcomes() -> Iterator[tuple[str, str]]:
    """Run every test; yield its name with what came of it, and an error that is bad."""
    applied: Any = ours()
    applied.init_class()
    for name, test in inspect.getmembers(applied, inspect.isfunction):
        if not name.startswith("test"):
            continue
        for arguments in calls(test):
            case = applied()
            try:
                getattr(case, name)(**arguments)
            except (Exception, pytest.skip.Exception, pytest.fail.Exception) as error:
                found = outcome(error)
                if found == "bad" and name not in OUTSIDE:
                    yield f"{name}: {type(error).__name__}: {error}", found
                else:
                    yield name, "outside" if found == "bad" else found
            else:
                yield name, "same"


def main() -> int:
    """Print how many tests came to what, and the bad errors; return 1 if there are any."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SciPy's tests provoke them
        found = list(outcomes())
    print(json.dumps(Counter(kind for _, kind in found)))
    bad = [text for text, kind in found if kind == "bad"]
    print("\n".join(bad))
    return int(bool(bad))


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m tools.scipys_tests", description=__doc__).parse_args()
    sys.exit(main())
