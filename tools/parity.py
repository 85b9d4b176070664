"""What of `scipy.sparse.bsr_array` is the same here: every public name, tried on both libraries.

`CALLS` and `FUNCTIONS` hold what is tried, never what comes of it: `parity_tables` runs every call
with SciPy's array and with ours of the same values, and writes down how the results compare.
``python -m tools.readme`` puts the tables into ``docs/scipy.md``.
"""

from __future__ import annotations

import inspect
import io
import traceback
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import scipy.sparse.csgraph
import scipy.sparse.linalg

import sparsegpu

from . import scipys_tests

#: What is tried for each public name of SciPy's array; ``first; then`` looks at ``then``. A, B and
#: S (square) have 2x2 blocks, W 4x3 ones, Z is complex, N holds NaN, D dense, C CSR of B.
CALLS = {
    "T": ["A.T"],
    "argmax": ["A.argmax()", "A.argmax(axis=1)"],
    "argmin": ["A.argmin()", "A.argmin(axis=0)"],
    "asformat": [
        "A.asformat('csr')",
        "A.asformat('bsr')",
        "A.asformat('array')",
        "A.asformat('dia')",
    ],
    "astype": [
        "A.astype('float32')",
        "A.astype('float32', 'same_kind')",
        "A.astype('complex128')",
        "A.astype('int64')",
    ],
    "blocksize": ["A.blocksize"],
    "check_format": ["A.check_format()", "A.check_format(full_check=True)"],
    "conj": ["Z.conj()"],
    "conjugate": ["Z.conjugate()"],
    "copy": ["A.copy()"],
    "count_nonzero": ["A.count_nonzero()", "A.count_nonzero(axis=0)"],
    "data": ["A.data", "A.data = A.data * 2; A"],
    "diagonal": ["A.diagonal()", "A.diagonal(k=-1)"],
    "dot": ["A.dot(x)", "S.dot(S)", "A.dot(2.0)"],
    "dtype": ["A.dtype"],
    "eliminate_zeros": ["A.eliminate_zeros(); A.nnz"],
    "format": ["A.format"],
    "has_canonical_format": ["A.has_canonical_format"],
    "has_sorted_indices": ["A.has_sorted_indices"],
    "imag": ["Z.imag"],
    "indices": ["A.indices"],
    "indptr": ["A.indptr"],
    "max": ["A.max()", "A.max(axis=0)", "A.max(axis=1)"],
    "maximum": ["A.maximum(B)", "A.maximum(0)", "A.maximum(C)", "A.maximum(1)"],
    "mean": ["A.mean()", "A.mean(axis=0)"],
    "min": ["A.min()", "A.min(axis=0)"],
    "minimum": ["A.minimum(B)", "A.minimum(0)", "A.minimum(D)"],
    "multiply": [
        "A.multiply(B)",
        "A.multiply(2.0)",
        "A.multiply(D)",
        "A.multiply(C)",
        "A.multiply(C[:1])",
        "A.multiply(C[:, :1])",
    ],
    "nanmax": ["N.nanmax()", "N.nanmax(axis=1)"],
    "nanmin": ["N.nanmin()", "N.nanmin(axis=0)"],
    "maxprint": ["A.maxprint"],
    "ndim": ["A.ndim"],
    "nnz": ["A.nnz"],
    "nonzero": ["A.nonzero()"],
    "power": ["A.power(2)", "A.power(3, dtype='float32')", "A.power(D)"],
    "prune": ["A.prune(); A"],
    "real": ["Z.real"],
    "reshape": ["A.reshape(4, 12)", "A.reshape(6, 8)", "A.reshape((8, 6), order='F')"],
    "resize": ["A.resize(4, 4); A"],
    "setdiag": ["S.setdiag(5.0); S", "S.setdiag([1.0, 2.0], k=2); S"],
    "shape": ["A.shape"],
    "size": ["A.size"],
    "sort_indices": ["A.sort_indices(); A"],
    "sorted_indices": ["A.sorted_indices()"],
    "sum": ["A.sum()", "A.sum(axis=0)", "A.sum(axis=1)", "A.sum(dtype='complex128')"],
    "sum_duplicates": ["A.sum_duplicates(); A"],
    "toarray": ["A.toarray()", "A.toarray(order='F')"],
    "tobsr": ["A.tobsr()", "A.tobsr((3, 2))"],
    "tocoo": ["A.tocoo()"],
    "tocsc": ["A.tocsc()"],
    "tocsr": ["A.tocsr()"],
    "todense": ["A.todense()"],
    "todia": ["A.todia()"],
    "todok": ["A.todok()"],
    "tolil": ["A.tolil()"],
    "trace": ["S.trace()", "S.trace(offset=1)"],
    "transpose": ["A.transpose()", "A.transpose((1, 0))"],
}

