"""Operands on another GPU than the current one, without a GPU: all that is made is made there."""

from __future__ import annotations

import operator
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import fake_devices
from fake_devices import DeviceArray, Machine
from sparsegpu import (
    _memo,
    scaled_dot_product_attention,
    scaled_dot_product_attention_backward,
)
from sparsegpu.bsr.array import bsr_array
from sparsegpu.bsr.block_mask import BlockMask
from sparsegpu.bsr.promote import product_operands
from sparsegpu.linalg import _amg, _block_jacobi, _lobpcg, _operator
from sparsegpu.linalg._system import System
from sparsegpu.pattern import Pattern
from sparsegpu.semi_structured import layout


@pytest.fixture
def cupy(monkeypatch):
    return fake_devices.put_in_place(monkeypatch)


def of(cupy, values, dtype=None):
    with fake_devices.on(1):
        return cupy.array(values, dtype)


@pytest.fixture
def pattern(cupy):
    indptr, indices = of(cupy, [0, 2, 3, 5]), of(cupy, [1, 0, 2, 0, 0])
    with fake_devices.on(1):
        return Pattern(indptr, indices, (6, 6), (2, 2))


def devices(found):
    """Return the GPUs of all arrays in a value."""
    if isinstance(found, Pattern):
        return devices((found._indptr, found._indices))
    if isinstance(found, tuple):
        return set().union(*map(devices, found))
    return {found.device_id} if isinstance(found, DeviceArray) else set()


FACTS = {
    "rows": lambda p: p.rows,
    "has_sorted_indices": lambda p: p.has_sorted_indices,
    "has_repeated_blocks": lambda p: p.has_repeated_blocks,
    "longest_row": lambda p: p.longest_row,
    "transposed": lambda p: p.transposed(),
    "sorted": lambda p: p.sorted(),
    "canonical": lambda p: p.canonical("test", "p"),
    "broadcast_to": lambda p: p.broadcast_to((2,)),
    "stacked": lambda p: p.broadcast_to((2,)).stacked(),
    "check": lambda p: p.check(),
}


@pytest.mark.parametrize("fact", FACTS.values(), ids=FACTS)
def test_what_is_kept_with_a_pattern_is_made_where_it_is(pattern, fact):
    assert devices(fact(pattern)) <= {1} and Machine.current == 0
    assert set(Machine.waited) <= {1}


def test_what_another_pattern_gives_waits_where_it_is(cupy, pattern):
    for n in range(_memo.RECENT + 1):
        pattern.memo_recent("thing", n, lambda: cupy.arange(3))
    parts = pattern._indptr, pattern._indices, pattern.shape, pattern.blocksize
    with fake_devices.on(1):
        others = [Pattern(*parts, check=False) for _ in range(_memo.RECENT + 1)]
    for other in others:
        pattern.memo_with("thing", other, lambda: cupy.arange(3))
    assert set(Machine.waited) == {1} and Machine.current == 0


def test_a_linear_system_is_made_where_its_right_side_is(cupy):
    for b in (of(cupy, np.ones(4)), of(cupy, np.ones((4, 2)), "int32")):
        system = System("cg", lambda v: v, b)
        assert devices((system.b, system.x)) == {1}
        assert devices(System("cg", lambda v: v, b, b).x) == {1}
        assert Machine.current == 0


def test_constraints_are_made_where_the_vectors_are(cupy):
    X, Y = of(cupy, np.ones((8, 1))), of(cupy, np.ones((8, 1)), "int32")
    made = []

    class Space(_lobpcg._Space):
        def __init__(self, system, mass, Y, largest):
            made.append(Y)
            raise StopIteration

    for given in (None, Y):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(StopIteration):
            patch.setattr(_lobpcg, "_Space", Space)
            _lobpcg.lobpcg(lambda v: v, X, Y=given)
    assert devices(tuple(made)) == {1} and len(made) == 2


@pytest.fixture
def blocks(cupy):
    """Two diagonal blocks on the second GPU."""
    with fake_devices.on(1):
        pattern = Pattern(cupy.arange(3), cupy.arange(2), (4, 4), (2, 2))
        data = cupy.array(np.stack([np.eye(2), 2 * np.eye(2)]))
        return bsr_array._of(pattern, data)


def test_inverses_of_blocks_are_made_where_the_blocks_are(blocks):
    inverse = _block_jacobi.inverse_diagonal(blocks, "test")
    assert devices((inverse.data, inverse.pattern)) == {1} and Machine.current == 0
    with fake_devices.on(1):
        assert inverse.data.tolist() == [[[1, 0], [0, 1]], [[0.5, 0], [0, 0.5]]]


