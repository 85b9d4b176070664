"""Solvers with operands on two GPUs, or on a GPU and the host: what is said, without a GPU."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import fake_devices
import sparsegpu
from sparsegpu import linalg
from sparsegpu.bsr.array import bsr_array
from sparsegpu.pattern import Pattern

SOLVERS = ("cg", "minres", "bicgstab", "gmres", "lobpcg")
#: Each with the arguments that are operators.
ARGUMENTS = [(solver, name) for solver in SOLVERS for name in "AM"] + [("lobpcg", "B")]


class Operator:
    """A linear operator of cupyx."""

    def __init__(self, shape, matvec=None, dtype=None, **functions):
        self.shape, self.dtype, self.functions = shape, dtype, functions | {"matvec": matvec}

    def __matmul__(self, x):
        raise AssertionError("nothing is multiplied")


Operator.__module__ = "cupyx.scipy.sparse.linalg"


class Matrix(Operator):
    """A sparse matrix of cupyx."""

    def __init__(self, device):
        super().__init__((20, 20), dtype=np.dtype(float))
        self.device = fake_devices.on(device)


@pytest.fixture
def cupy(monkeypatch):
    fake = SimpleNamespace(LinearOperator=Operator)
    monkeypatch.setitem(sys.modules, "cupyx.scipy.sparse.linalg", fake)
    return fake_devices.put_in_place(monkeypatch)


def of(cupy, device, values):
    """Return an array on a GPU, or on the host (None)."""
    if device is None:
        return np.array(values)
    with fake_devices.on(device):
        return cupy.array(values)


def matrix(cupy, device, n=20):
    parts = (of(cupy, device, np.arange(n // 2 + 1)), of(cupy, device, np.arange(n // 2)))
    with fake_devices.on(device or 0):
        pattern = Pattern(*parts, (n, n), (2, 2))
    return bsr_array._of(pattern, of(cupy, device, np.tile(np.eye(2), (n // 2, 1, 1))))


#: What an operator may be made of, by what makes it.
OPERATORS = {
    "bsr_array": matrix,
    "aslinearoperator": lambda *where: matrix(*where).aslinearoperator(),
    "block_jacobi": lambda *where: linalg.block_jacobi(matrix(*where)),
    "cupyx matrix": lambda cupy, device: Matrix(device),
    "cupyx operator": lambda cupy, device: wrapped(Matrix(device)),
}


def wrapped(of_cupyx):
    """Return what `aslinearoperator` of cupyx makes of a matrix."""
    operator = Operator(of_cupyx.shape, dtype=of_cupyx.dtype)
    operator.A = of_cupyx
    return operator


def right_side(cupy, device, solver):
    """Return a vector that a solver takes: lobpcg's have two axes."""
    return of(cupy, device, np.ones((20, 1) if solver == "lobpcg" else 20))


@pytest.mark.parametrize(("solver", "argument"), ARGUMENTS)
@pytest.mark.parametrize("made", OPERATORS)
def test_operators_on_another_gpu(cupy, solver, made, argument):
    b, operators = right_side(cupy, 1, solver), {"A": matrix(cupy, 1)}
    operators[argument] = OPERATORS[made](cupy, 0)
    a = operators.pop("A")
    with pytest.raises(
        ValueError, match=rf"^{solver}: argument '{argument}': .*device 1 like .*0$"
    ):
        getattr(linalg, solver)(a, b, **operators)
    assert fake_devices.Machine.current == 0


@pytest.mark.parametrize(("solver", "argument"), ARGUMENTS)
@pytest.mark.parametrize("made", ["bsr_array", "aslinearoperator", "block_jacobi"])
@pytest.mark.parametrize("devices", [(None, 1), (1, None)])
def test_operators_on_host_and_gpu(cupy, solver, made, argument, devices):
    of_operator, of_b = devices
    b, operators = right_side(cupy, of_b, solver), {"A": matrix(cupy, of_b)}
    operators[argument] = OPERATORS[made](cupy, of_operator)
    a = operators.pop("A")
    with pytest.raises(TypeError, match=rf"^{solver}: argument '{argument}': .* like "):
        getattr(linalg, solver)(a, b, **operators)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(
    ("device", "other", "error"),
    [(1, 0, ValueError), (1, None, TypeError), (None, 1, TypeError)],
)
def test_vectors_elsewhere(cupy, solver, device, other, error):
    a, b = matrix(cupy, device), right_side(cupy, device, solver)
    name = "Y" if solver == "lobpcg" else "x0"
    vector = right_side(cupy, other, solver)
    with pytest.raises(error, match=rf"^{solver}: argument '{name}': .* like "):
        getattr(linalg, solver)(a, b, **{name: vector})


@pytest.mark.parametrize(
    ("device", "other", "error"),
    [(1, 0, ValueError), (1, None, TypeError), (None, 1, TypeError)],
)
def test_what_a_hierarchy_is_to_represent_is_where_the_matrix_is(cupy, device, other, error):
    with pytest.raises(error, match=r"^amg: argument 'B': .* like 'A'"):
        linalg.amg(matrix(cupy, device), B=of(cupy, other, np.ones((20, 1))))
    if device is not None:
        with pytest.raises(TypeError, match=r"^amg: argument 'B': .* like 'A'"):
            linalg.amg(matrix(cupy, device), B=[[1.0]] * 20)


@pytest.mark.parametrize(
    ("device", "other", "error"),
    [(1, 0, ValueError), (1, None, TypeError), (None, 1, TypeError)],
)
def test_a_cycle_takes_vectors_where_the_matrix_is(cupy, device, other, error):
    """CuPy itself would copy those of the host."""
    pytest.importorskip("pyamg")
    a = matrix(cupy, device)
    a.pattern.note("order", (True, True))  # else a kernel looks
    operator = linalg.amg(a)
    cycle = operator.functions["matmat"] if device is not None else operator.matvec
    with pytest.raises(error, match=r"^amg: argument 'x': .* like 'A'"):
        cycle(of(cupy, other, np.ones(20)))


def test_operands_on_one_gpu_are_taken(cupy):
    """Else all refusals above might be of something else."""
    b = of(cupy, 1, np.ones(20))
    for make in OPERATORS.values():
        system = linalg._system.System("cg", make(cupy, 1), b, None, make(cupy, 1))
        assert system.device == 1 and system.b.device_id == 1
    with pytest.raises(ValueError, match=r"^cg: argument 'x0': expected shape \(20,\) like b"):
        linalg.cg(sparsegpu.identity(20, blocksize=(2, 2)), np.ones(20), np.ones(3))
