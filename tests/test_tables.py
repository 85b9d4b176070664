"""One look for all commands: tables of rich on a terminal, plain text elsewhere."""

from __future__ import annotations

import sys

import pytest

from fake_driver import Driver, no_cupy
from sparsegpu.__main__ import main
from sparsegpu.cli import table, tune
from sparsegpu.cli.table import print_table
from sparsegpu.engines.cuda.winners import Winner

ROWS = [{"product": "[ours]", "ms": "1.5"}, {"product": "SciPy", "ms": "12"}]


WINNER = {
    "op": "bsr_addmm",
    **{"arch": "90", "dtype": "bfloat16", "blocksize": (32, 16), "layout": "rows"},
    **{"shape": (4096, 2048, 512), "bucket": -7, "config": {"path": "wgmma", "tile_n": 128}},
    **{"ms": 0.25, "model_ms": 0.5},
}


def on_a_terminal(monkeypatch, columns=200):
    pytest.importorskip("rich")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.mark.parametrize("words", ["doctor", "info", "tune --show"])
@pytest.mark.parametrize("piped", [True, False])
def test_all_commands_have_one_look(words, piped, capsys, monkeypatch):
    """Tables of rich on a terminal; plain text, without colours, elsewhere."""
    no_cupy(monkeypatch, Driver(1))
    monkeypatch.setattr(tune, "users_winners", lambda: [Winner.from_dict(WINNER)])
    if not piped:
        on_a_terminal(monkeypatch)
    main(words.split())
    printed = capsys.readouterr().out
    assert ("\x1b[" in printed) is not piped and ("─" in printed) is not piped


def test_doctor_marks_what_fails(capsys, monkeypatch):
    no_cupy(monkeypatch, Driver(1))
    on_a_terminal(monkeypatch)
    assert main(["doctor"]) == 1
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "FAIL" in line)
    assert "\x1b[1;31mFAIL" in line and "not installed, for 1 CUDA device" in line


def test_a_winner_is_shown_whole(capsys, monkeypatch):
    monkeypatch.setattr(tune, "users_winners", lambda: [Winner.from_dict(WINNER)])
    assert main(["tune", "--show"]) == 0
    head, row, *_ = capsys.readouterr().out.splitlines()
    words = ["bsr_addmm", "4096x2048x512", "bfloat16", "32x16", "0.088", "rows", "90", "wgmma"]
    assert {*words, "tile_n=128", "0.25", "2.00"} <= {*row.split()}
    assert "ms" in head.split() and len(head) <= 140


def test_a_table_that_is_piped_is_plain(capsys):
    print_table(ROWS, "Title")
    assert capsys.readouterr().out == "Title\nproduct   ms\n[ours]   1.5\nSciPy     12\n\n"
    print_table([])
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("installed", [True, False])
def test_a_table_on_a_terminal(installed, capsys, monkeypatch):
    if installed:
        pytest.importorskip("rich")
    else:
        found = table.importlib.util.find_spec
        monkeypatch.setattr(
            table.importlib.util, "find_spec", lambda n: None if n == "rich" else found(n)
        )
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    print_table(ROWS, "Title")
    printed = capsys.readouterr().out
    assert all(cell in printed for row in ROWS for cell in row.values())
    assert ("\x1b[" in printed or "─" in printed) is installed


@pytest.mark.parametrize("columns", [20, 60, 90, 200])
def test_a_table_on_a_narrow_terminal_is_whole(columns, capsys, monkeypatch):
    pytest.importorskip("rich")
    row = {
        "case": "float64 3x3 d=0.005 6144x6144x1",
        **{"ours, ms": "0.6493", "NumPy dense, ms": "72.74", "over NumPy dense": "112.03"},
        **{"error / bound": "0.02", "same bits": "yes"},
    }
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table([row, {**row, "ours, ms": "1234.5"}])
    words = capsys.readouterr().out.split()
    for name, cell in [*row.items(), ("ours, ms", "1234.5")]:
        assert {*name.split(), *cell.split()} <= {*words}
