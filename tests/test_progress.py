"""What a call that takes long says on standard error, and when."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest

import sparsegpu as sg
from sparsegpu import _progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """Yield the time in a list: who moves it decides what time it is."""
    now = [100.0]
    monkeypatch.setattr(_progress.time, "monotonic", lambda: now[0])
    return now


def told_over(clock, seconds, shown=True):
    with _progress.Progress("search", shown) as said:
        for n in range(seconds + 1):
            clock[0] = 100.0 + n
            said(f"round {n}")


def test_nothing_is_said_in_the_first_two_seconds(clock, capsys):
    told_over(clock, 1)
    assert capsys.readouterr() == ("", "")


def test_a_log_stays_short(clock, capsys):
    told_over(clock, 100)
    said = capsys.readouterr()
    assert said.out == ""
    rounds = [2, 4, 8, 16, 32, 64]
    assert said.err.splitlines() == [f"search: round {n}, {n} s" for n in rounds]


def test_a_terminal_is_left_without_a_trace(clock, monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    told_over(clock, 10)
    written = stream.getvalue()
    assert written.count("round") == 9 and "\n" not in written
    assert written.endswith("\r\033[K")


def test_nothing_is_said_where_it_is_not_wanted(clock, capsys):
    told_over(clock, 100, shown=False)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("progress", [True, False])
def test_a_long_search_for_an_order(progress, capsys, monkeypatch, rng):
    monkeypatch.setattr(_progress, "_FIRST_S", 0.0)
    weight = rng.standard_normal((8, 32))
    order = sg.permute_for_24(weight, window=16, escapes=2, progress=progress)
    said = capsys.readouterr()
    assert said.out == "" and bool(said.err) is progress
    np.testing.assert_array_equal(order, sg.permute_for_24(weight, window=16, escapes=2))
    for line in said.err.splitlines():
        assert line.startswith("permute_for_24: columns ") and "of 32" in line and " s" in line


def test_progress_is_a_flag():
    with pytest.raises(TypeError, match=r"permute_for_24: argument 'progress'.*got 'no'"):
        sg.permute_for_24(np.eye(4), progress="no")