if hasattr(scipy.sparse.bsr_array, "mT"):  # SciPy 1.18
    CALLS["mT"] = ["A.mT"]

#: Methods of SciPy's that are ufuncs of NumPy: tried as methods, and as what NumPy calls them.
UFUNCS = [
    "arcsin", "arcsinh", "arctan", "arctanh", "ceil", "deg2rad", "expm1", "floor", "log1p",
    "rad2deg", "rint", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
]  # fmt: skip

#: Operators and Python's own functions.
OPERATORS = {
    "@": ["A @ x", "A @ X", "y @ A", "S @ S", "A @ W", "A @ C.T", "C.T @ A", "A @ ([1.0] * 8)"],
    "+": ["A + B", "A + C", "A + D", "D + A", "A + 0", "A + 1"],
    "-": ["A - B", "D - A", "C - A", "-A", "-(A != B)"],
    "*": ["A * 2", "2 * A", "A * B", "A * D"],
    "/": ["A / 2", "A / D", "A / B"],
    "**": ["A ** 2", "A ** 0", "A ** -1", "A ** (1 + 3j)"],
    "+= -= *= /=": ["A += B; A", "A -= B; A", "A *= 2; A", "A /= 2; A"],
    "== != < > <= >=": ["A == B", "A != B", "A < B", "A > 0", "A <= B", "A == 1", "(A != A).nnz"],
    "abs, round": ["abs(A)", "round(A, 1)"],
    "bool, len, iter": ["bool(A)", "len(A)", "[np.sum(row) for row in A]"],
    "A[...]": [
        "A[2]", "A[2, 3]", "A[2:4]", "A[:, 2:6]", "A[:, 3]", "A[[0, 3]]", "A[1:3, 1:3]", "A[-1]",
    ],
    "A[...] = value": ["P[0, 1] = 3.0; P", "P[0:2, 2:4] = 1.0; P"],
}  # fmt: skip

SOLVERS = ["bicg", "bicgstab", "cg", "cgs", "gcrotmk", "gmres", "lgmres", "minres", "qmr", "tfqmr"]

#: Functions of scipy.sparse, as calls.
FUNCTIONS = {
    "block_array": ["block_array([[A, None], [None, B]])", "block_array([[S, A], [A.T, None]])"],
    "block_diag": ["block_diag([A, B])"],
    "diags": [
        "diags([[1.0, 2.0, 3.0], [4.0, 5.0]], [0, 1])",
        "diags([1.0, 4.0], [0, -1], shape=(3, 3))",
    ],
    "eye": ["eye(4)", "eye(4, 6, 1)"],
    "expand_dims": ["expand_dims(A)"],
    "find": ["find(A)"],
    "identity": ["identity(4)"],
    "hstack": ["hstack([A, B])", "hstack([A, C])"],
    "issparse": ["issparse(A)"],
    "kron": ["kron(S, S)", "kron(A, D)"],
    "kronsum": ["kronsum(S, S)"],
    "permute_dims": ["permute_dims(A, (1, 0))"],
    "save_npz": ["save_npz(file(), A)"],
    "swapaxes": ["swapaxes(A, 0, 1)"],
    "tril": ["tril(S)", "tril(S, k=1)"],
    "triu": ["triu(S)", "triu(S, k=-2)"],
    "vstack": ["vstack([A, B])", "vstack([A, C])"],
    "linalg.aslinearoperator": ["linalg.aslinearoperator(A) @ x"],
    **{f"linalg.{name}": [f"linalg.{name}(P, z)"] for name in SOLVERS},
    "linalg.lsqr": ["linalg.lsqr(P, z)[0]"],
    "linalg.lsmr": ["linalg.lsmr(P, z)[0]"],
    "linalg.lobpcg": [
        "linalg.lobpcg(P, z[:, None] + 1)[0]",
        "linalg.lobpcg(linalg.aslinearoperator(P), z[:, None] + 1)[0]",
    ],
    "linalg.eigs": ["linalg.eigs(P, k=1, v0=z, return_eigenvectors=False)"],
    "linalg.eigsh": ["linalg.eigsh(P, k=1, v0=z, return_eigenvectors=False)"],
    "linalg.svds": ["linalg.svds(P, k=1, v0=z, return_singular_vectors=False)"],
    "linalg.norm": ["linalg.norm(A)", "linalg.norm(A.tocsr())"],
    "linalg.onenormest": ["linalg.onenormest(P)"],
    "linalg.spsolve": ["linalg.spsolve(P, z)", "linalg.spsolve(P.tocsc(), z)"],
    "linalg.splu": ["linalg.splu(P).solve(z)", "linalg.splu(P.tocsc()).solve(z)"],
    "linalg.expm": ["linalg.expm(P)", "linalg.expm(P.tocsc())"],
    "linalg.expm_multiply": ["linalg.expm_multiply(P, z, traceA=1.0)"],
    "linalg.inv": ["linalg.inv(P)", "linalg.inv(P.tocsc())"],
    "linalg.matrix_power": ["linalg.matrix_power(P, 3)"],
    "csgraph.connected_components": [
        "csgraph.connected_components(S)", "csgraph.connected_components(S.tocsr())",
    ],
}  # fmt: skip


