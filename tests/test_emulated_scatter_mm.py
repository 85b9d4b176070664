"""The tensor-core kernel of scatter_mm: emulated on the host (tools/emulator), and on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

import sparsegpu
from scatter_cases import on
from sparsegpu.testing import random_values
from test_scatter_mm import loop
from tools.emulator.build import compiler
from tools.emulator.scatter_mm import emulated_scatter_mm

emulated = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")

#: Few, as each may take seconds to build: format, dtype, accumulators, block (Ms, Ks), Ns, splits.
CASES = [
    ("scatter_mm", "bfloat16", "bfloat16", (64, 64), 64, 1),
    ("scatter_mm", "float16", "float32", (20, 24), 40, 1),  # tiles of more than rows and columns
    ("bsr_strided_mm", "bfloat16", "float32", (80, 16), 72, 2),  # several tiles a block
    ("bsr_strided_mm", "float16", "float16", (16, 16), 12, 3),  # columns off the vectors
    ("bsr_strided_mm_compressed", "bfloat16", "bfloat16", (16, 16), 16, 3),
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("emulated")


def hand_made(rng, name, dtype, block, ns, split):
    """Return blocks, others, lists and the accumulators' shape: empty, long and repeated lists."""
    (ms, ks), n = block, ns * split
    blocks = random_values(rng, (7, ms, ks), dtype, small_integers=True)
    counts = np.array([3, 0, 5, 1])
    starts = np.concatenate([[0], np.cumsum(counts)])
    if name == "scatter_mm":
        others = random_values(rng, (4, ks, ns), dtype, small_integers=True)
        pq = np.stack([rng.integers(0, 7, starts[-1]), rng.integers(0, 4, starts[-1])], 1)
        return blocks, others, (name, starts, pq), (4, ms, ns)
    others = random_values(rng, (2, 4 * ks, n + -n % 8), dtype, small_integers=True)[..., :n]
    tiles = rng.permutation(4 * split)[:4]
    r_offsets = tiles // split * ms * n + tiles % split * ns
    if name == "bsr_strided_mm":
        lists, count = (starts, r_offsets, rng.integers(0, 7, starts[-1])), starts[-1]
    else:
        lists, count = (np.array([0, 2, 2, 6, 7]), r_offsets), 7 * split
    rows, columns = rng.integers(0, 3 * ks + 1, count), rng.integers(0, n - ns + 1, count)
    return blocks, others, (name, *lists, rows * n + columns, {"SPLIT_N": split}), (2, 4 * ms, n)


def operands_of(rng, case):
    """Return the operands of a case, what is added to, and the exact result."""
    name, dtype, accumulator, block, ns, split = case
    blocks, others, lists, shape = hand_made(rng, name, dtype, block, ns, split)
    start = random_values(rng, shape, accumulator, small_integers=True)
    exact, _ = loop(blocks, others, lists, start)
    return blocks, others, lists, start, exact.astype(start.dtype)


@emulated
@pytest.mark.parametrize("case", CASES, ids=str)
def test_emulated(directory, rng, case):
    blocks, others, lists, start, exact = operands_of(rng, case)
    with emulated_scatter_mm(directory) as launched:
        result = sparsegpu.scatter_mm(blocks, others, lists, accumulators=start.copy())
    assert launched == {"scatter_mm_sm80": 1}
    assert (result == exact).all()


@emulated
def test_what_does_not_lie_in_vectors_is_left_to_the_plain_kernel(directory, rng):
    blocks, others, lists, start, exact = operands_of(rng, CASES[3])
    shifted = np.zeros((*others.shape[:-1], others.shape[-1] + 1), others.dtype)[..., 1:]
    shifted[...] = others
    with emulated_scatter_mm(directory) as launched:
        result = sparsegpu.scatter_mm(blocks, shifted, lists, accumulators=start.copy())
    assert launched == {"scatter_mm": 1}
    assert (result == exact).all()


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=str)
def test_on_a_gpu(cuda_engine, rng, case, monkeypatch):
    monkeypatch.setattr("sparsegpu.engines.cuda.scatter_mm.HALVES", "scatter_mm_sm80")
    blocks, others, lists, start, exact = operands_of(rng, case)
    arguments = *map(cuda_engine.array, (blocks, others)), on(cuda_engine, lists)
    accumulators = cuda_engine.array(start)
    with cuda_engine.runs("scatter_mm_sm80"):
        sparsegpu.scatter_mm(*arguments, accumulators=accumulators)
    assert (cuda_engine.host(accumulators) == exact).all()
