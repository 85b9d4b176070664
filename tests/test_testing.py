"""The oracle itself: what `sparsegpu.testing` lets through, held against the rule's own words."""

import ml_dtypes
import numpy as np
import pytest
import scipy.special

from sparsegpu import testing
from sparsegpu._epilogue import ACTIVATIONS, LIPSCHITZ
from sparsegpu.testing import accuracy_bound, assert_close, assert_within_bound

FLOATS = ["float16", "bfloat16", "float32", "float64"]


def refused(out, exact, bound=0.0):
    with pytest.raises(AssertionError, match="outside the bound"):
        assert_close(np.asarray(out), np.asarray(exact), bound)


# -- comparison ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_one_rounding_passes_and_no_more(rng, dtype):
    exact = rng.standard_normal(200).astype(np.longdouble) + np.longdouble(2.0**-70)
    rounded = exact.astype(dtype)
    assert_close(rounded, exact, 0)
    for sign in (1, -1):
        side = rounded.dtype.type(sign * np.inf)
        with pytest.raises(AssertionError, match="200 of 200 elements outside the bound"):
            assert_close(np.nextafter(np.nextafter(rounded, side), side), exact, 0)
    smallest = float(ml_dtypes.finfo(rounded.dtype).smallest_subnormal)
    assert_close(np.zeros(1, dtype), np.array([smallest], np.longdouble) / 2, 0)
    refused(np.zeros(1, dtype), np.array([smallest], np.longdouble) * 0.75)


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_bound_is_an_absolute_error(dtype):
    u = testing.unit_roundoff(testing.dtype_of(dtype))
    out, exact = np.ones(1, dtype), np.ones(1, np.longdouble)
    assert_close(out, exact + 8 * u, 8 * u)
    refused(out, exact + 8 * u, 6 * u)
    refused(out, exact - 8 * u, 6 * u)


def test_complex_numbers_are_rounded_by_parts():
    exact = np.array([1 + 1j]) * (1 + 2.0**-24.5)
    assert_close(exact.astype(np.complex64), exact, 0)
    refused(np.complex64([1 + 1j]) + np.complex64(2.0**-22), exact)
    refused(np.complex64([1 - 1j]), exact)


@pytest.mark.parametrize("dtype", [*FLOATS, "complex64"])
def test_nan_passes_for_nan_alone(dtype):
    out = np.array([1, np.nan]).astype(dtype)
    assert_close(out, np.array([1, np.nan]), 0)
    for exact in (np.array([1, 1.0]), np.array([np.nan, np.nan])):
        refused(out, exact)
        refused(out, exact, 1e30)
        refused(out, exact, np.array([1, np.inf]))
    refused(np.array([1.0]).astype(dtype), np.array([1.0]) + 1, np.nan)


@pytest.mark.parametrize("dtype", [*FLOATS, "complex64"])
def test_infinities_pass_where_they_are_the_answer(dtype):
    def of(value):
        return np.array([value]).astype(dtype)

    largest = float(ml_dtypes.finfo(of(0.0).real.dtype).max)
    assert_close(of(np.inf), np.array([np.inf]), 0)
    assert_close(of(-np.inf), np.array([-np.inf]), 0)
    for out, exact in ((np.inf, 1.0), (np.inf, -np.inf), (1.0, np.inf), (1.0, -np.inf)):
        refused(of(out), np.array([exact]))
        refused(of(out), np.array([exact]), 1e3)
    if dtype != "float64":
        assert_close(of(np.inf), np.array([largest * 1.01]), 0)
        refused(of(-np.inf), np.array([largest * 1.01]))
        refused(of(np.inf), np.array([largest * 0.9]))


def test_integers():
    assert_close(np.int32([3, -3]), np.array([3, -3]), 0)
    assert_close(np.int8([127, -128]), np.array([300.0, -1e9]), 0)
    assert_close(np.int8([2, 3]), np.array([2.5, 2.5]), 0)
    for exact in (4, 2, 4.6, 1.4, np.nan):
        refused(np.int8([3]), np.array([float(exact)]))
    assert_close(np.int32([3]), np.array([3.9]), 0.5)
    refused(np.int32([3]), np.array([4.1]), 0.5)
    refused(np.int8([126]), np.array([300.0]), 0.4)


def test_shapes_are_compared():
    with pytest.raises(AssertionError, match=r"shape \(1, 3\), expected \(3,\)"):
        assert_close(np.ones((1, 3)), np.ones(3), 0)


