"""Attention of one head, in two dimensions: that of a batch of one, without the axis."""

from __future__ import annotations

import numpy as np
import pytest

import sparsegpu as sg
from covering import covered
from sparsegpu import scaled_dot_product_attention as attend
from sparsegpu import scaled_dot_product_attention_backward as backward
from sparsegpu.testing import assert_attention_close, random_values


def operands(engine, rng, dtype, compact):
    shapes = (32, 8), (48, 8), (48, 5)
    arrays = [random_values(rng, shape, dtype) for shape in shapes]
    dense = rng.random((32, 48)) < 0.7
    mask = sg.bsr_array(engine.array(dense), blocksize=(8, 16))
    mask = sg.BlockMask.from_bsr(mask) if compact else mask
    return arrays, [engine.array(a) for a in arrays], mask, dense


@covered(dtype=["float16", "float32", "float64"], compact=[False, True])
def test_formula(engine, rng, dtype, compact):
    host, (q, k, v), mask, dense = operands(engine, rng, dtype, compact)
    sinks = engine.array(np.zeros(1, "f8" if dtype == "float64" else "f4"))
    with engine.runs("bsr_attention"):
        out, lse = attend(q, k, v, mask, return_lse=True, sinks=sinks, is_causal=True)
    wide = [a.astype("float64") for a in host]
    scores = wide[0] @ wide[1].T / np.sqrt(8)
    weights = np.where(dense & np.tri(32, 48, dtype=bool), np.exp(scores), 0)
    total = weights.sum(axis=1) + 1  # the sink, exp(0)
    assert out.shape == (32, 5) and lse.shape == (32,)
    assert_attention_close(out, weights / total[:, None] @ wide[2])
    np.testing.assert_allclose(engine.host(lse), np.log(total), rtol=4e-3, atol=4e-3)
    given = engine.xp.empty((32, 5), out.dtype)
    assert attend(q, k, v, mask, sinks=sinks, is_causal=True, out=given) is given
    assert_attention_close(given, weights / total[:, None] @ wide[2])


@covered(dtype=["float16", "float64"], with_lse=[False, True])
def test_gradients(engine, rng, dtype, with_lse):
    _, (q, k, v), mask, _ = operands(engine, rng, dtype, False)
    out, lse = attend(q, k, v, mask, return_lse=True)
    grad = engine.array(random_values(rng, (32, 5), dtype))
    of_lse = random_values(rng, (32,), lse.dtype) if with_lse else None
    of_lse = None if of_lse is None else engine.array(of_lse)
    got = backward(grad, q, k, v, mask, out, lse, grad_lse=of_lse, mask_gradient=True)
    wider = None if of_lse is None else of_lse[None]
    batch = backward(
        *(x[None] for x in (grad, q, k, v)), mask, out[None], lse[None], grad_lse=wider,
        mask_gradient=True,
    )  # fmt: skip
    for name, array in (("query", q), ("key", k), ("value", v)):
        one, other = getattr(got, name), getattr(batch, name)
        assert one.shape == array.shape
        assert_attention_close(one, engine.host(other)[0].astype("float64"))
    assert_attention_close(got.mask.data, engine.host(batch.mask.data).astype("float64"))


def test_all_three_or_none():
    q, mask = np.ones((1, 4, 2)), sg.causal(4, 2)
    said = r"^scaled_dot_product_attention: argument 'key': expected .* or all two, got \(4, 2\)"
    with pytest.raises(ValueError, match=said):
        attend(q, q[0], q, mask)
    with pytest.raises(ValueError, match=r"argument 'out': expected two dimensions"):
        attend(q[0], q[0], q[0], mask, out=np.ones((1, 4, 2)))


@pytest.mark.parametrize("name", ["grad", "out", "lse", "grad_lse"])
def test_results_of_a_batch_beside_one_head(name):
    """The message counts the dimensions that were given."""
    q, mask = np.ones((4, 2)), sg.causal(4, 2)
    out, lse = attend(q, q, q, mask, return_lse=True)
    given = {"grad": out, "out": out, "lse": lse, "grad_lse": lse}
    given[name] = given[name][None]
    expected, got = ("two", r"\(1, 4, 2\)") if given[name].ndim == 3 else ("one", r"\(1, 4\)")
    said = f"argument '{name}': expected {expected} dimensions? .*, got {got}"
    with pytest.raises(ValueError, match=f"^scaled_dot_product_attention_backward: {said}"):
        backward(query=q, key=q, value=q, mask=mask, **given)
