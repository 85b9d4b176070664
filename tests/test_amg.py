"""The V-cycle of smoothed aggregation as a preconditioner."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import scipy.linalg

import sparsegpu
from solver_cases import allowed, on, residual_norms
from sparsegpu import bsr_array, linalg
from sparsegpu.benchmark.elasticity import cantilever

pytest.importorskip("pyamg")


def rigid_motions(nx, ny):
    """Return the two translations and the rotation of `cantilever`'s nodes."""
    i, j = np.divmod(np.arange(nx * (ny + 1)), ny + 1)
    motions = np.zeros((2 * len(i), 3))
    motions[0::2, 0] = motions[1::2, 1] = 1
    motions[0::2, 2], motions[1::2, 2] = -j, i
    return motions


def iterations(engine, a, b, **keywords):
    history = []
    with sparsegpu.use_engine(engine.name):
        x, info = linalg.cg(a, b, rtol=1e-8, residuals=history, **keywords)
    assert info == 0
    return engine.host(x), len(history) - 1


@pytest.mark.parametrize(("smoother", "motions"), [("chebyshev", False), ("block_jacobi", True)])
def test_ten_times_fewer_iterations(engine, smoother, motions):
    if engine.name == "reference":
        pytest.skip("a Python loop over rows: minutes on a beam of the size that needs a V-cycle")
    nx, ny = 80, 20
    a, b = cantilever(nx, ny)
    B = engine.array(rigid_motions(nx, ny)) if motions else None
    device, load = on(engine, a), engine.array(b)
    _, plain = iterations(engine, device, load)
    with sparsegpu.use_engine(engine.name):
        M = linalg.amg(device, B=B, smoother=smoother, max_coarse=200)
    x, cycled = iterations(engine, device, load, M=M)
    assert cycled * 10 <= plain
    assert (residual_norms(a.toarray(), x, b) <= allowed(a.toarray(), x, b, 1e-8)).all()


def test_coarse_blocks_may_be_singular(engine, rng):
    """Parts without neighbours: an aggregate has fewer unknowns than the constants of a block."""
    parts = []
    for _ in range(4):
        q = np.linalg.qr(rng.standard_normal((4, 4)))[0]
        part = (q * rng.uniform(1, 1.5, 4)) @ q.T
        parts.append((part + part.T) / 2)
    dense = scipy.linalg.block_diag(*parts)
    A = sparsegpu.bsr_array(engine.array(dense), blocksize=(2, 2))
    b = engine.array(rng.standard_normal(16))
    x, info = sparsegpu.linalg.cg(A, b, M=sparsegpu.linalg.amg(A, max_coarse=4), rtol=1e-10)
    assert info == 0
    np.testing.assert_allclose(dense @ engine.host(x), engine.host(b), atol=1e-8)


def test_the_cycle_is_symmetric_and_definite(engine, rng):
    """What conjugate gradients ask of a preconditioner."""
    a, _ = cantilever(8, 3)
    with sparsegpu.use_engine(engine.name):
        for keywords in ({}, {"smoother": "block_jacobi"}, {"degree": 1}, {"degree": 3}):
            M = linalg.amg(on(engine, a), max_coarse=8, **keywords)
            dense = engine.host(M @ engine.array(np.eye(a.shape[0])))
            assert abs(dense - dense.T).max() <= 1e-12 * abs(dense).max()
            assert np.linalg.eigvalsh((dense + dense.T) / 2).min() > 0
            x = rng.standard_normal(a.shape[0])
            np.testing.assert_allclose(engine.host(M @ engine.array(x)), dense @ x, rtol=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "complex128"])
