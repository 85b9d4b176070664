"""NumPy's own functions on sparse arrays: some are answered by methods, all others refuse."""

import ml_dtypes
import numpy as np
import pytest

import sparsegpu as sg
from sparsegpu._arrays import bfloat16
from sparsegpu.bsr.ufuncs import Ufuncs
from sparsegpu.testing import random_24, random_values


def pattern_of(rng, shape=(8, 12), **keywords):
    return sg.random_bsr(shape, (2, 4), 0.5, rng=rng, **keywords)


def half_of(rng, dtype="float16"):
    return random_24(rng, (32, 64), np.dtype(dtype), small_integers=True)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool", "complex64"])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_array_equal(rng, dtype, batch):
    a = pattern_of(rng, (*batch, 8, 12), dtype=dtype)
    dense = a.toarray()
    other = dense.copy()
    other[..., -1, -1] = other[..., -1, -1] == 0
    assert np.array_equal(a, a) is True
    assert np.array_equal(a, a.tobsr((2, 2))) and np.array_equal(a.tobsr((2, 2)), a)
    assert np.array_equal(a, dense) and np.array_equal(dense, a)
    assert np.array_equal(a, dense.tolist())
    assert not np.array_equal(a, other) and not np.array_equal(other, a)
    assert not np.array_equal(a, a.T) and not np.array_equal(a, 1) and not np.array_equal(a, None)
    if not batch:
        assert not np.array_equal(a, sg.bsr_array(other, blocksize=(2, 4)))


