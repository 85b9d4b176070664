"""int8 sums of more products than int32 holds: exact, clipped or rounded once, never wrapped.

The oracle is NumPy's, in int64 and float64.
"""

import numpy as np
import pytest

import sparsegpu as sg
from covering import covered
from long_sums_cases import (
    LARGEST,
    MOST,
    SMALLEST,
    Ragged,
    assert_equal,
    bsr,
    full_row,
    ones,
    product,
    random_int8,
    rounded,
)
from sparsegpu.testing import assert_within_bound

K = 1 << 18
FLOATS = ["float32", "float16", "bfloat16"]


# -- one long row -------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "clipped"), [(-128, LARGEST), (127, SMALLEST)])
def test_full_row_is_clipped(engine, value, clipped):
    a = full_row(engine)
    with engine.runs("bsr_addmm"):
        outs = a @ ones(engine, K, 3, value), sg.int_bsr_addmm(None, a, ones(engine, K, 1, value))
    for out in outs:
        assert out.dtype == np.int32
        assert (engine.host(out) == clipped).all()


@pytest.mark.parametrize("out_dtype", FLOATS)
def test_full_row_as_a_float(engine, out_dtype):
    with engine.runs("bsr_addmm"):
        out = sg.bsr_matmul(full_row(engine), ones(engine, K), out_dtype=out_dtype)
    expected = np.inf if out_dtype == "float16" else 4294967296.0
    assert (engine.host(out).astype(np.float64) == expected).all()


@pytest.mark.parametrize("products", [MOST, MOST + 1, MOST + 2])
def test_at_the_limit(engine, cuts, products):
    a, x = full_row(engine, products, bm=1, bk=1), ones(engine, products)
    with engine.runs("bsr_addmm"):
        out, wide = a @ x, sg.bsr_matmul(a, x, out_dtype="float32")
    assert_equal(engine, out, np.full((1, 1), products * 2**14), "int32")
    assert_equal(engine, wide, np.full((1, 1), products * 2**14), "float32")
    assert len(cuts) == (products > MOST)  # by the first call; the second finds the pattern cut


