"""Cases of `bsr_array`: conversions, operators, reductions, indexing, files."""

from __future__ import annotations

import copy
import io
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse

import sparsegpu

from .case import OPERATOR_ERRORS, Case, Close, Holds, Same, positional, require
from .containers import ARRAY, matrix, operand
from .draws import BFLOAT16, CONTAINED, HALVES, Draws

# -- methods of one array -------------------------------------------------------------------


def _in_place(method: str) -> Callable[..., Any]:
    def call(A: Any) -> Any:
        other = copy.deepcopy(A)
        assert getattr(other, method)() is None
        return other

    return call


def _by_file(A: Any) -> Any:
    file = io.BytesIO()
    sparsegpu.save_npz(file, A)
    file.seek(0)
    return sparsegpu.load_npz(file)


def _elementwise(d: np.ndarray) -> Same:
    return Same(d)


def _mean(d: np.ndarray, axis: Any = None) -> Close:
    dtype = np.dtype(np.float64) if d.dtype.kind in "ib" else d.dtype
    wide = d.astype(np.complex128 if d.dtype.kind == "c" else np.float64)
    exact = wide.mean(axis=axis)
    single = np.float32 if dtype.itemsize == 2 else dtype.type(0).real.dtype
    return Close(exact, 4 * float(np.finfo(single).eps) * np.abs(wide).mean(axis=axis), dtype)


def _absolute(d: np.ndarray) -> Same | Close:
    if d.dtype.kind != "c":
        return Same(np.abs(d))
    exact = np.hypot(d.real.astype(np.longdouble), d.imag)
    dtype = d.real.dtype
    return Close(exact, 2 * float(np.finfo(dtype).eps) * exact, dtype)


def _sum(d: np.ndarray, axis: Any = None) -> Close:
    dtype = np.dtype(np.int64) if d.dtype.kind in "ib" else d.dtype
    wide = {"i": np.int64, "b": np.int64, "c": np.complex128}.get(d.dtype.kind, np.float64)
    return Close(d.astype(wide).sum(axis=axis), 0, dtype)


def _extreme(name: str, axis: Any) -> Callable[[np.ndarray], Same]:
    return lambda d: Same(getattr(d.astype(np.float64), name)(axis=axis).astype(d.dtype))


_METHODS: dict[str, tuple[Callable[..., Any], Callable[[np.ndarray], Any]]] = {
    "toarray": (lambda A: A.toarray(), _elementwise),
    "toarray order": (lambda A: A.toarray(order="F"), _elementwise),
    "T": (lambda A: A.T, lambda d: Same(d.swapaxes(-1, -2))),
    "T.T": (lambda A: A.T.T, _elementwise),
    "conj": (lambda A: A.conj(), lambda d: Same(d.conj())),
    "copy": (lambda A: A.copy(), _elementwise),
    "pickle": (lambda A: pickle.loads(pickle.dumps(A)), _elementwise),
    "with_data": (lambda A: A.with_data(A.data), _elementwise),
    "sort_indices": (_in_place("sort_indices"), _elementwise),
    "sum_duplicates": (_in_place("sum_duplicates"), _elementwise),
    "check_format": (lambda A: (A.check_format(), A)[1], _elementwise),
    "save_npz, load_npz": (_by_file, _elementwise),
    "sum": (lambda A: A.sum(), _sum),
    "sum rows": (lambda A: A.sum(axis=-1), lambda d: _sum(d, -1)),
    "sum columns": (lambda A: A.sum(axis=-2), lambda d: _sum(d, -2)),
    "abs": (abs, _absolute),
    "+A": (operator.pos, _elementwise),
    "A + 0": (lambda A: A + 0, _elementwise),
}
_OF_NUMBERS: dict[str, tuple[Callable[..., Any], Callable[[np.ndarray], Any]]] = {
    "-A": (operator.neg, lambda d: Same(-d)),
    "0 - A": (lambda A: 0 - A, lambda d: Same(0 - d if d.dtype != BFLOAT16 else -d)),
    "A * 2": (lambda A: A * 2, lambda d: Same((d * 2).astype(d.dtype))),
    "-1 * A": (lambda A: -1 * A, lambda d: Same((d * -1).astype(d.dtype))),
    "real": (lambda A: A.real, lambda d: Same(d.real.copy())),
    "imag": (lambda A: A.imag, lambda d: Same(d.imag if d.dtype.kind == "c" else np.zeros_like(d))),
}
_OF_REALS: dict[str, tuple[Callable[..., Any], Callable[[np.ndarray], Any]]] = {
    "A > 0": (lambda A: A > 0, lambda d: Same(d.astype(np.float64) > 0)),
    "A != 0": (lambda A: A != 0, lambda d: Same(d.astype(np.float64) != 0)),
    "A < -1": (lambda A: A < -1, lambda d: Same(d.astype(np.float64) < -1)),
}
_OF_SOME: dict[str, tuple[Callable[..., Any], Callable[[np.ndarray], Any]]] = {
    "mean": (lambda A: A.mean(), _mean),
    "mean rows": (lambda A: A.mean(axis=-1), lambda d: _mean(d, -1)),
    "max": (lambda A: A.max(), _extreme("max", None)),
    "min": (lambda A: A.min(), _extreme("min", None)),
    "max rows": (lambda A: A.max(axis=-1), _extreme("max", -1)),
    "min columns": (lambda A: A.min(axis=-2), _extreme("min", -2)),
}