SIMPLE = {
    "-A": operator.neg,
    "abs": abs,
    "conj": lambda a: a.conj(),
    "real": lambda a: a.real,
    "imag": lambda a: a.imag,
}


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("make", SIMPLE.values(), ids=SIMPLE)
def test_values_are_made_where_the_pattern_is(cupy, blocks, make, dtype):
    blocks.pattern.note("order", (True, True))  # else a kernel looks
    made = make(blocks.astype(dtype))
    assert devices((made.data, made.pattern)) == {1} and Machine.current == 0


def test_operands_are_converted_where_they_are_and_kept_by_graphs(cupy, blocks):
    """Within a call: what is allocated there lives as long as a graph that reads it."""
    x = of(cupy, np.ones((4, 3)), "float32")
    Machine.apart.clear()
    array, other = product_operands("@", blocks, x, False)
    assert array is blocks and other.dtype == blocks.dtype
    assert devices(other) == {1} and not Machine.apart


@pytest.mark.parametrize("of_A, of_x", ["dD", "Dd", "DD", "df"])
def test_a_linear_operator_works_where_its_operands_are(cupy, blocks, monkeypatch, of_A, of_x):
    """As a product does, and a graph keeps what it converts."""
    operands, results = [], []

    def product(left, right, out_dtype):
        operands.append(left if isinstance(left, DeviceArray) else right)
        with fake_devices.on(1):
            return cupy.ones((4, 3), out_dtype)

    monkeypatch.setattr(_operator, "bsr_matmul", product)
    monkeypatch.setattr(_operator, "dense_bsr_matmul", lambda x, A, **how: product(x, A, **how).T)
    of_cupyx = SimpleNamespace(
        LinearOperator=lambda shape, **functions: SimpleNamespace(**functions)
    )
    monkeypatch.setitem(sys.modules, "cupyx.scipy.sparse.linalg", of_cupyx)
    linear, x = _operator.aslinearoperator(blocks.astype(of_A)), of(cupy, np.ones((4, 3)), of_x)
    for function in (linear.matvec, linear.rmatmat):
        Machine.apart.clear()
        results.append(function(x))
        assert Machine.apart == [np.ones] * (1 + (of_A + of_x == "dD"))
    assert devices((*operands, *results)) == {1} and Machine.current == 0
    assert {array.dtype.char for array in operands} == {of_A}


def test_levels_go_to_the_gpu_of_the_matrix(blocks):
    host = _amg.moved(blocks, None)
    assert _amg.moved(blocks, 1) is blocks and type(host.data) is np.ndarray
    moved = _amg.moved(host, 1)
    assert devices((moved.data, moved.pattern)) == {1} and Machine.current == 0


def test_which_blocks_of_a_mask_are_shown_is_found_where_it_is(cupy, pattern):
    mask = BlockMask._of(pattern, of(cupy, [0, 1, 2, 1, 0], "uint8"), of(cupy, [[0]], "uint32"))
    assert devices(mask._shown()) == {1} and Machine.current == 0


def test_the_other_half_of_a_24_matrix_is_complete_where_it_is(cupy, monkeypatch):
    packed, meta = of(cupy, np.zeros((32, 16), np.float16)), of(cupy, np.zeros((32, 2), np.int16))
    halves = layout.Halves((32, 32), ((packed, meta), (None, None)), None, False, "test")
    made = layout.Half(packed, meta)
    monkeypatch.setattr(layout.Halves, "_build", lambda self, side: made)
    assert halves.get(1) is made and Machine.waited == [1] and Machine.current == 0


# -- operands on two GPUs ------------------------------------------------------------------------


def operand_of_attention(cupy, name):
    """Return an array, or a mask, on the current GPU."""
    if name in {"mask", "bits"}:
        where = map(cupy.array, ([0, 1, 2], [0, 1]))
        pattern = Pattern(*where, (4, 4), (2, 2), check=False)
        pattern.note("order", (True, True))
        kind, none = cupy.ones(2, np.uint8), cupy.zeros((0, 2, 1), np.uint32)
        mask = BlockMask._of(pattern, kind, none)
        return mask if name == "bits" else mask.tobsr()
    shapes = {"lse": (1, 4), "grad_lse": (1, 4), "sinks": (1,), "slopes": (1,)}
    return cupy.zeros(shapes.get(name, (1, 4, 2)), np.float32)


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (scaled_dot_product_attention, "query key value mask slopes sinks out"),
        (scaled_dot_product_attention_backward, "grad query key value mask out lse grad_lse sinks"),
    ],
)
@pytest.mark.parametrize("mask", ["mask", "bits"])
def test_attention_of_operands_on_two_gpus(cupy, function, names, mask):
    first, *others = names.split()
    for other in others:
        given = {}
        for name in (first, *others):
            with fake_devices.on(int(name == other)):
                given[name] = operand_of_attention(cupy, mask if name == "mask" else name)
        said = f"argument '{other}': expected an array on device 0 like '{first}', got device 1"
        with pytest.raises(ValueError, match=f"^{function.__name__}: {said}"):
            function(**given)
