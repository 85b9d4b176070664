"""What the commands do with bad input and files that cannot be written: one line, status 2."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from sparsegpu import _npz
from sparsegpu.__main__ import main
from sparsegpu.cli import bench, tune

BAD = {
    "no command": "",
    "an unknown command": "nope",
    "an unknown option": "doctor --nope",
    "an unknown option alone": "--nope",
    "an option too many": "info extra",
    "an unknown choice": "demo --size huge",
    "an unknown section": "bench --only nope",
    "a time that is none": "bench --limit soon",
    "a negative time": "bench --limit -1",
    "no number of seconds": "bench --tuning nan",
    "a size that is none": "tune --shape a 32 32",
    "a size of zero": "tune --shape 0 32 32",
    "a size that is broken": "tune --shape 32.5 32 32",
    "too few sizes": "tune --shape 32 32",
    "too large a block": "tune --blocksize 257 1",
    "a block that is none": "tune --blocksize x 1",
    "a density that is none": "tune --density much",
    "a density above one": "tune --density 2",
    "an unknown dtype": "tune --dtype float128",
    "a size that blocks do not divide": "tune --shape 100 100 10",
    "the last of two sizes": "tune --shape 64 64 10 --shape 64 100 10",
    "a picture of another kind": "bench --plot picture.gif",
    "a file without a directory": "doctor --json nowhere/found.json",
}


@pytest.mark.parametrize("words", BAD.values(), ids=BAD)
def test_bad_input_is_one_line(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        status = main(words.split())
    except SystemExit as end:
        status = end.code
    told = capsys.readouterr()
    assert status == 2 and told.out == ""
    (line,) = told.err.splitlines()
    assert re.match(r"(python -m )?sparsegpu( [a-z]+)?: ", line)
    assert "invalid _" not in line, "a name of ours"
    assert os.listdir(tmp_path) == []


def test_the_line_of_a_bad_number_says_what_is_expected(capsys):
    for words in ("tune --shape a 32 32", "tune --density 0", "bench --limit -1"):
        with pytest.raises(SystemExit):
            main(words.split())
        said = capsys.readouterr().err
        assert "expected" in said and f"got '{words.split()[2]}'" in said and "--help" in said


@pytest.mark.parametrize("words", ["--nope", "-x", "--nope doctor"])
def test_an_unknown_option_is_named_before_a_command_is_missed(words, capsys):
    with pytest.raises(SystemExit) as end:
        main(words.split())
    (line,) = capsys.readouterr().err.splitlines()
    assert end.value.code == 2 and words.split()[0] in line and "required" not in line


@pytest.mark.parametrize("words", ["doctor --nope", "info extra", "tune --show 3"])
def test_a_word_too_many_is_refused_by_its_command(words, capsys):
    with pytest.raises(SystemExit):
        main(words.split())
    name, word = words.split()[0], words.split()[-1]
    said = capsys.readouterr().err
    assert re.search(f"sparsegpu {name}: .*{word} .*see .*sparsegpu {name} --help", said)


def test_the_help_of_a_command_says_what_it_does(capsys):
    for name in ("doctor", "info", "demo", "bench", "tune"):
        with pytest.raises(SystemExit):
            main(["--help"])
        general = capsys.readouterr().out
        (does,) = re.findall(rf"^    {name} +(.*)$", general, re.MULTILINE)
        with pytest.raises(SystemExit):
            main([name, "--help"])
        assert f"{does[0].upper()}{does[1:]}." in capsys.readouterr().out


def full(*arguments, **keywords):
    raise OSError(28, "No space left on device")


@pytest.fixture
def no_winners(monkeypatch):
    monkeypatch.setattr(tune, "users_winners", lambda: [])


@pytest.mark.usefixtures("no_winners")
@pytest.mark.parametrize("error", [28, 30, 5], ids=["full", "read-only", "broken"])
@pytest.mark.parametrize("command", ["info --json", "tune --export"])
def test_a_file_is_written_whole_or_not_at_all(command, error, tmp_path, capsys, monkeypatch):
    path = tmp_path / "file"
    path.write_text("before")

    def fails(*arguments):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(_npz.os, "replace", fails)
    assert main([*command.split(), str(path)]) == 2
    assert path.read_text() == "before" and os.listdir(tmp_path) == ["file"]
    (line,) = capsys.readouterr().err.splitlines()
    assert str(path) in line and os.strerror(error) in line
    monkeypatch.undo()
    assert main([*command.split(), str(path)]) == 0
    json.loads(path.read_text())


def test_a_picture_is_written_whole_or_not_at_all(tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    content = {"rows": [], "copy GB/s": 1.0, "seconds": 1.0, "cases left out": 0, "refused": {}}
    monkeypatch.setattr(bench, "choose_library", lambda device: (None, "a test"))
    monkeypatch.setattr(bench, "race", lambda *_, **__: content)
    path = tmp_path / "picture.png"
    assert main(["bench", "--plot", str(path)]) == 0
    drawn = path.read_bytes()
    assert drawn.startswith(b"\x89PNG")
    capsys.readouterr()
    monkeypatch.setattr(_npz.os, "replace", full)
    assert main(["bench", "--plot", str(path)]) == 2
    assert path.read_bytes() == drawn and os.listdir(tmp_path) == ["picture.png"]
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
@pytest.mark.parametrize("command", ["info --json", "tune --export"])
def test_a_full_device(command):
    call = [sys.executable, "-m", "sparsegpu", *command.split(), "/dev/full"]
    ended = subprocess.run(call, capture_output=True, text=True)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert "/dev/full" in line


def test_an_error_that_is_not_of_a_result_is_not_hidden(monkeypatch):
    monkeypatch.setattr(tune, "users_winners", full)
    with pytest.raises(OSError, match="No space"):
        tune.run(shape=[], show=True)


def test_ctrl_c_is_one_line(monkeypatch, capsys):
    def interrupted(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "run", interrupted)
    assert main(["bench"]) == 130
    assert capsys.readouterr() == ("", "sparsegpu: interrupted\n")
