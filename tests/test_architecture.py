"""Every engine offers the functions that docs/architecture.md lists, with the same parameters."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

import sparsegpu
from sparsegpu import engines
from sparsegpu.ops._product import Options

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
OFFERED = [
    (module, name, [p.strip() for p in parameters.split(",") if p.strip() != "*"])
    for module, functions in re.findall(r"^\| `(\w+)` \| (.*) \|$", TEXT, re.MULTILINE)
    for name, parameters in re.findall(r"`(\w+)\(([^)]*)\)", functions)
]


def test_the_table_is_found():
    assert len(OFFERED) >= 20
    assert ("softmax", "bsr_softmax", ["out_data", "pattern", "data"]) in OFFERED


def test_every_file_of_the_cuda_engine_is_named():
    named = set(re.findall(r"`(?:engines/cuda/|runtime/)?(\w+?)(?:\.py)?`", TEXT))
    folder = Path(engines.__file__).parent / "cuda"
    files = [*folder.glob("*.py"), *folder.glob("runtime/*.py")]  # paths: tests/test_paths.py
    assert {path.stem for path in files} <= named | {"__init__"}


@pytest.mark.parametrize("engine", ["reference", "cpu", "cuda"])
@pytest.mark.parametrize(("module", "name", "parameters"), OFFERED)
def test_an_engine_offers_it(engine, module, name, parameters):
    if engine == "cuda":
        pytest.importorskip("cupy")
    function = getattr(importlib.import_module(f"sparsegpu.engines.{engine}.{module}"), name)
    assert list(inspect.signature(function).parameters) == parameters


SOURCES = sorted(
    path
    for folder in ("sparsegpu", "cuda_src", "benchmarks", "tools", "tests", "examples", "docs/_ext")
    for suffix in ("*.py", "*.cu", "*.cuh", "*.h")
    for path in (ROOT / folder).rglob(suffix)
)


def test_files_are_short():
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert len(lengths) > 500
    assert {path.name: lines for path, lines in lengths.items() if lines > 400} == {}


def test_paragraphs_are_short():
    paragraphs = [p.splitlines() for p in TEXT.split("\n\n") if not p.lstrip().startswith("|")]
    assert len(paragraphs) > 30 and max(map(len, paragraphs)) <= 10


def test_rounding_up_is_written_once():
    """Examples in docstrings are a user's own code."""
    by_hand = re.compile(r"^(?!.*>>>).*(-\(-\w[^()]* // |\+ \w+ - 1\) // )", re.MULTILINE)
    package = Path(sparsegpu.__file__).parent
    found = {p.name for p in package.rglob("*.py") if by_hand.search(p.read_text(encoding="utf-8"))}
    assert found == {"_math.py"}


PRODUCTS = [
    sparsegpu.bsr_addmm, sparsegpu.bsr_matmul, sparsegpu.dense_bsr_matmul, sparsegpu.bsr_linear,
    sparsegpu.int_bsr_addmm, sparsegpu.semi_structured_addmm, sparsegpu.semi_structured_matmul,
    sparsegpu.semi_structured_linear,
]  # fmt: skip


def test_public_functions_spell_out_their_keywords():
    named = [getattr(sparsegpu, name) for name in sparsegpu.__all__]
    named += [getattr(sparsegpu.linalg, name) for name in sparsegpu.linalg.__all__]
    functions = [f for f in named if inspect.isfunction(f)]
    unspelled = [
        f.__name__
        for f in functions
        if any(p.kind is p.VAR_KEYWORD for p in inspect.signature(f).parameters.values())
    ]
    assert functions and unspelled == []


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda f: f.__name__)
def test_products_have_the_same_keywords(product):
    """All spell them out; without an input, what is scaled by beta is nothing."""
    parameters = inspect.signature(product).parameters.values()
    assert all(p.kind is not p.VAR_KEYWORD for p in parameters)
    keywords = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    keywords.pop("input", None)
    defaults = Options._field_defaults
    if product.__name__.endswith("matmul"):
        defaults = defaults | {"beta": 0}
    assert keywords == defaults