def test_result_fits_though_its_prefix_does_not(engine, rng):
    x = np.where(np.arange(K) < K // 2 + 3, -128, 127).astype(np.int8)[:, None]
    x[rng.choice(K, 2000, replace=False)] = 5
    a = full_row(engine)
    exact = product(np.full((2, K), -128, np.int8), x)
    assert abs(exact).max() < 2**26
    with engine.runs("bsr_addmm"):
        assert_equal(engine, a @ engine.array(x), exact)
        for dtype in FLOATS:
            out = sg.bsr_matmul(a, engine.array(x), out_dtype=dtype)
            assert_equal(engine, out, exact, sg._arrays.dtype_of(dtype))


def test_bfloat16_is_rounded_once(engine):
    # 2**32 + 2**24 is a tie of bfloat16, and float32 does not hold the one beyond it.
    a = full_row(engine, K + 2048, bm=1)
    x = np.zeros((K + 2048, 1), np.int8)
    x[: K + 1024] = -128  # 2**32 + 2**24
    x[-1] = -1  # and 128
    exact = product(np.full((1, K + 2048), -128, np.int8), x)
    assert exact == 2**32 + 2**24 + 128
    with engine.runs("bsr_addmm"):
        out = sg.bsr_matmul(a, engine.array(x), out_dtype="bfloat16")
    assert float(engine.host(out)[0, 0]) == 2**32 + 2**25


# -- long rows among others ---------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 3])
def test_ragged_rows(engine, rng, n):
    case, x = Ragged(engine, rng), random_int8(rng, (160 * 64, n))
    exact = product(case.dense, x)
    assert abs(exact).max() > 2**31 and (exact == 0).any()
    with engine.runs("bsr_addmm"):
        assert_equal(engine, case.array @ engine.array(x), exact, "int32")
        vector = case.array @ engine.array(x[:, 0])
        assert_equal(engine, vector, exact[:, 0], "int32")
        for dtype in FLOATS:
            out = sg.bsr_matmul(case.array, engine.array(x), out_dtype=dtype)
            assert_equal(engine, out, exact, sg._arrays.dtype_of(dtype))
        out = sg.bsr_matmul(case.array, engine.array(x), alpha=2.0**-25, out_dtype="int8")
    assert_equal(engine, out, exact * 2.0**-25, "int8")


@pytest.mark.parametrize("scale", [2.0**-25, 1.0])
def test_int8_result_saturates(engine, rng, scale):
    case, x = Ragged(engine, rng), random_int8(rng, (160 * 64, 2))
    with engine.runs("bsr_addmm"):
        out = sg.bsr_matmul(case.array, engine.array(x), alpha=scale, out_dtype="int8")
    assert_equal(engine, out, product(case.dense, x) * scale, "int8")


@covered(alpha=[1, -3, 2**30], activation=[None, "relu"], input_dtype=["int8", "int32"])
def test_whole_numbers_stay_exact(engine, rng, alpha, activation, input_dtype):
    case, x = Ragged(engine, rng, (2100, 0, 4)), random_int8(rng, (160 * 64, 2))
    info = np.iinfo(input_dtype)
    input = rng.integers(info.min, info.max, (9, 2), endpoint=True).astype(input_dtype)
    exact = product(case.dense, x).astype(object) * alpha + 2 * input.astype(object)
    exact = np.clip(np.maximum(exact, 0) if activation else exact, SMALLEST, LARGEST)
    how = {"alpha": alpha, "beta": 2, "activation": activation}
    with engine.runs("bsr_addmm"):
        out = sg.bsr_addmm(engine.array(input), case.array, engine.array(x), **how)
    assert_equal(engine, out, exact.astype(np.int64), "int32")


@pytest.mark.parametrize("out_dtype", ["int32", "int8", *FLOATS])
@pytest.mark.parametrize("activation", [None, "relu", "gelu", "gelu_erf", "silu"])
def test_epilogue(engine, rng, out_dtype, activation):
    case, x = Ragged(engine, rng), random_int8(rng, (160 * 64, 3))
    left = (rng.standard_normal(18) * 2.0**-26).astype(np.float32)
    right = rng.standard_normal(3).astype(np.float32)
    bias = random_int8(rng, (18, 1))
    how = {"alpha": 1.5, "beta": 0.25, "activation": activation}
    alphas = {"left_alpha": left, "right_alpha": right}
    with engine.runs("bsr_addmm"):
        out = sg.bsr_addmm(
            engine.array(bias),
            case.array,
            engine.array(x),
            out_dtype=out_dtype,
            **how,
            **{name: engine.array(value) for name, value in alphas.items()},
        )
    dtype = np.dtype(np.int8)
    assert_within_bound(engine.host(out), case.dense, x, input=bias, dtype=dtype, **how, **alphas)
    if activation is None:  # the exact sum, scaled and rounded once
        scaled = left[:, None].astype(np.float64) * (1.5 * product(case.dense, x)) * right
        assert_equal(engine, out, 0.25 * bias + scaled)


@pytest.mark.parametrize("out_dtype", ["int32", "float32"])
@pytest.mark.parametrize("view", [np.s_[::2, 1:7:2], np.s_[17::-1, :3], np.s_[2:20, 3:6]])
def test_out_with_strides(engine, rng, out_dtype, view):
    case, x = Ragged(engine, rng), random_int8(rng, (160 * 64, 3))
    whole = engine.xp.full((36, 8), 7, out_dtype)
    with engine.runs("bsr_addmm"):
        out = whole[view]
        assert sg.bsr_matmul(case.array, engine.array(x), out=out) is out
    expected = np.full((36, 8), 7, out_dtype)
    expected[view] = rounded(product(case.dense, x), out_dtype)
    np.testing.assert_array_equal(engine.host(whole), expected)


@pytest.mark.parametrize("out_dtype", ["int32", "float32"])
def test_out_is_input(engine, rng, out_dtype):
    case, x = Ragged(engine, rng), random_int8(rng, (160 * 64, 3))
    for out in (engine.xp.full((18, 3), 7, out_dtype), engine.xp.full((3, 18), 7, out_dtype).T):
        with engine.runs("bsr_addmm"):
            assert sg.bsr_addmm(out, case.array, engine.array(x), out=out, beta=3) is out
        assert_equal(engine, out, product(case.dense, x) + 21, out_dtype)


def test_nothing_is_multiplied_where_alpha_is_zero(engine, rng, cuts):
    case, x = Ragged(engine, rng), random_int8(rng, (160 * 64, 2))
    bias = random_int8(rng, (18, 1))
    with sg.use_engine(engine.name):
        out = sg.bsr_addmm(engine.array(bias), case.array, engine.array(x), alpha=0, beta=2)
    assert_equal(engine, out, np.broadcast_to(2 * bias.astype(np.int64), (18, 2)), "int32")
    assert not cuts


def test_batches(engine, rng):
    lengths = [[[0, 2100, 3], [2050, 2, 51]], [[2103, 0, 0], [1000, 1100, 3]]]
    case = Ragged(engine, rng, lengths, block=(2, 64))
    single = Ragged(engine, rng, (0, 2100), block=(2, 64))
    x = random_int8(rng, (2, 160 * 64, 2))
    for a, right in [
        (case, x),
        (case, x[0]),
        (case, x[:, None]),
        (single, x),
        (single, x[:, None]),
    ]:
        with engine.runs("bsr_addmm"):
            assert_equal(engine, a.array @ engine.array(right), product(a.dense, right), "int32")
    for a in (case, single):
        left = random_int8(rng, (*a.dense.shape[:-2], 2, a.dense.shape[-2]))
        with engine.runs("bsr_addmm"):
            out = engine.array(left) @ a.array
        assert_equal(engine, out, product(left, a.dense), "int32")


def test_other_dtypes_and_short_rows_are_not_cut(engine, rng, cuts):
    many = Ragged(engine, rng, [700] * 6)  # more blocks than a row could have
    x = random_int8(rng, (160 * 64, 2))
    with engine.runs("bsr_addmm"):
        assert_equal(engine, many.array @ engine.array(x), product(many.dense, x), "int32")
        engine.array(random_int8(rng, (2, 18))) @ many.array
        full_row(engine).astype("float32") @ ones(engine, K).astype("float32")
    assert not cuts


def test_second_call_builds_nothing(engine, rng, cuts):
    case, x = Ragged(engine, rng), engine.array(random_int8(rng, (160 * 64, 2)))
    tall = full_column(engine)
    for _ in range(2):
        with engine.runs("bsr_addmm"):
            case.array @ x
            case.array.with_data(-case.array.data) @ x  # another's values, the same pattern
            ones(engine, 1, K) @ tall
    assert len(cuts) == 2


# -- dense @ A ----------------------------------------------------------------------------------


def full_column(engine, products=K, bm=256, bk=2):
    data = np.full((products // bm, bm, bk), -128, np.int8)
    count = len(data)
    return bsr(engine, data, np.zeros(count), np.arange(count + 1), bk)


def test_full_column(engine):
    a, x = full_column(engine), ones(engine, 3, K)
    with engine.runs("bsr_addmm"):
        out, wide = x @ a, sg.dense_bsr_matmul(x, a, out_dtype="float32")
        vector = x[0] @ a
        short = a @ ones(engine, 2)
    assert (engine.host(out) == LARGEST).all() and out.shape == (3, 2)
    assert (engine.host(vector) == LARGEST).all() and vector.shape == (2,)
    assert (engine.host(wide) == 4294967296.0).all()
    assert (engine.host(short) == 2**15).all()


def test_columns_of_a_ragged_matrix(engine, rng):
    case = Ragged(engine, rng, [24] * 300, block=(64, 3), columns=3)
    x, bias = random_int8(rng, (2, 300 * 64)), random_int8(rng, (9,))
    left, right = np.float32([2**-20, 3]), np.linspace(-1, 1, 9, dtype=np.float32)
    exact = product(x, case.dense)
    assert abs(exact).max() > 2**31
    with engine.runs("bsr_addmm"):
        out = sg.dense_bsr_matmul(engine.array(x), case.array)
        scaled = sg.dense_bsr_matmul(
            engine.array(x),
            case.array,
            input=engine.array(bias),
            beta=2,
            left_alpha=engine.array(left),
            right_alpha=engine.array(right),
            out_dtype="bfloat16",
        )
    assert_equal(engine, out, exact, "int32")
    exact = left[:, None].astype(np.float64) * exact * right.astype(np.float64) + 2.0 * bias
    assert_equal(engine, scaled, exact)


# -- other sums ---------------------------------------------------------------------------------


@covered(dtype=["int32", "int8", *FLOATS], beta=[0, 3])
def test_sampled(engine, rng, dtype, beta):
    mat1, mat2 = random_int8(rng, (2, 4, K)), random_int8(rng, (K, 6))
    mat2[:, 3] = 0
    data = random_int8(rng, (3, 2, 3))
    where = bsr(engine, data, [1, 1, 0], [0, 1, 3], 6)
    with engine.runs("bsr_sampled_addmm"):
        values = engine.xp.zeros((2, 3, 2, 3), sg._arrays.dtype_of(dtype))
        out = where._with(where.pattern.broadcast_to((2,)), values)
        how = {"alpha": 0.5 if dtype == "int8" else 1, "beta": beta, "out": out}
        assert sg.sampled_addmm(where, engine.array(mat1), engine.array(mat2), **how) is out
    exact = product(mat1, mat2).reshape(2, 2, 2, 2, 3).swapaxes(2, 3)[:, [0, 1, 1], [1, 1, 0]]
    assert abs(exact).max() > 2**31
    exact = how["alpha"] * exact + beta * data.astype(np.int64)
    assert_equal(engine, out.data, exact)


@pytest.mark.parametrize("k", [MOST, MOST + 1])
def test_sampled_at_the_limit(engine, k):
    where = sg.bsr_array(engine.array(np.ones((1, 1), np.int32)), blocksize=(1, 1))
    mats = ones(engine, 1, k), ones(engine, k)
    with engine.runs("bsr_sampled_addmm"):
        out = sg.sampled_addmm(where, *mats, beta=0)
    assert_equal(engine, out.data, np.full((1, 1, 1), k * 2**14), "int32")


@pytest.mark.parametrize("k", [2**24, 2**24 + 256])
def test_sum_of_more_than_int32_holds(engine, k):
    a = full_row(engine, k, bm=1)
    with engine.runs("bsr_addmm"):
        for total in (a.sum(axis=1), a.mean(axis=1) * k, a.T.sum(axis=0)):
            assert int(total[0]) == -128 * k


def test_a_second_call_can_be_captured(cuda_engine):
    """The pieces' sums belong to the graph."""
    a, x = full_row(cuda_engine), ones(cuda_engine, K)
    where = sg.bsr_array(cuda_engine.array(np.ones((1, 1), np.int32)), blocksize=(1, 1))
    out = a @ x

    def call():
        sg.bsr_matmul(a, x, out=out)
        sg.sampled_addmm(where, x.T, x, beta=0, out=where)

    with cuda_engine.side_stream() as stream:
        graph = cuda_engine.captured(call)
        out.fill(0)
        x.fill(1)
        graph.launch(stream)
    assert (out == -128 * K).all()
    assert where.data.ravel().get().tolist() == [K]
