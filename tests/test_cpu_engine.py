"""What only the CPU engine has: threads, numba, tiles, widened operands.

What its functions compute is tested where every engine is. Here it meets the reference on data
whose sums are exact, bit by bit, in sizes that cross the edges of its tiles.
"""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparsegpu
from benchmarks import cpu as speeds
from benchmarks import cpu_scipy, cpu_solvers
from covering import covered
from cpu_cases import agree, on
from sparsegpu.testing import (
    assert_close,
    dense_from_blocks,
    random_24,
    random_blocks,
    random_values,
    softmax_bound,
)

DTYPES = ["float16", "bfloat16", "float32", "float64", "int8", "complex64", "complex128"]


def strided(array, rng):
    """Return the array in one of the memory orders that an operand may come in."""
    order = rng.integers(4)
    if order == 1:
        return array.swapaxes(-1, -2).copy().swapaxes(-1, -2)
    if order == 2:
        wide = np.zeros((*array.shape[:-1], array.shape[-1] + 3), array.dtype)
        wide[..., 1:-2] = array
        return wide[..., 1:-2]
    if order == 3:
        return array[..., ::-1, ::-1].copy()[..., ::-1, ::-1]
    return array


BLOCKSIZES = [(1, 1), (2, 3), (3, 3), (4, 4), (5, 16), (8, 8), (16, 32), (33, 1), (48, 24), (1, 40)]


