"""Arrays of other libraries, the real ones: torch, JAX, numba, cupyx, Matrix Market.

They are operands and results without copies. What is not installed is skipped; the halves that
need a GPU carry its mark.
"""

from __future__ import annotations

import io
import os
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.io

import sparsegpu as sg
from operator_cases import make
from sparsegpu._arrays import as_array, bfloat16, dtype_of, float8_e4m3fn
from sparsegpu.testing import random_24, random_values

pytestmark = pytest.mark.filterwarnings(
    "ignore:Sparse BSR tensor support:UserWarning",
    "ignore:Sparse invariant checks are implicitly disabled:UserWarning",  # torch 2.11: always
)

DTYPES = ["float16", "bfloat16", "float32", "float64", "int8", "complex64"]


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def jax():
    # Else JAX takes most of a GPU's memory at its first use, away from every other test.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    return pytest.importorskip("jax")


def address(array) -> int:
    host = isinstance(array, np.ndarray)
    return array.__array_interface__["data"][0] if host else array.data.ptr


def tensor_of(torch, engine, array):
    """Return a NumPy array as a tensor of the engine's device."""
    bits = array.view(np.int16) if array.dtype == bfloat16 else array
    tensor = torch.from_numpy(bits.copy())
    tensor = tensor.view(torch.bfloat16) if array.dtype == bfloat16 else tensor
    return tensor.to("cuda" if engine.on_gpu else "cpu")


def numpy_of(torch, tensor):
    tensor = tensor.cpu()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(bfloat16)
    return tensor.numpy()


# -- torch: dense operands ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*DTYPES, "int32", "bool"])
def test_tensors_share_their_memory(torch, engine, rng, dtype):
    host = rng.integers(0, 3, (6, 5)).astype(dtype_of(dtype))
    tensor = tensor_of(torch, engine, host)
    for seen, expected in ((tensor, host), (tensor.T, host.T), (tensor[1:, ::2], host[1:, ::2])):
        array = as_array(seen, "f", "x")
        assert isinstance(array, engine.xp.ndarray) and array.dtype == host.dtype
        assert address(array) == seen.data_ptr()
        np.testing.assert_array_equal(engine.host(array), expected)


def test_float8_tensors(torch, engine):
    tensor = torch.tensor([1.0, -2.5, 0.0]).to(torch.float8_e4m3fn)
    tensor = tensor.to("cuda" if engine.on_gpu else "cpu")
    array = as_array(tensor, "f", "x")
    assert array.dtype == (np.uint8 if engine.on_gpu else float8_e4m3fn)
    values = engine.host(array).view(float8_e4m3fn).astype("float32")
    assert values.tolist() == [1.0, -2.5, 0.0] and address(array) == tensor.data_ptr()


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_of_tensors(torch, engine, rng, dtype):
    a, dense = make(engine, rng, dtype=dtype)
    x = rng.integers(-3, 4, (20, 7)).astype(dense.dtype)
    tensor = tensor_of(torch, engine, x)
    expected = a @ engine.array(x)
    got = a @ tensor
    assert isinstance(got, engine.xp.ndarray)
    np.testing.assert_array_equal(engine.host(got), engine.host(expected))
    left = tensor_of(torch, engine, np.ascontiguousarray(x[:12].T))
    np.testing.assert_array_equal(
        engine.host(left @ a), engine.host(engine.array(np.ascontiguousarray(x[:12].T)) @ a)
    )
    for result, wanted in ((a + tensor_of(torch, engine, dense), dense + dense),):
        np.testing.assert_array_equal(engine.host(result), wanted)