def test_dtypes(engine, dtype):
    a, b = cantilever(16, 6)
    scale = np.exp(1j * np.arange(a.shape[0])) if "complex" in dtype else np.ones(a.shape[0])
    dense = (a.toarray() * scale.conj()[:, None] * scale).astype(dtype)
    B = (rigid_motions(16, 6) * scale.conj()[:, None]).astype(dtype)
    a, b = bsr_array(dense, blocksize=(2, 2)), b.astype(dtype)
    device = on(engine, a)
    with sparsegpu.use_engine(engine.name):
        M = linalg.amg(device, B=engine.array(B), max_coarse=50)
        assert M.dtype == dtype
        history = []
        x, info = linalg.cg(device, engine.array(b), M=M, rtol=1e-4, residuals=history)
    assert info == 0 and len(history) < 20
    x = engine.host(x)
    assert (residual_norms(dense, x, b) <= allowed(dense, x, b, 1e-4)).all()


def test_a_complex_load_of_a_real_matrix(engine):
    a, b = cantilever(16, 6)
    load = b * (1 + 2j)
    with sparsegpu.use_engine(engine.name):
        device = on(engine, a)
        M = linalg.amg(device, max_coarse=20)
        cycled, one = (engine.host(M @ engine.array(v)) for v in (load, b))
        x, info = linalg.cg(device, engine.array(load), M=M, rtol=1e-8)
    assert info == 0
    np.testing.assert_allclose(cycled, one * (1 + 2j), rtol=1e-12)
    x = engine.host(x)
    assert (residual_norms(a.toarray(), x, load) <= allowed(a.toarray(), x, load, 1e-8)).all()


def test_repeated_and_unsorted_blocks_are_those_of_their_sum(engine):
    a, b = cantilever(16, 6)
    rows = np.repeat(np.arange(len(a.indptr) - 1), 2 * np.diff(a.indptr))
    order = np.lexsort((np.tile([1, 0], a.nnzb), rows))  # all of a row, and all of it again
    data = np.stack([a.data * 0.25, a.data * 0.75], axis=1).reshape(-1, 2, 2)[order]
    parts = data, np.repeat(a.indices, 2)[order], 2 * a.indptr
    repeated = bsr_array(parts, shape=a.shape)
    with sparsegpu.use_engine(engine.name):
        load = engine.array(b)
        cycled, expected = (
            engine.host(linalg.amg(on(engine, x), max_coarse=20) @ load) for x in (repeated, a)
        )
    np.testing.assert_allclose(cycled, expected, rtol=1e-9)


def test_every_run_is_the_same_and_numpys_generator_goes_on(engine):
    a, b = cantilever(16, 6)
    device, load = on(engine, a), engine.array(b)
    answers = []
    with sparsegpu.use_engine(engine.name):
        for seed in (1, 2):
            np.random.seed(seed)  # noqa: NPY002
            expected = np.random.RandomState(seed).rand(3)
            answers.append(engine.host(linalg.amg(device, max_coarse=20) @ load))
            assert (np.random.rand(3) == expected).all()  # noqa: NPY002
    assert (answers[0] == answers[1]).all()


def test_several_columns_and_the_line(engine, capsys):
    a, b = cantilever(16, 6)
    right = np.stack([b, 0 * b, np.arange(len(b)) * 1.0], axis=1)
    with sparsegpu.use_engine(engine.name):
        device = on(engine, a)
        M = linalg.amg(device, max_coarse=20, verbose=True)
        x, info = linalg.cg(device, engine.array(right), M=M, rtol=1e-8)
    line = capsys.readouterr().out
    assert line.startswith("amg: ") and f" of {a.shape[0]}, " in line and line.count("\n") == 1
    assert (info == 0).all()
    x = engine.host(x)
    assert (residual_norms(a.toarray(), x, right) <= allowed(a.toarray(), x, right, 1e-8)).all()


