"""What all iterative solvers of linear systems promise, against SciPy's and dense solves."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

import sparsegpu
from solver_cases import allowed, banded_blocks, dense_system, on, residual_norms
from sparsegpu import bsr_array, linalg

#: A kind of matrix that each takes, and the dtypes.
KINDS = {"cg": "definite", "minres": "indefinite", "bicgstab": "general", "gmres": "general"}
REAL = ["float32", "float64"]
DTYPES = [
    (solver, dtype)
    for solver in KINDS
    for dtype in REAL + (["complex64", "complex128"] if solver != "minres" else [])
]


def solve(engine, solver, a, b, **keywords):
    """Return a solver's answer on the host, as it computes with an engine."""
    with sparsegpu.use_engine(engine.name):
        x, info = getattr(linalg, solver)(a, b, **keywords)
    assert type(x) is type(b) and x.shape == b.shape
    assert isinstance(info, int if b.ndim == 1 else np.ndarray)
    return engine.host(x), info


def blocks(engine, dense, size=4):
    return on(engine, bsr_array(dense, blocksize=(size, size)))


@pytest.mark.parametrize(("solver", "dtype"), DTYPES)
def test_answers(engine, rng, solver, dtype):
    dense = dense_system(rng, KINDS[solver], dtype)
    exact = rng.standard_normal((48, 3)).astype(dtype)
    if np.dtype(dtype).kind == "c":
        exact = exact * (1 + 2j)
    b = (dense @ exact).astype(dtype)
    rtol = 1e-4 if np.dtype(dtype).itemsize <= 8 and dtype != "float64" else 1e-9
    a = blocks(engine, dense)
    for right in (b[:, 0], b):
        x, info = solve(engine, solver, a, engine.array(right), rtol=rtol)
        assert x.dtype == dtype and not np.any(info)
        slack = 100 if solver == "minres" else 1  # which measures by norm(A) norm(x)
        assert (residual_norms(dense, x, right) <= slack * allowed(dense, x, right, rtol)).all()


@pytest.mark.parametrize("solver", [name for name in KINDS if name != "gmres"])
def test_the_iterates_of_scipy(engine, rng, solver):
    dense = dense_system(rng, KINDS[solver], condition=4)
    b, start = rng.standard_normal(48), rng.standard_normal(48)
    for keywords in ({}, {"x0": start}):
        ours, theirs = [], []
        expected, code = getattr(scipy.sparse.linalg, solver)(
            dense, b, rtol=1e-8, callback=lambda x, to=theirs: to.append(x.copy()), **keywords
        )
        given = {name: engine.array(value) for name, value in keywords.items()}
        x, info = solve(
            engine, solver, blocks(engine, dense), engine.array(b), rtol=1e-8,
            callback=lambda x, to=ours: to.append(engine.host(x)), **given,
        )  # fmt: skip
        assert info == code == 0 and len(ours) == len(theirs)
        norm = np.linalg.norm(expected)
        for mine, scipys in zip(ours, theirs):
            # On a well-conditioned problem rounding errors grow slowly.
            assert np.linalg.norm(mine - scipys) <= 1e-8 * norm
        assert np.linalg.norm(x - expected) <= 1e-8 * norm


@pytest.mark.parametrize("solver", KINDS)
def test_any_check_every_gives_the_same_bits(engine, rng, solver):
    dense = dense_system(rng, KINDS[solver])
    b = engine.array(rng.standard_normal((48, 4)) * [1, 1e-30, 0, 1e3])
    a, seen = blocks(engine, dense), []
    for keywords in (
        {"check_every": 1}, {"check_every": 5}, {}, {"check_every": 1000},
        {"callback": lambda x: None, "check_every": 7},
    ):  # fmt: skip
        history = []
        x, info = solve(engine, solver, a, b, residuals=history, rtol=1e-7, **keywords)
        seen.append((x.tobytes(), info.tolist(), np.array(history).tobytes()))
    assert seen.count(seen[0]) == len(seen)
    # The tolerance is met for the first time in the last iterate.
    alone = []
    solve(engine, solver, a, b[:, 0].copy(), residuals=alone, rtol=1e-7)
    if solver != "minres":
        goal = 1e-7 * np.linalg.norm(engine.host(b)[:, 0])
        assert alone[-1] <= goal and min(alone[:-1]) > goal


