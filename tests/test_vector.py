"""Passes over vectors: every engine's against plain sums of small integers, which are exact."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from sparsegpu import testing, use_engine
from sparsegpu.engines import engine_module


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize(("n", "r"), [(1, 1), (1000, 1), (70_000, 1), (513, 3), (30_000, 5)])
@pytest.mark.parametrize("stopped", [False, True])
def test_a_pass(engine, rng, dtype, n, r, stopped):
    wide = np.result_type(dtype, np.float64)

    def values(*shape):
        return testing.random_values(rng, shape, dtype, small_integers=True)

    x, p, z, w = (values(n, r) for _ in range(4))
    scalars = values(5, r).astype(wide)
    active = np.arange(r) % 2 == 1 if stopped else None
    where = np.ones(r, bool) if active is None else active
    # In order: a target among its terms, first and last, more than once, and not at all.
    new_x = np.where(where, x + scalars[0] * p, x).astype(dtype)
    new_p = np.where(where, z + scalars[1] * p, p).astype(dtype)
    new_z = np.where(where, new_x + new_x + scalars[0] * w, z).astype(dtype)
    new_w = np.where(where, new_p, w).astype(dtype)
    device = [engine.array(v) for v in (x, p, z, w)]
    dx, dp, dz, dw = device
    numbers = engine.array(scalars)
    with use_engine(engine.name):
        module = engine_module(engine.xp if engine.on_gpu else np, "vector", "test")
    run = module.prepare(
        numbers,
        [
            (dx, [(None, dx), (0, dp)]),
            (dp, [(None, dz), (1, dp)]),
            (dz, [(None, dx), (None, dx), (0, dw)]),
            (dw, [(None, dp)]),
        ],
        [(2, dx, dp), (3, dz, dz)],
        None if active is None else engine.array(active),
    )
    run()
    for got, expected in zip(device, (new_x, new_p, new_z, new_w)):
        np.testing.assert_array_equal(engine.host(got), expected)
    after = engine.host(numbers)
    exact = (new_x.astype(wide).conj() * new_p).sum(axis=0)
    np.testing.assert_allclose(after[2], exact, atol=1e-4 * n if "64" not in dtype else 1e-6)
    np.testing.assert_array_equal(after[[0, 1, 4]], scalars[[0, 1, 4]])
    length = (abs(new_z.astype(wide)) ** 2).sum(axis=0)
    np.testing.assert_allclose(after[3], length, rtol=1e-6)
    # The same bits again.
    again = module.prepare(numbers, [], [(2, dx, dp), (3, dz, dz)])
    again()
    np.testing.assert_array_equal(engine.host(numbers), after)


@pytest.mark.parametrize(("launches", "graphs"), [(4, [4, 1]), (1, [16]), (40, [1])])
def test_iterations_are_graphs_of_about_as_many_launches(monkeypatch, launches, graphs):
    """However they are asked for, none is left out and none is made twice."""
    from sparsegpu.engines.cuda import vector
    from sparsegpu.engines.cuda.runtime import launch

    monkeypatch.setattr(launch, "_current_stream", lambda: lambda: SimpleNamespace(ptr=0))
    made, captured = [], []

    def work(times):
        return SimpleNamespace(source="", on=lambda stream: made.append(times))

    def graph(iteration, times):
        captured.append(times)
        return work(times * launches)

    monkeypatch.setattr(vector, "_captured", graph)
    run = vector.repeated(lambda: [launch.submit(work(1)) for _ in range(launches)])
    for iterations, count in ((0, 0), (17, 17), (33, 16), (34, 1), (34, 0)):
        run(count)
        assert sum(made) == iterations * launches
    assert made[:launches] == [1] * launches and set(captured) == set(graphs) | {1}
    assert len(captured) == len(set(captured))
