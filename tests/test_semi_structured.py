"""2:4 products: the accuracy bound, and small integers bit for bit."""

import numpy as np
import pytest

import sparsegpu as sg
from addmm_cases import LAYOUTS
from covering import covered
from path_contract import Batches, Epilogues, Products, SemiStructured
from semi_structured_cases import BF16, HALF, INT8, KERNEL, SINGLE, exact_product, operand
from sparsegpu.ops.semi_structured import dense_semi_structured_matmul
from sparsegpu.testing import assert_within_bound, random_24, random_values

DTYPES = [HALF, BF16, SINGLE, INT8]
FLOATS = [HALF, BF16, SINGLE]


class TestEveryEngine(SemiStructured, Products, Epilogues, Batches):
    SOURCE = KERNEL
    CASES = [(str(dtype), shape) for shape in [(64, 448), (32, 64)] for dtype in DTYPES]
    LAYOUTS, COLUMNS = LAYOUTS, [1, 17, 129, 20]
    ACTIVATIONS = [None, "relu", "gelu", "gelu_erf", "silu"]


# -- the product --------------------------------------------------------------------------------


def test_tf32_is_asked_for(engine, rng):
    sparse, a = operand(engine, rng, (64, 96), SINGLE)
    b = random_values(rng, (96, 24), SINGLE)
    with engine.runs(KERNEL):
        out = sg.semi_structured_matmul(sparse, engine.array(b), allow_tf32=True)
        strict = sg.semi_structured_matmul(sparse, engine.array(b))
    assert_within_bound(out, a, b, allow_tf32=True)
    assert_within_bound(strict, a, b)


def test_int8_results(engine, rng):
    sparse, a = operand(engine, rng, (32, 128), INT8)
    b = random_values(rng, (128, 9), INT8)
    exact = exact_product(a, b)
    with engine.runs(KERNEL):
        saturated = sg.semi_structured_matmul(sparse, engine.array(b), out_dtype=np.int8)
        rounded = sg.semi_structured_matmul(sparse, engine.array(b), alpha=0.5, out_dtype=np.int8)
        scaled = sg.semi_structured_matmul(
            sparse,
            engine.array(b),
            left_alpha=engine.array(np.full(32, 2.0**-7, np.float32)),
            out_dtype=np.float32,
        )
    np.testing.assert_array_equal(engine.host(saturated), np.clip(exact, -128, 127))
    np.testing.assert_array_equal(engine.host(rounded), np.clip(np.rint(exact / 2), -128, 127))
    np.testing.assert_array_equal(engine.host(scaled), exact / 128)


# -- the epilogue -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape", [(), (1,), (20,), (1, 20), (32, 1), (32, 20), (3, 1, 20), (3, 32, 1)]
)
def test_input_broadcasts(engine, rng, shape):
    sparse, a = operand(engine, rng, (32, 64), HALF)
    b = random_values(rng, (3, 64, 20), HALF)
    term = random_values(rng, shape, HALF)
    with engine.runs(KERNEL):
        out = sg.semi_structured_addmm(engine.array(np.asarray(term)), sparse, engine.array(b))
    assert_within_bound(out, np.broadcast_to(a, (3, 32, 64)), b, input=term, beta=1)


def test_alpha_zero_does_not_compute_the_product(engine, rng):
    sparse, _ = operand(engine, rng, (32, 64), SINGLE)
    poison = engine.xp.full((64, 20), np.nan, dtype=np.float32)
    term = np.arange(-10, 10, dtype=np.float32)
    with engine.runs(KERNEL):
        out = sg.semi_structured_addmm(
            engine.array(term), sparse, poison, alpha=0, beta=2, activation="relu"
        )
    np.testing.assert_array_equal(engine.host(out), np.tile(np.maximum(2 * term, 0), (32, 1)))