# -- the bound ----------------------------------------------------------------------------------

ROUNDOFF = {
    "float16": 2.0**-24,
    "bfloat16": 2.0**-24,
    "float32": 2.0**-24,
    "float64": 2.0**-53,
    "float8_e4m3fn": 2.0**-13,
    "complex64": 2.0**-23,
    "complex128": 2.0**-52,
}


@pytest.mark.parametrize("dtype", ROUNDOFF)
def test_the_bound_is_the_rule(rng, dtype):
    """c * n * u * S in so many words, n being K and the five terms of an epilogue."""
    k = 37
    a, b = (testing.random_values(rng, shape, dtype) for shape in ((3, k), (k, 5)))
    wide = np.clongdouble if "complex" in dtype else np.longdouble
    size = np.abs(a.astype(wide)) @ np.abs(b.astype(wide))
    exact, bound = accuracy_bound(a, b)
    product = a.astype(wide) @ b.astype(wide)
    assert (np.abs(exact - product) <= 2.0**-45 * size).all()
    ratio = (bound / (2 * (k + 5) * ROUNDOFF[dtype] * size)).astype(float)
    assert (np.abs(ratio - 1) < 1e-9).all()
    with_less = accuracy_bound(a, b, terms=7)[1] / bound
    assert (np.abs(with_less - 12 / (k + 5)) < 1e-9).all()


def test_the_bound_of_tf32(rng):
    a, b = (testing.random_values(rng, shape, "float32") for shape in ((3, 37), (37, 5)))
    size = np.abs(a.astype(float)) @ np.abs(b.astype(float))
    added = accuracy_bound(a, b, allow_tf32=True)[1] - accuracy_bound(a, b)[1]
    np.testing.assert_array_less(np.abs(added / size - 2.0**-9), 1e-9)
    double = a.astype(np.float64), b.astype(np.float64)
    assert (accuracy_bound(*double, allow_tf32=True)[1] == accuracy_bound(*double)[1]).all()


def test_the_bound_is_scaled_like_the_product(rng):
    a, b = (testing.random_values(rng, shape, "float32") for shape in ((3, 37), (37, 5)))
    left, right, input = (rng.standard_normal(shape) for shape in (3, 5, (3, 1)))
    size = np.abs(a.astype(float)) @ np.abs(b.astype(float))
    exact, bound = accuracy_bound(
        a, b, alpha=-3, beta=-0.5, input=input, left_alpha=left, right_alpha=right
    )
    scale = left[:, None] * right
    product = a.astype(float) @ b.astype(float)
    np.testing.assert_array_less(np.abs(exact + 3 * scale * product + input / 2), 1e-12)
    expected = 2 * 42 * 2.0**-24 * (3 * np.abs(scale) * size + np.abs(input) / 2)
    np.testing.assert_array_less(np.abs(bound / expected - 1), 1e-12)
    assert (accuracy_bound(a, b, input=input)[1] == accuracy_bound(a, b)[1]).all()


def test_integers_have_no_bound_until_something_scales_them(rng):
    a, b = (testing.random_values(rng, shape, "int8") for shape in ((3, 37), (37, 5)))
    exact, bound = accuracy_bound(a, b, alpha=3, beta=-2, input=np.int32([[5]]))
    assert (bound == 0).all()
    assert (exact == 3 * (a.astype(np.int64) @ b.astype(np.int64)) - 10).all()
    for keywords in ({"alpha": 0.5}, {"left_alpha": np.ones(3)}, {"activation": "silu"}):
        assert (accuracy_bound(a, b, **keywords)[1] > 0).all()


def test_what_is_within_and_what_is_not(rng):
    a, b = (testing.random_values(rng, shape, "float32") for shape in ((3, 37), (37, 5)))
    exact, bound = accuracy_bound(a, b)
    assert_within_bound((exact + 0.9 * bound).astype(np.float32), a, b)
    with pytest.raises(AssertionError, match="15 of 15 elements outside"):
        assert_within_bound(exact + 1.5 * bound, a, b, dtype="float32")


# -- activations --------------------------------------------------------------------------------