def test_array_equal_by_values_not_by_patterns(rng):
    parts = (np.ones((2, 2, 1, 1)), np.array([[0, 0], [0, 1]]), np.array([[0, 2], [0, 2]]))
    repeated = sg.bsr_array(parts, shape=(1, 2))
    assert np.array_equal(repeated, repeated.copy())
    assert np.array_equal(repeated, np.array([[[2.0, 0]], [[1, 1]]]))
    zeros = sg.bsr_array((np.zeros((1, 2, 2)), [0], [0, 1]), shape=(2, 4))
    assert np.array_equal(zeros, sg.bsr_array((2, 4), blocksize=(2, 2)))
    nan = sg.bsr_array(np.array([[np.nan, 0]]), blocksize=(1, 1))
    assert not np.array_equal(nan, nan) and np.array_equal(nan, nan, equal_nan=True)
    with pytest.raises(TypeError, match=r"^numpy\.array_equal: argument 'other': .*mixes"):
        np.array_equal(nan.astype("bfloat16"), nan.astype("float16"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8", "float8_e4m3fn"])
def test_array_equal_of_24(rng, dtype):
    dense = random_24(rng, (32, 64), sg._arrays.dtype_of(dtype), small_integers=True)
    w = sg.to_semi_structured(dense)
    other = sg.to_semi_structured(np.zeros_like(dense))
    assert np.array_equal(w, w) is True and np.array_equal(w, w.copy())
    assert np.array_equal(w, dense) and np.array_equal(dense.T, w.T)
    assert not np.array_equal(w, other) and not np.array_equal(w, w.T)
    assert not np.array_equal(w, dense[:, :32])


def test_array_equal_of_24_blocks(rng):
    a = sg.bsr_array(half_of(rng), blocksize=(32, 32))
    b = a.semi_structured()
    assert np.array_equal(b, b) and np.array_equal(a, b) and np.array_equal(b, a.toarray())
    assert not np.array_equal(b, 2 * a)


def test_array_equal_of_masks():
    mask, other = sg.causal(8, 4, compact=True), sg.sliding_window(8, 4, 2, compact=True)
    assert np.array_equal(mask, mask) and np.array_equal(mask, np.tri(8, dtype=bool))
    assert np.array_equal(mask, mask.tobsr()) and np.array_equal(mask.tobsr(), mask)
    assert not np.array_equal(mask, other) and not np.array_equal(mask.tobsr(), other)
    assert np.allclose(mask, mask.tobsr().astype("float32"))


def test_allclose(rng):
    a = pattern_of(rng)
    dense = a.toarray()
    assert np.allclose(a, a * (1 + 1e-9)) is True and not np.allclose(a, a * 1.1)
    assert np.allclose(a, a * 1.1, rtol=0.2) and np.allclose(dense, a)
    assert np.allclose(a, dense + 1e-3, atol=1e-2) and not np.allclose(a, dense + 1e-3)
    w = sg.to_semi_structured(half_of(rng))
    assert np.allclose(w, w) and not np.allclose(w, w.todense() + 1)
    # The tolerance is relative to the second.
    one, two = (sg.bsr_array(np.full((1, 1), x), blocksize=(1, 1)) for x in (1.0, 2.0))
    assert np.allclose(one, two.toarray(), rtol=0.6, atol=0)
    assert not np.allclose(two.toarray(), one, rtol=0.6, atol=0)


def test_functions_that_are_methods(rng):
    a = pattern_of(rng, dtype="complex64")
    dense = a.toarray()
    for function in (np.transpose, np.real, np.imag, np.copy, np.negative, np.positive, np.conj):
        result = function(a)
        assert isinstance(result, sg.bsr_array)
        np.testing.assert_array_equal(result.toarray(), function(dense))
    assert np.shape(a) == (8, 12) and np.ndim(a) == 2 and np.size(a) == a.nnz
    assert np.iscomplexobj(a) and not np.isrealobj(a)
    real, matrix = a.real, dense.real
    for function in (np.sum, np.mean):
        np.testing.assert_allclose(function(real, axis=0), function(matrix, axis=0), rtol=1e-6)
    for function in (np.max, np.min, np.amax, np.diagonal, np.nanmax, np.nanmin):
        np.testing.assert_array_equal(function(real), function(matrix))
    w = sg.to_semi_structured(half_of(rng))
    assert np.shape(w) == (32, 64) and np.transpose(w).shape == (64, 32)
    np.testing.assert_array_equal(np.copy(w).todense(), w.todense())
    x = random_values(rng, (12, 3), "complex64", small_integers=True)
    np.testing.assert_array_equal(np.dot(a, x), a @ x)
    np.testing.assert_array_equal(np.dot(x.T, a.T), x.T @ a.T)
    np.testing.assert_array_equal(np.dot(w, w.todense().T), w @ w.todense().T)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("numpy.linalg.norm", lambda s: np.linalg.norm(s)),
        ("numpy.concatenate", lambda s: np.concatenate([s, s])),
        ("numpy.where", lambda s: np.where(s, 1, 0)),
        ("numpy.zeros_like", lambda s: np.zeros_like(s)),
        ("numpy.einsum", lambda s: np.einsum("ij->j", s)),
        ("numpy.isclose", lambda s: np.isclose(s, s)),
        ("numpy.logaddexp", lambda s: np.logaddexp(s, s)),
        ("numpy.hypot", lambda s: np.hypot(s, 0)),
        ("numpy.add.reduce", lambda s: np.add.reduce(s)),
        ("numpy.add", lambda s: np.add(np.ones(s.shape), 1, out=s)),
        ("numpy.multiply", lambda s: np.multiply(np.ones(s.shape), s, where=False)),
    ],
)
def test_what_is_refused(rng, name, call):
    a = sg.bsr_array(half_of(rng), blocksize=(32, 32))
    for sparse in (a, a.semi_structured(), sg.to_semi_structured(a.toarray())):
        kind = type(sparse).__name__
        message = rf"^{name}: argument '\w+': .*A\.todense.*, got a {kind}$"
        with pytest.raises(TypeError, match=message):
            call(sparse)


# -- ufuncs and dense arrays in place -----------------------------------------------------------


def test_a_dense_array_in_place(engine, rng):
    a = pattern_of(rng, dtype="float32", xp=engine.xp)
    dense = engine.host(a.toarray())
    start = random_values(rng, (8, 12), "float32", small_integers=True)
    y = view = engine.array(start.copy())
    y += a
    np.testing.assert_array_equal(engine.host(y), start + dense)
    y -= a
    y -= a
    np.testing.assert_array_equal(engine.host(y), (start + dense - dense) - dense)
    y *= a
    assert y is view
    np.testing.assert_array_equal(engine.host(y), ((start + dense - dense) - dense) * dense)


