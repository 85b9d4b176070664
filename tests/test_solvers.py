"""What all iterative solvers of linear systems promise, against SciPy's and dense solves."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

from solver_cases import (
    KINDS,
    allowed,
    banded_blocks,
    blocks,
    dense_system,
    on,
    residual_norms,
    solve,
)
from sparsegpu import bsr_array, linalg

REAL = ["float32", "float64"]
DTYPES = [
    (solver, dtype)
    for solver in KINDS
    for dtype in REAL + (["complex64", "complex128"] if solver != "minres" else [])
]


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
        history = []
        x, info = solve(engine, solver, a, engine.array(right), rtol=rtol, residuals=history)
        assert x.dtype == dtype and not np.any(info)
        bound = allowed(dense, x, right, rtol, iterations=len(history), solver=solver)
        assert (residual_norms(dense, x, right) <= bound).all()


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
        for i, (mine, scipys) in enumerate(zip(ours, theirs)):
            # On a well-conditioned problem rounding errors grow slowly, until Lanczos vectors are
            # not orthogonal any more: from then on the bound is that of the answers.
            bound = 1e-8 if i < 24 else 2 * 4 * 1e-8
            assert np.linalg.norm(mine - scipys) <= bound * norm
        assert np.linalg.norm(x - expected) <= 2 * 4 * 1e-8 * norm


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
def test_on_the_host_no_iteration_follows_the_answer(rng, solver):
    dense = dense_system(rng, KINDS[solver], condition=4)
    b, products = rng.standard_normal(48), []

    def multiply(v):
        products.append(1)
        return dense @ v

    made = []
    for every in (1, 16, 1000):
        assert getattr(linalg, solver)(multiply, b, rtol=1e-6, check_every=every)[1] == 0
        made.append(len(products))
        products.clear()
    assert made[0] < 48 and made == made[:1] * 3


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
        # An answer within tolerance is as near as the condition allows: 100.
        assert np.linalg.norm(one - x[:, column]) <= 2 * 100 * 1e-5 * size
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
    limit = {} if solver == "minres" else {"atol": 1e-9}  # which has no such parameter, as SciPy's
    x, info = solve(engine, solver, a, engine.array(b), x0=start, residuals=history, **limit)
    assert info == 0 and (engine.host(start) == before).all()
    np.testing.assert_allclose(x, exact, atol=1e-9)
    # Of zeros the answer is zeros, wherever one starts.
    zeros = engine.array(np.zeros(48))
    for rtol in (1e-5, np.inf):
        x, info = solve(engine, solver, a, zeros, x0=engine.array(exact), rtol=rtol)
        assert info == 0 and not x.any()


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


@pytest.mark.parametrize("solver", KINDS)
@pytest.mark.parametrize("number", [np.inf, -np.inf, 1e200])
def test_a_norm_that_is_not_finite_is_no_answer(engine, solver, number):
    a = on(engine, bsr_array(np.eye(4), blocksize=(2, 2)))
    b = np.ones((4, 2))
    b[1, 0] = number
    _, info = solve(engine, solver, a, engine.array(b))
    assert info.tolist() == [-1, 0]
