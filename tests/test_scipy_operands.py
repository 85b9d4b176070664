"""Sparse arrays of SciPy and cupyx as operands of `bsr_array`, held against SciPy's own answers."""

from __future__ import annotations

import operator

import numpy as np
import pytest
import scipy.sparse as sp

import sparsegpu as sg
from operator_cases import make

FORMATS = [
    *(f"{name}_array" for name in ("csr", "csc", "coo", "bsr", "dia", "dok", "lil")),
    *("csr_matrix", "dok_matrix"),
]  # fmt: skip
ELEMENTWISE = ["add", "sub", "mul", "ne", "lt", "gt"]


def other_of(rng, shape, dtype="float64"):
    return sp.random_array(
        shape, density=0.3, rng=rng, data_sampler=lambda size: rng.integers(-4, 5, size)
    ).astype(dtype)


def given(engine, array, name="csr_array"):
    """Return an array of SciPy in a format, on a GPU as cupyx's."""
    if not engine.on_gpu:
        return getattr(sp, name)(array)
    import cupyx.scipy.sparse

    name = name if name in {"csr_matrix", "csc_matrix", "coo_matrix"} else "csr_matrix"
    return getattr(cupyx.scipy.sparse, name)(getattr(sp, name)(array))


def same(engine, ours, expected, blocksize):
    """Compare with a result of SciPy, dtype and block size too."""
    assert isinstance(ours, sg.bsr_array) and ours.blocksize == blocksize
    ours.check_format()
    expected = expected.toarray()
    assert ours.dtype == expected.dtype
    np.testing.assert_array_equal(engine.host(ours.toarray()), expected)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("operation", ELEMENTWISE)
def test_elementwise(engine, rng, operation, name):
    a, _ = make(engine, rng, dtype="float64", duplicates=True)
    b, compute = other_of(rng, (12, 20)), getattr(operator, operation)
    theirs = sp.csr_array(a.get().to_scipy())
    same(engine, compute(a, given(engine, b, name)), compute(theirs, sp.csr_array(b)), (3, 4))


def test_elementwise_from_the_right(engine, rng):
    a, _ = make(engine, rng, dtype="float64")
    b = other_of(rng, (12, 20))
    theirs = sp.csr_array(a.get().to_scipy())
    same(engine, given(engine, b) + a, b + theirs, (3, 4))
    same(engine, given(engine, b) - a, b - theirs, (3, 4))
    same(engine, a.multiply(given(engine, b)), theirs.multiply(b), (3, 4))


@pytest.mark.parametrize("name", FORMATS)
def test_products(engine, rng, name):
    a, _ = make(engine, rng, dtype="float64", duplicates=True)
    theirs = sp.csr_array(a.get().to_scipy())
    for columns, width in ((8, 4), (6, 2), (7, 1), (0, 4)):
        b = other_of(rng, (20, columns))
        same(engine, a @ given(engine, b, name), theirs @ sp.csr_array(b), (3, width))
    same(engine, a.dot(given(engine, b, name)), theirs @ sp.csr_array(b), (3, 4))


def test_products_from_the_left(engine, rng):
    a, _ = make(engine, rng, dtype="float64")
    b = other_of(rng, (9, 12))
    expected = b @ sp.csr_array(a.get().to_scipy())
    # SciPy's own operator asks for a dense array first, and reports that there is none.
    same(engine, a.__rmatmul__(given(engine, b)), expected, (3, 4))
    if engine.on_gpu:
        same(engine, given(engine, b) @ a, expected, (3, 4))
    else:
        with pytest.raises(TypeError, match=r"what SciPy takes, bsr_array\(C, blocksize=.*left"):
            b @ a


def test_star_of_a_matrix_on_the_left_is_refused(engine, rng):
    """It is the matrix product there, and elementwise here."""
    a, _ = make(engine, rng, dtype="float64")
    with pytest.raises(TypeError, match=r"bsr_array \*: argument 'other': .*other @ A.*csr_matrix"):
        a.__rmul__(given(engine, other_of(rng, (12, 20)), "csr_matrix"))


