"""What the CPU engine takes in several tiles, panels or strips, made small enough to see."""

import numpy as np
import pytest

import sparsegpu
from attention_gradient_cases import GradientCase, backward
from conftest import Engine
from covering import covered
from cpu_cases import agree, on
from sparsegpu.testing import assert_attention_close, random_24, random_blocks, random_values


def test_sampled_products_of_several_panels(rng, monkeypatch):
    from sparsegpu.engines.cpu import sampled_addmm

    monkeypatch.setattr(sampled_addmm, "_WIDENED", 1)  # 64 of the depth at a time
    parts = random_blocks(rng, (12, 20), (3, 5), small_integers=True)
    A = sparsegpu.bsr_array(parts, shape=(12, 20))
    a, b = (random_values(rng, s, "float32", small_integers=True) for s in ((12, 150), (150, 20)))
    agree(lambda *args: sparsegpu.sampled_addmm(*args, alpha=2, beta=3).data, A, a, b)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_epilogues_of_several_tiles(rng, monkeypatch, dtype):
    from sparsegpu.engines.cpu import addmm

    monkeypatch.setattr(addmm, "COLUMNS", 8)
    monkeypatch.setattr(addmm, "ACCUMULATOR", 64)
    monkeypatch.setattr(addmm, "_WIDENED", 1)
    triple = random_blocks(rng, (24, 20), (3, 5), batch=(2,), dtype=dtype, small_integers=True)
    A = sparsegpu.bsr_array(triple, shape=(24, 20))
    x, bias, left, right = (
        random_values(rng, shape, dtype, small_integers=True)
        for shape in ((20, 37), (2, 24, 37), (2, 24), (2, 37))
    )
    agree(sparsegpu.bsr_addmm, bias, A, x, beta=2, left_alpha=left, right_alpha=right)
    scales = {"left_alpha": right, "right_alpha": left[:, :20]}
    agree(sparsegpu.dense_bsr_matmul, bias.swapaxes(-1, -2), A, **scales)


@pytest.mark.parametrize("poisoned", [False, True])
def test_products_of_two_of_four_by_strips(rng, monkeypatch, poisoned):
    from sparsegpu.engines.cpu import semi_structured

    monkeypatch.setattr(semi_structured, "_WIDENED", 1)  # one row and 64 columns at a time
    dense = random_24(rng, (32, 64), "float16", small_integers=True)
    sparse = sparsegpu.to_semi_structured(dense)
    x, bias, left, right = (
        random_values(rng, shape, "float16", small_integers=True)
        for shape in ((2, 64, 150), (32, 150), (32,), (150,))
    )
    if poisoned:
        x[1, 5, 140] = np.nan
    scales = {"left_alpha": left, "right_alpha": right}
    agree(sparsegpu.semi_structured_addmm, bias, sparse, x, beta=2, **scales)


def test_int8_sums_of_two_of_four_past_float32(rng):
    """4,096 odd products are more than float32 counts in ones."""
    dense = np.zeros((16, 8192), np.int8)
    dense.reshape(-1, 4)[:, :2] = rng.integers(50, 63, (16 * 2048, 2)) * 2 + 1
    x = (rng.integers(50, 63, (8192, 20)) * 2 + 1).astype(np.int8)
    out = on("cpu", sparsegpu.semi_structured_matmul, sparsegpu.to_semi_structured(dense), x)
    np.testing.assert_array_equal(out, dense.astype(np.int64) @ x.astype(np.int64))


@covered(scores=[1, 300, 1 << 18], poisoned=[False, True])
def test_attention_by_strips(rng, monkeypatch, scores, poisoned):
    from sparsegpu.engines.cpu import attention

    monkeypatch.setattr(attention, "_SCORES", scores)
    mask = sparsegpu.bsr_array(
        random_blocks(rng, (36, 40), (3, 5), batch=(2, 1), dtype="bool"), shape=(36, 40)
    )
    query, key, value = (
        random_values(rng, (2, heads, n, e), "float32")
        for heads, n, e in ((4, 36, 11), (2, 40, 11), (2, 40, 19))
    )
    if poisoned:
        value[:, 1, 7] = np.nan
    for keywords in ({}, {"is_causal": True}, {"dropout_p": 0.3, "seed": 5}):
        results = (
            on(engine, sparsegpu.scaled_dot_product_attention, query, key, value, mask,
               return_lse=True, **keywords)
            for engine in ("cpu", "reference")
        )  # fmt: skip
        for cpu, reference in zip(*results):
            # Two that sum in float32 are much nearer to each other than the contract asks.
            assert_attention_close(cpu, reference, share=0.1)


@covered(scores=[1, 300, 1 << 18], dropout_p=[0.0, 0.3])
def test_gradients_of_attention_by_strips(rng, monkeypatch, scores, dropout_p):
    """The bits do not depend on where the rows are cut."""
    from sparsegpu.engines.cpu import attention

    case = GradientCase(rng, lengths=(36, 40), blocksize=(3, 5), heads=(4, 2), batch=(2,))
    how = {"dropout_p": dropout_p, "seed": 5}
    operands = case.forward(Engine("cpu"), **how)
    whole = on("cpu", backward, *operands, mask_gradient=True, **how)
    monkeypatch.setattr(attention, "_SCORES", scores)
    cut = on("cpu", backward, *operands, mask_gradient=True, **how)
    case.compare(cut, **how)
    for a, b in zip((*cut[:3], cut.mask.data), (*whole[:3], whole.mask.data)):
        np.testing.assert_array_equal(a, b)