def test_out_is_what_was_given(torch, engine, rng):
    """Of every function that takes ``out``, a tensor too; its memory is written."""
    a, dense = make(engine, rng, dtype="float32")
    x = rng.integers(-3, 4, (20, 7)).astype("float32")
    y = rng.integers(-3, 4, (7, 12)).astype("float32")
    given, left = tensor_of(torch, engine, x), tensor_of(torch, engine, y)
    half = random_24(rng, (32, 32), "float32", small_integers=True)
    w = sg.to_semi_structured(engine.array(half))
    rows = tensor_of(torch, engine, half[:5].copy())
    q = tensor_of(torch, engine, random_values(rng, (2, 16, 4), "float32"))
    mask = sg.causal(16, 8, xp=engine.xp)
    attended = engine.host(sg.scaled_dot_product_attention(q, q, q, mask))
    lists = sg.bsr_scatter_mm_indices_data(a, engine.array(x))
    device = "cuda" if engine.on_gpu else "cpu"

    def empty(*shape):
        return torch.full(shape, 7.0, device=device)

    cases = {
        "bsr_addmm": (lambda out: sg.bsr_addmm(None, a, given, out=out), dense @ x),
        "bsr_matmul": (lambda out: sg.bsr_matmul(a, given, out=out), dense @ x),
        "dense_bsr_matmul": (lambda out: sg.dense_bsr_matmul(left, a, out=out), y @ dense),
        "bsr_linear": (lambda out: sg.bsr_linear(given.T, a, out=out), x.T @ dense.T),
        "semi_structured_matmul": (
            lambda out: sg.semi_structured_matmul(w, rows.T, out=out), half @ half[:5].T
        ),
        "semi_structured_linear": (
            lambda out: sg.semi_structured_linear(rows, w, out=out), half[:5] @ half.T
        ),
        "attention": (
            lambda out: sg.scaled_dot_product_attention(q, q, q, mask, out=out), attended
        ),
        "bsr_scatter_mm": (lambda out: sg.bsr_scatter_mm(a, given, out=out), dense @ x),
        "bsr_scatter_mm of lists": (
            lambda out: sg.bsr_scatter_mm(a, given, lists, out=out), dense @ x
        ),
        "toarray": (lambda out: a.toarray(out=out), dense),
        "sum": (lambda out: a.sum(axis=0, out=out), dense.sum(axis=0)),
        "max": (lambda out: a.max(axis=1, out=out), dense.max(axis=1)),
    }  # fmt: skip
    for name, (call, expected) in cases.items():
        for _ in range(2):  # the second call of a shape is replayed on a GPU
            out = empty(*expected.shape)
            assert call(out) is out, name
            np.testing.assert_array_equal(numpy_of(torch, out), expected, err_msg=name)
    strided = empty(7, 12).T
    assert sg.bsr_matmul(a, given, out=strided) is strided
    np.testing.assert_array_equal(numpy_of(torch, strided), dense @ x)
    accumulators = empty(12, 7).zero_()
    assert sg.scatter_mm(a.data, given, lists, accumulators=accumulators) is accumulators
    np.testing.assert_array_equal(numpy_of(torch, accumulators), dense @ x)


def test_out_of_bfloat16(torch, engine, rng):
    a, _ = make(engine, rng, dtype="bfloat16")
    x = rng.integers(-3, 4, (20, 7)).astype(bfloat16)
    out = torch.zeros(12, 7, dtype=torch.bfloat16, device="cuda" if engine.on_gpu else "cpu")
    assert sg.bsr_matmul(a, tensor_of(torch, engine, x), out=out) is out
    np.testing.assert_array_equal(numpy_of(torch, out), engine.host(a @ engine.array(x)))


@pytest.mark.parametrize("argument", ["dense", "out"])
def test_tensors_that_are_refused(torch, engine, argument):
    a = sg.bsr_array(engine.array(np.eye(4, dtype="complex64")), blocksize=(2, 2))
    ones = torch.ones(4, 4, dtype=torch.complex64, device="cuda" if engine.on_gpu else "cpu")
    x = engine.array(np.ones((4, 4), "complex64"))

    def multiply(tensor):
        given = {"dense": x, argument: tensor}
        return sg.bsr_matmul(a, **given)

    said = rf"^bsr_matmul: argument '{argument}': expected .*"
    with pytest.raises(TypeError, match=said + r"without gradient \(x\.detach\(\).* requires it"):
        multiply(torch.nn.Parameter(ones))
    with pytest.raises(TypeError, match=said + r"resolve_conj\(\)"):
        multiply((ones * 1j).conj())
    with pytest.raises(TypeError, match=said + r"lazily conjugated or negated"):
        multiply((ones * 1j).conj().imag)
    with pytest.raises(TypeError, match=said + r"dense tensor .*layout torch\.sparse_coo"):
        multiply(ones.to_sparse())
    with pytest.raises(TypeError, match=said + "a tensor on the CPU or a CUDA device"):
        multiply(ones.to("meta"))


