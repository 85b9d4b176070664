"""The golden file: what differs is found, and what is there is not written over."""

import json

import pytest

from tools import golden


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Run the program over two results; return its exit code and what it printed."""
    found = {"a product, draw 0": "1234", "a product, draw 1": "5678"}
    monkeypatch.setattr(golden, "FOLDER", tmp_path)
    monkeypatch.setattr(golden, "results", lambda engine: found)

    def main(*arguments, **changed):
        found.update(changed)
        return golden.main(["--engine", "cpu", *arguments]), capsys.readouterr().out

    return main


def test_what_differs_is_named(run, tmp_path):
    assert run("--write")[0] == 0
    assert json.loads((tmp_path / "cpu.json").read_text())["environment"]["numpy"]
    status, said = run()
    assert status == 0 and "2 of 2 results have the bits that they had" in said
    status, said = run(**{"a product, draw 1": "0000", "another, draw 0": "1"})
    assert status == 1 and "1 of 2" in said
    assert "other bits: a product, draw 1" in said and "new: another, draw 0" in said


def test_a_file_that_is_there_stays(run, tmp_path, capsys):
    run("--write")
    before = (tmp_path / "cpu.json").read_text()
    with pytest.raises(SystemExit, match="2"):
        run("--write", another="1")
    assert "is there already" in capsys.readouterr().err
    assert (tmp_path / "cpu.json").read_text() == before
    assert run("--write", "--replace", another="1")[0] == 0
    assert "another" in (tmp_path / "cpu.json").read_text()


def test_the_bits_of_a_case_are_the_same_twice(monkeypatch):
    names = ("bsr_softmax float32", "bsr_addmm float16 (3, 5) 37")
    chosen = {name: prepare for name, prepare in golden.cases().items() if name in names}
    monkeypatch.setattr(golden, "cases", lambda: chosen)
    first, second = (golden.results("reference") for _ in range(2))
    assert first == second and len(first) == 2 * golden.DRAWS == len(set(first.values()))