@settings(max_examples=25, deadline=None)
@given(
    dtype=st.sampled_from(DTYPES),
    blocksize=st.sampled_from([*BLOCKSIZES, (128, 256), (256, 128)]),
    n=st.sampled_from([1, 2, 3, 5, 8, 16, 17, 64, 255, 256, 300]),
    batches=st.sampled_from([((), ()), ((2,), ()), ((), (2,)), ((2, 1), (3,))]),
    seed=st.integers(0, 2**32),
)
def test_product_equals_the_reference(dtype, blocksize, n, batches, seed):
    rng = np.random.default_rng(seed)
    bm, bk = blocksize
    shape = (bm * rng.integers(1, max(2, 60 // bm)), bk * rng.integers(1, max(2, 600 // bk)))
    triple = random_blocks(
        rng, shape, blocksize, batch=batches[0], dtype=dtype, duplicates=True, small_integers=True
    )
    A = sparsegpu.bsr_array(triple, shape=shape)
    dense = random_values(rng, (*batches[1], shape[1], n), dtype, small_integers=True)
    dense = strided(dense, rng)
    agree(sparsegpu.bsr_matmul, A, dense)
    batch = np.broadcast_shapes(*batches)
    bias = random_values(rng, (shape[0], 1), dtype, small_integers=True)
    row_scale = random_values(rng, (*batch, shape[0]), dtype, small_integers=True)
    column_scale = random_values(rng, (n,), dtype, small_integers=True)
    agree(
        sparsegpu.bsr_addmm, bias, A, dense,
        alpha=2, beta=3, left_alpha=row_scale, right_alpha=column_scale,
    )  # fmt: skip


@covered(dtype=["float16", "float32", "float64", "int8"], rows=[1, 2, 3, 4, 7, 9])
def test_a_vector_meets_small_blocks_of_any_size(rows, dtype, rng):
    for columns in (1, 2, 5, 8, 9):
        shape = rows * 6, columns * 40
        blocks = random_blocks(
            rng, shape, (rows, columns), dtype=dtype, duplicates=True, small_integers=True
        )
        A = sparsegpu.bsr_array(blocks, shape=shape)
        x = random_values(rng, (2 * shape[1],), dtype, small_integers=True)[::-2]
        expected = agree(sparsegpu.bsr_matmul, A, x)
        out = np.zeros((shape[0], 3), expected.dtype)
        on("cpu", sparsegpu.bsr_matmul, A, x[:, None], out=out[:, 1:2])
        np.testing.assert_array_equal(out, expected[:, None] * np.array([0, 1, 0], out.dtype))


@pytest.mark.parametrize("blocksize", [(4, 16), (4, 4)])
def test_int8_sums_past_float32(blocksize, rng):
    """4,096 products of 127 * 127 need 26 bits."""
    A = sparsegpu.bsr_array(np.full((4, 4096), 127, np.int8), blocksize=blocksize)
    for n in (1, 20):
        dense = np.full((4096, n), 127, np.int8)
        dense[::7] = -128
        np.testing.assert_array_equal(
            on("cpu", sparsegpu.bsr_matmul, A, dense),
            np.full((4, 4096), 127) @ dense.astype(np.int64),
        )


@pytest.mark.parametrize("n", [1, 3, 300])
def test_nan_stays_in_its_column_and_outside_the_pattern_unseen(rng, n):
    triple = random_blocks(rng, (20, 30), (5, 6), density=0.4)
    A = sparsegpu.bsr_array(triple, shape=(20, 30))
    unused = np.setdiff1d(np.arange(5), triple[1])
    dense = rng.standard_normal((30, n)).astype(np.float32)
    clean = on("cpu", sparsegpu.bsr_matmul, A, dense)
    for j in unused:
        dense[6 * j : 6 * j + 6] = np.nan
    dense[6 * triple[1][0], n // 2] = np.inf
    got = on("cpu", sparsegpu.bsr_matmul, A, dense)
    others = np.arange(n) != n // 2
    np.testing.assert_array_equal(got[:, others], clean[:, others])
    assert not np.isfinite(got[:, n // 2]).all()


@settings(max_examples=25, deadline=None)
@given(
    dtype=st.sampled_from([d for d in DTYPES if d != "int8"]),
    blocksize=st.sampled_from(BLOCKSIZES),
    k=st.sampled_from([0, 1, 7, 64, 1030, 2100]),
    batches=st.sampled_from([((), ()), ((2,), (2,)), ((), (2,))]),
    seed=st.integers(0, 2**32),
)
def test_sampled_product_equals_the_reference(dtype, blocksize, k, batches, seed):
    rng = np.random.default_rng(seed)
    m, n = (b * int(rng.integers(1, max(2, 40 // b))) for b in blocksize)
    triple = random_blocks(rng, (m, n), blocksize, batch=batches[0], dtype=dtype)
    # Small enough a share of nonzeros that float16 results are exact too.
    a, b = (
        strided(random_values(rng, shape, dtype, small_integers=True), rng)
        * (rng.random(shape) < 50 / (k + 50)).astype(dtype)
        for shape in ((*batches[1], m, k), (*batches[1], k, n))
    )
    A = sparsegpu.bsr_array(triple, shape=(m, n))
    agree(lambda *args: sparsegpu.sampled_addmm(*args, beta=0, alpha=2).data, A, a, b)


@settings(max_examples=25, deadline=None)
@given(
    dtype=st.sampled_from(["float16", "bfloat16", "float32", "float64"]),
    blocksize=st.sampled_from(BLOCKSIZES),
    batch=st.sampled_from([(), (2,)]),
    seed=st.integers(0, 2**32),
)
def test_softmax_equals_the_reference(dtype, blocksize, batch, seed):
    rng = np.random.default_rng(seed)
    shape = tuple(b * int(rng.integers(1, max(2, 80 // b))) for b in blocksize)
    triple = random_blocks(rng, shape, blocksize, batch=batch, dtype=dtype)
    for special in (-np.inf, np.inf, np.nan):
        triple[0][rng.random(triple[0].shape) < 0.02] = special
    A = sparsegpu.bsr_array(triple, shape=shape)
    before = A.data.tobytes()
    cpu, reference = (on(e, sparsegpu.bsr_softmax, A).data for e in ("cpu", "reference"))
    assert A.data.tobytes() == before
    # The sums differ in order: either is within the bound, and the reference rounded, too.
    wide = reference.astype(np.float64)
    rounding = sparsegpu.testing.unit_roundoff(reference.dtype) * np.abs(wide) + 2.0**-25
    for b in np.ndindex(batch):
        ends = A.indptr[b]
        for i in range(len(ends) - 1):
            stored = slice(ends[i], ends[i + 1])
            if ends[i] < ends[i + 1]:
                row = A.data[b][stored].swapaxes(0, 1).reshape(blocksize[0], -1)
                exact = wide[b][stored].swapaxes(0, 1).reshape(row.shape)
                got = cpu[b][stored].swapaxes(0, 1).reshape(row.shape)
                allowed = rounding[b][stored].swapaxes(0, 1).reshape(row.shape)
                assert_close(got, exact, 2 * softmax_bound(row, exact) + allowed)


# -- threads ------------------------------------------------------------------------------------


def every_operation(rng):
    """Return calls whose work is cut into many pieces."""
    triple = random_blocks(rng, (96, 120), (4, 6), duplicates=True)
    A = sparsegpu.bsr_array(triple, shape=(96, 120))
    X = random_values(rng, (120, 70), "float32")
    Y = random_values(rng, (96, 70), "float32")
    half = random_values(rng, (64, 64), "float16")
    attend = sparsegpu.scaled_dot_product_attention
    return [
        lambda: A @ X,
        lambda: A @ X[:, 0],
        lambda: sparsegpu.bsr_addmm(Y, A, X, activation="gelu"),
        lambda: sparsegpu.sampled_addmm(A, Y, X.T, beta=0).data,
        lambda: sparsegpu.bsr_softmax(A).data,
        lambda: sparsegpu.bsr_scatter_mm(A, X),
        lambda: attend(Y[None], X[None], X[None], A),
        lambda: sparsegpu.prune_24(half),
        lambda: sparsegpu.permute_for_24(half),
        lambda: sparsegpu.semi_structured_tile(half)[1],
    ]


@pytest.fixture
def many_pieces(monkeypatch):
    """Hand even the smallest work to threads."""
    from sparsegpu.engines.cpu import _threads

    monkeypatch.setattr(_threads, "WORTH_A_THREAD", 0)
    return lambda count: monkeypatch.setattr(_threads, "thread_count", lambda: count)


def test_bits_do_not_depend_on_the_number_of_threads(rng, many_pieces):
    operations = every_operation(rng)
    many_pieces(1)
    expected = [operation().tobytes() for operation in operations]
    for count in (2, 7):
        many_pieces(count)
        assert [operation().tobytes() for operation in operations] == expected


def test_calls_from_several_threads(rng, many_pieces):
    operations = every_operation(rng)
    expected = [operation().tobytes() for operation in operations]
    many_pieces(4)

    def all_of_them(_):
        return [operation().tobytes() for operation in operations]

    with ThreadPoolExecutor(6) as threads:
        for results in threads.map(all_of_them, range(12)):
            assert results == expected


@pytest.mark.parametrize("engine", ["reference", "cpu"])
def test_first_calls_of_four_threads_on_one_operand(rng, engine):
    """What is made once and kept with it is made by one, and the same for all."""
    parts = random_blocks(rng, (48, 60), (4, 5), duplicates=True, small_integers=True)
    dense = dense_from_blocks(*parts, (48, 60)).astype(np.float32)
    half = random_24(rng, (64, 64), "float16", small_integers=True)
    x = random_values(rng, (60, 7), "float32", small_integers=True)
    z = random_values(rng, (64, 5), "float16", small_integers=True)
    for _ in range(8):
        a, w = sparsegpu.bsr_array(parts, shape=(48, 60)), sparsegpu.to_semi_structured(half)
        start = threading.Barrier(4)

        def work(number, a=a, w=w, start=start):
            calls = [
                lambda: (a @ x, dense @ x),
                lambda: ((x.T @ a.T), x.T @ dense.T),
                lambda: (sparsegpu.bsr_scatter_mm(a, x), dense @ x),
                lambda: ((a @ a.T).toarray(), dense @ dense.T),
                lambda: (z.T @ w, z.T @ half),
                lambda: (abs(a).toarray(), abs(dense)),
            ]
            with sparsegpu.use_engine(engine):
                start.wait()
                for call in calls[number:] + calls[:number]:
                    np.testing.assert_array_equal(*call())

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(work, range(4)))


def test_an_error_in_a_thread_reaches_the_caller(many_pieces):
    from sparsegpu.engines.cpu._threads import for_each

    many_pieces(3)
    with pytest.raises(ZeroDivisionError):
        for_each(lambda item: 1 / item, [1, 2, 0, 3, 4])

    def only_in_a_helper(ours):
        if threading.get_ident() != ours:
            raise ZeroDivisionError
        time.sleep(0.001)

    with pytest.raises(ZeroDivisionError):
        for_each(only_in_a_helper, [threading.get_ident()] * 1000)
    seen = []
    for_each(seen.append, range(100))
    assert sorted(seen) == list(range(100))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_computes():
    code = """if True:
        import os, warnings
        import numpy as np, sparsegpu
        from sparsegpu.engines.cpu import _threads

        warnings.simplefilter("ignore")  # newer Pythons warn of forking with threads
        _threads.WORTH_A_THREAD, _threads.thread_count = 0, lambda: 3
        A = sparsegpu.bsr_array(np.eye(64), blocksize=(2, 2))
        X = np.ones((64, 40))
        A @ X
        child = os.fork()
        if child == 0:
            os._exit(int(not (A @ X == 1).all()))
        assert os.waitpid(child, 0)[1] == 0
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# -- operands ------------------------------------------------------------------------------------


def test_operands_are_not_copied_when_they_need_not(rng):
    from sparsegpu.engines.cpu._operands import real_columns, real_rows

    matrix = random_values(rng, (6, 8), "float32")
    for view in (matrix, matrix[::2], matrix[1:4, 2:5], np.broadcast_to(matrix[0], (5, 8))):
        flat, ld = real_rows(view)
        assert np.shares_memory(flat, matrix)
        got = np.array([flat[r * ld : r * ld + view.shape[1]] for r in range(len(view))])
        np.testing.assert_array_equal(got, view)
        assert np.shares_memory(real_columns(view.T)[0], matrix)
    for view in (matrix.T, matrix[::-1], matrix[:, ::2], matrix.astype("float16")):
        flat, ld = real_rows(view)
        assert not np.shares_memory(flat, matrix)
        np.testing.assert_array_equal(flat.reshape(-1, ld), view)


# -- speed --------------------------------------------------------------------------------------


@pytest.mark.skipif(
    "PYTEST_XDIST_WORKER" in os.environ,
    reason="test workers share the cores: python -m benchmarks.cpu --check measures alone",
)
@pytest.mark.parametrize("block, over, bar", speeds.BARS)
def test_speed(block, over, bar):
    ratios = speeds.reached(block, over, bar)
    assert max(ratios) >= bar, f"{ratios} times {over}"


def test_a_missed_bar_fails_the_check(monkeypatch, capsys):
    monkeypatch.setattr(cpu_scipy, "MATRICES", {})
    solvers = cpu_solvers.implementations
    monkeypatch.setattr(cpu_solvers, "implementations", lambda: iter(()))
    tries = iter([[8.0, 9.5, 9.9], [1.2], [3.0, 4.0, 4.9]])
    monkeypatch.setattr(speeds, "reached", lambda *bar: next(tries))
    assert speeds.check() == 1
    verdicts = [line.split()[-1] for line in capsys.readouterr().out.splitlines()]
    assert verdicts == ["MISSED", "met", "MISSED"]
    monkeypatch.setattr(speeds, "reached", lambda *bar: [99.0])
    assert speeds.check() == 0
    small = {
        "3 x 3": partial(cpu_scipy.elasticity, 3),
        "4 x 4": partial(cpu_scipy.square_blocks, 64, 4),
    }
    monkeypatch.setattr(cpu_scipy, "MATRICES", small)
    monkeypatch.setattr(speeds, "interleaved", lambda *_: {"cpu": 1.0, "scipy": 1.0})
    assert speeds.check() == 0
    monkeypatch.setattr(speeds, "interleaved", lambda *_: {"cpu": 1.2, "scipy": 1.0})
    assert speeds.check() == 1
    monkeypatch.setattr(cpu_scipy, "MATRICES", {})
    monkeypatch.setattr(cpu_solvers, "implementations", partial(solvers, points=4))
    capsys.readouterr()
    for time_of_ours, status in ((1.0, 0), (1.2, 1)):
        taken = {"cpu": time_of_ours, "scipy": 1.0}
        monkeypatch.setattr(speeds, "interleaved", lambda *_, taken=taken, **__: taken)
        assert speeds.check() == status
    said = capsys.readouterr().out
    assert all(f"solver {name}: 1.00 of SciPy's time" in said for name in cpu_solvers.SOLVERS)
    assert said.count("MISSED") == len(cpu_solvers.SOLVERS) + 1 and "solver lobpcg: 1.20" in said


@pytest.mark.parametrize("name", [*cpu_solvers.SOLVERS, "lobpcg"])
def test_a_solver_that_does_something_else_is_no_comparison(name, monkeypatch):
    method = getattr(cpu_solvers.sparsegpu.linalg, name)

    def fewer(A, b, **keywords):
        return method(A, b, **keywords | ({"maxiter": 5} if name != "gmres" else {"restart": 3}))

    monkeypatch.setattr(cpu_solvers.sparsegpu.linalg, name, fewer)
    with pytest.raises(AssertionError, match=rf"^{name}: \d+ iterations, SciPy \d+$"):
        dict(cpu_solvers.implementations(points=4))
