"""The kernel of the solvers' passes on the host (tools/emulator), against the reference engine."""

from __future__ import annotations

import numpy as np
import pytest

import sparsegpu
from solver_cases import dense_system, extended_basis, residual_norms
from sparsegpu import bsr_array, linalg
from sparsegpu.engines.reference import arnoldi
from sparsegpu.linalg import _gmres
from sparsegpu.linalg._system import System
from tools.emulator.solvers import emulated_solvers

#: Few, as each pass takes a second to build: solver, dtype, right-hand sides, with M.
CASES = [
    ("cg", "float64", 1, False),
    ("cg", "complex64", 3, True),
    ("bicgstab", "complex128", 1, False),
    ("bicgstab", "float32", 2, False),
    ("minres", "float64", 3, True),
    ("minres", "float32", 1, False),
    ("gmres", "float64", 1, False),
    ("gmres", "float32", 3, True),
    ("gmres", "complex64", 1, True),
    ("gmres", "complex128", 2, False),
]
KINDS = {"cg": "definite", "minres": "indefinite", "bicgstab": "general", "gmres": "general"}
LAUNCHES = {"cg": 3, "bicgstab": 5, "minres": 4}  # of an iteration, one more with M (minres, cg)


def solve(solver, a, b, **keywords):
    """Return the answer, its info, the residual norms and the iterates."""
    history, iterates = [], []
    method = getattr(linalg, solver)
    x, info = method(a, b, residuals=history, **keywords)
    with_callback, _ = method(a, b, callback=iterates.append, **keywords)
    assert with_callback.tobytes() == x.tobytes()
    return x, info, np.array(history), np.array(iterates)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_iterates_of_the_reference(directory, rng, case):
    solver, dtype, r, preconditioned = case
    dense = dense_system(rng, KINDS[solver], dtype, condition=4)
    exact = rng.standard_normal((48, r)).astype(dtype)
    if r > 1:
        exact[:, 1] *= 1e-12  # its residual is within atol of the others at once
    b = (dense @ exact)[:, 0] if r == 1 else dense @ exact
    a = bsr_array(dense, blocksize=(4, 4))
    small = np.finfo(dtype).eps * 200
    keywords = {"rtol": small, "check_every": 3}
    if preconditioned:
        inverse = np.diag(1 / np.diag(abs(dense))).astype(dtype)
        keywords["M"] = bsr_array(inverse, blocksize=(4, 4))
    with sparsegpu.use_engine("reference"):
        expected = solve(solver, a, b, **keywords)
    with emulated_solvers(directory) as launched:
        found = solve(solver, a, b, **keywords)
        before = sum(launched.values())
        iterations = keywords["check_every"]
        linalg_call = getattr(linalg, solver)
        linalg_call(a, b, **{**keywords, "maxiter": iterations})
        once = sum(launched.values()) - before
        linalg_call(a, b, **{**keywords, "maxiter": 2 * iterations})
        twice = sum(launched.values()) - before - once
    if solver != "gmres":  # whose cycles grow
        assert twice - once == iterations * (LAUNCHES[solver] + preconditioned)
    assert np.array_equal(found[1], expected[1]) and not np.any(found[1])
    for ours, theirs in zip(found[2:], expected[2:]):
        # Rounding errors grow: the first iterates are the same, and about as many are made.
        assert abs(len(ours) - len(theirs)) <= 1 + len(theirs) // 20
        scale = abs(theirs[:10]).max(axis=0)
        assert (abs(ours[:10] - theirs[:10]) <= 100 * small * scale).all()
    assert (residual_norms(dense, found[0], b) <= 100 * small * np.linalg.norm(b, axis=0)).all()


def test_launches_of_a_cycle(directory, rng):
    """Of an iteration one for eight vectors, and two."""
    a = bsr_array(dense_system(rng, "general"), blocksize=(4, 4))
    launches = []
    for cycles in (1, 2):
        with emulated_solvers(directory) as launched:
            linalg.gmres(a, rng.standard_normal(48), rtol=0, restart=9, maxiter=cycles)
        launches.append(sum(launched.values()))
    assert launches[1] - launches[0] == 2 + 8 * (1 + 2) + (2 + 2) + 3


@pytest.mark.parametrize(("dtype", "n", "r"), [("float32", 9001, 1), ("complex64", 301, 40)])
def test_a_basis_of_many_thread_blocks(directory, dtype, n, r):
    expected, _ = extended_basis(arnoldi, np.random.default_rng(0), dtype, n, r)
    with emulated_solvers(directory):
        kernels = _gmres.engine_module(np, "arnoldi", "gmres")
        found, _ = extended_basis(kernels, np.random.default_rng(0), dtype, n, r)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, name)


@pytest.mark.parametrize(("dtype", "n", "r"), [("float32", 9001, 1), ("float64", 301, 40)])
def test_a_pass_of_many_thread_blocks(directory, rng, dtype, n, r):
    """Sums of small integers are exact, in whatever order; the next launch finds zero tickets."""
    x, p, z = (rng.integers(-3, 4, (n, r)).astype(dtype) for _ in range(3))
    expected = x + 2 * p
    with emulated_solvers(directory):
        system = System("cg", lambda v: v, np.zeros((n, r), dtype))
        numbers = system.scalars(4)
        numbers[0] = 2
        dots = [(1, x, z), (2, x, x)]
        system.prepare(numbers, [(x, [(None, x), (0, p)])], dots)()
        again = system.prepare(numbers, [], [(3, x, z)])
        for _ in range(2):
            numbers[3] = np.nan
            again()
            np.testing.assert_array_equal(numbers[3], (expected * z).sum(axis=0))
    np.testing.assert_array_equal(x, expected)
    np.testing.assert_array_equal(numbers[1], numbers[3])
    np.testing.assert_array_equal(numbers[2], (expected * expected).sum(axis=0))


def test_columns_that_stop(directory, rng):
    """At once, in between and of NaN, with more columns than a thread block has."""
    dense = dense_system(rng, "definite", condition=30)
    b = rng.standard_normal((48, 37))
    b[:, 3] = 0
    b[4, 7] = np.nan
    b[:, 35] = np.linalg.eigh(dense)[1][:, 0]
    a = bsr_array(dense, blocksize=(4, 4))
    answers = []
    for every in (1, 5, 100):
        history = []
        with emulated_solvers(directory):
            x, info = linalg.cg(a, b, rtol=1e-9, check_every=every, residuals=history)
        answers.append((x.tobytes(), info.tobytes(), np.array(history).tobytes()))
    assert answers.count(answers[0]) == 3
    assert info[7] == -1 and not np.delete(info, 7).any() and not x[:, 3].any()
    rest = np.delete(np.arange(37), 7)
    assert np.linalg.norm(dense @ x[:, rest] - b[:, rest], axis=0).max() <= 1e-7
    history = np.array(history)
    assert (history[1:, 35] == history[1, 35]).all() and (history[:, 3] == 0).all()


def test_the_first_iterate_within_tolerance_is_the_answer(directory, rng):
    dense = dense_system(rng, "definite", condition=30)
    b, a = rng.standard_normal(48), bsr_array(dense, blocksize=(4, 4))
    history, iterates = [], []
    with emulated_solvers(directory):
        linalg.cg(a, b, rtol=1e-6, callback=iterates.append)
        x, _ = linalg.cg(a, b, rtol=1e-6, check_every=1000, residuals=history)
    goal = 1e-6 * np.linalg.norm(b)
    assert history[-1] <= goal < min(history[:-1])
    assert x.tobytes() == iterates[-1].tobytes() and len(iterates) == len(history) - 1