@pytest.mark.parametrize("solver", KINDS)
def test_each_column_stops_by_itself(engine, rng, solver):
    dense = dense_system(rng, KINDS[solver])
    vectors = np.linalg.eigh(dense)[1] if solver != "gmres" else np.linalg.qr(dense)[0]
    b = np.stack([rng.standard_normal(48), vectors[:, 3], np.zeros(48)], axis=1)
    a = blocks(engine, dense)
    history = []
    x, info = solve(engine, solver, a, engine.array(b), residuals=history, maxiter=500)
    assert (info == 0).all() and (x[:, 2] == 0).all()
    for column in range(3):
        alone = []
        one, code = solve(
            engine, solver, a, engine.array(b[:, column].copy()), residuals=alone, maxiter=500
        )
        assert code == 0
        kept = np.array(history)[:, column]
        stopped = int((kept != kept[-1]).sum())  # the iteration; from there it is repeated
        assert (kept[stopped:] == kept[-1]).all() and abs(stopped - len(alone) + 1) <= 1
        size = np.linalg.norm(x[:, column])
        assert np.linalg.norm(one - x[:, column]) <= 1e-4 * size
    assert len(history) > 5


@pytest.mark.parametrize("solver", KINDS)
def test_where_it_starts(engine, rng, solver):
    dense = dense_system(rng, KINDS[solver])
    exact = rng.standard_normal(48)
    b = dense @ exact
    a = blocks(engine, dense)
    history = []
    start = engine.array(np.linalg.solve(dense, b))
    before = engine.host(start).copy()
    limit = {} if solver == "minres" else {"atol": 1e-9}
    x, info = solve(engine, solver, a, engine.array(b), x0=start, residuals=history, **limit)
    assert info == 0 and (engine.host(start) == before).all()
    np.testing.assert_allclose(x, exact, atol=1e-9)
    # Of zeros the answer is zeros, wherever one starts.
    zeros = engine.array(np.zeros(48))
    x, info = solve(engine, solver, a, zeros, x0=engine.array(exact))
    assert info == 0
    if solver != "minres":
        assert not x.any()


@pytest.mark.parametrize("preconditioned", [False, True])
@pytest.mark.parametrize("solver", KINDS)
def test_captured_or_launched_the_bits_are_the_same(cuda_engine, rng, solver, preconditioned):
    """An iteration with callables is launched, one with our operands a CUDA graph."""
    dense = dense_system(rng, KINDS[solver])
    a, b = blocks(cuda_engine, dense), cuda_engine.array(rng.standard_normal((48, 3)))
    unit = blocks(cuda_engine, np.diag(rng.uniform(1, 2, 48)))
    M = linalg.block_jacobi(unit) if preconditioned else None
    launched_M = (lambda v: M @ v) if preconditioned else None
    found = []
    for operator, inverse in ((a, M), (lambda v: a @ v, launched_M)):
        for stream in (cuda_engine.xp.cuda.Stream.null, cuda_engine.xp.cuda.Stream()):
            history = []
            with stream:
                x, info = getattr(linalg, solver)(operator, b, M=inverse, residuals=history)
                stream.synchronize()
            found.append((x.tobytes(), info.tobytes(), np.array(history).tobytes()))
    assert found.count(found[0]) == 4 and not info.any()


