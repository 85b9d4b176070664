"""Gradients of attention in every engine, against the formula and finite differences in float64."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegpu
from attention_cases import attention, on_engine, survivors
from attention_gradient_cases import GradientCase, backward
from covering import covered
from properties import drawn
from sparsegpu.testing import to_host

DTYPES = ["float16", "bfloat16", "float32", "float64"]
KERNELS = "bsr_attention_backward_simt"


@covered(
    dtype=DTYPES,
    mask_dtype=["bool", "float32"],
    is_causal=[False, True],
    softcap=[None, 1.5],
    of_heads=[False, True],
    dropout_p=[0.0, 0.3],
)
def test_formula(engine, rng, dtype, mask_dtype, is_causal, softcap, of_heads, dropout_p):
    """Unsorted blocks, empty rows and columns, grouped heads, a batch."""
    case = GradientCase(
        rng,
        dtype=dtype,
        mask_dtype=mask_dtype,
        lengths=(24, 40),
        blocksize=(8, 5),
        heads=(4, 2),
        batch=(2,),
    )
    numbers = {name: case.of_heads(rng) for name in ("slopes", "sinks")} if of_heads else {}
    case.check(
        engine,
        grad_lse=case.grad_lse if of_heads else None,
        is_causal=is_causal,
        softcap=softcap,
        dropout_p=dropout_p,
        seed=11,
        **numbers,
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
@pytest.mark.parametrize(
    "blocksize", [(1, 1), (1, 7), (5, 1), (3, 33), (16, 16), (33, 40), (2, 100), (70, 2)]
)
def test_any_block(engine, rng, dtype, blocksize):
    lengths = (3 * blocksize[0], 4 * blocksize[1])
    GradientCase(rng, dtype=dtype, lengths=lengths, blocksize=blocksize, density=0.6).check(engine)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(
    "widths", [(1, 1), (64, 64), (65, 33), (192, 128), (128, 192), (256, 256), (8, 300), (300, 8)]
)
def test_any_width(engine, rng, dtype, widths):
    case = GradientCase(rng, dtype=dtype, widths=widths, lengths=(16, 24), blocksize=(8, 8))
    case.check(engine)


@covered(heads=[(2, 2), (6, 2), (4, 1)], batch=[(), (2,), (2, 3)])
def test_grouped_heads(engine, rng, heads, batch):
    GradientCase(rng, heads=heads, batch=batch).check(engine)


@covered(mask_batch=[(), (4,), (1,), (2, 4), (2, 1)], kv_heads=[1, 2, 4])
def test_the_masks_gradient_is_summed_where_it_broadcasts(engine, rng, mask_batch, kv_heads):
    how = {"mask_batch": mask_batch, "mask_dtype": "float32"}
    GradientCase(rng, heads=(4, kv_heads), batch=(2,), **how).check(engine)


@pytest.mark.parametrize(
    "batches", [((2, 3), (1, 3)), ((2, 3), (3,)), ((1, 3), (2, 3)), ((), (2,))]
)
def test_gradients_are_summed_where_operands_broadcast(engine, rng, batches):
    batch, kv_batch = batches
    case = GradientCase(rng, heads=(4, 2), batch=batch, kv_batch=kv_batch)
    case.check(engine, dropout_p=0.25, seed=3)


def test_key_and_value_broadcast_apart(engine, rng):
    case = GradientCase(rng, heads=(4, 2), batch=(2, 3))
    case.value = case.value[:, :1]
    case.check(engine)


def test_sinks_of_heads_are_summed_over_the_batch(engine, rng):
    case = GradientCase(rng, heads=(4, 2), batch=(2, 3))
    case.check(engine, sinks=case.of_heads(rng, (4,)), grad_lse=case.grad_lse)


def test_any_strides(engine, rng):
    case = GradientCase(rng, heads=(4, 2), batch=(2,), lengths=(16, 24), blocksize=(8, 8))
    grad, q, k, v, mask, out, lse = case.forward(engine)
    turned = [engine.xp.asfortranarray(a) for a in (grad, q, k, v)]
    wide = engine.xp.zeros((2, 4, 16, 10), np.float32)
    wide[..., ::2] = out
    with engine.runs(KERNELS):
        found = backward(*turned, mask, wide[..., ::2], engine.xp.asfortranarray(lse))
    case.compare(found)


@pytest.mark.parametrize("mask_dtype", ["bool", "float32"])
def test_duplicate_blocks(engine, rng, mask_dtype):
    """The gradient of a mask has the blocks that it stores, each once."""
    case = GradientCase(rng, mask_dtype=mask_dtype, density=0.9, duplicates=True)
    case.check(engine)


@pytest.mark.parametrize("softcap", [None, 2.0])
def test_finite_differences(rng, softcap):
    """Of the reference in float64: along random directions and single elements."""
    case = GradientCase(rng, dtype="float64", mask_dtype="float64", heads=(2, 1), batch=(2,))
    names = ("query", "key", "value")
    slopes = case.of_heads(rng, (2,))
    arrays = {name: getattr(case, name) for name in names}
    arrays |= {"mask": case.mask[0], "sinks": case.of_heads(rng)}
    how = {"softcap": softcap, "slopes": slopes, "dropout_p": 0.3, "seed": 5, "is_causal": True}

    def call(arrays):
        mask = sparsegpu.bsr_array((arrays["mask"], *case.mask[1:]), shape=case.shape)
        with sparsegpu.use_engine("reference"):
            operands = (*(arrays[name] for name in names), mask)
            out, lse = attention(*operands, sinks=arrays["sinks"], return_lse=True, **how)
        return operands, out, lse

    def loss(arrays):
        _, out, lse = call(arrays)
        return (out * case.grad).sum() + (lse * case.grad_lse).sum()

    operands, out, lse = call(arrays)
    with sparsegpu.use_engine("reference"):
        found = backward(
            *(case.grad, *operands, out, lse),
            grad_lse=case.grad_lse,
            sinks=arrays["sinks"],
            mask_gradient=True,
            **how,
        )
    step = 1e-5
    for name, array in arrays.items():
        gradient = getattr(found, name)
        if name == "mask":  # stored in another order, and float32
            dense = gradient.toarray()
            rows, columns = operands[3].pattern.element_positions()
            gradient = dense[rows, columns]
        direction = rng.standard_normal(array.shape)
        for along in (direction, *np.eye(array.size)[:4].reshape(4, *array.shape)):
            both = [loss(arrays | {name: array + s * along}) for s in (step, -step)]
            slope = (both[0] - both[1]) / (2 * step)
            expected = (gradient * along).sum()
            assert abs(slope - expected) < (1e-5 if name == "mask" else 1e-7), name


def test_torchs_autograd(engine, rng):
    """Dense attention of torch in float64."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    case = GradientCase(rng, dtype="float64", mask_dtype="float64", heads=(4, 4), batch=(2,))
    allowed, added = case.dense_mask()
    bias = torch.tensor(np.where(allowed, added, -np.inf)[allowed.any(-1)], requires_grad=True)
    rows = np.flatnonzero(allowed.any(-1))  # torch has NaN for a query that attends to nothing
    case.grad[..., ~allowed.any(-1), :] = 0
    q = torch.tensor(case.query[..., rows, :], requires_grad=True)
    k, v = (torch.tensor(a, requires_grad=True) for a in (case.key, case.value))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    out.backward(torch.tensor(case.grad[..., rows, :]))
    operands = case.forward(engine)
    with engine.runs(KERNELS):
        found = backward(*operands)
    for array, theirs in ((found.query[..., rows, :], q), (found.key, k), (found.value, v)):
        np.testing.assert_allclose(engine.host(array), theirs.grad.numpy(), rtol=1e-11, atol=1e-12)


