"""The turns in which calls are timed, without a GPU."""

from collections import Counter
from itertools import pairwise

import pytest

from sparsegpu.benchmark import timing


def test_calls_take_turns(monkeypatch):
    order = []

    def spans(call, lead, flush, repeats):
        order.append((call, lead, flush, repeats))
        return [float(len(order))] * repeats

    monkeypatch.setattr(timing, "_lead", lambda call: 10 * call)
    monkeypatch.setattr(timing, "_spans", spans)
    times = timing.in_turns({"a": 1, "b": 2}, flush=True, repeats=20)
    assert [call for call, *_ in order] == [1, 2, 2, 1, 1, 2, 2, 1]
    assert {(lead / call, *rest) for call, lead, *rest in order} == {(10, True, 5)}
    assert times == {"a": 4.5, "b": 4.5}
    order.clear()
    assert timing.in_turns({"": 1}, repeats=5) == {"": 1.0}
    assert [repeats for *_, repeats in order] == [5]


@pytest.mark.parametrize("count", range(2, 8))
def test_each_comes_behind_every_other_equally_often(count):
    orders = timing.orders(count)
    assert all(sorted(turn) == list(range(count)) for turn in orders)
    behind = Counter(pair for turn in orders for pair in pairwise(turn))
    assert len(behind) == count * (count - 1) and len(set(behind.values())) == 1
