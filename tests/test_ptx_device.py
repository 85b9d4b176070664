"""What generated kernels write on a GPU is among what was found in their PTX."""

from __future__ import annotations

import numpy as np
import pytest

from ptx_cases import RUN_WORD, generate
from sparsegpu import kernels
from sparsegpu.kernels import guard

WORDS = 8192  # of each array; no address is led further from its first word than half of that
SHARE = 500  # of the 10,000 seeds, a test


def test_the_kernels_that_run_are_as_varied():
    made = [generate(seed, runs=True) for seed in range(300)]
    found = [kernels.analyse(kernel.text, "k") for kernel in made]
    assert all(kernel.written <= f.writes for kernel, f in zip(made, found, strict=True))
    assert sum(f.opaque for f in found) <= 30
    assert len({frozenset(kernel.written) for kernel in made}) > 20


@pytest.mark.gpu
@pytest.mark.parametrize("first", range(0, 10_000, SHARE))
def test_generated_kernels(cuda_engine, first):
    cp = cuda_engine.xp
    opaque = 0
    for seed in range(first, first + SHARE):
        kernel = generate(seed, runs=True)
        found = kernels.analyse(kernel.text, "k")
        opaque += found.opaque
        module = cp.cuda.function.Module()
        module.load(kernel.text.encode())
        launch = module.get_function("k")
        count = kernel.text.count(".param .u64 k_") - 1
        arrays = {i: cp.full(WORDS, RUN_WORD, np.uint64) for i in range(count)}
        seen: dict = {}

        def run(given, launch=launch, seen=seen):
            launch((1,), (1,), (*given.values(), np.uint64(RUN_WORD)))
            seen.update(given)

        guard.check(f"seed {seed}", arrays, found.writes, run, None)
        written = {i for i, array in seen.items() if (array != RUN_WORD).any()}
        assert written == kernel.written
    assert opaque <= SHARE // 10