# -- shapes and memory --------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [(3,), (2, 3), (1,), (0,)])
def test_batches_of_dense(engine, rng, batch):
    sparse, a = operand(engine, rng, (32, 64), BF16)
    b = random_values(rng, (*batch, 64, 20), BF16)
    left = rng.standard_normal((*batch, 32)).astype(np.float32)
    with engine.runs(KERNEL if b.size else None):
        out = sg.semi_structured_matmul(sparse, engine.array(b), left_alpha=engine.array(left))
    assert out.shape == (*batch, 32, 20)
    assert_within_bound(out, np.broadcast_to(a, (*batch, 32, 64)), b, left_alpha=left)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_vectors(engine, rng, dtype):
    sparse, a = operand(engine, rng, (64, 64), dtype)
    x = random_values(rng, (64,), dtype)
    term = random_values(rng, (64,), np.int32 if dtype == INT8 else dtype, small_integers=True)
    out = engine.xp.empty(64, dtype=term.dtype)
    with engine.runs(KERNEL):
        got = sg.semi_structured_addmm(engine.array(term), sparse, engine.array(x), out=out)
        left = dense_semi_structured_matmul(engine.array(x), sparse)
    assert got is out and left.shape == (64,)
    assert_within_bound(engine.host(out)[:, None], a, x[:, None], input=term[:, None], beta=1)
    assert_within_bound(engine.host(left)[None], x[None], a)


@pytest.mark.parametrize("dtype", [BF16, SINGLE, INT8], ids=str)
def test_strides_of_every_operand(engine, rng, dtype):
    sparse, a = operand(engine, rng, (32, 64), dtype)
    b = random_values(rng, (2, 2 * 64, 3 * 24), dtype)
    dense, host = engine.array(b)[:, ::2, 1::3], b[:, ::2, 1::3]
    result = np.int32 if dtype == INT8 else dtype
    xp = engine.xp
    for out in (
        xp.empty((2, 32, 24), dtype=result),
        xp.empty((2, 24, 32), dtype=result).swapaxes(1, 2),
        xp.empty((32, 24, 2), dtype=result).transpose(2, 0, 1),
        xp.empty((2, 64, 50), dtype=result)[:, ::2, 1:49:2],
        xp.empty((2, 32, 24), dtype=result)[:, ::-1, ::-1],
    ):
        with engine.runs(KERNEL):
            got = sg.semi_structured_matmul(sparse, dense, out=out)
        assert got is out
        assert_within_bound(engine.host(out), np.broadcast_to(a, (2, 32, 64)), host)


def test_out_may_be_input_and_nothing_else(engine, rng):
    sparse, a = operand(engine, rng, (32, 32), HALF)
    b = random_values(rng, (32, 32), HALF)
    term = random_values(rng, (32, 32), HALF)
    out = engine.xp.array(engine.array(term))
    with engine.runs(KERNEL):
        got = sg.semi_structured_addmm(out, sparse, engine.array(b), out=out)
    assert got is out
    assert_within_bound(out, a, b, input=term, beta=1)
    dense = engine.array(b)
    wide = engine.xp.zeros((32, 33), dtype=HALF)
    for keywords, match in (
        ({"out": dense}, "'out'.*apart from 'dense'"),
        ({"out": sparse.packed.reshape(16, 32)}, r"'out'.*shape \(32, 32\)"),
        ({"out": wide[:, 1:]}, "'out'.*'input'"),
    ):
        before = engine.host(dense).copy()
        with engine.runs(None), pytest.raises(ValueError, match=match):
            sg.semi_structured_addmm(wide[:, :-1], sparse, dense, **keywords)
        np.testing.assert_array_equal(engine.host(dense), before)


