"""SciPy's published tests of its BSR array, applied to ours: ``python -m tools.scipys_tests``.

What is the same and what differs is in docs/scipy.md. Here every statement of a test passes, finds
a result that differs, or ends with an error of ours that names the function and what it expected;
those after it are run, too. Anything else is a bad error.
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

from . import statements

#: Dtypes that are not held, and what their numbers are given in.
HELD = {"uint8": "int32", "int16": "int32", "uint16": "int32", "uint32": "int32"}
HELD |= {"int64": "int32", "uint64": "int32", "float128": "float64", "complex256": "complex128"}
DTYPES = [np.bool_, np.int32, np.float32, np.float64, np.complex64, np.complex128]
#: docs/scipy.md: not offered, or dense where SciPy's is sparse.
NO_ATTRIBUTE = {"resize", "maxprint", "tolil", "todok", "todia", "toarray", "__dict__"}
#: Functions of SciPy's own that want its arrays, and a write to an index of an immutable pattern.
OUTSIDE = {"test_inv", "test_solve", "test_astype"}
#: What a statement comes to, from the worst: of its runs, and of a test's statements, it counts.
KINDS = ("bad", "outside", "refused", "not offered", "differs", "skipped", "same")


def created(arg: Any, shape: Any = None, dtype: Any = None, copy: bool = False, **keywords: Any):
    """Return our array of what SciPy's constructor makes."""
    theirs = arg.to_scipy() if isinstance(arg, sparsegpu.bsr_array) else arg
    made = scipy.sparse.bsr_array(theirs, shape=shape, dtype=dtype, copy=copy, **keywords)
    return sparsegpu.bsr_array(made.astype(HELD.get(made.dtype.name, made.dtype), copy=False))


def native(arg: Any, shape: Any = None, dtype: Any = None, blocksize: Any = None, **keywords: Any):
    """Return what our constructor makes where it can: of a dense array it wants the block size."""
    parts = isinstance(arg, tuple) and len(arg) == 3
    if not parts and (blocksize is None or scipy.sparse.issparse(arg) or isinstance(arg, tuple)):
        return created(arg, shape, dtype, blocksize=blocksize, **keywords)
    values = np.asarray(arg[0] if parts else arg)
    values = values.astype(HELD.get(values.dtype.name, values.dtype), copy=False)
    given = (values, *arg[1:]) if parts else values
    return sparsegpu.bsr_array(given, shape=shape, dtype=dtype, blocksize=blocksize, **keywords)


def ours() -> type:
    """Return the published class with our arrays; `outcomes` runs its tests."""
    # It has marks of its own, which pytest knows only with SciPy's settings.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from scipy.sparse.tests import test_base as published

    class Ours(published.TestBSR):
        spcreator = staticmethod(created)
        bsr_container = staticmethod(native)
        is_array_test = True
        math_dtypes = checked_dtypes = DTYPES

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
    kinds = (TypeError, ValueError, NotImplementedError, IndexError, AttributeError)
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


def outcomes() -> Iterator[tuple[str, int, str, str]]:
    """Run every statement of every test; yield test, line, what came of it, and a bad error."""
    applied: Any = ours()
    applied.init_class()
    for name, test in inspect.getmembers(applied, inspect.isfunction):
        if not name.startswith("test"):
            continue
        for arguments in calls(test):
            applied.init_class()  # a test may change what it is given
            for line, error in statements.run(test, applied(), arguments):
                found = "same" if error is None else outcome(error)
                if found == "bad" and name in OUTSIDE:
                    found = "outside"
                yield name, line, found, f"{type(error).__name__}: {error}"


def counted() -> tuple[dict[str, Counter], list[str]]:
    """Return how many statements and tests came to what, and the bad errors."""
    by_statement: dict[tuple[str, int], set[str]] = {}
    by_test: dict[str, set[str]] = {}
    bad = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SciPy's tests provoke them
        for name, line, found, error in outcomes():
            by_statement.setdefault((name, line), set()).add(found)
            by_test.setdefault(name, set()).add(found)
            if found == "bad":
                bad[name, line] = f"{name}, line {line}: {error}"
    counts = {
        "statements": Counter(map(worst, by_statement.values())),
        "tests": Counter(map(worst, by_test.values())),
    }
    return counts, list(bad.values())


def worst(found: set[str]) -> str:
    return min(found, key=KINDS.index)


def table() -> str:
    """Return the counts as Markdown."""
    counts, _ = counted()
    lines = [f"| of SciPy {scipy.__version__} | all | {' | '.join(KINDS[::-1])} |"]
    lines.append("|---" * (len(KINDS) + 2) + "|")
    for what, count in counts.items():
        numbers = [count.total(), *(count[kind] for kind in KINDS[::-1])]
        lines.append(f"| {what} | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines)


def main() -> int:
    """Print the counts and the bad errors; return 1 if there are any."""
    counts, bad = counted()
    print(json.dumps(counts))
    print("\n".join(bad))
    return int(bool(bad))


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m tools.scipys_tests", description=__doc__).parse_args()
    sys.exit(main())