@pytest.mark.parametrize("dtype", ["float32", "int8", "complex64", "bool"])
@pytest.mark.parametrize("of_other", ["float32", "float64", "bool", "complex128"])
def test_dtypes_are_those_of_numpy(engine, rng, dtype, of_other):
    a, dense = make(engine, rng, dtype=dtype)
    b = other_of(rng, (12, 20), of_other)
    for operation in (operator.add, operator.mul):
        result = operation(a, given(engine, b))
        expected = operation(dense, b.toarray())
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(engine.host(result.toarray()), expected)


def test_integers_that_no_container_holds(rng):
    a = sg.random_bsr((12, 20), (3, 4), 0.5, rng=rng, dtype="float64")
    b = other_of(rng, (12, 20), "int64")
    np.testing.assert_array_equal((a + b).toarray(), a.toarray() + b.toarray())
    np.testing.assert_array_equal((a != b).toarray(), a.toarray() != b.toarray())
    message = r"bsr_array \+: argument 'other': .*mixes with int8 \(astype\), got int64"
    with pytest.raises(TypeError, match=message):
        a.astype("int8") + b
    message = r"bsr_array \*: argument 'other': .*mixes with bool \(A\.astype first\), .* int64"
    with pytest.raises(TypeError, match=message):
        (a != 0) * 2


def test_batches(engine, rng):
    a, dense = make(engine, rng, dtype="float64", batch=(2,), density=1.0)
    b = other_of(rng, (12, 20))
    np.testing.assert_array_equal(
        engine.host((a + given(engine, b)).toarray()), dense + b.toarray()
    )


def test_the_functions_of_numpy(rng):
    a = sg.random_bsr((12, 20), (3, 4), 0.5, rng=rng, dtype="float64")
    assert np.array_equal(a, a.tocsr()) and np.allclose(a, a.tocsr() * (1 + 1e-9))
    assert not np.array_equal(a, a.tocsr() * 2)


def test_repeated_elements_are_summed():
    b = sp.coo_array(([1.0, 2.0, 5.0], ([0, 0, 3], [1, 1, 2])), shape=(4, 4))
    a = sg.bsr_array(np.eye(4), blocksize=(2, 2))
    np.testing.assert_array_equal((a + b).toarray(), np.eye(4) + b.toarray())


def test_operands_that_do_not_fit(engine, rng):
    a, _ = make(engine, rng, dtype="float64")
    b = given(engine, other_of(rng, (20, 12)))
    for sign, bad in (
        (r"\+", lambda: a + b),
        ("-", lambda: a - b),
        ("!=", lambda: a != b),
    ):
        match = rf"^bsr_array {sign}: argument 'other': expected shape \(12, 20\), got \(20, 12\)$"
        with pytest.raises(ValueError, match=match):
            bad()
    with pytest.raises(
        ValueError, match=r"^bsr_array \*: .* a shape that broadcasts with \(12, 20"
    ):
        a * b
    with pytest.raises(ValueError, match=r"^bsr_array @: argument 'other': .*\(20, N\).*\(12, 20"):
        a @ b.T
    with pytest.raises(ValueError, match=r"^dot: argument 'other': .*\(20, N\)"):
        a.dot(b.T)
    with pytest.raises(NotImplementedError, match="bsr_array ==: a comparison that holds for"):
        operator.eq(a, b.T)
    wrong = sp.coo_array((np.ones(1), (np.array([1]), np.array([1]))), shape=(12, 20))
    wrong.coords = (np.array([99]), np.array([0]))
    if not engine.on_gpu:
        with pytest.raises(ValueError, match=r"\+: argument 'other': expected rows in 0\.\.11"):
            a + wrong
        with pytest.raises(ValueError, match=r"\+: argument 'other': expected a two-dim"):
            a + sp.coo_array(np.ones(20))


def test_an_operand_on_the_host_beside_an_array_on_a_gpu(cuda_engine, rng):
    a, _ = make(cuda_engine, rng, dtype="float64")
    b = other_of(rng, (12, 20)).tocsr()
    for bad in (lambda: a + b, lambda: a * b, lambda: a != b, lambda: a @ b.T):
        with pytest.raises(TypeError, match=r"argument 'other': .*no silent copy across the bus"):
            bad()
