"""Every replayed operation but the products, on the GPU: the same launches and the same results."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest

import sparsegpu as sg
from in_threads import run_in_threads
from replay_cases import CASES, OF_ATTENTION, OF_BLOCKS, canonical, dense
from sparsegpu._arrays import namespace
from sparsegpu.engines.cuda.runtime.launch import recording
from sparsegpu.engines.cuda.runtime.replay import Call

pytestmark = pytest.mark.gpu


@pytest.fixture
def cp(cuda_engine):
    return cuda_engine.xp


@pytest.fixture(params=CASES)
def operation(request, cp, rng):
    return CASES[request.param](cp, rng)


@contextmanager
def made_anew():
    """Replay nothing."""
    with mock.patch.object(Call, "replay", lambda self: None):
        yield


def bits(result):
    """Return the bytes of a result, or of several, on the host."""
    results = result if isinstance(result, tuple) else (result,)
    return [r.get().tobytes() for r in results if r is not None]


class Watch:
    """Tells which calls were replayed: their works were all seen before."""

    def __init__(self):
        self._seen = []  # kept alive, so that none takes another's place

    def __call__(self, call) -> tuple[Any, bool]:
        works = []

        def note(submitted, whole, setup):
            works.extend(() if setup else submitted)

        with recording(note):
            result = call()
        seen = {id(work) for work in self._seen}
        replayed = bool(works) and all(id(work) in seen for work in works)
        self._seen += works
        return result, replayed


def change(values, rng):
    """Permute what arrays hold: other values of the same kind."""
    for array in values:
        order = namespace(array).asarray(rng.permutation(array.size))
        array[...] = array.ravel()[order].reshape(array.shape)


def check_replayed(call, values, rng, watch, *, rounds=16):
    """Call on ever other values; return how often the call was replayed."""
    replayed = 0
    for _ in range(rounds):
        change(values, rng)
        result, again = watch(call)
        got = bits(result)
        del result
        with made_anew():
            assert got == bits(watch(call)[0])
        replayed += again
    return replayed


def test_replayed_on_other_values(operation, rng):
    """New results are allocated where earlier ones were, now and then in another order."""
    watch = Watch()
    for name, call in {"": operation.call, **operation.others}.items():
        assert not watch(call)[1], name
        if name != "of other values":  # which are new memory each time
            assert check_replayed(call, operation.values, rng, watch) >= 4, name


def test_what_copies_draws_or_reads_is_never_replayed(operation, rng):
    watch = Watch()
    for name, call in operation.never.items():
        assert check_replayed(call, operation.values, rng, watch, rounds=3) == 0, name


def test_a_seed_that_is_drawn(cp, rng):
    mask = canonical(cp, rng, "float16", (64, 64)).astype("bool")
    q, k, v = (dense(cp, rng, (2, 4, 64, 32)) for _ in range(3))
    drops = [sg.scaled_dot_product_attention(q, k, v, mask, dropout_p=0.5) for _ in range(3)]
    assert len({bits(d)[0] for d in drops}) == 3


def test_streams_and_captures(operation, cp):
    expected = bits(operation.call())
    cp.cuda.Device().synchronize()
    for stream in (cp.cuda.Stream(non_blocking=True) for _ in range(2)):
        with stream:
            for _ in range(3):
                result = operation.call()
            assert bits(result) == expected
            stream.begin_capture()
            captured = operation.call()
            graph = stream.end_capture()
            graph.launch(stream)
            assert bits(captured) == expected


def check_captured(engine, call, values, rng):
    """Capture the second call, and replay the graph on other values in the same memory."""
    results = []
    with engine.side_stream() as stream:
        graph = engine.captured(lambda: results.append(call()))
        for _ in range(2):
            change(values, rng)
            graph.launch(stream)
            got = bits(results[-1])
            with made_anew():
                assert got == bits(call())


@pytest.mark.parametrize("operation", OF_BLOCKS + OF_ATTENTION, indirect=True)
def test_captured_on_the_second_call(cuda_engine, operation, rng):
    for name, call in {"": operation.call, **operation.others}.items():
        if name != "of other values":  # which are new memory each time
            check_captured(cuda_engine, call, operation.values, rng)


def test_threads(operation, cp):
    expected = bits(operation.call())
    cp.cuda.Device().synchronize()
    wrong = []

    def work(_):
        with cp.cuda.Stream(non_blocking=True):
            for _ in range(50):
                wrong.extend([1] * (bits(operation.call()) != expected))

    run_in_threads(work, 4)
    assert wrong == []


def test_records_keep_no_memory(operation, cp, rng):
    """Neither operands nor results stay alive with them."""
    pool = cp.get_default_memory_pool()

    def used():
        cp.cuda.Device().synchronize()
        return pool.used_bytes()

    for _ in range(3):
        operation.call()
    before = used()
    for _ in range(20):
        operation.call()
    assert used() <= before
