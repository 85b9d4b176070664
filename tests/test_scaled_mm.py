"""`scaled_mm`: fp8 and int8 operands with scales for each operand, row or column."""

import numpy as np
import pytest

import sparsegpu as sg
from covering import covered
from semi_structured_cases import BF16, FP8, HALF, INT8, KERNEL, SINGLE, exact_product, operand
from sparsegpu.testing import assert_within_bound, random_24, random_values


@covered(
    dtype=[FP8, INT8],
    out_dtype=[None, HALF, SINGLE],
    how=["numbers", "scalars", "vectors", "columns", "mixed"],
)
def test_scaled_mm(engine, rng, dtype, out_dtype, how):
    a = random_24(rng, (32, 128), dtype)
    b = random_values(rng, (2, 128, 24), dtype)
    rows = (2.0**-6 * (1 + rng.random(32))).astype(np.float32)
    columns = (1 + rng.random(24)).astype(np.float32)
    left, right = {
        "numbers": (0.125, np.float32(0.5)),
        "scalars": (np.full((), 0.125, np.float32), np.full((1, 1), 0.5, np.float32)),
        "vectors": (rows, columns),
        "columns": (rows[:, None], columns[None]),
        "mixed": (0.25, columns),
    }[how]
    device = [engine.array(s) if isinstance(s, np.ndarray) and s.ndim else s for s in (left, right)]
    if how == "scalars":
        device[0] = engine.array(left)
    term = random_values(rng, (32, 1), out_dtype or BF16)
    keywords = {} if out_dtype is None else {"out_dtype": out_dtype}
    sparse = sg.to_semi_structured(engine.array(a))
    assert sparse.dtype == dtype
    with engine.runs(KERNEL):
        out = sg.scaled_mm(
            sparse,
            engine.array(b),
            *device,
            input=engine.array(term),
            activation="relu",
            dense_dtype=dtype.name,
            **keywords,
        )
    assert out.dtype == (out_dtype or BF16)
    assert_within_bound(
        out,
        np.broadcast_to(a, (2, 32, 128)),
        b,
        left_alpha=np.broadcast_to(np.asarray(left, np.float32).ravel(), (32,)),
        right_alpha=np.broadcast_to(np.asarray(right, np.float32).ravel(), (24,)),
        input=term,
        beta=1,
        activation="relu",
    )


@covered(dtype=[FP8, INT8], out_dtype=[BF16, HALF, SINGLE], batch=[(), (2,)])
def test_sparse_from_the_right(engine, rng, dtype, out_dtype, batch):
    a = random_values(rng, (*batch, 24, 64), dtype)
    b = random_24(rng, (64, 128), dtype)
    rows = (1 + rng.random(24)).astype(np.float32)
    columns = (2.0**-6 * (1 + rng.random(128))).astype(np.float32)
    term = random_values(rng, (1, 128), out_dtype)
    out = engine.xp.empty((*batch, 24, 128), out_dtype)
    sparse = sg.to_semi_structured(engine.array(b))
    device = engine.array(rows), engine.array(columns)
    with engine.runs(KERNEL):
        got = sg.scaled_mm(
            engine.array(a), sparse, *device, input=engine.array(term), out=out,
            dense_dtype=dtype.name,
        )  # fmt: skip
    assert got is out
    assert_within_bound(
        out, a, np.broadcast_to(b, (*batch, 64, 128)), left_alpha=rows, right_alpha=columns,
        input=term, beta=1,
    )  # fmt: skip


def test_out_says_the_dtype(engine, rng):
    a = random_24(rng, (32, 64), INT8)
    x = random_values(rng, (64, 8), INT8)
    sparse, dense = sg.to_semi_structured(engine.array(a)), engine.array(x)
    for dtype in (HALF, BF16, SINGLE):
        out = engine.xp.empty((32, 8), dtype)
        assert sg.scaled_mm(sparse, dense, 0.5, 0.25, out=out) is out
        assert_within_bound(out, a, x, alpha=0.125)
    assert sg.scaled_mm(sparse, dense, 1, 1).dtype == BF16
    with pytest.raises(TypeError, match=r"^scaled_mm: argument 'out': expected dtype float16"):
        sg.scaled_mm(sparse, dense, 1, 1, out=out, out_dtype=HALF)
    with pytest.raises(TypeError, match=r"^scaled_mm: argument 'out': .*, got int32"):
        sg.scaled_mm(sparse, dense, 1, 1, out=out.astype(np.int32))
    with pytest.raises(ValueError, match=r"^scaled_mm: argument 'config\['path'\]'"):
        sg.scaled_mm(sparse, dense, 1, 1, config={"path": "none such"})
    with pytest.raises(ValueError, match=r"^scaled_mm: argument 'sparse': expected shape"):
        sg.scaled_mm(dense, sparse, 1, 1)


def test_fp8_small_integers_are_exact(engine, rng):
    a = random_24(rng, (32, 256), FP8, small_integers=True)
    b = random_values(rng, (256, 16), FP8, small_integers=True)
    sparse = sg.to_semi_structured(engine.array(a))
    with engine.runs(KERNEL):
        out = sg.scaled_mm(
            sparse, engine.array(b), 1, 1, out_dtype="float32", dense_dtype="float8_e4m3fn"
        )
    np.testing.assert_array_equal(engine.host(out), exact_product(a, b))


def test_what_scaled_mm_refuses(engine, rng):
    xp = engine.xp
    half, _ = operand(engine, rng, (32, 64), HALF)
    byte, _ = operand(engine, rng, (32, 64), INT8)
    dense = xp.zeros((64, 8), dtype=np.int8)
    raw = xp.zeros((64, 8), dtype=np.uint8)
    fp8 = sg.to_semi_structured(engine.array(random_24(rng, (32, 64), FP8)))
    for arguments, keywords, error, match in (
        ((half, dense, 1, 1), {}, TypeError, "'sparse'.*float8_e4m3fn or int8.*float16"),
        ((fp8, dense, 1, 1), {}, TypeError, "'dense'.*float8_e4m3fn.*int8"),
        ((fp8, raw, 1, 1), {}, TypeError, "'dense'.*dense_dtype.*uint8"),
        ((byte, raw, 1, 1), {}, TypeError, "'dense'.*uint8"),
        ((byte, dense, 1, 1), {"dense_dtype": "float8_e4m3fn"}, TypeError, "'dense_dtype'"),
        ((byte, dense, 1, 1), {"out_dtype": "int32"}, TypeError, "'out_dtype'.*bfloat16"),
        ((byte, dense[:, 0], 1, 1), {}, ValueError, "'dense'.*two dimensions"),
        ((byte, dense, xp.ones(8), 1), {}, ValueError, r"'scale_sparse'.*32, got shape \(8,\)"),
        ((byte, dense, "x", 1), {}, TypeError, "'scale_sparse'"),
    ):
        with engine.runs(None), pytest.raises(error, match=f"scaled_mm.*{match}"):
            sg.scaled_mm(*arguments, **keywords)