def definition(x, activation):
    """The activations as they are defined in print."""
    if activation == "relu":
        return np.maximum(x, 0)
    if activation == "gelu":
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    if activation == "gelu_erf":
        return 0.5 * x * (1 + scipy.special.erf(x / np.sqrt(2)))
    return x * scipy.special.expit(x) if activation == "silu" else x


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_of_the_oracle(activation):
    x = np.linspace(-9, 9, 4001)
    exact = definition(x, activation)
    for wide in (np.float64, np.longdouble):
        got = testing.exact_activation(x.astype(wide), activation)
        # What cancels in the printed formulas for negative arguments.
        assert (np.abs(got - exact) <= 4 * 2.0**-53 * np.abs(x)).all()
    slope = np.abs(np.diff(exact) / np.diff(x)).max()
    assert slope <= LIPSCHITZ[activation] <= 1.01 * max(slope, 1)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_bound_of_an_activation(rng, activation):
    a, b = (testing.random_values(rng, shape, "float32") for shape in ((3, 37), (37, 5)))
    product, before = accuracy_bound(a, b)
    exact, bound = accuracy_bound(a, b, activation=activation)
    np.testing.assert_array_less(np.abs(exact - definition(product, activation)), 1e-13)
    own = 0 if activation is None else 8 * 2.0**-24 * np.abs(exact)
    ratio = bound / (LIPSCHITZ[activation] * before + own)
    np.testing.assert_array_less(np.abs(ratio - 1), 1e-12)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_the_bound_of_softmax(rng, dtype):
    x = testing.random_values(rng, (4, 30), dtype)
    exact = scipy.special.softmax(x.astype(np.float64), axis=-1)
    u = 2.0**-53 if dtype == "float64" else 2.0**-24
    spread = np.ptp(x.astype(np.float64), axis=-1, keepdims=True)
    ratio = testing.softmax_bound(x, exact) / ((2 * 38 + 4 * spread) * u * exact)
    np.testing.assert_array_less(np.abs(ratio - 1), 1e-6)
    x[:, 3], x[0] = -np.inf, -np.inf
    assert (testing.softmax_bound(x, exact)[0] > 0).all()
    narrow = testing.softmax_bound(np.delete(x[1:], 3, -1), np.delete(exact[1:], 3, -1))
    wide = np.delete(testing.softmax_bound(x[1:], exact[1:]), 3, -1)
    assert (narrow <= wide).all() and (wide < 1.04 * narrow).all()


def test_attention_has_the_contracts_tolerance():
    assert {"bfloat16": 3e-2, "float16": 4e-3, "float32": 2e-5}.items() <= (
        testing.ATTENTION_TOLERANCE.items()
    )
    exact = np.array([0.0, 1.0, -np.inf])
    testing.assert_attention_close(np.float32([1e-5, 1 + 3e-5, -np.inf]), exact)
    for wrong in ([3e-5, 1, -np.inf], [0, 1 + 5e-5, -np.inf], [0, 1, np.nan], [0, np.nan, -np.inf]):
        with pytest.raises(AssertionError):
            testing.assert_attention_close(np.float32(wrong), exact)


# -- data ---------------------------------------------------------------------------------------


def test_blocks_that_meet_are_summed():
    data = np.arange(1.0, 13).reshape(3, 2, 2)
    dense = testing.dense_from_blocks(data, [1, 1, 0], [0, 2, 3], (4, 4))
    np.testing.assert_array_equal(dense[:2, 2:], data[0] + data[1])
    np.testing.assert_array_equal(dense[2:, :2], data[2])
    assert not dense[:2, :2].any() and not dense[2:, 2:].any()


@pytest.mark.parametrize("dtype", ["float16", "int8", "float32"])
def test_random_24_keeps_half_of_a_group(rng, dtype):
    group = 2 if dtype == "float32" else 4
    flags = testing.random_24(rng, (64, 64), dtype).reshape(-1, group) != 0
    assert set(flags.sum(axis=-1)) == set(range(group // 2 + 1))
    assert flags.any(axis=0).all()


# -- data ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (3,), (0, 2)])
@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize(
    "dtype", [*FLOATS, "int8", "int32", "bool", "complex64", "complex128", "float8_e4m3fn"]
)
def test_random_values_are_arrays_of_any_shape(rng, dtype, small, shape):
    values = testing.random_values(rng, shape, dtype, small_integers=small)
    assert type(values) is np.ndarray and values.shape == shape
    assert values.dtype == testing.random_values(rng, (1,), dtype).dtype
    values[...] = 0  # and can be written to
