"""The golden file of what our kernels read and write, against their declarations."""

from __future__ import annotations

import json

import pytest

from sparsegpu.engines.cuda.runtime.source import expand
from sparsegpu.kernels.build import can_compile
from sparsegpu.kernels.declaration import parameters_of
from tools import accesses

BUILDS = {str(build): build for build in accesses.first_builds()}
GOLDEN = json.loads(accesses.GOLDEN.read_text())
SOURCES = sorted({build.source for build in BUILDS.values()})
#: Small sources, which are compiled here again; ``python -m tools.accesses`` compiles all.
COMPILED = ("bsr_gather", "bsr_row_signature", "prune_24", "semi_structured_reorder")
#: Pointers without const that no variant of the matrix writes: the first one's helper serves the
#: kernel that writes them, too, and no variant of the second splits rows.
ONLY_READ = {"bsr_addmm_sm90_reduce": {"partials"}, "bsr_addmm_vector_mma": {"partials"}}


def of_source(source):
    return [GOLDEN[name] for name, build in BUILDS.items() if build.source == source]


def test_every_variant_is_there():
    assert GOLDEN.keys() == BUILDS.keys()


@pytest.mark.parametrize("source", SOURCES)
def test_what_is_declared_const_is_not_written(source):
    declared = parameters_of(expand(source), source)
    const = {p.name for p in declared if p.pointer and p.const}
    for access in of_source(source):
        assert access["writes"] and not const & set(access["writes"])


@pytest.mark.parametrize("source", SOURCES)
def test_what_is_declared_to_be_written_is(source):
    """A pointer without const is there to be written, by some variant at least."""
    declared = parameters_of(expand(source), source)
    written = {name for access in of_source(source) for name in access["writes"]}
    pointers = {p.name for p in declared if p.pointer and not p.const}
    assert pointers - written == ONLY_READ.get(source, set())


@pytest.mark.skipif(not can_compile(), reason="cuda-bindings (NVRTC) is not installed")
@pytest.mark.parametrize("source", COMPILED)
def test_compiled_now(source):
    for name, build in BUILDS.items():
        if build.source == source:
            found = accesses.access_of(build)
            assert not found["opaque"] and not found["const"]
            assert {k: found[k] for k in ("reads", "writes")} == GOLDEN[name]