@covered(mask_dtype=["bool", "float32"], sinks=[False, True])
def test_a_query_that_attends_to_nothing(engine, rng, mask_dtype, sinks):
    """It gives no gradient but to its sink, whatever stands in it."""
    case = GradientCase(rng, mask_dtype=mask_dtype, density=1.0)
    data, _, indptr = case.mask
    data[indptr[1] : indptr[2], 1] = False if mask_dtype == "bool" else -np.inf  # row 4
    values = case.of_heads(rng) if sinks else None
    case.check(engine, sinks=values, grad_lse=case.grad_lse)
    case.query[:, 4] = np.nan
    operands = case.forward(engine, **on_engine(engine, {"sinks": values}))
    with engine.runs(KERNELS):
        found = backward(*operands, mask_gradient=True, **on_engine(engine, {"sinks": values}))
    assert (engine.host(found.query)[:, 4] == 0).all()
    case.query[:, 4] = 0
    case.compare(found, sinks=values)


@pytest.mark.parametrize("how", [{}, {"dropout_p": 0.4, "seed": 9}, {"softcap": 2.0}], ids=str)
def test_what_is_not_attended_shows_in_no_gradient(engine, rng, how):
    """Key 5 is stored and not attended, blocks of column 2 are not stored."""
    case = GradientCase(rng, density=1.0)
    case.mask[0][...] = True
    data, indices, indptr = case.mask
    keep = indices != 2
    counts = [keep[a:b].sum() for a, b in pairwise(indptr)]
    case.mask = [data[keep], indices[keep], np.r_[0, np.cumsum(counts)].astype(np.int32)]
    case.mask[0][case.mask[1] == 1, :, 1] = False
    for array in (case.key, case.value):
        array[:, 8:12] = np.nan
        array[:, 5] = np.inf
    operands = case.forward(engine, **how)
    with engine.runs(KERNELS):
        found = backward(*operands, mask_gradient=True, **how)
    for array in (case.key, case.value):
        array[:, 8:12] = array[:, 5] = 0
    for gradient in (found.key, found.value):
        host = engine.host(gradient)
        assert (host[:, 8:12] == 0).all()
        assert (host[:, 5] == 0).all()
    case.compare(found, **how)


