"""The version: said in four files, and the same in all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sparsegpu

ROOT = Path(sparsegpu.__file__).parents[1]


def said(file: str, pattern: str) -> list[str]:
    path = ROOT / file
    if not path.exists():
        pytest.skip("not a checkout")
    return re.findall(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)


def test_who_cites_names_this_version():
    assert said("CITATION.cff", r"^version: (.+)$") == [sparsegpu.__version__]
    assert said("docs/about.md", r"version = \{(.+)\}") == [sparsegpu.__version__]


def test_the_changelog_begins_with_what_is_unreleased_or_this_version():
    first, *released = said("CHANGELOG.md", r"^## \[(.+?)\]")
    assert first == "Unreleased"
    assert not released or released[0] == sparsegpu.__version__
    dates = said("CHANGELOG.md", r"^## \[\d.+?\] - (.+)$")
    assert len(dates) == len(released) and all(re.fullmatch(r"\d{4}-\d\d-\d\d", d) for d in dates)