@pytest.mark.parametrize("solver", KINDS)
def test_a_solver_refuses_to_be_captured(cuda_engine, rng, solver):
    xp = cuda_engine.xp
    a, b = blocks(cuda_engine, np.eye(8)), cuda_engine.array(np.ones(8))
    stream, other = xp.cuda.Stream(non_blocking=True), xp.zeros(4)
    with stream:
        stream.begin_capture()
        with pytest.raises(NotImplementedError, match=f"{solver}, which looks at residuals"):
            getattr(linalg, solver)(a, b)
        other += 1
        stream.end_capture()


@pytest.mark.parametrize("solver", KINDS)
def test_operands_that_cannot_be_written_to(rng, solver):
    dense = dense_system(rng, KINDS[solver])
    b, x0 = rng.standard_normal((2, 48))
    b.flags.writeable = x0.flags.writeable = False
    a = bsr_array(dense, blocksize=(4, 4))
    x, info = getattr(linalg, solver)(a, b, x0, rtol=1e-9)
    assert info == 0
    np.testing.assert_allclose(x, np.linalg.solve(dense, b), atol=1e-4)


@pytest.mark.parametrize("solver", KINDS)
def test_not_within_tolerance(engine, rng, solver, capsys):
    dense = dense_system(rng, KINDS[solver], condition=1e6)
    a, b = blocks(engine, dense), engine.array(rng.standard_normal((48, 2)))
    limit = {"restart": 3} if solver == "gmres" else {}
    x, info = solve(engine, solver, a, b, rtol=1e-14, maxiter=3, verbose=True, **limit)
    assert (info == 3).all()
    line = capsys.readouterr().out
    assert line.startswith(f"{solver}: ") and line.count("\n") == 1
    assert "0 of 2 columns converged" in line
    # None made at all is no success.
    x, info = solve(engine, solver, a, b, maxiter=0)
    assert (info == -1).all() and not x.any()


@pytest.mark.parametrize("solver", KINDS)
def test_operators(engine, rng, solver):
    a, dense = banded_blocks(rng)
    if solver == "minres":
        dense = dense - 2 * np.diag(np.diag(dense)) * (np.arange(60) % 3 == 0)
        a = bsr_array(dense, blocksize=(3, 3))
    a = on(engine, a)
    b = engine.array(rng.standard_normal((60, 2)))
    expected, _ = solve(engine, solver, a, b, rtol=1e-10)
    one = b[:, 0].copy()
    for operator in (a.aslinearoperator(), lambda v: a @ v):
        for right in (b, one):
            x, info = solve(engine, solver, operator, right, rtol=1e-10)
            assert not np.any(info)
            np.testing.assert_allclose(x, expected[:, : right.ndim].reshape(x.shape), atol=1e-8)
    if not engine.on_gpu:
        for operator in (dense, scipy.sparse.csr_array(dense)):
            x, info = solve(engine, solver, operator, one, rtol=1e-10)
            np.testing.assert_allclose(x, expected[:, 0], atol=1e-8)


@pytest.mark.parametrize("solver", KINDS)
def test_dtypes_are_those_of_scipy(engine, rng, solver):
    a, dense = banded_blocks(rng, "float32")
    b = rng.standard_normal(60)
    method = getattr(scipy.sparse.linalg, solver)
    for right in (b, b.astype("float32"), np.arange(60)):
        x, info = solve(engine, solver, on(engine, a), engine.array(right))
        expected = method(dense, right)[0].dtype
        if solver == "minres" and right.dtype == "float32":
            expected = right.dtype  # SciPy's scalars widen it on the way
        assert x.dtype == expected and info == 0