@pytest.mark.parametrize(("m", "k", "n"), [(0, 64, 5), (32, 0, 5), (32, 64, 0), (0, 0, 0)])
def test_zero_sizes(engine, m, k, n):
    sparse = sg.to_semi_structured(engine.xp.zeros((m, k), dtype=HALF))
    dense = engine.xp.ones((k, n), dtype=HALF)
    with engine.runs(KERNEL if n else "semi_structured_compress" if m * k else None):
        out = sg.semi_structured_addmm(engine.xp.ones(n, dtype=HALF), sparse, dense, beta=3)
        other = dense_semi_structured_matmul(engine.xp.ones((n, m), dtype=HALF), sparse)
    np.testing.assert_array_equal(engine.host(out), np.full((m, n), 3))
    np.testing.assert_array_equal(engine.host(other), np.zeros((n, k)))


def test_only_what_is_kept_is_read(engine):
    a = np.zeros((32, 32), HALF)
    a[:, 0::4], a[:, 3::4] = 1, 2
    sparse = sg.to_semi_structured(engine.array(a))
    b = np.ones((32, 8), HALF)
    b[1::4] = np.nan
    with engine.runs(KERNEL):
        out = sg.semi_structured_matmul(sparse, engine.array(b))
    np.testing.assert_array_equal(engine.host(out), np.full((32, 8), 24))


@covered(dtype=DTYPES, shape=[(1, 1), (5, 7), (33, 65), (32, 65), (33, 64)])
def test_padded_operands_have_their_logical_shape(engine, rng, dtype, shape):
    m, k = shape
    a = random_24(rng, shape, dtype)
    b, c = random_values(rng, (2, k, 9), dtype), random_values(rng, (2, 9, m), dtype)
    term = random_values(rng, (m, 9), np.int32 if dtype == INT8 else dtype, small_integers=True)
    left = rng.standard_normal(m).astype(np.float32)
    sparse = sg.to_semi_structured(engine.array(a), pad=True)
    assert sparse.shape == shape
    with engine.runs(KERNEL):
        out = sg.semi_structured_addmm(engine.array(term), sparse, engine.array(b))
        scaled = sg.semi_structured_matmul(
            sparse, engine.array(b), left_alpha=engine.array(left), out_dtype="float32"
        )
        other = dense_semi_structured_matmul(engine.array(c), sparse)
    wide = np.broadcast_to(a, (2, m, k))
    assert_within_bound(out, wide, b, input=term, beta=1)
    assert_within_bound(scaled, wide, b, left_alpha=left)
    assert_within_bound(other, c, wide)


# -- from the other side ------------------------------------------------------------------------


@covered(dtype=DTYPES, order="CF")
def test_dense_by_sparse(engine, rng, dtype, order):
    # 2:4 by rows only: its transpose is not
    sparse, a = operand(engine, rng, (96, 64), dtype)
    b = random_values(rng, (20, 96), dtype)
    terms = {
        "left_alpha": rng.standard_normal(20).astype(np.float32),
        "right_alpha": rng.standard_normal(64).astype(np.float32),
        "input": random_values(rng, (64,), np.float32),
    }
    device = {name: engine.array(array) for name, array in terms.items()}
    dense = engine.xp.array(engine.array(b), order=order)
    with engine.runs(KERNEL):
        plain = dense_semi_structured_matmul(dense, sparse)
        out = dense_semi_structured_matmul(dense, sparse, beta=2, out_dtype="float32", **device)
    assert plain.flags.c_contiguous
    assert_within_bound(plain, b, a)
    assert_within_bound(out, b, a, beta=2, **terms)


@covered(shape=[(64,), (5, 64), (2, 3, 64), (2, 0, 64)], dtype=[BF16, INT8])
def test_linear(engine, rng, shape, dtype):
    weight, w = operand(engine, rng, (96, 64), dtype)
    x = random_values(rng, shape, dtype)
    bias = random_values(rng, (96,), np.int32 if dtype == INT8 else dtype, small_integers=True)
    with engine.runs(KERNEL if x.size else None):
        out = sg.semi_structured_linear(
            engine.array(x), weight, engine.array(bias), activation="relu"
        )
    assert out.shape == (*shape[:-1], 96) and out.flags.c_contiguous
    rows = x.reshape(-1, 64)
    assert_within_bound(
        engine.host(out).reshape(-1, 96), rows, w.T, input=bias, beta=1, activation="relu"
    )