@pytest.mark.parametrize("shape", [(12,), (8, 12), (2, 8, 12)])
def test_a_dense_array_times_a_square_one_in_place(engine, rng, shape):
    a = pattern_of(rng, shape=(12, 12), dtype="float32", xp=engine.xp)
    a.data = engine.array(random_values(rng, a.data.shape, "float32", small_integers=True))
    start = random_values(rng, shape, "float32", small_integers=True)
    y = engine.array(start.copy())
    y @= a
    np.testing.assert_array_equal(engine.host(y), start @ engine.host(a.toarray()))


def test_what_is_not_multiplied_in_place(rng):
    """NumPy's rules of what an array can hold; it is said what does it."""
    y, a = np.ones((3, 8), "float32"), pattern_of(rng, dtype="float32")
    message = r"^x @= A \(x = x @ A .*\): argument 'out': expected "
    with pytest.raises(ValueError, match=message + r"shape \(3, 12\), got \(3, 8\)$"):
        y @= a
    y = np.ones((3, 12), "int32")
    with pytest.raises(TypeError, match=message + "a dtype that holds float64, got int32$"):
        y @= pattern_of(rng, shape=(12, 12), dtype="float64")
    assert (y == 1).all()


def test_what_cupy_calls_in_place(rng):
    """Its ufuncs ask the arrays, by a protocol of their own."""
    a = pattern_of(rng, dtype="float32")
    y = np.ones((8, 12), "float32")

    class Kernel:
        name = "cupy_add"

    assert a.__cupy_override_elementwise_kernel__(Kernel(), y, a, y) is y
    np.testing.assert_array_equal(y, 1 + a.toarray())
    assert a.__cupy_override_elementwise_kernel__(Kernel(), y, a, out=y) is y
    np.testing.assert_array_equal(y, 1 + a.toarray() + a.toarray())
    Kernel.name = "a_user_s"
    with pytest.raises(TypeError, match=r"^a_user_s: argument '2': .* got a bsr_array"):
        a.__cupy_override_elementwise_kernel__(Kernel(), y, a, y)


def test_results_of_ufuncs_in_dense_arrays(rng):
    a = pattern_of(rng, dtype="float32")
    out = np.ones((8, 12), "float32")
    assert np.multiply(a, 2, out=out) is out
    np.testing.assert_array_equal(out, 2 * a.toarray())
    np.testing.assert_array_equal(np.sign(a, out=out), np.sign(a.toarray()))


def test_a_dense_array_in_place_that_cannot_hold_it(rng):
    a = pattern_of(rng, dtype="float32")
    for y, error, message in (
        (np.ones((8, 12), int), TypeError, r"^numpy\.add: argument 'out': .*got int64"),
        (np.ones(12, "f4"), ValueError, r"^numpy\.add: argument 'out': expected shape \(8, 12\)"),
        (np.ones((8, 11), "f4"), ValueError, r"^bsr_array \+: argument 'other'"),
    ):
        kept = y.copy()
        with pytest.raises(error, match=message):
            y += a
        np.testing.assert_array_equal(y, kept)
    y = np.ones((8, 12), "f4")
    w = sg.to_semi_structured(half_of(rng))
    with pytest.raises(TypeError, match=r"^numpy\.add: argument 'x2': .*todense.* SemiStructured"):
        y += w


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "complex64"])
def test_functions_that_keep_zeros(rng, dtype):
    a = pattern_of(rng, dtype=dtype)
    a.data[...] = rng.integers(0, 5, a.data.shape)
    repeated = sg.bsr_array(
        (np.stack([a.data[0]] * 2), np.zeros(2, int), np.array([0, 2])), shape=(2, 4)
    )
    for ufunc in (np.sqrt, np.sin, np.expm1, np.square, np.sign, np.isnan, np.absolute):
        for array in (a, repeated):
            result = ufunc(array)
            assert isinstance(result, sg.bsr_array)
            expected = ufunc(array.toarray())
            assert result.dtype == expected.dtype
            np.testing.assert_array_equal(result.toarray(), expected)
    for ufunc in (np.exp, np.cos, np.isfinite):
        with pytest.raises(NotImplementedError, match=rf"^numpy\.{ufunc.__name__}: .*zero at zero"):
            ufunc(a)