def methods(draws: Draws) -> Case:
    bsr = operand(draws)
    table = dict(_METHODS)
    if bsr.dtype.kind != "b":
        table |= _OF_NUMBERS
    if bsr.dtype.kind not in "bc":
        table |= _OF_REALS
        if bsr.data.size and all(bsr.dense().shape):
            table |= _OF_SOME
    name = draws.choice(list(table))
    call, expected = table[name]
    fixed = frozenset({"A"})
    return Case(
        f"bsr_array: {name}",
        positional(call),
        {"A": bsr},
        lambda A: expected(matrix(A)),
        fixed=fixed,
    )


def methods_with_arguments(draws: Draws) -> Case:
    """Methods whose arguments may be spoiled; the array itself is not."""
    name = draws.choice(
        (
            "astype", "tobsr", "diagonal", "diagonal_blocks", "asformat", "toarray", "sum",
            "eliminate_zeros",
        )
    )  # fmt: skip
    batched = {"astype", "toarray", "sum", "diagonal", "diagonal_blocks"}
    bsr = operand(draws, batched=name in batched)
    other: dict[str, Any]
    if name == "astype":
        among = [d for d in CONTAINED if bsr.dtype.kind != "c" or d.kind == "c"]
        # What int8 does not hold has no promise.
        among = [d for d in among if d.kind != "i" or np.abs(bsr.dense()).max(initial=0) < 128]
        other = {"dtype": draws.choice(among)}
        expected = lambda A, dtype: Same(A.dense().astype(dtype))  # noqa: E731
    elif name == "tobsr":
        (m, k) = bsr.shape
        fits = [(i, j) for i in (1, 2, 3, 4, 5, 16) for j in (1, 2, 4, 7) if m % i == 0 == k % j]
        other = {"blocksize": draws.choice(fits)}
        expected = lambda A, blocksize: Same(matrix(A))  # noqa: E731
    elif name == "diagonal":
        other = {"k": draws.integer(-50, 50)}

        def expected(A: Any, k: Any) -> Same:
            m, n = A.shape
            dense = matrix(A)
            if -m < k < n:
                return Same(np.diagonal(dense, k, -2, -1))
            return Same(np.zeros((*dense.shape[:-2], 0), dense.dtype))
    elif name == "diagonal_blocks":
        other = {"k": draws.integer(-6, 6)}

        def expected(A: Any, k: Any) -> Same:
            (m, n), (bm, bk), dense = A.shape, A.blocksize, matrix(A)
            rows, columns = m // bm, n // bk
            k = max(-rows, min(k, columns))  # of no length, as beyond
            length = max(0, min(rows + min(k, 0), columns - max(k, 0)))
            row = np.arange(length) + max(-k, 0)
            blocks = dense.reshape(*dense.shape[:-2], rows, bm, columns, bk).swapaxes(-3, -2)
            return Same(blocks[..., row, row + k, :, :])
    elif name == "asformat":
        refused = bsr.dtype in HALVES or (draws.on_gpu and bsr.dtype.kind in "bi")
        scipys = [] if refused else ["csr", "csc", "coo"]
        other = {"format": draws.choice(["bsr", "dense", *scipys])}
        expected = lambda A, format: Holds(lambda got: _same_matrix(got, matrix(A)))  # noqa: E731
    elif name == "toarray":
        other = {"out": draws.values((*bsr.batch, *bsr.shape), bsr.dtype)}

        def expected(A: Any, out: Any) -> Same:
            dense = matrix(A)
            require(
                out is None
                or (
                    isinstance(out, np.ndarray)
                    and (out.shape, out.dtype) == (dense.shape, dense.dtype)
                ),
                "out",
            )
            return Same(dense)
    elif name == "sum":
        other = {"axis": draws.choice((None, -1, -2, (-2, -1)))}

        def expected(A: Any, axis: Any) -> Close:
            require(axis is None or isinstance(axis, (int, tuple)), "an axis")
            return _sum(matrix(A), axis)
    else:
        return Case(
            f"bsr_array.{name}",
            _in_place(name),
            {"A": bsr},
            lambda A: Same(matrix(A)),
            fixed=frozenset({"A"}),
        )
    method = getattr(ARRAY, name)

    def call(A: Any, **arguments: Any) -> Any:
        return method(A, **arguments)

    documented = OPERATOR_ERRORS
    writes = "out" if name == "toarray" else None
    return Case(
        f"bsr_array.{name}",
        call,
        {"A": bsr} | other,
        expected,
        writes=writes,
        documented=documented,
        fixed=frozenset({"A"}),
    )


