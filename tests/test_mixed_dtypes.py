"""``@`` of operands of two dtypes: SciPy's result dtype, and nothing narrow promoted silently."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import sparsegpu as sg
from operator_cases import make

WIDE = ["float32", "float64", "complex64", "complex128"]
OTHERS = [*WIDE, "int16", "int32", "int64", "uint8", "uint64", "bool"]


def operand(rng, shape, dtype):
    x = rng.integers(0, 2 if dtype == "bool" else 5, shape).astype(dtype)
    return x * (1 + 2j) if np.dtype(dtype).kind == "c" else x


def same(engine, ours, theirs):
    """Compare with SciPy's answer; of small integers nothing is rounded."""
    ours = ours.toarray() if isinstance(ours, sg.bsr_array) else ours
    theirs = theirs.toarray() if sp.issparse(theirs) else theirs
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    np.testing.assert_array_equal(engine.host(ours), theirs)


@pytest.mark.parametrize("of_other", OTHERS)
@pytest.mark.parametrize("dtype", WIDE)
def test_as_scipy(engine, rng, dtype, of_other):
    a, _ = make(engine, rng, dtype=dtype, duplicates=True)
    theirs = a.get().to_scipy()
    for shape in ((20,), (20, 3)):
        x = operand(rng, shape, of_other)
        same(engine, a @ engine.array(x), theirs @ x)
        same(engine, a.dot(engine.array(x)), theirs @ x)
        same(engine, engine.array(x.T) @ a.T, x.T @ theirs.T)


@pytest.mark.parametrize("dtype", ["bool", "int32"])
@pytest.mark.parametrize("of_other", WIDE)
def test_integers_of_a_container(engine, rng, dtype, of_other):
    a, dense = make(engine, rng, dtype=dtype)
    x = operand(rng, 20, of_other)
    expected = sp.csr_array(dense) @ x
    same(engine, a @ engine.array(x), expected)


@pytest.mark.parametrize("of_other", [*WIDE, "bool"])
@pytest.mark.parametrize("dtype", WIDE)
def test_two_sparse(engine, rng, dtype, of_other):
    a, _ = make(engine, rng, dtype=dtype)
    b, _ = make(engine, rng, shape=(20, 15), blocksize=(4, 5), dtype=of_other)
    same(engine, a @ b, a.get().to_scipy() @ b.get().to_scipy())


def test_lists(rng):
    a = sg.random_bsr((4, 6), (2, 3), 0.5, rng=rng, dtype="float32")
    host, theirs = type("Host", (), {"host": staticmethod(np.asarray)}), a.to_scipy()
    for x in ([1, 2, 3, 4, 5, 6], [0.5] * 6, [1j] * 6, [[1, 2]] * 6, (1, 2, 3, 4, 5, 6)):
        ours, expected = a @ x, theirs @ x
        assert ours.dtype == expected.dtype
        np.testing.assert_allclose(ours, expected, rtol=1e-6)
    x = [1, 2, 3, 4]
    np.testing.assert_allclose(x @ a, x @ theirs, rtol=1e-6)
    same(host, np.dot(a.astype(bool).astype("float32"), [1] * 6), (theirs != 0) @ np.ones(6))
    with pytest.raises(ValueError, match=r"^bsr_array @: argument 'other': .*\(5,\)"):
        a @ [1, 2, 3, 4, 5]
    for bad in (["a"] * 6, [None] * 6):
        with pytest.raises(TypeError, match=r"^bsr_array @: argument 'other': expected"):
            a @ bad
    with pytest.raises(ValueError, match=r"^bsr_array @: argument 'other': "):
        a @ [[1], [1, 2]]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