def test_functions_that_keep_zeros_are_methods_as_of_scipys_arrays(rng):
    a = pattern_of(rng, dtype="float64")
    a.data[...] = rng.uniform(-0.9, 0.9, a.data.shape)
    theirs = a.to_scipy()
    ufuncs = {n: f for n in dir(theirs) if isinstance(f := getattr(np, n, None), np.ufunc)}
    names = [name for name, ufunc in ufuncs.items() if ufunc.nin == 1]
    assert len(names) >= 18
    for name in names:
        with np.errstate(invalid="ignore"):  # roots of negative numbers
            result, expected = getattr(a, name)(), getattr(theirs, name)()
        assert isinstance(result, sg.bsr_array) and result.dtype == expected.dtype
        np.testing.assert_array_equal(result.toarray(), expected.toarray())
    with pytest.raises(TypeError, match="floor"):
        a.astype("complex64").floor()


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float32", "float64", "int8", "complex64"]
)
def test_methods_of_ufuncs(engine, rng, dtype):
    a = pattern_of(rng, dtype=dtype)
    values = rng.uniform(-0.9, 0.9, a.data.shape) * (1 + 0.5j if dtype == "complex64" else 1)
    a.data[...] = np.rint(2 * values) if dtype == "int8" else values
    A = sg.bsr_array(
        (engine.array(a.data), engine.array(a.indices), engine.array(a.indptr)), shape=a.shape
    )
    for name in [name for name in vars(Ufuncs) if name[0] != "_"]:
        with np.errstate(all="ignore"):  # roots of negative numbers
            try:
                expected = getattr(np, name)(a.toarray())
            except TypeError:
                with pytest.raises(TypeError, match=name):
                    getattr(A, name)()
                continue
            result = getattr(A, name)()
        assert result.dtype == expected.dtype
        exact = expected.dtype.kind in "bi"
        ulps = 0 if exact else 8 * float(ml_dtypes.finfo(expected.dtype).eps)
        wide = np.promote_types(expected.dtype, "float64")
        np.testing.assert_allclose(
            engine.host(result.toarray()).astype(wide),
            expected.astype(wide),
            rtol=ulps,
            atol=ulps,  # CuPy's complex expm1 and log1p cancel near zero
            err_msg=name,
        )


def test_operators_by_the_names_of_ufuncs(rng):
    a = pattern_of(rng)
    dense, x = a.toarray(), random_values(rng, (8, 12), "float64", small_integers=True)
    for ufunc in (
        np.add,
        np.subtract,
        np.multiply,
        np.less,
        np.greater_equal,
        np.equal,
        np.maximum,
    ):
        for result, expected in (
            (ufunc(x, a), ufunc(x, dense)),
            (ufunc(a, x), ufunc(dense, x)),
        ):
            result = result.toarray() if isinstance(result, sg.bsr_array) else result
            np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(np.matmul(a, x.T), a @ x.T)
    np.testing.assert_array_equal((np.float64(3) * a).toarray(), 3 * dense)
    np.testing.assert_array_equal(np.divide(a, 2).toarray(), dense / 2)
    np.testing.assert_array_equal(np.power(a, 2).toarray(), dense**2)
    np.testing.assert_array_equal(np.reshape(a, (4, 24)).toarray(), dense.reshape(4, 24))
    with pytest.raises(TypeError, match=r"^numpy\.power: argument 'x2': "):
        np.power(2.0, a)
    np.testing.assert_array_equal((bfloat16.type(2) < a).toarray(), dense > 2)


def test_masked_arrays_are_refused(rng):
    a = pattern_of(rng, dtype="float32")
    with pytest.raises(TypeError, match="without a mask"):
        np.ma.masked_equal(np.ones((8, 12), "f4"), 0) + a


@pytest.mark.parametrize("make", [pattern_of, half_of])
def test_numbers_reach_the_operators_as_numbers(rng, monkeypatch, make):
    a = make(rng)
    a = a if isinstance(a, sg.bsr_array) else sg.to_semi_structured(a)
    seen = []
    monkeypatch.setattr(type(a), "__lt__", lambda self, other: seen.append(other) or True)
    assert np.float64(2) > a and np.int8(3) > a
    # An array of no dimensions would be one of the host beside operands on the GPU.
    assert [type(x) for x in seen] == [np.float64, np.int8]