MODULES = {"linalg": scipy.sparse.linalg, "csgraph": scipy.sparse.csgraph}


class Outcome(NamedTuple):
    """How a call compares: "same", "different" or "not offered", and how or why."""

    verdict: str
    how: str = ""


def public_names() -> set[str]:
    """Return the public names of SciPy's array."""
    array = scipy.sparse.bsr_array((2, 2))
    return {name for name in dir(array) if not name.startswith("_")}


def is_ours(name: str) -> bool:
    """Return whether a function of scipy.sparse has a namesake of ours."""
    module, _, function = name.rpartition(".")
    return hasattr(getattr(sparsegpu, module, None) if module else sparsegpu, function)


def parity_tables() -> str:
    """Return the tables as Markdown."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = ["## Attributes and methods", _table(CALLS | {n: [f"A.{n}()"] for n in UFUNCS})]
        ufuncs = {f"numpy.{name}": [f"np.{name}(A)"] for name in UFUNCS}
        parts += ["## Operators", _table(OPERATORS)]
        parts += ["## Functions of NumPy", _table(ufuncs)]
        parts += ["## Functions of scipy.sparse", _table(FUNCTIONS)]
    parts += ["## SciPy's tests", scipys_tests.table()]
    return "\n\n".join(parts)


def compared(call: str) -> Outcome:
    """Try a call on both libraries."""
    theirs, ours = _tried(call, "theirs"), _tried(call, "ours")
    if isinstance(ours, Exception):
        if isinstance(theirs, Exception):
            return Outcome("same", "both refuse")
        unknown = isinstance(ours, (NotImplementedError, AttributeError))
        return Outcome("not offered" if unknown else "different", _said(ours))
    if isinstance(theirs, Exception):
        return Outcome("different", f"SciPy refuses: {type(theirs).__name__}")
    found = list(dict.fromkeys(_differences(ours, theirs)))
    return Outcome("different", "; ".join(found)) if found else Outcome("same")


def _said(error: Exception) -> str:
    """Return an error as the table shows it: another library's words change with its version."""
    kind, own = type(error).__name__, Path(sparsegpu.__file__).parent
    if own in Path(traceback.extract_tb(error.__traceback__)[-1].filename).parents:
        return f"{kind}: {error}"
    return "no such name" if kind == "AttributeError" else f"{kind} of SciPy's"


def _tried(call: str, whose: str) -> Any:
    names = _operands(whose)
    *first, last = call.split("; ")
    try:
        for statement in first:
            exec(statement, names)
        return eval(last, names)
    except Exception as error:  # what comes of a call is what the table says
        return error


def _operands(whose: str) -> dict[str, Any]:
    """Return what the names in calls stand for, new for every call."""
    rng = np.random.default_rng(0)
    ours = whose == "ours"

    def made(shape: tuple[int, int], block: tuple[int, int], seed: int, dtype: Any = float) -> Any:
        rng = np.random.default_rng(seed)
        grid = shape[0] // block[0], shape[1] // block[1]
        kept = rng.random(grid) < 0.6
        values = rng.integers(-4, 5, (*grid, *block)).astype(dtype)
        if dtype is complex:
            values += 1j * rng.integers(-4, 5, values.shape)
        dense = (values * kept[..., None, None]).swapaxes(1, 2).reshape(shape)
        array = scipy.sparse.csr_array(dense).tobsr(block)
        return sparsegpu.bsr_array(array) if ours else array

    A, B, S = (made(s, (2, 2), n) for n, s in enumerate(((6, 8), (6, 8), (6, 6)), 1))
    dense_b = B.toarray()
    holes = B.toarray()
    holes[dense_b > 2] = np.nan
    N = scipy.sparse.csr_array(holes).tobsr((2, 2))
    P = scipy.sparse.csr_array(np.diag(np.arange(4.0) + 4) + np.ones((4, 4))).tobsr((2, 2))
    if ours:
        N, P = sparsegpu.bsr_array(N), sparsegpu.bsr_array(P)
    names: dict[str, Any] = {"np": np, "A": A, "B": B, "S": S, "N": N, "P": P}
    names |= {"W": made((8, 6), (4, 3), 4), "Z": made((6, 8), (2, 2), 5, complex)}
    names |= {"C": scipy.sparse.csr_array(dense_b), "D": rng.standard_normal((6, 8))}
    names |= {"x": rng.standard_normal(8), "y": rng.standard_normal(6), "z": np.arange(4.0)}
    names |= {"X": rng.standard_normal((8, 3)), "file": io.BytesIO}
    for name in FUNCTIONS:
        module, _, function = name.rpartition(".")
        names.setdefault(module or function, _function(ours, module, function))
    return names