def test_a_query_without_blocks_shows_in_no_gradient(engine, rng):
    """Rows 3 to 5 store nothing, and hold no numbers."""
    case = GradientCase(rng, density=1.0)
    data, indices, indptr = case.mask
    keep = np.arange(len(indices)) < indptr[1]
    keep |= np.arange(len(indices)) >= indptr[2]
    counts = [keep[a:b].sum() for a, b in pairwise(indptr)]
    case.mask = [data[keep], indices[keep], np.r_[0, np.cumsum(counts)].astype(np.int32)]
    case.query[:, 3:6] = np.nan
    operands = case.forward(engine)
    with engine.runs(KERNELS):
        found = backward(*operands, mask_gradient=True)
    assert (engine.host(found.query)[:, 3:6] == 0).all()
    case.query[:, 3:6] = 0
    case.compare(found)


def test_a_value_that_every_query_drops_shows_in_no_gradient(engine, rng):
    case = GradientCase(rng, lengths=(4, 8), blocksize=(2, 8), density=1.0)
    case.mask[0][...] = True
    how = {"dropout_p": 0.5, "seed": 5}
    kept = survivors((1, 4, 8), 0.5, 5)
    query, key = np.argwhere(~kept[0])[0]
    case.grad[:, np.arange(4) != query] = 0
    case.value[:, key] = np.nan
    operands = list(case.forward(engine, **how))
    operands[5] = engine.xp.nan_to_num(operands[5])  # of queries that see it
    with engine.runs(KERNELS):
        found = backward(*operands, **how)
    assert np.isfinite(engine.host(found.query)[0, query]).all()


def test_dropout_of_everything(engine, rng):
    """Nothing is left but what lse changes by."""
    case, how = GradientCase(rng), {"dropout_p": 1, "seed": 1}
    operands = case.forward(engine, **how)
    with engine.runs(KERNELS):
        without = backward(*operands, **how)
        found = backward(*operands, grad_lse=engine.array(case.grad_lse), **how)
    assert not any(engine.host(g).any() for g in without[:3])
    case.grad[...] = 0
    case.compare(found, grad_lse=case.grad_lse)


def test_the_same_bits_again(engine, rng):
    case = GradientCase(rng, dtype="bfloat16", lengths=(64, 96), blocksize=(16, 16), heads=(4, 1))
    sinks = engine.array(case.of_heads(rng))
    operands = case.forward(engine, dropout_p=0.2, seed=5, sinks=sinks)
    results = []
    for _ in range(3):
        with engine.runs(KERNELS):
            found = backward(*operands, dropout_p=0.2, seed=5, sinks=sinks, mask_gradient=True)
        arrays = (*found[:3], found.mask.data, found.sinks)
        results.append([to_host(a).tobytes() for a in arrays])
    assert results[0] == results[1] == results[2]


@covered(
    lengths=[(0, 8), (8, 0), (0, 0), (8, 8)],
    widths=[(4, 4), (0, 4), (4, 0)],
    heads=[(0, 2), (2, 1)],
    batch=[(), (2,)],
)
def test_zero_sizes(engine, rng, lengths, widths, heads, batch):
    sizes = {"lengths": lengths, "widths": widths, "heads": heads, "batch": batch}
    case = GradientCase(rng, blocksize=(4, 4), density=1.0, **sizes)
    how = {"scale": 1.0, "sinks": engine.array(case.of_heads(rng, heads[:1]))}
    with sparsegpu.use_engine(engine.name):
        operands = case.forward(engine, **how)
        found = backward(*operands, grad_lse=engine.array(case.grad_lse), mask_gradient=True, **how)
    if 0 not in (*lengths, heads[0]):
        sinks = engine.host(how["sinks"])
        case.compare(found, grad_lse=case.grad_lse, scale=1.0, sinks=sinks)
        return
    for gradient, operand in zip(found, operands[1:4]):
        assert gradient.shape == operand.shape
        assert not engine.host(gradient).any()
    expected = case.grad_lse.sum(axis=(*range(len(batch)), -1))
    np.testing.assert_allclose(engine.host(found.sinks), expected, rtol=1e-5)


