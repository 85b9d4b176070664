"""The benchmark's peers by stand-ins for CuPy, cuSPARSE and torch that compute on the host."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import replace
from itertools import pairwise
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import sparsegpu as sg
from sparsegpu.benchmark import cases, cusparse_peer, measure, peers
from sparsegpu.benchmark.peer import (
    DENSE,
    SDDMM_BSR,
    SDDMM_CSR,
    TORCH_BMM,
    TORCH_LISTS,
    TORCH_PAIRS,
    NotAvailableError,
    Prepared,
)


def case_of(section, peer, **given):
    """Return a small float32 case that has a peer."""
    case = next(c for c in cases.cases([section]) if peer in c.peers)
    given = {"size": (128, 96, 64), "block": (16, 16), "dtype": "float32"} | given
    return replace(case, density=0.3, bars=(), goals=(), **given)


class OnDevice(np.ndarray):
    """An array that has an address as CuPy's have it."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


class Tensor(np.ndarray):
    """What the peers use of torch's tensors."""

    device = "cuda"

    def long(self):
        return self.astype(np.int64)

    def contiguous(self):
        return np.ascontiguousarray(self).view(Tensor)

    def diff(self):
        return np.diff(self)

    def repeat_interleave(self, counts):
        return np.repeat(self, counts)

    def zero_(self):
        self.fill(0)

    def index_add_(self, axis, places, values):
        assert axis == 0
        np.add.at(self, places, values)


@pytest.fixture
def host(monkeypatch):
    """Put stand-ins in the place of CuPy, torch and Triton; return torch's Triton operations."""

    def shared(array):
        return np.asarray(array).view(Tensor)

    def array(values, order="C"):
        return np.array(values, order=order).view(OnDevice)

    stream = SimpleNamespace(ptr=0)
    cupy = SimpleNamespace(
        array=array,
        zeros=lambda *arguments: np.zeros(*arguments).view(OnDevice),
        empty=lambda *arguments: np.empty(*arguments).view(OnDevice),
        zeros_like=np.zeros_like,
        from_dlpack=lambda tensor: tensor.view(np.ndarray),
        matmul=np.matmul,
        ndarray=type("ndarray", (), {}),
    )
    cuda = SimpleNamespace(
        device=SimpleNamespace(get_cusparse_handle=lambda: 1 << 40),
        get_current_stream=lambda: stream,
    )
    cupy.cuda = cuda
    torch, operations = ModuleType("torch"), ModuleType("torch.sparse._triton_ops")
    torch.from_dlpack, torch.bmm = shared, np.matmul
    torch.arange = lambda count, device: shared(np.arange(count))
    torch.sparse_bsr_tensor = lambda *parts, size: (*parts, size)
    of_sparse = ModuleType("torch.sparse")
    of_sparse._triton_ops = operations
    triton = SimpleNamespace(TritonError=type("TritonError", (Exception,), {}))
    modules = {"cupy": cupy, "cupy.cuda": cuda, "torch": torch, "torch.sparse": of_sparse}
    modules |= {"torch.sparse._triton_ops": operations, "triton": triton}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(peers, "need", lambda *names: None)
    monkeypatch.setattr(cusparse_peer, "whole_us", lambda call: call() or 1.0)
    return operations


# -- cuSPARSE -------------------------------------------------------------------------------------


