"""Random calls (`tools.fuzz`): some of each kind, and that the harness notices what is wrong."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
from operator import attrgetter

import numpy as np
import pytest

import sparsegpu
from sparsegpu.engines import cpu
from tools.fuzz import (
    assembling,
    attention,
    attention_gradients,
    containers,
    files,
    masks,
    operators,
    preconditioners,
    products,
)
from tools.fuzz.__main__ import main
from tools.fuzz.campaign import CASES, MODULES, chunks
from tools.fuzz.case import documented_errors
from tools.fuzz.machine import Machine
from tools.fuzz.runner import fuzz


@pytest.mark.parametrize("name", CASES)
def test_some_of_every_kind(engine, name):
    counts = fuzz(CASES[name], Machine(engine.name), cases=12, seed_of=1)
    assert counts.total() >= 10, "hypothesis ran fewer"


#: What no random call names, and why.
_APART = {
    "AttentionGradients": "what a function returns",
    "BsrSemiStructuredArray": "made by bsr_array.to_semi_structured, and so named in a case",
    "SemiStructuredArray": "made by to_semi_structured, and so named in cases",
    "__version__": "no function",
    "kernels": "wraps a caller's own CUDA sources, which its own tests compile",
    "testing": "what the oracles are made of",
    "tune": "has a clock under test",
}


def public_names():
    """Yield the names of the library, and after a dot those of `masks` and `linalg`."""
    modules = {"masks": sparsegpu.masks, "linalg": sparsegpu.linalg}
    yield from set(sparsegpu.__all__) - set(modules)
    for module, of in modules.items():
        for name in of.__all__:
            if getattr(sparsegpu, name, None) is not getattr(of, name):
                yield f"{module}.{name}"


def test_every_public_function_is_called():
    named = set()
    for node in (n for m in MODULES for n in ast.walk(ast.parse(inspect.getsource(m)))):
        if isinstance(node, ast.Constant):
            named.add(node.value)
        elif isinstance(node, ast.Attribute):
            named.add(ast.unparse(node).removeprefix("sparsegpu."))
    # Cases of several solvers are made by one function, which is told their names alone.
    named |= {f"linalg.{n}" for n in sparsegpu.linalg.__all__ if n in named}
    assert set(public_names()) - named == set(_APART)


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
    finds(assembling.from_blocks, "not equal")


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


def changed(**more):
    """Return what wraps a function that is given other arguments than the caller's."""

    def wrong(function):
        return lambda *arguments, **keywords: function(
            *arguments, **keywords | {n: f(keywords[n]) for n, f in more.items() if n in keywords}
        )

    return wrong


def answered(change):
    """Return what wraps a function whose answer is another."""
    return lambda function: lambda *arguments, **keywords: change(function(*arguments, **keywords))


def without_first_block(A):
    A.data[:1] = 0
    return A


def with_larger_gradient_of_mask(found):
    return found if found.mask is None else found._replace(mask=1.1 * found.mask)


def with_infinite_scores(scores):
    is_float = type(scores) is np.ndarray and scores.dtype.kind == "f"
    return np.where(np.isnan(scores), scores.dtype.type(np.inf), scores) if is_float else scores


def other_error(function):
    def wrong(file):
        try:
            return function(file)
        except ValueError as error:
            raise KeyError("some") from error

    return wrong


_PLANTED = {
    "identity": (assembling.unit, "identity", answered(without_first_block), "equal"),
    "diags": (assembling.diags, "diags", answered(without_first_block), "equal"),
    "compact": (
        masks.bands, "causal", changed(compact=lambda x: False if x is True else x), "BlockMask",
    ),
    "documents": (masks.documents, "masks.documents", changed(causal=lambda _: False), "equal"),
    "prefix": (masks.prefix, "masks.prefix", changed(prefix=lambda n: n and 1), "equal"),
    "top_k": (masks.top_k, "masks.top_k", changed(scores=with_infinite_scores), "equal"),
    "from_indices": (
        masks.from_indices, "masks.from_indices", changed(check=lambda _: False), "accepted a",
    ),
    "packed": (attention.attention, "BlockMask._write_partial", lambda _: lambda *_: None, "equal"),
    "mask's gradient": (
        attention_gradients.attention_backward, "scaled_dot_product_attention_backward",
        answered(with_larger_gradient_of_mask), "bound",
    ),
    "gradient of lse": (
        attention_gradients.attention_backward, "scaled_dot_product_attention_backward",
        changed(grad_lse=lambda _: None), "bound|accepted",
    ),
    "block_jacobi": (
        preconditioners.block_jacobi, "linalg.block_jacobi",
        lambda function: lambda A: function(A.T if hasattr(A, "T") else A), "bound",
    ),
    "singular": (
        preconditioners.block_jacobi, "linalg._block_jacobi._inverse",
        lambda _: lambda blocks, _: np.linalg.pinv(blocks), "accepted (singular|missing)",
    ),
    "lobpcg": (
        preconditioners.lobpcg, "linalg.lobpcg", changed(largest=lambda x: x is not True),
        "order|beyond|expected",
    ),
    "amg": (preconditioners.amg, "linalg.amg", answered(lambda cycle: 0 * cycle), "energy"),
    "safetensors": (
        files.safetensors, "load_safetensors",
        answered(lambda found: dict(zip(found, [*found.values()][::-1]))), "dtype|equal",
    ),
    "damaged": (files.damaged, "load_safetensors", other_error, "raised KeyError"),
}  # fmt: skip


@pytest.mark.parametrize("what", _PLANTED)
def test_one_fault_of_each_kind_is_found(monkeypatch, what):
    draw_case, name, wrong, match = _PLANTED[what]
    if what == "amg":
        pytest.importorskip("pyamg")
    place, _, last = name.rpartition(".")
    owner = attrgetter(place)(sparsegpu) if place else sparsegpu
    function = getattr(owner, last)
    monkeypatch.setattr(owner, last, functools.wraps(function)(wrong(function)))
    finds(draw_case, match, cases=600)


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