def test_narrow_ones_are_never_promoted(engine, rng, dtype):
    a, _ = make(engine, rng, dtype=dtype)
    wide = a.astype("float32")
    for of_other in ("float32", "float64", "complex64"):
        x = engine.array(np.ones(20, of_other))
        match = (
            rf"^bsr_array @: argument 'other': expected dtype {dtype} like A's \(other\.astype\("
            rf"'{dtype}'\), or A\.astype\('{of_other}'\); .* not promoted\), got {of_other}$"
        )
        with pytest.raises(TypeError, match=match):
            a @ x
        same(engine, a.astype(of_other) @ x, engine.host((wide @ x).astype(of_other)))
    narrow = engine.array(np.ones((20, 2))).astype(a.dtype)  # a vector of int8 is promoted
    with pytest.raises(TypeError, match=rf"expected dtype float32 .* not promoted\), got {dtype}$"):
        wide @ narrow
    with pytest.raises(TypeError, match=r"or A\.astype\('float64'\).* got int64$"):
        a @ engine.array(np.ones(20, np.int64))
    with pytest.raises(TypeError, match=rf"expected dtype float32 .* got {dtype}$"):
        wide @ a.T


def test_integer_products_without_a_kernel(rng):
    a = sg.random_bsr((4, 6), (2, 3), 0.5, rng=rng, dtype="float32").astype("int32")
    with pytest.raises(TypeError, match=r"^bsr_array @: .* multiplies with int32 .* got int64$"):
        a @ np.ones(6, np.int64)
    with pytest.raises(TypeError, match=r"^bsr_array @: argument 'other': expected numbers"):
        a @ np.zeros(6, "M8[s]")


@pytest.mark.skipif(np.dtype(np.longdouble) == float, reason="long double is float64 here")
@pytest.mark.parametrize("dtype", ["float16", "int8", "int32", "float64", "complex64"])
def test_longer_floats_than_double(rng, dtype):
    """No dtype of A's would help: only the other operand can be converted."""
    a = sg.random_bsr((6, 6), (2, 3), 0.5, rng=rng, dtype="float32").astype(dtype)
    long, kept = (np.clongdouble, "complex128") if dtype == "complex64" else (None, "float64")
    x = np.ones((6, 6), long or np.longdouble)
    number = x.dtype.type(2)
    for compute in (
        lambda: a @ x, lambda: x @ a, lambda: a + x, lambda: a * x, lambda: x - a,
        lambda: a @ sp.csr_array(x), lambda: a * number, lambda: number * a,
        lambda: a / number,
    ):  # fmt: skip
        message = rf"'other': expected .*double precision \(other\.astype\('{kept}'\)\), got"
        with pytest.raises(TypeError, match=message):
            compute()


def test_the_functions_stay_strict(engine, rng):
    a, _ = make(engine, rng, dtype="float32")
    x = engine.array(np.ones((20, 3)))
    b, _ = make(engine, rng, shape=(20, 15), blocksize=(4, 5), dtype="float64")
    for call in (lambda: sg.bsr_matmul(a, x), lambda: sg.bsr_addmm(None, a, x)):
        with pytest.raises(TypeError, match="argument 'dense': expected dtype float32"):
            call()
    with pytest.raises(TypeError, match="argument 'dense': expected dtype float32"):
        sg.dense_bsr_matmul(x.T, a.T)
    with pytest.raises(TypeError, match="bsr_spgemm: argument 'b': expected dtype float32"):
        sg.bsr_spgemm(a, b)
    packed = sg.to_semi_structured(engine.array(np.tile([0, 1, 0, 2], (32, 8)).astype("f2")))
    message = r"argument 'other': expected dtype float16 .* \(astype\), got float64$"
    with pytest.raises(TypeError, match=message):
        packed @ engine.array(np.ones(32))


def test_a_list_beside_an_array_on_a_gpu(cuda_engine, rng):
    a, _ = make(cuda_engine, rng, dtype="float32")
    with pytest.raises(TypeError, match=r"argument 'other': .*no silent copy across the bus"):
        a @ ([1.0] * 20)


def test_equal_dtypes_are_not_converted(engine, rng):
    """What is replayed, and captured in a graph, is the product of the very arrays."""
    from sparsegpu.bsr.promote import product_operands

    a, _ = make(engine, rng, dtype="float32")
    x = engine.array(np.ones(20, np.float32))
    pair = product_operands("bsr_array @", a, x, False)
    assert pair[0] is a and pair[1] is x