def at(pointer, shape, dtype):
    """Return the array at an address."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(pointer), dtype).reshape(shape)


class Library:
    """cuSPARSE's sampled product, of float32 on the host; ``refuses`` names what it does not do."""

    CUSPARSE_INDEX_BASE_ZERO = CUSPARSE_OPERATION_NON_TRANSPOSE = 0
    CuSparseError = RuntimeError

    def __init__(self):
        self.made, self.refuses, self.orders, self.off = {}, {}, [], 0.0

    def keep(self, *parts):
        self.made[len(self.made) + (1 << 40)] = parts  # more than 32 bits, as a pointer
        return max(self.made)

    def setStream(self, handle, stream):
        assert (handle, stream) == (1 << 40, 0)

    def createCsr(self, rows, columns, count, offsets, indices, values, *types):
        assert types == (2, 2, 0, 0)
        return self.keep(rows, columns, 1, 1, count, offsets, indices, values)

    def createDnMat(self, rows, columns, leading, pointer, dtype, order):
        assert dtype == 0
        shape = (rows, leading) if order == 2 else (columns, leading)
        matrix = at(pointer, shape, np.float32)
        return self.keep(matrix if order == 2 else matrix.T, order)

    def cusparseCreateBsr(self, made, *arguments):
        sizes, pointers = ([a.value for a in part] for part in (arguments[:5], arguments[5:8]))
        assert arguments[8:] == (2, 2, 0, 0, 2)
        rows, columns, count, bm, bk = sizes
        made._obj.value = self.keep(rows * bm, columns * bk, bm, bk, count, *pointers)
        return self.refuses.get("cusparseCreateBsr", 0)

    def cusparseSDDMM_bufferSize(self, *arguments):
        arguments[-1]._obj.value = 3
        return self.refuses.get(self.made[arguments[5].value][1], 0)

    def cusparseSDDMM_preprocess(self, *arguments):
        assert len(arguments) == 11
        return 0

    def cusparseSDDMM(self, handle, of_a, of_b, one, a, b, zero, c, compute, algorithm, buffer):
        assert handle.value == 1 << 40 and (of_a, of_b, compute, algorithm) == (0, 0, 0, 0)
        scalars = [float(at(x.value, (), np.float32)) for x in (one, zero)]
        assert scalars == [1, 0] and buffer.value
        (left, _), (right, order) = self.made[a.value], self.made[b.value]
        self.orders.append(order)
        rows, _, bm, bk, count, offsets, indices, values = self.made[c.value]
        offsets = at(offsets, rows // bm + 1, np.int32)
        places = np.repeat(np.arange(rows // bm), np.diff(offsets))
        out = at(values, (count, bm, bk), np.float32)
        dense = (left @ right).reshape(rows // bm, bm, -1, bk).swapaxes(1, 2)
        out[...] = dense[places, at(indices, count, np.int32)] + self.off
        return 0


@pytest.fixture
def cusparse(host, monkeypatch):
    library = Library()
    libs = SimpleNamespace(cusparse=library)
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.libs", libs)
    monkeypatch.setattr(cusparse_peer, "_library", lambda: library)
    return library


def sampled():
    """Return a sampled product whose pattern has addresses, as on a device."""

    def moved(matrix, **more):
        parts = (np.array(a).view(OnDevice) for a in (matrix.indptr, matrix.indices))
        names = dict(zip(("indptr", "indices"), parts, strict=True))
        return SimpleNamespace(**names, shape=matrix.shape, **more)

    workload = measure.make_workload(case_of("sampled", SDDMM_CSR), np)
    workload.results()
    out = workload.out

    def elements(dtype):
        csr = out.astype(dtype).tocsr()
        return SimpleNamespace(tocsr=lambda: moved(csr, data=csr.data.view(OnDevice)))

    return SimpleNamespace(
        out=moved(out, astype=elements),
        mat1=workload.mat1,
        mat2=workload.mat2,
        results=lambda: (out.data.view(OnDevice),),
    )


@pytest.mark.parametrize("peer", [SDDMM_CSR, SDDMM_BSR])
def test_cusparse_samples_at_the_same_places(peer, cusparse):
    product = sampled()
    prepared = cusparse_peer.sddmm(peer, product)
    assert set(cusparse.orders) == {1, 2} and prepared.note == "mat2 row-major"
    prepared.result.fill(0)
    prepared.call()
    expected = product.results()[0]
    if peer == SDDMM_CSR:
        expected = product.out.astype(np.float32).tocsr().data
    np.testing.assert_allclose(prepared.result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("peer", [SDDMM_CSR, SDDMM_BSR])
def test_why_cusparse_samples_not_is_said(peer, cusparse):
    product = sampled()
    cusparse.refuses[2] = 10  # a row-major operand only
    assert cusparse_peer.sddmm(peer, product).note == "mat2 column-major"
    cusparse.refuses[1] = 10
    with pytest.raises(NotAvailableError, match=r"^cusparseSDDMM_bufferSize: status 10$"):
        cusparse_peer.sddmm(peer, product)
    cusparse.refuses, cusparse.off = {}, 9.0
    with pytest.raises(NotAvailableError, match="differs by"):
        cusparse_peer.sddmm(peer, product)
    product.mat1 = product.mat1.astype(np.int8)
    with pytest.raises(NotAvailableError, match="not offered"):
        cusparse_peer.sddmm(peer, product)


def test_an_older_cusparse_has_no_blocks(cusparse, monkeypatch):
    cusparse.refuses["cusparseCreateBsr"] = 6
    with pytest.raises(NotAvailableError, match=r"^cusparseCreateBsr: status 6$"):
        cusparse_peer.sddmm(SDDMM_BSR, sampled())
    monkeypatch.delattr(Library, "cusparseCreateBsr")
    with pytest.raises(NotAvailableError, match=r"^cusparseCreateBsr: missing$"):
        cusparse_peer.sddmm(SDDMM_BSR, sampled())


def test_cusparse_itself_takes_our_descriptors():
    try:
        library = cusparse_peer._library()
    except NotAvailableError:
        pytest.skip("CuPy or cuSPARSE is not installed")
    indptr, indices = (np.array(x, np.int32).view(OnDevice) for x in ([0, 1, 3], [1, 0, 2]))
    blocks = np.zeros((3, 4, 4), np.float16).view(OnDevice)
    values = np.zeros(3, np.float64).view(OnDevice)
    for descriptor, size in (
        (cusparse_peer._bsr_descriptor((8, 12), indptr, indices, blocks), (8, 12, 48)),
        (cusparse_peer._csr_descriptor((2, 3), indptr, indices, values), (2, 3, 3)),
    ):
        found = [ctypes.c_int64() for _ in range(3)]
        places = map(ctypes.byref, found)
        assert library.cusparseSpMatGetSize(ctypes.c_void_p(descriptor), *places) == 0
        assert tuple(x.value for x in found) == size
    matrix = np.zeros((4, 5), np.float32, order="F").view(OnDevice)
    descriptor = cusparse_peer._dense_descriptor(matrix, 1)
    found = [kind() for kind in (*[ctypes.c_int64] * 3, ctypes.c_void_p, *[ctypes.c_int] * 2)]
    places = map(ctypes.byref, found)
    assert library.cusparseDnMatGet(ctypes.c_void_p(descriptor), *places) == 0
    assert [x.value for x in found] == [4, 5, 4, matrix.ctypes.data, 0, 1]


@pytest.mark.usefixtures("host")
def test_the_dense_product_of_two_sparse_matrices():
    workload = measure.make_workload(case_of("spgemm", DENSE, size=(96, 96, 96)), np)
    prepared = peers.prepare(DENSE, workload, 0.0)
    prepared.result.fill(0)
    prepared.call()
    np.testing.assert_allclose(prepared.result, workload.call().toarray(), rtol=1e-4, atol=1e-4)
    workload.call = lambda: workload.left
    with pytest.raises(NotAvailableError, match="differs by"):
        peers.prepare(DENSE, workload, 0.0)


# -- torch ----------------------------------------------------------------------------------------


def add_pairs(blocks, others, lists, *, accumulators):
    """Overwrite accumulators as torch's kernel does."""
    name, c_offsets, pq = lists
    assert name == "scatter_mm"
    for r, (first, last) in enumerate(pairwise(c_offsets)):
        p, q = pq[first:last].T
        accumulators[r] = (blocks[p] @ others[q]).sum(axis=0)


@pytest.mark.parametrize("peer", [TORCH_PAIRS, TORCH_BMM])
def test_torch_multiplies_the_same_pairs(peer, host):
    host.scatter_mm = add_pairs
    workload = measure.make_workload(case_of("scatter", peer), np)
    prepared = peers.prepare(peer, workload, 0.0)
    prepared.result.fill(7)
    prepared.call()
    np.testing.assert_allclose(prepared.result, workload.results()[0], rtol=1e-4, atol=1e-4)


def test_why_torch_multiplies_no_pairs_is_said(host, monkeypatch):
    workload = measure.make_workload(case_of("scatter", TORCH_PAIRS), np)
    with pytest.raises(NotAvailableError, match=r"AttributeError .*scatter_mm"):
        peers.prepare(TORCH_PAIRS, workload, 0.0)
    host.scatter_mm = lambda *arguments, accumulators: None
    with pytest.raises(NotAvailableError, match="differs by"):
        peers.prepare(TORCH_PAIRS, workload, 0.0)

    def refuse(*arguments):
        raise sys.modules["triton"].TritonError

    monkeypatch.setattr(sys.modules["torch"], "bmm", refuse)
    with pytest.raises(NotAvailableError, match=r"^TritonError"):
        peers.prepare(TORCH_BMM, workload, 0.0)


def lists_of(workload, wrong=0):
    """Return what makes a product's index lists as torch gives them, and how often it did."""
    made = []

    def make(a, x):
        lists = sg.bsr_scatter_mm_indices_data(workload.left, workload.dense, SPLIT_N=2)
        made.append(lists)
        name, *arrays, meta = lists
        arrays[2] = arrays[2] + wrong
        arrays = (np.array(array).view(Tensor) for array in arrays)
        return (name, *arrays, meta | {"TILE_M": 999, "num_warps": 2, "is_compressed": True})

    return make, made


def test_torch_makes_the_lists_of_the_same_product(host):
    workload = measure.make_workload(case_of("scatter", TORCH_LISTS), np)
    workload.results()
    forgotten = []
    with pytest.raises(NotAvailableError, match="AttributeError"):
        peers.prepare(TORCH_LISTS, workload, 0.0)
    kept = SimpleNamespace(cache_clear=lambda: forgotten.append(1))
    host._bsr_scatter_mm_indices_data = kept
    host.bsr_scatter_mm_indices_data, made = lists_of(workload)
    prepared = peers.prepare(TORCH_LISTS, workload, 0.0)
    assert prepared.note == "SPLIT_N 2"
    prepared.call()
    assert len(forgotten) == len(made) == 3  # the latest lists are forgotten each time
    host.bsr_scatter_mm_indices_data, _ = lists_of(workload, wrong=1 << 20)
    with pytest.raises(NotAvailableError, match="other lists"):
        peers.prepare(TORCH_LISTS, workload, 0.0)


def test_lists_are_timed_beside_torch_s(monkeypatch):
    workload = measure.make_workload(case_of("scatter", TORCH_LISTS), np)
    monkeypatch.setattr(measure, "make_workload", lambda case: workload)
    monkeypatch.setattr(measure, "prepare", lambda *given: Prepared(list, None))
    monkeypatch.setattr(measure, "index_lists_ms", lambda product: 0.5)
    monkeypatch.setattr(measure.timing, "whole_us", lambda call: 90e3 + (call() is None))
    found = measure.measure_case(workload.case)
    assert (found.ms, found.peers) == (0.5, {TORCH_LISTS: 90.0}) and found.error <= 1


def test_a_peer_that_refuses_is_a_reason_in_the_row(cusparse, monkeypatch):
    cusparse.refuses = dict.fromkeys((1, 2), 10)
    product, case = sampled(), case_of("sampled", SDDMM_CSR, peers=(SDDMM_CSR, SDDMM_BSR))
    workload = measure.make_workload(case, np)
    monkeypatch.setattr(measure, "make_workload", lambda case: workload)
    monkeypatch.setattr(measure, "prepare", lambda peer, *_: cusparse_peer.sddmm(peer, product))
    monkeypatch.setattr(measure.timing, "whole_us", lambda call: 1.0)
    monkeypatch.setattr(
        measure.timing, "interleaved_ms", lambda calls, **_: dict.fromkeys(calls, 2.0)
    )
    found = measure.measure_case(case)
    said = "cusparseSDDMM_bufferSize: status 10"
    assert found.peers == {SDDMM_CSR: said, SDDMM_BSR: said} and found.ms == 2.0


@pytest.mark.parametrize(("section", "count"), [("attention", 10), ("gradients", 4)])
def test_goals_of_attention_are_beyond_its_bars(section, count):
    """Of what a call takes on the device in 16 bits; paths that are only compared have neither."""
    every = cases.cases([section])
    held = [case for case in every if case.goals]
    assert len(held) == count
    assert all(case.goals[0].value < case.bars[0].value for case in held)
    assert not any(case.bars or case.goals for case in every if case.path)
