"""Attention's softcap, slopes, sinks and out in every engine, against the formula in float64."""

from __future__ import annotations

import numpy as np
import pytest

import sparsegpu
from attention_cases import Case, attention
from covering import covered
from sparsegpu._arrays import dtype_of
from sparsegpu.testing import assert_attention_close

DTYPES = ["float16", "bfloat16", "float32", "float64"]


@covered(dtype=DTYPES, softcap=[None, 0.5, 30], sloped=[False, True], sinks=[False, True])
def test_formula(engine, rng, dtype, softcap, sloped, sinks):
    case = Case(rng, dtype=dtype, mask_dtype="float32", lengths=(24, 40), blocksize=(8, 4))
    case.check(
        engine,
        softcap=softcap,
        slopes=case.of_heads(rng) if sloped else None,
        sinks=case.of_heads(rng) if sinks else None,
    )


@covered(of_batch=[False, True], is_causal=[False, True], dropout_p=[0.0, 0.4])
def test_everything_at_once(engine, rng, of_batch, is_causal, dropout_p):
    """Numbers of the heads, for all of a batch or for each of it; grouped heads."""
    case = Case(rng, heads=(6, 2), batch=(2,), mask_batch=(2, 1), mask_dtype="float32")
    shape = None if of_batch else (6,)
    case.check(
        engine,
        softcap=2.5,
        slopes=case.of_heads(rng, shape),
        sinks=case.of_heads(rng, shape),
        is_causal=is_causal,
        dropout_p=dropout_p,
        seed=7,
    )


def test_order(engine):
    """A softcap caps what is scaled, and neither slopes nor mask."""
    arrays = np.float32([[[8, 0]]]), np.zeros(1, np.int32), np.array([0, 1], np.int32)
    mask = engine.bsr(arrays, shape=(1, 2))
    q = engine.array(np.full((1, 1, 1), 10, np.float32))
    k = engine.array(np.ones((1, 2, 1), np.float32))
    slopes = engine.array(np.float32([5]))
    with engine.runs("bsr_attention_simt"):
        _, lse = attention(q, k, k, mask, softcap=2, slopes=slopes, return_lse=True)
    capped = 2 * np.tanh(10 / 2)
    exact = np.logaddexp(capped + 8, capped + 5)
    assert_attention_close(lse, np.full((1, 1), exact))


def test_slopes_of_long_distances(engine, rng):
    case = Case(rng, lengths=(600, 700), blocksize=(100, 100), density=0.3)
    case.check(engine, slopes=np.float32([2.0**-6]), is_causal=True)


@covered(mask_dtype=["bool", "float32"], dtype=["bfloat16", "float32", "float64"])
def test_a_query_that_may_attend_to_nothing(engine, rng, dtype, mask_dtype):
    """It gets zeros, and its sink as lse; without any sink -inf."""
    case = Case(rng, dtype=dtype, mask_dtype=mask_dtype, density=1.0, heads=(2, 1))
    data, _, indptr = case.mask
    nothing = False if mask_dtype == "bool" else -np.inf
    data[indptr[1] : indptr[2], 1] = nothing  # row 4
    sinks = case.of_heads(rng)
    sinks[1] = -np.inf
    operands = case.on(engine)
    with engine.runs("bsr_attention_simt"):
        out, lse = attention(*operands, sinks=engine.array(sinks), return_lse=True)
    assert (engine.host(out)[:, 4] == 0).all()
    np.testing.assert_array_equal(engine.host(lse)[:, 4], sinks)
    case.check(engine, sinks=sinks)


@pytest.mark.parametrize("sink", [-1000.0, 1000.0])
def test_extreme_sinks(engine, rng, sink):
    case = Case(rng)
    case.check(engine, sinks=np.float32([sink]))


def test_huge_scores_with_a_sink(engine, rng):
    case = Case(rng, lengths=(8, 64), blocksize=(4, 8), density=0.8)
    case.query *= case.query.dtype.type(200)
    case.check(engine, sinks=np.float32([300]))


@pytest.mark.parametrize("sinks", [False, True])
def test_no_stored_blocks(engine, rng, sinks):
    case = Case(rng, heads=(2, 1))
    data, indices, _ = case.mask
    case.mask = [data[:0], indices[:0], np.zeros(5, np.int32)]
    values = case.of_heads(rng) if sinks else np.full(2, -np.inf, np.float32)
    operands = case.on(engine)
    with engine.runs(None):
        out, lse = attention(
            *operands, sinks=engine.array(values) if sinks else None, return_lse=True
        )
    assert (engine.host(out) == 0).all()
    np.testing.assert_array_equal(engine.host(lse), np.broadcast_to(values[:, None], (2, 12)))