def _function(ours: bool, module: str, function: str) -> Any:
    """Return a function, or the functions of a module: ours where we have it, else SciPy's."""
    theirs = MODULES[module] if module else getattr(scipy.sparse, function)
    if not ours:
        return theirs
    if not module:
        return getattr(sparsegpu, function, theirs)
    own = getattr(sparsegpu, module, None)
    named = {n: getattr(own, n, getattr(theirs, n)) for n in theirs.__all__}
    return SimpleNamespace(**named)


def _differences(ours: Any, theirs: Any) -> list[str]:
    """Return how two results differ, in words; nothing if they do not."""
    if isinstance(theirs, tuple) and isinstance(ours, tuple) and len(ours) == len(theirs):
        if len(ours) > 1 and len({np.shape(x) for x in (*ours, *theirs)}) == 1 and np.ndim(ours[0]):
            a, b = (np.stack(x) for x in (ours, theirs))
            if (a != b).any() and np.array_equal(*(x[:, np.lexsort(x)] for x in (a, b))):
                return ["in another order"]
        return [d for pair in zip(ours, theirs) for d in _differences(*pair)]
    if _kind(ours) != _kind(theirs):
        return [f"{_kind(ours)}, SciPy's is {_kind(theirs)}"]
    if isinstance(theirs, int) and isinstance(ours, int) and ours != theirs:  # bool, too
        return [f"{ours}, SciPy's is {theirs}"]
    if _kind(theirs) == "other":
        same = ours is theirs or (type(ours) is type(theirs) and bool(ours == theirs))
        return [] if same else [f"`{ours!r}`, SciPy's is `{theirs!r}`"]
    found = []
    if np.shape(ours) != np.shape(theirs):
        return [f"shape {np.shape(ours)}, SciPy's is {np.shape(theirs)}"]
    types = [getattr(x, "dtype", np.dtype(type(x))) for x in (ours, theirs)]
    if types[0] != types[1] and {t.kind for t in types} != {"i"}:  # indices: of any width
        found.append(f"{types[0]}, SciPy's is {types[1]}")
    for part in ("format", "blocksize"):
        a, b = (getattr(x, part, None) for x in (ours, theirs))
        if a != b and a is not None and b is not None:
            found.append(f"{part} {a}, SciPy's is {b}")
    dense = [x.toarray() if _kind(x) == "sparse" else np.asarray(x) for x in (ours, theirs)]
    if not np.allclose(*dense, rtol=1e-9, atol=1e-12, equal_nan=True):
        found.append("other values")
    return found


def _kind(x: Any) -> str:
    if scipy.sparse.issparse(x) or isinstance(x, sparsegpu.bsr_array):
        return "sparse"
    if isinstance(x, np.ndarray):
        return "dense"
    return "a number" if isinstance(x, (np.generic, int, float, complex)) else "other"


def _table(calls: dict[str, list[str]]) -> str:
    lines = ["| name | same | different, or not offered |", "|---|---|---|"]
    for name, tried in sorted(calls.items()):
        outcomes = {call: compared(call) for call in tried}
        same = ", ".join(f"`{call}`" for call, o in outcomes.items() if not o.how)
        others = [
            f"`{call}`: {'not offered, ' if o.verdict == 'not offered' else ''}{_escaped(o.how)}"
            for call, o in outcomes.items()
            if o.how
        ]
        whose = " (SciPy's own)" if name in FUNCTIONS and not is_ours(name) else ""
        lines.append(f"| `{name}`{whose} | {same} | {'<br>'.join(others)} |")
    return "\n".join(lines)


def _escaped(text: str) -> str:
    return inspect.cleandoc(text).replace("|", "\\|").replace("\n", " ")