def _same_matrix(got: Any, dense: np.ndarray) -> None:
    if isinstance(got, ARRAY):
        Same(dense).check(got)
        return
    if scipy.sparse.issparse(got) or hasattr(got, "toarray"):
        got = got.toarray()
    Same(dense).check(got)


# -- two operands ---------------------------------------------------------------------------

_BINARY: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
}


def with_sparse(draws: Draws) -> Case:
    """Two block-sparse arrays: another pattern, block size or dtype."""
    sign = draws.choice(list(_BINARY))
    dtypes = [
        d
        for d in CONTAINED
        if not (d.kind == "b" and sign == "-")
        and not (d.kind == "c" and sign in "><")
        and (d.kind == "b" or sign not in "&|^")
    ]
    a = operand(draws, dtypes, batched=False)
    (m, k), (bm, bk) = a.shape, a.blocksize
    if draws.chance(50):
        counts = (m // bm, k // bk)
        b = draws.bsr(a.dtype, blocksize=a.blocksize, counts=counts, exact=True)
    else:
        counts = (m, k) if m * k < 400 else (m // bm, k // bk)
        b = draws.bsr(
            a.dtype,
            blocksize=((m and m // counts[0]) or 1, (k and k // counts[1]) or 1),
            counts=counts,
            exact=True,
        )

    def expected(a: Any, b: Any) -> Same:
        one, two = matrix(a), matrix(b)
        if sign in {"!=", ">", "<"} and one.dtype.kind not in "bc":
            one, two = one.astype(np.float64), two.astype(np.float64)
        return Same(_BINARY[sign](one, two))

    fixed = frozenset({"a", "b"})
    return Case(
        f"bsr_array {sign} bsr_array",
        positional(_BINARY[sign]),
        {"a": a, "b": b},
        expected,
        fixed=fixed,
    )


def with_dense(draws: Draws) -> Case:
    sign = draws.choice(("+", "-", "*"))
    dtypes = [d for d in CONTAINED if not (d.kind == "b" and sign == "-")]
    a = operand(draws, dtypes)
    if a.indices.shape[-1] == 0 and 0 in a.batch:
        a = draws.bsr(a.dtype, exact=True)
    shape = (*a.batch, *a.shape)
    kept = tuple(n if draws.chance(70) else 1 for n in shape) if all(shape) else shape
    dense = draws.values(kept, a.dtype, exact=True)
    reflected = draws.chance(40)

    def call(a: Any, dense: Any) -> Any:
        return _BINARY[sign](dense, a) if reflected else _BINARY[sign](a, dense)

    def expected(a: Any, dense: Any) -> Same:
        one = matrix(a)
        return Same(_BINARY[sign](dense, one) if reflected else _BINARY[sign](one, dense))

    fixed = frozenset({"a", "dense"})
    return Case(f"bsr_array {sign} dense", call, {"a": a, "dense": dense}, expected, fixed=fixed)


def indexing(draws: Draws) -> Case:
    bsr = operand(draws, batched=False)
    (m, k), (bm, _) = bsr.shape, bsr.blocksize
    kind = draws.integer(0, 2)
    key: Any = slice(draws.integer(0, m // bm) * bm, draws.integer(0, m // bm) * bm)
    if kind == 1 and m:
        key = draws.integer(-m, m - 1)
    elif kind == 2 and m and k:
        key = (draws.integer(-m, m - 1), draws.choice((slice(None), draws.integer(-k, k - 1))))

    def expected(A: Any, key: Any) -> Same:
        return Same(matrix(A)[key])

    documented = OPERATOR_ERRORS | {"IndexError"}
    return Case(
        "bsr_array[...]",
        positional(operator.getitem),
        {"A": bsr, "key": key},
        expected,
        documented=documented,
        fixed=frozenset({"A"}),
    )


def linear_operator(draws: Draws) -> Case:
    dtypes = [d for d in CONTAINED if d.kind in "fcV"]
    bsr = operand(draws, dtypes, batched=False)
    adjoint = draws.chance(50)
    n = bsr.shape[0] if adjoint else bsr.shape[1]
    own = np.dtype(np.float32) if bsr.dtype in HALVES else bsr.dtype
    x = draws.values((n,), own, exact=True)

    def call(A: Any, x: Any) -> Any:
        op = sparsegpu.linalg.aslinearoperator(A)
        return op.rmatvec(x) if adjoint else op.matvec(x)

    def expected(A: Any, x: Any) -> Same:
        dense = A.dense().astype(own)
        return Same(dense.conj().T @ x if adjoint else dense @ x)

    return Case(
        "linalg.aslinearoperator", call, {"A": bsr, "x": x}, expected, fixed=frozenset({"A", "x"})
    )


CASES = (
    methods,
    methods_with_arguments,
    with_sparse,
    with_dense,
    indexing,
    linear_operator,
)
