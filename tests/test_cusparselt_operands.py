"""How operands are described to cuSPARSELt, without it: a stand-in multiplies by the descriptors.

`Multiplies` reads and writes host memory by nothing but the descriptors, the addresses and the
attributes that it was given, and refuses what the library's documentation refuses. The arrays are
NumPy's with CuPy's ``.data.ptr``. The kernel behind the product is its NumPy definition here.
"""

import ctypes
import sys
import types
from functools import partial

import numpy as np
import pytest

from covering import covered
from cusparselt_bindings import Bindings
from sparsegpu._arrays import accumulator_dtype
from sparsegpu._epilogue import Epilogue, apply_epilogue
from sparsegpu.engines.cuda.runtime import launch
from sparsegpu.engines.cusparselt import availability, library, semi_structured
from sparsegpu.engines.cusparselt.compress import Compressed

HALF, SINGLE, INT8 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.int8)
M, K = 32, 64
STREAM = 77
_DTYPES = {number: dtype for dtype, number in library._DATA_TYPES.items()}


class Array(np.ndarray):
    """Host memory that says where it lies as CuPy's arrays do."""

    @property
    def data(self):
        return types.SimpleNamespace(ptr=self.ctypes.data)

    def copy(self, order="C"):
        array = empty(self.shape, self.dtype)
        array[...] = self
        return array


