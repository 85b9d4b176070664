"""The commands that messages name work from where the user is: sources, an installed wheel."""

from __future__ import annotations

import importlib.metadata
import json
import re
from pathlib import Path

import pytest

import sparsegpu
from sparsegpu import _install
from sparsegpu.cli import doctor
from sparsegpu.engines.cuda.runtime import source

PACKAGE = Path(sparsegpu.__file__).parent


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Return a folder with a space in its name that the package seems to lie in."""
    folder = tmp_path / "a place"
    (folder / "sparsegpu").mkdir(parents=True)
    monkeypatch.setattr(_install, "_PACKAGE", folder / "sparsegpu")
    return folder


def installed_from(monkeypatch, origin):
    """Make pip's record say where the package came from; None: from an index."""

    class Distribution:
        def read_text(self, name):
            assert name == "direct_url.json"
            return origin and json.dumps(origin)

    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Distribution())


def test_an_extra_where_it_is_installed(place):
    assert _install.with_extra("cuda13") == "pip install 'sparsegpu[cuda13]'"
    assert _install.for_cuda() == "pip install 'sparsegpu[cuda13]' (for CUDA 12: [cuda12])"


def test_an_extra_of_a_checkout(place):
    (place / "pyproject.toml").touch()
    assert _install.with_extra("cpu") == f"pip install -e '{place}[cpu]'"


def test_an_extra_of_these_sources_works_from_any_folder():
    if not (PACKAGE.parent / "pyproject.toml").is_file():
        pytest.skip("the package is installed")
    assert _install.with_extra("cpu") == f"pip install -e '{PACKAGE.parent}[cpu]'"


def test_files_of_a_checkout_are_put_back_by_git(place):
    (place / "pyproject.toml").touch()
    assert _install.again() == f"unpack the sources anew into {place}"
    (place / ".git").touch()  # a file in a worktree
    assert _install.again() == f"git -C '{place}' checkout -- cuda_src"


def test_files_of_an_installed_package_come_from_where_it_came(place, tmp_path, monkeypatch):
    def said(origin):
        installed_from(monkeypatch, origin)
        return _install.again()

    again = "pip install --force-reinstall --no-deps "
    assert said(None) == again + "sparsegpu"
    wheel = tmp_path / "a b.whl"
    local = {"url": wheel.as_uri(), "archive_info": {}}
    assert said(local) == "install sparsegpu again, from where it came"  # it is gone
    wheel.touch()
    assert said(local) == f"{again}'{wheel}'"
    url = "https://example.org/sparsegpu.git"
    assert said({"url": url, "vcs_info": {"vcs": "git"}}) == f"{again}git+{url}"
    assert said({"url": f"{url}.whl", "archive_info": {}}) == f"{again}{url}.whl"


def test_files_of_a_package_that_pip_does_not_know(place, monkeypatch):
    def unknown(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", unknown)
    assert _install.again() == "install sparsegpu again, from where it came"


@pytest.fixture
def no_sources(monkeypatch):
    source.source_root.cache_clear()
    yield monkeypatch
    source.source_root.cache_clear()


def test_doctor_says_that_the_variable_hides_the_kernels(no_sources, tmp_path):
    no_sources.setenv("SPARSEGPU_CUDA_SRC", str(tmp_path / "nowhere"))
    found = doctor._sources()
    assert not found.ok and str(tmp_path / "nowhere") in found.text
    assert found.fix.startswith("unset SPARSEGPU_CUDA_SRC") and "pip" not in found.fix


def test_doctor_says_how_missing_kernels_are_put_back(no_sources, place):
    no_sources.delenv("SPARSEGPU_CUDA_SRC", raising=False)
    no_sources.setattr(source, "__file__", str(place / "sparsegpu" / "a" / "b" / "c" / "source.py"))
    (place / "pyproject.toml").touch()
    (place / ".git").mkdir()
    found = doctor._sources()
    assert not found.ok and found.fix == f"git -C '{place}' checkout -- cuda_src"


def test_no_message_names_an_extra_by_hand():
    """What a docstring shows is quoted as a literal; a message says the command of `_install`."""
    by_hand = re.compile(r"(?<!``)pip install[^`\n]*sparsegpu")
    found = {
        path.name
        for path in PACKAGE.rglob("*.py")
        if by_hand.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"_install.py"}