def test_linear_into_out(engine, rng):
    weight, w = operand(engine, rng, (32, 64), HALF)
    x = random_values(rng, (2, 5, 64), HALF)
    out = engine.xp.empty((2, 5, 32), dtype=np.float32)
    with engine.runs(KERNEL):
        assert sg.semi_structured_linear(engine.array(x), weight, out=out) is out
    assert_within_bound(out, x, np.broadcast_to(w.T, (2, 64, 32)))


# -- what is refused ----------------------------------------------------------------------------


def test_what_the_product_refuses(engine, rng):
    xp = engine.xp
    sparse, _ = operand(engine, rng, (32, 64), HALF)
    dense = xp.zeros((64, 8), dtype=HALF)
    for arguments, keywords, error, match in (
        ((None, dense, dense), {}, TypeError, "'sparse'.*SemiStructuredArray.*ndarray"),
        ((None, sparse, sparse), {}, ValueError, "'dense'.*sparse @ sparse"),
        ((None, sparse, dense[:32]), {}, ValueError, r"'dense'.*64, N.*got \(32, 8\)"),
        ((None, sparse, dense[:32, 0]), {}, ValueError, r"'dense'.*got \(32,\)"),
        ((None, sparse, dense.astype(np.float32)), {}, TypeError, "'dense'.*float16.*float32"),
        ((dense, sparse, dense), {}, ValueError, r"'input'.*\(32, 8\).*\(64, 8\)"),
        ((None, sparse, dense), {"left_alpha": dense[:8, 0]}, ValueError, "'left_alpha'"),
        ((None, sparse, dense), {"activation": "tanh"}, ValueError, "'activation'.*'silu'.*'tanh'"),
        ((None, sparse, dense), {"out_dtype": np.int8}, TypeError, "'out_dtype'.*int8"),
        ((None, sparse, dense), {"alpha": 1j}, TypeError, "'alpha'"),
        ((None, sparse, dense), {"out": dense}, ValueError, r"'out'.*\(32, 8\).*\(64, 8\)"),
    ):
        with engine.runs(None), pytest.raises(error, match=f"semi_structured_addmm.*{match}"):
            sg.semi_structured_addmm(*arguments, **keywords)
    with engine.runs(None), pytest.raises(ValueError, match=r"linear.*'x'.*64.*got \(8, 32\)"):
        sg.semi_structured_linear(dense[:32].T, sparse)
    with engine.runs(None), pytest.raises(ValueError, match=r"linear.*'bias'.*\(32,\).*\(8,\)"):
        sg.semi_structured_linear(dense.T, sparse, dense[0])


def test_host_and_device_do_not_mix(cuda_engine, rng):
    sparse, _ = operand(cuda_engine, rng, (32, 64), HALF)
    with cuda_engine.runs(None), pytest.raises(TypeError, match=r"'dense'.*cupy.*numpy"):
        sg.semi_structured_matmul(sparse, np.zeros((64, 8), HALF))


def test_infinity_meets_only_what_is_stored(engine):
    dense = np.zeros((32, 32), np.float16)
    dense[0, 0], dense[1, 1] = 2, np.inf
    x = np.ones((32, 2), np.float16)
    x[0, 0], x[1, 1] = np.inf, 0
    a = sg.to_semi_structured(engine.array(dense))
    with engine.runs(KERNEL):
        out = sg.semi_structured_matmul(a, engine.array(x))
    expected = np.zeros((32, 2), np.float16)
    expected[:2] = [[np.inf, 2], [np.inf, np.nan]]
    np.testing.assert_array_equal(engine.host(out), expected)