def test_host_tensors_beside_device_arrays(torch, engine):
    if not engine.on_gpu:
        pytest.skip("needs a GPU")
    a = sg.bsr_array(engine.array(np.eye(4)), blocksize=(2, 2))
    with pytest.raises(TypeError, match=r"argument 'other': .*no silent copy across the bus"):
        a @ torch.ones(4, dtype=torch.float64)


# -- torch: sparse BSR ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*DTYPES, "bool"])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_sparse_bsr(torch, engine, rng, dtype, batch):
    a, dense = make(engine, rng, dtype=dtype, batch=batch)
    tensor = a.to_torch()
    assert str(tensor.layout) == "torch.sparse_bsr" and tuple(tensor.shape) == a.shape
    assert tensor.is_cuda == engine.on_gpu
    values = numpy_of(torch, tensor.values())
    np.testing.assert_array_equal(values, engine.host(a.sorted_indices().data))
    if a.has_canonical_format:
        assert tensor.values().data_ptr() == address(a.data)
    if dtype in {"float32", "float64"} and not batch:
        np.testing.assert_array_equal(numpy_of(torch, tensor.to_dense()), dense)
    back = sg.bsr_array(tensor)
    assert back.blocksize == (3, 4) and back.dtype == a.dtype
    assert address(back.data) == tensor.values().data_ptr()
    np.testing.assert_array_equal(engine.host(back.toarray()), dense)


def test_sparse_bsr_of_torch(torch, engine, rng):
    dense = rng.integers(-3, 4, (6, 8)).astype("float32")
    dense[:2, :2] = 0
    device = "cuda" if engine.on_gpu else "cpu"
    tensor = torch.from_numpy(dense).to(device).to_sparse_bsr((2, 2))
    a = sg.bsr_array(tensor)
    assert a.nnzb == 11
    np.testing.assert_array_equal(engine.host(a.toarray()), dense)
    other = sg.bsr_array(tensor, blocksize=(3, 4), dtype="float64")
    assert other.blocksize == (3, 4) and other.dtype == np.float64
    np.testing.assert_array_equal(engine.host(other.toarray()), dense)
    copied = sg.bsr_array(tensor, copy=True)
    assert address(copied.data) != tensor.values().data_ptr()
    with pytest.raises(TypeError, match=r"^bsr_array: argument 'arg': .*without gradient"):
        sg.bsr_array(tensor.requires_grad_())
    with pytest.raises(TypeError, match=r"^bsr_array: argument 'arg': .*torch\.sparse_csr"):
        sg.bsr_array(torch.from_numpy(dense).to_sparse_csr(), blocksize=(2, 2))


def test_repeated_blocks_for_torch(torch, engine, rng):
    a, dense = make(engine, rng, dtype="float64", duplicates=True)
    tensor = a.to_torch()
    columns, starts = (
        engine.host(as_array(x, "f", "x")) for x in (tensor.col_indices(), tensor.crow_indices())
    )
    for first, stop in pairwise(starts):
        assert (np.diff(columns[first:stop]) > 0).all()
    np.testing.assert_array_equal(numpy_of(torch, tensor.to_dense()), dense)


