"""The record's tree hashes are git's own."""

import os
import shutil
import subprocess

import pytest

from tools.record import ROOT, tree_hash


def _git(*words: str, **environment: str) -> str:
    result = subprocess.run(
        ["git", *words],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout.strip()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")
@pytest.mark.parametrize("folder", ["sparsegpu", "cuda_src", "tests"])
def test_tree_hash_is_git_s(folder, tmp_path):
    index = str(tmp_path / "index")
    objects = str(tmp_path / "objects")
    os.mkdir(objects)
    environment = {"GIT_INDEX_FILE": index, "GIT_OBJECT_DIRECTORY": objects}
    _git("add", "--", folder, **environment)
    expected = _git("write-tree", f"--prefix={folder}/", **environment)
    assert tree_hash(ROOT / folder) == expected


def test_content_and_name_change_the_hash(tmp_path):
    (tmp_path / "a.cu").write_text("one")
    first = tree_hash(tmp_path)
    (tmp_path / "a.cu").write_text("two")
    second = tree_hash(tmp_path)
    (tmp_path / "a.cu").rename(tmp_path / "b.cu")
    assert len({first, second, tree_hash(tmp_path)}) == 3
