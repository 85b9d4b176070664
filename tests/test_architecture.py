"""Every engine offers the functions that docs/architecture.md lists, with the same parameters."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
OFFERED = [
    (module, name, [p.strip() for p in parameters.split(",") if p.strip() != "*"])
    for module, functions in re.findall(r"^\| `(\w+)` \| (.*) \|$", TEXT, re.MULTILINE)
    for name, parameters in re.findall(r"`(\w+)\(([^)]*)\)", functions)
]


def test_the_table_is_found():
    assert len(OFFERED) >= 20
    assert ("softmax", "bsr_softmax", ["out_data", "pattern", "data"]) in OFFERED


@pytest.mark.parametrize("engine", ["reference", "cpu", "cuda"])
@pytest.mark.parametrize(("module", "name", "parameters"), OFFERED)
def test_an_engine_offers_it(engine, module, name, parameters):
    if engine == "cuda":
        pytest.importorskip("cupy")
    function = getattr(importlib.import_module(f"sparsegpu.engines.{engine}.{module}"), name)
    assert list(inspect.signature(function).parameters) == parameters
