"""What README and docs show runs, and README's block and docs/api.md hold every public name."""

import doctest
import operator
import re
from pathlib import Path

import numpy as np
import pytest

import sparsegpu as sg

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def api_block() -> str:
    text = README.read_text(encoding="utf-8")
    return re.search(r"## The whole API in one block\n+```python\n(.*?)```", text, re.DOTALL)[1]


def test_the_block_is_the_whole_api():
    block = api_block()
    unnamed = {"__version__", "kernels", "linalg", "masks"}
    unnamed |= {"AttentionGradients", "SemiStructuredArray", "BsrSemiStructuredArray"}
    assert [name for name in sg.__all__ if f".{name}" not in block and name not in unnamed] == []


def test_every_line_runs(rng, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a file is saved
    imports, *paragraphs = api_block().split("\n\n")
    names: dict = {"np": np, "sg": sg}
    assert "import sparsegpu as sg" in imports

    dense = rng.standard_normal((128, 128)).astype(np.float32)
    names |= {"dense": dense, "x": dense[0], "B": sg.bsr_array(dense.T, blocksize=(32, 32))}
    names |= {"values": np.ones((16, 32, 32)), "shape": dense.shape, "blocksize": (32, 32)}
    names |= {"rows": [0, 1], "cols": [1, 1], "blocks": np.ones((2, 4, 4)), "small": np.eye(3)}
    names |= {
        "block": np.ones((2, 2)),
        "density": 0.5,
        "input": dense[:, :1],
        "m1": dense,
        "m2": dense,
    }
    names |= {"dense8": dense.astype(np.int8), "x8": dense.astype(np.int8)}
    names["A8"] = sg.bsr_array(names["dense8"], blocksize=(32, 32))
    names |= dict.fromkeys("qkv", np.ones((1, 4096, 4), np.float32))
    half = dense.astype(np.float16)
    pruned = sg.prune_24(half)
    two_four = {"weight": half, "x": half[0], "bias": half[1], "pruned": pruned}
    two_four |= {"scale_w": 0.5, "scale_x": np.ones(128, np.float32)}
    two_four["W8"] = sg.to_semi_structured(sg.prune_24(names["dense8"]))
    two_four["rows"] = np.zeros((128, 8), np.int16)
    two_four["buffer"] = sg.to_cusparselt_layout(*sg.semi_structured_from_dense(pruned))
    for paragraph in paragraphs:
        if paragraph.startswith("# 2:4"):
            single = names["x"]
            exec(paragraph, names | two_four)
            assert names["x"] is single
        else:
            exec(paragraph, names)


def test_the_imports_of_the_block():
    pytest.importorskip("cupy")
    exec(api_block().split("\n\n")[0], {})


PAGES = ["README.md", "docs/block_sparse.md", "docs/install.md", "docs/partners.md"]
PAGES += ["docs/semi_structured.md", "docs/attention.md"]


@pytest.mark.parametrize("page", PAGES)
def test_examples_in_the_text(page, tmp_path, monkeypatch):
    """Each `pycon` block goes on where the one before it ended."""
    monkeypatch.chdir(tmp_path)  # where files are written
    text = (ROOT / page).read_text(encoding="utf-8")
    examples = "\n".join(re.findall(r"```pycon\n(.*?)```", text, re.DOTALL))
    test = doctest.DocTestParser().get_doctest(examples, {}, page, page, 0)
    said = []
    failed, tried = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.append)
    assert tried >= 8
    assert not failed, "".join(said)


def test_the_page_of_the_api_is_whole():
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    listed = re.findall(r"^   (\w[\w.]*)$", text, re.MULTILINE)
    modules = {"__version__", "kernels", "linalg", "masks", "testing"}
    assert sorted(name for name in listed if "." not in name) == sorted({*sg.__all__} - modules)
    for name in listed:
        assert operator.attrgetter(name)(sg).__doc__, name