@covered(dtype=DTYPES, out_dtype=["float16", "bfloat16", "float32"], layout=["C", "F", "holes"])
def test_out(engine, rng, dtype, out_dtype, layout):
    """Any strides, and another dtype: the sums are rounded once, to it."""
    out_dtype = dtype_of("float64" if dtype == "float64" else out_dtype)
    case = Case(rng, dtype=dtype, heads=(4, 2), batch=(2,), lengths=(12, 20))
    shape = (2, 4, 12, 5)
    out = {
        "C": lambda: engine.xp.empty(shape, out_dtype),
        "F": lambda: engine.xp.empty(shape[::-1], out_dtype).T,
        "holes": lambda: engine.xp.empty((2, 4, 24, 10), out_dtype)[:, :, 1::2, ::-2],
    }[layout]()
    operands = case.on(engine)
    with engine.runs("bsr_attention_simt"):
        assert attention(*operands, out=out) is out
        again, lse = attention(*operands, out=out, return_lse=True)
    assert again is out
    expected, expected_lse = case.expected()
    tolerance = {"float16": 2e-3, "bfloat16": 1.5e-2}.get(out_dtype.name, 1e-30)
    assert_attention_close(lse, expected_lse)
    wide = engine.host(out).astype(np.float64)
    operand_tolerance = sparsegpu.testing.ATTENTION_TOLERANCE[dtype]
    allowed = (tolerance + operand_tolerance) * (1 + abs(expected))
    assert (abs(wide - expected) <= allowed).all()


@pytest.mark.parametrize(
    ("lengths", "widths"),
    [((0, 8), (4, 4)), ((8, 0), (4, 4)), ((8, 8), (4, 0)), ((8, 8), (0, 4))],
)
def test_out_of_zero_sizes(engine, rng, lengths, widths):
    case = Case(rng, lengths=lengths, blocksize=(4, 4), widths=widths, density=1.0)
    case.mask[0][...] = True
    out = engine.xp.full((1, lengths[0], widths[1]), 7, np.float32)
    operands = case.on(engine)
    with sparsegpu.use_engine(engine.name):
        assert attention(*operands, out=out) is out
    mean = case.value.mean(1, keepdims=True) if lengths[1] else np.float32(0)  # scores are all 0
    if widths[0] == 0 or lengths[1] == 0:
        np.testing.assert_allclose(
            engine.host(out), np.broadcast_to(mean, out.shape), rtol=2e-5, atol=2e-5
        )


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"softcap": 0}, ValueError, r"'softcap': expected a number above 0 .*, got 0\.0"),
        ({"softcap": -1}, ValueError, "'softcap': expected a number above 0"),
        ({"softcap": np.nan}, ValueError, "'softcap': expected a number above 0"),
        ({"softcap": np.inf}, ValueError, "'softcap': expected a number above 0"),
        ({"softcap": 1e-60}, ValueError, "'softcap': expected a number above 0"),
        ({"softcap": "1"}, TypeError, "'softcap': expected a Python or NumPy number"),
        ({"slopes": (1,)}, ValueError, r"'slopes': expected shape \(2,\), got \(1,\)"),
        ({"slopes": (1, 2)}, ValueError, r"'slopes': expected shape \(2,\), got \(1, 2\)"),
        ({"slopes": ()}, ValueError, r"'slopes': expected shape \(2,\), got \(\)"),
        ({"sinks": (3,)}, ValueError, r"'sinks': expected shape \(2,\), got \(3,\)"),
        ({"slopes": "float64"}, TypeError, "'slopes': expected dtype float32 for float32 operands"),
        ({"sinks": "float16"}, TypeError, "'sinks': expected dtype float32 for float32 operands"),
        ({"out": (2, 12, 4)}, ValueError, r"'out': expected shape \(2, 12, 5\), got \(2, 12, 4\)"),
        ({"out": "float64"}, TypeError, "'out': expected one of the dtypes float32, float16"),
        ({"out": [1]}, TypeError, "'out': expected an array to write to, got list"),
    ],
)
def test_errors(engine, rng, change, error, message):
    operands = Case(rng, heads=(2, 1)).on(engine)
    shapes = {"slopes": (2,), "sinks": (2,), "out": (2, 12, 5)}
    out = engine.xp.full((2, 12, 5), 7, np.float32)
    given = {"out": out}
    for name, value in change.items():
        if isinstance(value, tuple):
            value = engine.xp.ones(value, np.float32)
        elif name in shapes and isinstance(value, str):
            value = engine.xp.ones(shapes[name], value)
        given[name] = value
    expected = f"^scaled_dot_product_attention: argument {message}"
    with engine.runs(None), pytest.raises(error, match=expected):
        attention(*operands, **given)
    assert (engine.host(out) == 7).all()


@pytest.mark.parametrize("name", ["query", "key", "value", "slopes", "sinks", "mask"])
def test_out_that_overlaps_an_operand(engine, rng, name):
    """query itself is refused, too: rows of it are read after others are written."""
    case = Case(rng, widths=(5, 5), lengths=(12, 12), blocksize=(4, 4), mask_dtype="float32")
    q, k, v, mask = case.on(engine)
    memory = engine.xp.zeros(2048, np.float32)
    out = memory[:60].reshape(1, 12, 5)
    operands = {"query": q, "key": k, "value": v, "mask": mask}
    if name == "mask":
        data = memory[: mask.data.size].reshape(mask.data.shape)
        operands["mask"] = mask.with_data(data)
    elif name in {"slopes", "sinks"}:
        operands[name] = memory[:1]
    else:
        operands[name] = out
    message = f"'out': expected memory apart from '{name}', got an overlap"
    with engine.runs(None), pytest.raises(ValueError, match=message):
        attention(**operands, out=out)


def test_slopes_and_sinks_of_another_batch(engine, rng):
    operands = Case(rng, heads=(2, 1), batch=(3,)).on(engine)
    wrong = engine.xp.zeros((1, 2), np.float32)
    for name in ("slopes", "sinks"):
        with engine.runs(None), pytest.raises(ValueError, match=r"shape \(2,\) or \(3, 2\)"):
            attention(*operands, **{name: wrong})