def test_no_stored_blocks(engine, rng):
    """Only the sinks that have a weight get a gradient, from lse."""
    case = GradientCase(rng, heads=(2, 1), batch=(3,))
    data, indices, _ = case.mask
    case.mask = [data[:0], indices[:0], np.zeros(5, np.int32)]
    sinks = engine.array(np.float32([0.5, -np.inf]))
    with engine.runs(None):
        operands = case.forward(engine, sinks=sinks)
        found = backward(*operands, sinks=sinks, grad_lse=engine.array(case.grad_lse))
    assert not any(engine.host(g).any() for g in found[:3])
    expected = [case.grad_lse[:, 0].sum(), 0]
    np.testing.assert_allclose(engine.host(found.sinks), expected, rtol=1e-5)


@drawn(20)
@given(
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from(DTYPES),
    blocks=st.tuples(st.integers(1, 3), st.integers(1, 4)),
    blocksize=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    widths=st.tuples(st.integers(1, 140), st.integers(1, 140)),
    heads=st.sampled_from([(1, 1), (2, 1), (4, 2)]),
    density=st.sampled_from([0.2, 0.6, 1.0]),
    is_causal=st.booleans(),
)
def test_any_shape(engine, seed, dtype, blocks, blocksize, widths, heads, density, is_causal):
    case = GradientCase(
        np.random.default_rng(seed),
        dtype=dtype,
        mask_dtype="float32",
        lengths=(blocks[0] * blocksize[0], blocks[1] * blocksize[1]),
        blocksize=blocksize,
        widths=widths,
        heads=heads,
        density=max(density, 1 / (blocks[0] * blocks[1])),
        duplicates=True,
    )
    case.check(engine, is_causal=is_causal)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"grad": (1, 12, 4)}, ValueError, r"'grad': expected shape \(1, 12, 5\), got"),
        ({"grad": "float64"}, TypeError, "'grad': expected dtype float32"),
        ({"out": (1, 11, 5)}, ValueError, r"'out': expected shape \(1, 12, 5\), got"),
        ({"out": "float16"}, TypeError, "'out': expected dtype float32, as the forward call"),
        ({"lse": (1, 12, 1)}, ValueError, r"'lse': expected shape \(1, 12\), got"),
        ({"lse": "float64"}, TypeError, "'lse': expected dtype float32, as the forward call"),
        ({"grad_lse": (12,)}, ValueError, r"'grad_lse': expected shape \(1, 12\), got"),
        ({"grad_lse": "float16"}, TypeError, "'grad_lse': expected dtype float32"),
        ({"dropout_p": 0.5}, ValueError, "'seed': expected the forward call's"),
        ({"softcap": 0}, ValueError, "'softcap': expected a number above 0"),
        ({"sinks": (2,)}, ValueError, r"'sinks': expected shape \(1,\)"),
        ({"key": (1, 20, 6)}, ValueError, "'key': expected a last dimension of 7"),
        ({"mask": 1}, TypeError, "'mask': expected a bsr_array, got int"),
    ],
)
def test_errors(engine, rng, change, error, message):
    case = GradientCase(rng)
    names = ["grad", "query", "key", "value", "mask", "out", "lse"]
    with sparsegpu.use_engine(engine.name):
        given = dict(zip(names, case.forward(engine)))
    given["grad_lse"] = given["lse"]
    for name, value in change.items():
        if isinstance(value, tuple):
            value = engine.xp.ones(value, np.float32)
        elif isinstance(value, str):
            value = given[name].astype(value)
        given[name] = value
    expected = f"^scaled_dot_product_attention_backward: argument {message}"
    with engine.runs(None), pytest.raises(error, match=expected):
        backward(**given)


def test_host_arrays_beside_those_of_a_gpu(cuda_engine, rng):
    case = GradientCase(rng)
    names = ["grad", "query", "key", "value", "mask", "out", "lse"]
    given = dict(zip(names, case.forward(cuda_engine)))
    host = {"mask": sparsegpu.bsr_array(tuple(case.mask), shape=case.shape), "lse": case.grad_lse}
    host |= {"sinks": case.of_heads(rng), "slopes": case.of_heads(rng)}
    for name, array in host.items():
        with cuda_engine.runs(None), pytest.raises(TypeError, match=f"'{name}': expected a cupy"):
            backward(**{**given, name: array})
    forward = {name: given[name] for name in names[1:5]}
    del host["lse"]
    for name, array in host.items():
        with cuda_engine.runs(None), pytest.raises(TypeError, match=f"'{name}': expected a cupy"):
            attention(**{**forward, name: array})
