"""Attention's tensor-core kernels on the host (tools/emulator): what a GPU would be told to do."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

from attention_cases import Case
from tools.emulator.attention import emulated_attention
from tools.emulator.build import compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")

#: Few, as each may take seconds to build: path, fields, dtype, mask, block, blocks, widths, more.
CASES = [
    # With such a scale the maximum rises by whole units.
    ("mma", {}, "bfloat16", "bool", (16, 16), (9, 11), (64, 64), {"scale": 1.0}),
    ("mma", {"tile_k": 16}, "float16", "float32", (20, 12), (5, 4), (40, 72), {"is_causal": True}),
    ("wgmma", {"stages": 2}, "float16", "bool", (256, 64), (1, 5), (64, 64), {"is_causal": True}),
    ("wgmma", {}, "bfloat16", "bool", (32, 32), (5, 7), (64, 128), {"scale": 1.0}),
]


class _Host:
    """The host's arrays as the engine of a test."""

    xp, name, on_gpu = np, "cpu", False

    @staticmethod
    def array(values):
        return np.asarray(values)

    @staticmethod
    def runs(*_):
        return nullcontext()


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("emulated")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_attention(directory, rng, case):
    path, fields, dtype, mask, blocksize, blocks, widths, keywords = case
    made = Case(
        rng,
        dtype=dtype,
        mask_dtype=mask,
        lengths=tuple(n * b for n, b in zip(blocks, blocksize, strict=True)),
        blocksize=blocksize,
        widths=widths,
        heads=(2, 1),
        density=0.7,
    )
    kernel = {"mma": "bsr_attention_sm80", "wgmma": "bsr_attention_sm90"}[path]
    states = {"bsr_attention_mask": 1} if mask == "bool" else {}
    if mask == "bool":
        made.mask[0][::3] = True
        made.mask[0][:, -1] = True  # the last row says nothing of a block
    for poisoned in (False, True):
        if poisoned:  # what nobody attends to is left out, not multiplied by zero
            made.mask[0][:, :, 1] = False if mask == "bool" else -np.inf
            made.value[..., 1 :: blocksize[1], :] = np.nan
        with emulated_attention(directory) as launched:
            made.check(_Host(), config={"path": path, **fields}, **keywords)
        assert launched == {kernel: 1} | states
