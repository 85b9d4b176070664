"""10,000 random calls of what works on stored blocks, by every kernel path that serves them.

The cases and their oracles are those of `tools.fuzz`: sizes, layouts, batches, dtypes, repeated and
unsorted blocks, wrong arguments. Every seed is fixed. The host runs a few of them.
"""

from __future__ import annotations

import pytest

from tools.fuzz.campaign import CASES
from tools.fuzz.machine import Machine
from tools.fuzz.runner import fuzz

NAMES = (
    "products.sampled_addmm",
    "products.bsr_softmax",
    "products.bsr_softmax_backward",
    "products.bsr_spgemm",
    "scatter.scatter_mm",
    "scatter.bsr_scatter_mm",
    "scatter.index_lists",
)
SHARE = 250  # of the 10,000 cases, a test


def run(engine, name, cases, seed):
    counts = fuzz(CASES[name], Machine(engine.name), cases=cases, seed_of=seed, minimise=False)
    assert counts.total() >= 0.8 * cases, "hypothesis ran fewer"
    right = sum(n for (_, ended), n in counts.items() if ended == "right")
    assert right >= 0.3 * cases, "most calls were refused"


@pytest.mark.gpu
@pytest.mark.parametrize("first", range(0, 10_000, SHARE))
def test_random_cases(cuda_engine, first):
    run(cuda_engine, NAMES[first // SHARE % len(NAMES)], SHARE, first)


@pytest.mark.parametrize("name", NAMES)
def test_a_few_on_the_host(engine, name):
    if engine.on_gpu:
        pytest.skip("it runs them all")
    run(engine, name, 25, 10_000 + NAMES.index(name))