@pytest.mark.parametrize("solver", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sizes_without_elements(engine, solver, dtype):
    empty = on(engine, bsr_array(np.zeros((0, 0), dtype), blocksize=(2, 2)))
    x, info = solve(engine, solver, empty, engine.array(np.zeros(0, dtype)))
    assert info == 0 and x.shape == (0,)
    a = on(engine, bsr_array(np.eye(4, dtype=dtype), blocksize=(2, 2)))
    x, info = solve(engine, solver, a, engine.array(np.zeros((4, 0), dtype)))
    assert info.shape == (0,)


@pytest.mark.parametrize("solver", KINDS)
def test_numbers_that_are_none(engine, rng, solver):
    a, dense = banded_blocks(rng)
    b = rng.standard_normal((60, 2))
    b[5, 0] = np.nan
    x, info = solve(engine, solver, on(engine, a), engine.array(b))
    assert info[0] != 0 and info[1] == 0
    assert residual_norms(dense, x[:, 1], b[:, 1]) <= 1.1e-5 * np.linalg.norm(b[:, 1]) * 10


# -- bad input ---------------------------------------------------------------------------------

A = sparsegpu.bsr_array(np.eye(4), blocksize=(2, 2))
BAD = {
    "A not square": (dict(A=bsr_array(np.ones((4, 6)), blocksize=(2, 2))), ValueError, "A"),
    "A a batch": (dict(A=bsr_array(np.ones((2, 4, 4)), blocksize=(2, 2))), ValueError, "A"),
    "A int8": (dict(A=A.astype("int8")), TypeError, "A"),
    "A float16": (dict(A=A.astype("float16")), TypeError, "A"),
    "A a string": (dict(A="matrix"), TypeError, "A"),
    "A gives complex": (dict(A=lambda v: v + 1j), TypeError, "A"),
    "A gives another shape": (dict(A=lambda v: v[:-1]), ValueError, "A"),
    "A gives a list": (dict(A=lambda v: v.tolist()), TypeError, "A"),
    "b too long": (dict(b=np.ones(5)), ValueError, "b"),
    "b 3-D": (dict(b=np.ones((4, 1, 1))), ValueError, "b"),
    "b float16": (dict(b=np.ones(4, "float16")), TypeError, "b"),
    "b no number": (dict(b=np.array(list("abcd"))), TypeError, "b"),
    "b objects": (dict(b=np.array([None] * 4)), TypeError, "b"),
    "x0 of another shape": (dict(x0=np.ones((4, 1))), ValueError, "x0"),
    "x0 complex": (dict(x0=np.ones(4) * 1j), TypeError, "x0"),
    "x0 no number": (dict(x0=np.array(list("abcd"))), TypeError, "x0"),
    "M of another shape": (dict(M=sparsegpu.identity(6, blocksize=(2, 2))), ValueError, "M"),
    "M complex": (dict(M=A.astype("complex128")), TypeError, "M"),
    "M a number": (dict(M=2.0), TypeError, "M"),
    "maxiter negative": (dict(maxiter=-1), ValueError, "maxiter"),
    "maxiter a float": (dict(maxiter=3.0), TypeError, "maxiter"),
    "check_every 0": (dict(check_every=0), ValueError, "check_every"),
    "rtol negative": (dict(rtol=-1e-5), ValueError, "rtol"),
    "rtol NaN": (dict(rtol=float("nan")), ValueError, "rtol"),
    "callback no callable": (dict(callback=3), TypeError, "callback"),
    "residuals no list": (dict(residuals=np.zeros(3)), TypeError, "residuals"),
    "verbose a word": (dict(verbose="no"), TypeError, "verbose"),
}


@pytest.mark.parametrize("solver", KINDS)
@pytest.mark.parametrize("name", BAD)
def test_bad_input(solver, name):
    keywords, error, argument = BAD[name]
    b, x0 = np.ones(4), np.zeros(4)
    with pytest.raises(error, match=rf"^{solver}: argument '{argument}': expected "):
        getattr(linalg, solver)(**({"A": A, "b": b, "x0": x0} | keywords))
    assert (x0 == 0).all() and (b == 1).all()


@pytest.mark.parametrize("solver", KINDS)
def test_host_and_device_arrays_do_not_mix(cuda_engine, solver):
    method, device = getattr(linalg, solver), cuda_engine.array(np.ones(4))
    for a, b, keywords, name in (
        (A, device, {}, "b"), (on(cuda_engine, A), np.ones(4), {}, "b"),
        (on(cuda_engine, A), [1.0] * 4, {}, "b"), (A, np.ones(4), {"x0": device}, "x0"),
        (on(cuda_engine, A), device, {"M": A}, "M"),
        (A.aslinearoperator(), device, {}, "A"),
        (on(cuda_engine, A), device, {"M": A.aslinearoperator()}, "M"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=rf"^{solver}: argument '\w+'") as caught:
            method(a, b, **keywords)
        assert name in str(caught.value)


# -- what one of them has ----------------------------------------------------------------------


def test_minres_shift_and_preconditioner(engine, rng):
    dense = dense_system(rng, "indefinite")
    b = rng.standard_normal((48, 2))
    a = blocks(engine, dense)
    shifted = dense - 0.5 * np.eye(48)
    x, info = solve(engine, "minres", a, engine.array(b), shift=0.5, rtol=1e-12)
    assert (info == 0).all()
    np.testing.assert_allclose(x, np.linalg.solve(shifted, b), atol=1e-6)
    values, vectors = np.linalg.eigh(dense)
    M = (vectors / abs(values)) @ vectors.T  # with it there are two eigenvalues
    history = []
    x, info = solve(
        engine, "minres", a, engine.array(b), M=blocks(engine, M), rtol=1e-10, residuals=history
    )
    assert (info == 0).all() and len(history) <= 5
    np.testing.assert_allclose(x, np.linalg.solve(dense, b), atol=1e-6)


def test_minres_solves_a_singular_system_in_least_squares(engine, rng):
    dense = dense_system(rng, "indefinite", n=12)
    values, vectors = np.linalg.eigh(dense)
    values[0] = 0
    dense = (vectors * values) @ vectors.T
    b = rng.standard_normal(12)
    x, info = solve(engine, "minres", blocks(engine, dense), engine.array(b), rtol=1e-5)
    assert info == 0
    expected = np.linalg.norm(b - dense @ np.linalg.pinv(dense) @ b)
    assert abs(residual_norms(dense, x, b) - expected) <= 1e-4 * expected


def test_minres_refuses_what_it_can_see(engine, rng):
    a, b = blocks(engine, np.eye(8)), engine.array(np.ones(8))
    with pytest.raises(ValueError, match=r"^minres: argument 'M': expected a positive definite"):
        solve(engine, "minres", a, b, M=blocks(engine, -np.eye(8)))
    lopsided = blocks(engine, np.triu(np.ones((8, 8))))
    with pytest.raises(ValueError, match=r"^minres: argument 'A': expected a symmetric"):
        solve(engine, "minres", lopsided, b, check=True)
    with pytest.raises(ValueError, match=r"^minres: argument 'M': expected a symmetric"):
        solve(engine, "minres", a, b, M=lopsided, check=True)
    with pytest.raises(TypeError, match=r"^minres: argument 'A': expected a real dtype"):
        linalg.minres(A.astype("complex128"), np.ones(4))
    with pytest.raises(TypeError, match=r"^minres: argument 'b': expected a real dtype"):
        linalg.minres(A, np.ones(4) * 1j)


def test_cg_on_an_indefinite_matrix_ends(engine, rng):
    """It may converge or not; what it says of its answer is true."""
    dense = dense_system(rng, "indefinite")
    b = rng.standard_normal(48)
    x, info = solve(engine, "cg", blocks(engine, dense), engine.array(b), rtol=1e-8)
    assert np.isfinite(x).all()
    if info == 0:
        assert residual_norms(dense, x, b) <= allowed(dense, x, b, 1e-8, iterations=10**6)
    # A direction without curvature: no step can be made.
    saddle = bsr_array(np.array([[0.0, 1], [1, 0]]), blocksize=(2, 2))
    x, info = solve(engine, "cg", on(engine, saddle), engine.array(np.array([1.0, 0])))
    assert info == -1 and not x.any()


@pytest.mark.parametrize("kind", ["x", "pr_norm", "legacy"])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("preconditioned", [False, True])
def test_gmres_tells_what_scipys_tells(engine, rng, kind, dtype, preconditioned):
    dense = dense_system(rng, "general", dtype)
    b = rng.standard_normal(48).astype(dtype)
    inverse = np.diag(1 / np.diag(dense)) if preconditioned else None
    M = blocks(engine, inverse) if preconditioned else None
    keywords = dict(rtol=1e-9, restart=5, maxiter=1000, callback_type=kind)
    ours, theirs = [], []
    expected, code = scipy.sparse.linalg.gmres(
        dense, b, M=inverse, callback=lambda told: theirs.append(np.array(told)), **keywords
    )
    x, info = solve(
        engine, "gmres", blocks(engine, dense), engine.array(b), M=M, **keywords,
        callback=lambda told: ours.append(engine.host(told) if kind == "x" else told),
    )  # fmt: skip
    assert info == code == 0 and len(ours) == len(theirs)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    np.testing.assert_allclose(x, expected, atol=1e-8)


def test_gmres_limits_and_exact_solutions(engine, rng):
    dense = dense_system(rng, "definite", condition=1e4)
    b = rng.standard_normal(48)
    a, right = blocks(engine, dense), engine.array(b)
    for keywords in (
        {"maxiter": 2, "restart": 4},
        {"maxiter": 7, "restart": 4, "callback": print, "callback_type": "legacy"},
    ):
        expected, code = scipy.sparse.linalg.gmres(dense, b, rtol=1e-12, **keywords)
        history = []
        x, info = solve(engine, "gmres", a, right, rtol=1e-12, residuals=history, **keywords)
        assert info == code == keywords["maxiter"]
        np.testing.assert_allclose(x, expected, atol=1e-8)
        assert len(history) == (9 if "callback" not in keywords else 8)
    # Two eigenvalues: two iterations are exact, and nothing is left to try.
    two = blocks(engine, np.diag(np.repeat([1.0, 3.0], 24)))
    history = []
    x, info = solve(engine, "gmres", two, right, rtol=1e-14, residuals=history)
    assert info == 0 and len(history) <= 4
    for wrong, error in ((0, ValueError), (2.5, TypeError)):
        with pytest.raises(error, match=r"^gmres: argument 'restart'"):
            linalg.gmres(A, np.ones(4), restart=wrong)
    with pytest.raises(ValueError, match=r"^gmres: argument 'callback_type': expected one of"):
        linalg.gmres(A, np.ones(4), callback_type="residual")


def test_bicgstab_breaks_down_with_scipys_codes(engine):
    turn = np.array([[0.0, 1], [-1, 0]])  # r, A r = 0 for every r
    b = np.array([1.0, 0])
    _, expected = scipy.sparse.linalg.bicgstab(turn, b)
    x, info = solve(
        engine, "bicgstab", on(engine, bsr_array(turn, blocksize=(2, 2))), engine.array(b)
    )
    assert info == expected == -11 and np.isfinite(x).all()


@pytest.mark.parametrize("solver", ["cg", "bicgstab", "gmres"])
def test_preconditioners(engine, rng, solver):
    a, dense = banded_blocks(rng, blocks=30)
    scale = np.repeat(10.0 ** rng.integers(-2, 3, 30), 3)
    dense = dense * scale[:, None] * scale
    a = on(engine, bsr_array(dense, blocksize=(3, 3)))
    b = engine.array(rng.standard_normal((90, 2)))
    with sparsegpu.use_engine(engine.name):
        M = linalg.block_jacobi(a)
    counts = []
    for given in (None, M, lambda v: M @ v):
        history = []
        _, info = solve(engine, solver, a, b, M=given, rtol=1e-8, residuals=history, maxiter=3000)
        counts.append(len(history))
    assert counts[1] * 3 < counts[0] and counts[2] == counts[1] and (info == 0).all()
