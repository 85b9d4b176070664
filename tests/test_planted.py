"""The planted bugs: that the list speaks of the sources as they are (`tools.planted`)."""

from pathlib import Path

import pytest

from tools.planted import ROOT, Bug, bugs


@pytest.mark.parametrize("bug", bugs(), ids=lambda bug: f"{bug.file}: {bug.what}")
def test_a_planted_bug_has_its_place(bug):
    planted = bug.planted(ROOT)
    if bug.file.endswith(".py"):
        compile(planted, bug.file, "exec")
    assert bug.new != bug.old
    for test in bug.tests:
        file, _, name = test.partition("::")
        text = Path(ROOT, "tests", file).read_text()
        assert f"def {name.partition('[')[0]}(" in text or not name


def test_a_text_that_is_gone_is_an_error():
    bug = Bug("a test", "_version.py", "no such text", "", ())
    with pytest.raises(LookupError, match=r"0 times in _version\.py"):
        bug.planted(ROOT)