# -- JAX ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8", "complex64"])
def test_operands_of_jax(jax, engine, rng, dtype):
    if engine.on_gpu and jax.default_backend() != "gpu":
        pytest.skip("JAX has no GPU here")
    a, dense = make(engine, rng, dtype=dtype)
    x = rng.integers(-3, 4, (20, 7)).astype(dense.dtype)
    right, left = engine.array(x), engine.array(x[:12].T.copy())
    # Where there are several GPUs, JAX makes others current: when it starts, and when it copies.
    device = jax.devices("gpu")[a.data.device.id] if engine.on_gpu else jax.devices("cpu")[0]
    got = a @ jax.device_put(x, device)
    assert isinstance(got, engine.xp.ndarray)
    np.testing.assert_array_equal(engine.host(got), engine.host(a @ right))
    np.testing.assert_array_equal(
        engine.host(sg.dense_bsr_matmul(jax.device_put(x[:12].T, device), a)),
        engine.host(sg.dense_bsr_matmul(left, a)),
    )


def test_jax_s_arrays_are_not_written_to(jax):
    a = sg.bsr_array(np.eye(4, dtype="f4"), blocksize=(2, 2))
    x, out = np.ones((4, 3), "f4"), jax.numpy.zeros((4, 3), "f4")
    q, mask = np.ones((1, 4, 2), "f4"), sg.causal(4, 2)
    for call in (
        lambda: sg.bsr_matmul(a, x, out=out),
        lambda: a.toarray(out=jax.numpy.zeros((4, 4), "f4")),
        lambda: sg.scaled_dot_product_attention(q, q, q, mask, out=jax.numpy.zeros((1, 4, 2))),
        lambda: a.sum(axis=0, out=jax.numpy.zeros(4, "f4")),
    ):
        with pytest.raises(TypeError, match=r"argument 'out': .*which JAX's are not"):
            call()
    assert not np.asarray(out).any()


# -- numba, cupyx, Matrix Market ------------------------------------------------------------------


@pytest.mark.gpu
def test_arrays_of_numba(cuda_engine, rng):
    cuda = pytest.importorskip("numba.cuda")
    if not cuda.is_available():
        pytest.skip("numba finds no GPU")
    a, dense = make(cuda_engine, rng, dtype="float32")
    x = rng.integers(-3, 4, (20, 7)).astype("float32")
    given, out = cuda.to_device(x), cuda.device_array((12, 7), "float32")
    np.testing.assert_array_equal(cuda_engine.host(a @ given), dense @ x)
    assert sg.bsr_matmul(a, given, out=out) is out
    np.testing.assert_array_equal(out.copy_to_host(), dense @ x)


@pytest.mark.gpu
@pytest.mark.parametrize("format", ["csr", "csc", "coo"])
def test_cupyx_both_ways(cuda_engine, rng, format):
    a, dense = make(cuda_engine, rng, dtype="float64", duplicates=True)
    theirs = a.asformat(format)
    assert type(theirs).__module__.startswith("cupyx.")
    np.testing.assert_array_equal(cuda_engine.host(theirs.toarray()), dense)
    back = sg.bsr_array(theirs, blocksize=(3, 4))
    np.testing.assert_array_equal(cuda_engine.host(back.toarray()), dense)
    np.testing.assert_array_equal(cuda_engine.host((a + theirs).toarray()), 2 * dense)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_matrix_market(rng, dtype):
    a = sg.random_bsr((12, 20), (3, 4), 0.5, dtype=dtype, rng=rng)
    file = io.BytesIO()
    scipy.io.mmwrite(file, a.tocoo(eliminate_zeros=True), precision=17)
    file.seek(0)
    back = sg.bsr_array(scipy.io.mmread(file, spmatrix=False), blocksize=(3, 4))
    assert back.same_pattern(a)
    np.testing.assert_array_equal(back.toarray(), a.toarray())


# -- the page of the docs -------------------------------------------------------------------------


def test_examples_of_the_page(torch, jax):
    """The `python` blocks of docs/partners.md, one after another; its `pycon`: test_readme.py."""
    del torch, jax
    text = (Path(__file__).parents[1] / "docs" / "partners.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 3
    names = {}
    for block in blocks:
        exec(block, names)