def empty(shape, dtype=np.float64, offset=0):
    """Return memory at an address of 64 bytes times something, and ``offset`` elements."""
    shape, dtype = np.empty(shape, np.int8).shape, np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.empty(size + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset * dtype.itemsize
    return raw[start : start + size].view(dtype).reshape(shape).view(Array)


def zeros(shape, dtype=np.float64):
    array = empty(shape, dtype)
    array[...] = 0
    return array


class Multiplies(Bindings):
    """Bindings whose "sparse" buffer is the dense matrix and whose matmul is NumPy's."""

    def matmul_descriptor_init(self, handle, op_a, op_b, *rest):
        self.now = {"operands": [self.alive[m] for m in rest[:4]], "transposed": op_b}
        return super().matmul_descriptor_init(handle, op_a, op_b, *rest)

    def matmul_desc_set_attribute(self, *arguments):
        super().matmul_desc_set_attribute(*arguments)
        name, value = self.calls[-1]
        self.now[name] = value

    def matmul_plan_init(self, handle, matmul_descr, alg_selection):
        address = super().matmul_plan_init(handle, matmul_descr, alg_selection)
        self.alive[address] += (self.now,)
        return address

    def _matrix(self, descriptor, address):
        _, rows, columns, pitch, alignment, kind, order, *_ = descriptor
        dtype, by_rows = _DTYPES[kind], order == 2
        lines, length = (rows, columns) if by_rows else (columns, rows)
        step = 16 // dtype.itemsize
        assert address % alignment == 0 and pitch >= length
        assert rows % step == columns % step == pitch % step == 0
        memory = (ctypes.c_uint8 * ((lines * pitch - pitch + length) * dtype.itemsize)).from_address
        flat = np.ctypeslib.as_array(memory(address)).view(dtype)
        strides = pitch * dtype.itemsize, dtype.itemsize
        shape = lines, length
        matrix = np.lib.stride_tricks.as_strided(flat, shape, strides)
        return matrix if by_rows else matrix.T

    def matmul(self, handle, plan, alpha, d_a, d_b, beta, d_c, d_d, workspace, streams, num):
        assert workspace and ctypes.c_void_p.from_address(streams).value == STREAM
        how = self.alive[plan][-1]
        addresses = zip(how["operands"], (d_a, d_b, d_c, d_d), strict=True)
        a, b, c, d = (self._matrix(*pair) for pair in addresses)
        assert how["transposed"] or b.itemsize == 2
        b = b.T if how["transposed"] else b
        alpha, beta = (ctypes.c_float.from_address(p).value for p in (alpha, beta))
        value = alpha * (a.astype(np.float64) @ b.astype(np.float64))
        if beta:
            value += beta * c.astype(np.float64)
        if how.get("BIAS_POINTER"):
            assert how["BIAS_POINTER"] % 16 == 0
            memory = (ctypes.c_uint8 * (len(d) * d.itemsize)).from_address(how["BIAS_POINTER"])
            value += np.frombuffer(memory, d.dtype).astype(np.float64)[:, None]
        d[...] = (np.maximum(value, 0) if how.get("ACTIVATION_RELU") else value).astype(d.dtype)


@pytest.fixture(autouse=True)
def lt(monkeypatch):
    bindings = Multiplies()
    stream = types.SimpleNamespace(ptr=STREAM)
    cuda = types.ModuleType("cupy.cuda")
    cuda.get_current_stream = lambda: stream
    cupy = types.ModuleType("cupy")
    vars(cupy).update(
        empty=empty, zeros=zeros, broadcast_to=np.broadcast_to, uint8=np.uint8, cuda=cuda
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
    monkeypatch.setattr(availability, "_loaded", {"bindings": bindings, "version": (0, 8, 1)})
    monkeypatch.setattr(launch, "_current_stream", lambda: cuda.get_current_stream)
    monkeypatch.setattr(library, "_handles", {})
    monkeypatch.setattr(library, "current_device", lambda: 0)
    monkeypatch.setattr(semi_structured, "architecture", lambda: "90")

    def finish(out, sums, epilogue, operand_dtype):
        def on(stream):
            apply_epilogue(np.array(sums), epilogue, out)

        return types.SimpleNamespace(on=on, source="")

    monkeypatch.setattr(semi_structured, "finish", finish)
    library._plan.cache_clear()
    yield bindings
    library._plan.cache_clear()


def laid_out(shape, dtype, layout, rng):
    """Return small integers by rows, by columns, every second one, or at an odd address."""
    *batch, m, n = shape
    if layout == "columns":
        array = empty((*batch, n, m), dtype).swapaxes(-1, -2)
    elif layout == "strided":
        array = empty((*batch, m, 2 * n), dtype)[..., ::2]
    else:
        array = empty(shape, dtype, offset=1 if layout == "unaligned" else 0)
    array[...] = rng.integers(-3, 4, shape)
    return array


def _note(submitted, *told):
    submitted.append(told)


def epilogues(dtype, out, rng):
    """Yield what may stand behind a product of such operands."""
    *_, m, n = out.shape
    yield Epilogue()
    yield Epilogue(alpha=2, activation="relu")
    yield Epilogue(alpha=0)
    for layout in ("rows", "unaligned"):
        yield Epilogue(beta=1, input=laid_out((m, 1), out.dtype, layout, rng))
    for layout in ("rows", "columns"):
        yield Epilogue(beta=2, input=laid_out(out.shape, out.dtype, layout, rng))
    if dtype != HALF:
        yield Epilogue(right_alpha=np.full(n, 2, np.float32), activation="silu")


@covered(
    dtype=[HALF, SINGLE, INT8],
    layout=["rows", "columns", "strided", "unaligned"],
    out_layout=["rows", "columns", "strided"],
    batch=[(), (3, 2)],
)
def test_every_layout(rng, dtype, layout, out_layout, batch):
    m = M + 16 if dtype == INT8 else M  # no multiple of what the library asks of int8
    matrix = zeros((64 if dtype == INT8 else M, K), dtype)
    matrix[:m] = rng.integers(-3, 4, (m, K))
    sparse = Compressed(matrix.view(np.uint8).reshape(-1), matrix.shape, dtype)
    out_dtype = np.dtype(np.int32) if dtype == INT8 else dtype
    for n in (1, 16, 23):
        dense = laid_out((*batch[1:], K, n), dtype, layout, rng)  # broadcasts to the batch
        out = laid_out((*batch, m, n), out_dtype, out_layout, rng)
        sums = np.array(matrix[:m], accumulator_dtype(dtype)) @ np.array(dense)
        sums = np.broadcast_to(sums, out.shape).astype(accumulator_dtype(dtype))
        for epilogue in epilogues(dtype, out, rng):
            expected = np.empty(out.shape, out.dtype)
            apply_epilogue(0 * sums if epilogue.alpha == 0 else sums, epilogue, expected)
            submitted = []
            with launch.recording(partial(_note, submitted)):
                semi_structured.semi_structured_addmm(
                    out, sparse, dense, epilogue, operand_dtype=dtype, allow_tf32=True
                )
            np.testing.assert_array_equal(np.asarray(out), expected)
            ((works, whole, setup),) = submitted
            assert works and not setup
            if not whole:
                continue
            out[...] = 99
            launch.enqueue(works, STREAM, whole)
            np.testing.assert_array_equal(np.asarray(out), expected)


def test_float32_only_as_tf32(rng):
    sparse = Compressed(zeros(M * K * 4, np.uint8), (M, K), SINGLE)
    out, dense = zeros((M, 8), SINGLE), zeros((K, 8), SINGLE)
    with pytest.raises(NotImplementedError, match=r"allow_tf32=True.*native"):
        semi_structured.semi_structured_addmm(
            out, sparse, dense, Epilogue(), operand_dtype=SINGLE, allow_tf32=False
        )