@pytest.mark.parametrize("smoother", ["chebyshev", "block_jacobi"])
def test_any_check_every_gives_the_same_bits(engine, smoother):
    a, b = cantilever(8, 4)
    with sparsegpu.use_engine(engine.name):
        device, load = on(engine, a), engine.array(np.stack([b, b[::-1]], axis=1))
        M = linalg.amg(device, max_coarse=20, smoother=smoother)
        seen = []
        for keywords in (
            {"check_every": 1}, {"check_every": 5}, {}, {"check_every": 40},
            {"callback": lambda x: None, "check_every": 7},
        ):  # fmt: skip
            history: list = []
            x, info = linalg.cg(device, load, M=M, rtol=1e-8, residuals=history, **keywords)
            assert (info == 0).all() and len(history) > 4
            seen.append((engine.host(x).tobytes(), np.array(history).tobytes()))
    assert seen.count(seen[0]) == len(seen)


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("smoother", ["chebyshev", "block_jacobi"])
def test_captured_or_launched_the_bits_are_the_same(
    cuda_engine, rng, monkeypatch, smoother, columns
):
    """A cycle within a CUDA graph of the iteration, one by a callable, and one by itself."""
    from sparsegpu.engines.cuda import vector

    capture, captured = vector._captured, []
    monkeypatch.setattr(vector, "_captured", lambda *of: captured.append(of) or capture(*of))
    a, _ = cantilever(16, 6)
    device = on(cuda_engine, a)
    b = cuda_engine.array(rng.standard_normal((a.shape[0], columns)))
    M = linalg.amg(device, max_coarse=20, smoother=smoother)
    found, graphs = [], []
    for operator, inverse in ((device, M), (lambda v: device @ v, M), (device, lambda v: M @ v)):
        for stream in (cuda_engine.xp.cuda.Stream.null, cuda_engine.xp.cuda.Stream()):
            captured.clear()
            history: list = []
            with stream:
                x, info = linalg.cg(operator, b, M=inverse, rtol=1e-8, residuals=history)
                stream.synchronize()
            assert not info.any() and len(history) > 4
            graphs.append(bool(captured))
            found.append((x.tobytes(), np.array(history).tobytes()))
    assert graphs == [True, True, False, False, False, False]
    assert found.count(found[0]) == len(found)
    # A cycle alone, captured by hand.
    stream, out = cuda_engine.xp.cuda.Stream(non_blocking=True), cuda_engine.xp.empty_like(b)
    cycle = M.bound(columns)
    expected = cycle(b, out).tobytes()
    with stream:
        stream.begin_capture()
        cycle(b, out)
        graph = stream.end_capture()
        out[...] = 0
        graph.launch(stream)
        stream.synchronize()
    assert out.tobytes() == expected


def test_without_pyamg(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyamg", None)
    with pytest.raises(ImportError, match=r"^amg: PyAMG.* pip install .*\[amg\]'"):
        linalg.amg(cantilever(4, 2)[0])


@pytest.mark.parametrize(
    ("keywords", "error", "argument"),
    [
        ({"A": np.eye(4)}, TypeError, "A"),
        ({"A": bsr_array(np.ones((2, 4, 4)), blocksize=(2, 2))}, ValueError, "A"),
        ({"A": bsr_array(np.ones((4, 6)), blocksize=(2, 2))}, ValueError, "A"),
        ({"A": bsr_array(np.ones((4, 4)), blocksize=(2, 2))}, ValueError, "A"),
        ({"A": bsr_array(np.eye(4, dtype="int8"), blocksize=(2, 2))}, TypeError, "A"),
        ({"B": np.ones(40)}, ValueError, "B"),
        ({"B": np.ones((3, 1))}, ValueError, "B"),
        ({"B": np.ones((24, 1)) * 1j}, TypeError, "B"),
        ({"smoother": "gauss_seidel"}, ValueError, "smoother"),
        ({"degree": 0}, ValueError, "degree"),
        ({"max_levels": 0}, ValueError, "max_levels"),
        ({"max_coarse": 1.5}, TypeError, "max_coarse"),
        ({"verbose": "yes"}, TypeError, "verbose"),
    ],
)
def test_bad_input(keywords, error, argument):
    with pytest.raises(error, match=rf"^amg: argument '{argument}': expected "):
        linalg.amg(**({"A": cantilever(4, 2)[0]} | keywords))


def test_a_hierarchy_that_ends_too_early():
    a, _ = cantilever(80, 30)
    with pytest.raises(ValueError, match=r"^amg: argument 'max_levels': .* 1 that end at 4960$"):
        linalg.amg(a, max_levels=1)
