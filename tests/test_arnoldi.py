"""The passes of gmres over its basis, against their definition."""

from __future__ import annotations

import numpy as np
import pytest

from solver_cases import extended_basis
from sparsegpu.engines import engine_module, use_engine
from sparsegpu.engines._solver_steps import ACTIVE, NORM, gmres
from sparsegpu.engines.reference import arnoldi


def test_the_definition():
    """A vector of the basis is the rest of w; coefficients are products with w as it was then."""
    after, before = extended_basis(arnoldi, np.random.default_rng(1), "float64", 40, 1)
    numbers, basis, w, x, *_ = after.values()
    rest, products = before["w"][:, 0].copy(), []
    for first in (0, 8):
        group = before["basis"][first : min(first + 8, 10), :, 0]
        products.append(group @ rest)
        rest -= products[-1] @ group
    np.testing.assert_array_equal(numbers[gmres.FIRST : gmres.FIRST + 10, 0], np.hstack(products))
    np.testing.assert_array_equal(w[:, 0], rest)
    assert numbers[gmres.BEFORE, 0] == before["w"][:, 0] @ before["w"][:, 0]
    assert numbers[NORM, 0] == np.sqrt(rest @ rest)
    np.testing.assert_allclose(basis[10, :, 0], rest / np.linalg.norm(rest), rtol=1e-14)
    added = np.hstack(products)[:9] @ before["basis"][:9, :, 0]
    np.testing.assert_array_equal(x[:, 0], before["x"][:, 0] + added)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize(("n", "r"), [(1, 1), (300, 1), (70_001, 1), (300, 5), (30_001, 5)])
def test_the_cpu_engine(dtype, n, r):
    """In one span of rows, and in several."""
    expected, before = extended_basis(arnoldi, np.random.default_rng(0), dtype, n, r)
    with use_engine("cpu"):
        compiled = engine_module(np, "arnoldi", "gmres")
        found, _ = extended_basis(compiled, np.random.default_rng(0), dtype, n, r)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, name)
    active = before["flags"][ACTIVE]
    np.testing.assert_array_equal(found["x"][:, ~active], before["x"][:, ~active])
    np.testing.assert_array_equal(found["basis"][10][:, ~active], before["basis"][10][:, ~active])
