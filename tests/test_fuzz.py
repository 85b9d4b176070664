"""Random calls (`tools.fuzz`): some of each kind, and that the harness notices what is wrong."""

from __future__ import annotations

import dataclasses
import importlib
import inspect

import numpy as np
import pytest

import sparsegpu
from sparsegpu.engines import cpu
from tools.fuzz import containers, operators, products
from tools.fuzz.__main__ import main
from tools.fuzz.campaign import CASES, MODULES, chunks
from tools.fuzz.case import documented_errors
from tools.fuzz.machine import Machine
from tools.fuzz.runner import fuzz


@pytest.mark.parametrize("name", CASES)
def test_some_of_every_kind(engine, name):
    counts = fuzz(CASES[name], Machine(engine.name), cases=12, seed_of=1)
    assert counts.total() >= 10, "hypothesis ran fewer"


def test_every_public_function_is_called():
    """What is not has methods, files or a clock under test, in files of their own."""
    apart = {"BsrSemiStructuredArray", "SemiStructuredArray", "bsr_array", "save_npz", "load_npz"}
    apart |= {
        "from_blocks",
        "identity",
        "__version__",
        "kernels",
        "linalg",
        "masks",
        "testing",
        "tune",
    }
    apart |= {"AttentionGradients", "scaled_dot_product_attention_backward"}
    apart |= {"diags", "load_safetensors", "save_safetensors"}
    sources = "".join(map(inspect.getsource, MODULES))
    missing = {n for n in set(sparsegpu.__all__) - apart if f'"{n}"' not in sources}
    assert not missing


# -- planted faults: each is found within the cases that the suite runs -----------------------


def engine_function(monkeypatch, stem: str, name: str, wrong):
    """Replace a function of the CPU engine by ``wrong(function)``."""
    module = importlib.import_module(f"{cpu.__name__}.{stem}")
    monkeypatch.setattr(module, name, wrong(getattr(module, name)))


def finds(draw_case, match: str, cases: int = 200) -> None:
    with pytest.raises(AssertionError, match=match):
        fuzz(draw_case, Machine("cpu"), cases=cases, seed_of=3, minimise=False)


def test_some_ulps_too_many_are_found(monkeypatch):
    def wrong(function):
        def product(out, *arguments, **keywords):
            function(out, *arguments, **keywords)
            if out.dtype.kind in "fc":
                out *= 1 + 200 * np.finfo(out.dtype).eps

        return product

    engine_function(monkeypatch, "addmm", "bsr_addmm", wrong)
    finds(products.bsr_matmul, "outside the bound")


def test_a_beta_that_is_ignored_is_found(monkeypatch):
    def wrong(function):
        def product(out, pattern, data, dense, epilogue, **keywords):
            beta = 1 if epilogue.input is not None else 0
            function(
                out, pattern, data, dense, dataclasses.replace(epilogue, beta=beta), **keywords
            )

        return product

    engine_function(monkeypatch, "addmm", "bsr_addmm", wrong)
    finds(products.bsr_addmm, "outside the bound", cases=600)


def test_a_duplicate_that_is_dropped_is_found(monkeypatch):
    def wrong(function):
        def sums(out, blocks, order, starts):
            function(out, blocks, order[starts[:-1]], np.arange(len(starts)))

        return sums

    engine_function(monkeypatch, "convert", "sum_blocks", wrong)
    finds(operators.methods, "not equal", cases=1500)


def test_an_index_that_is_not_checked_is_found(monkeypatch):
    monkeypatch.setattr(sparsegpu.pattern.Pattern, "check", lambda *arguments: None)
    finds(containers.malformed_parts, "accepted|refused|raised|range|bounds|size")


@pytest.mark.parametrize("how", ["writes", "answers another array", "another error", "changes"])
def test_what_is_done_to_arguments_is_found(monkeypatch, how):
    function = sparsegpu.bsr_matmul

    def wrong(bsr, dense, **keywords):
        out = keywords.get("out")
        if how == "writes" and isinstance(out, np.ndarray) and out.flags.writeable:
            out += 1
        if how == "changes" and isinstance(dense, np.ndarray) and dense.flags.writeable:
            dense *= 0
        try:
            result = function(bsr, dense, **keywords)
        except TypeError as error:
            if how == "another error":
                raise KeyError("some") from error
            raise
        return result.copy() if how == "answers another array" else result

    wrong.__doc__ = function.__doc__
    monkeypatch.setattr(sparsegpu, "bsr_matmul", wrong)
    said = {
        "writes": "(out|dense) was changed by a refused call",  # which may overlap
        "changes": "dense was changed",
        "another error": "bsr_matmul raised KeyError.*documented: TypeError, ValueError",
        "answers another array": "does not return 'out'",
    }
    finds(products.bsr_matmul, said[how], cases=600)


# -- the tool --------------------------------------------------------------------------------


def test_documented_errors_are_those_of_the_section():
    assert documented_errors(sparsegpu.bsr_addmm) == {"ValueError", "TypeError"}
    assert documented_errors(sparsegpu.load_npz) == {"ValueError", "OSError", "TypeError"}
    assert documented_errors(len) == frozenset()


def test_chunks_add_up_and_take_turns():
    made = list(chunks(["a", "b"], ["cpu", "reference"], 1001, 7))
    assert sum(chunk.cases for chunk in made) == 1001
    assert [chunk.name for chunk in made[:4]] == ["a", "a", "b", "b"]
    assert len({(chunk.name, chunk.engine, chunk.seed) for chunk in made}) == len(made)


def test_the_command_counts(capsys):
    words = ["--engine", "cpu", "--cases", "30", "-j", "1", "--only", "masks.bands"]
    assert main(words) == 0
    assert "30 cases of 30 on cpu" in capsys.readouterr().out
    assert main([*words, "--seconds", "-1"]) == 1, "nothing was run"
