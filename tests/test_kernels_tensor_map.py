"""Tensor maps as arguments of wrapped kernels."""

from __future__ import annotations

import numpy as np
import pytest

from sparsegpu import kernels
from sparsegpu.kernels import build

#: Copies tiles of 8 x 32 floats through shared memory and doubles them.
TWICE = r"""
struct alignas(64) CUtensorMap { unsigned long long words[16]; };
extern "C" __global__ void twice(const __grid_constant__ CUtensorMap to,
                                 const __grid_constant__ CUtensorMap from) {
  __shared__ alignas(128) float tile[8 * 32];
  __shared__ alignas(8) unsigned long long full;
  const int x = blockIdx.x * 32, y = blockIdx.y * 8;
  const unsigned bar = unsigned(__cvta_generic_to_shared(&full));
  const unsigned data = unsigned(__cvta_generic_to_shared(tile));
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(bar) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;"
                 :: "r"(bar) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];"
                 :: "r"(data), "l"(&from), "r"(x), "r"(y), "r"(bar) : "memory");
  }
  __syncthreads();
  asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; "
               "@!p bra again; }" :: "r"(bar) : "memory");
  for (int i = threadIdx.x; i < 8 * 32; i += blockDim.x) tile[i] *= 2;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                 :: "l"(&to), "r"(x), "r"(y), "r"(data) : "memory");
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
  }
}"""
needs_nvrtc = pytest.mark.skipif(
    not build.can_compile(), reason="cuda-bindings (NVRTC) is not installed"
)


def doubled(to, source):
    to[...] = 2 * source


def twice(**changed):
    declared = dict(
        grid=lambda m: (m["to"].shape[1] // 32, m["to"].shape[0] // 8),
        block=64, ref=doubled, options=["-arch=sm_90"], writes=["to"], reads=["from"],
    )  # fmt: skip
    return kernels.wrap(TWICE, "twice", **(declared | changed))


def tiles(array):
    return kernels.TensorMap(array, (8, 32))


@pytest.fixture(params=["found", "declared"])
def kernel(request, monkeypatch):
    if request.param == "declared":
        monkeypatch.setattr(build, "can_compile", lambda: False)
        return twice()
    if not build.can_compile():
        pytest.skip("cuda-bindings (NVRTC) is not installed")
    return twice(writes=None, reads=None)


def test_forms(kernel):
    y, x = np.zeros((16, 64), np.float32), np.arange(1024, dtype=np.float32).reshape(16, 64)
    assert kernel.access.writes == {"to"} and kernel.access.reads == {"from"}
    new = kernel(tiles(y), tiles(x))
    assert type(new) is np.ndarray and (y == 0).all()
    np.testing.assert_array_equal(new, 2 * x)
    for _ in range(2):
        kernel.inplace(tiles(y), tiles(x))
    np.testing.assert_array_equal(y, 2 * x)
    other = np.ones((16, 64), np.float32)
    kernel.inplace(tiles(other), tiles(x))
    assert (other == 2 * x).all()
    assert kernel.spec(tiles(y), tiles(x)) == {"to": kernels.Spec(y.shape, y.dtype, y.strides)}
    with kernels.checked(ref=True):
        kernel.inplace(tiles(y), tiles(x))
    with pytest.raises(TypeError, match=r"argument 'from'"):
        kernel(tiles(y), x)
    with pytest.raises(TypeError, match=r"argument 'to'"):
        kernel(kernels.Out(like="from"), tiles(x))


def test_the_same_array_twice(kernel):
    x = np.arange(512, dtype=np.float32).reshape(8, 64)
    expected, same = 2 * x, tiles(x)
    np.testing.assert_array_equal(kernel(same, same), expected)
    kernel.inplace(same, same)
    np.testing.assert_array_equal(x, expected)


@needs_nvrtc
def test_what_takes_no_map():
    source = 'extern "C" __global__ void k(float* x, int n) { *x = n; }'
    plain = kernels.wrap(source, "k", grid=1, block=1, ref=doubled)
    with pytest.raises(TypeError, match="argument 'x': expected an array"):
        plain.inplace(tiles(np.zeros((8, 32), np.float32)), 3)
    source = "struct S { float x[8]; };" + source.replace("int n", "S n").replace("= n", "= n.x[0]")
    small = kernels.wrap(source, "k", grid=1, block=1, ref=doubled)
    with pytest.raises(TypeError, match=r"argument 'n': expected a struct of 32 bytes.*TensorMap"):
        small.inplace(np.zeros(1, np.float32), tiles(np.zeros((8, 32), np.float32)))


A = np.zeros((64, 64), np.float32)


@pytest.mark.parametrize(("array", "box", "more", "error", "words"), [
    ([1.0], 1, {}, TypeError, "argument 'array': expected an array"),
    (A.astype(complex), (8, 8), {}, TypeError, "one of the dtypes"),
    (A, (8, 32, 1), {}, ValueError, "the same number each"),
    (A, (257, 32), {}, ValueError, "1..256 elements"),
    (A, (0, 32), {}, ValueError, "1..256 elements"),
    (A, (8, 3), {}, ValueError, "multiple of 16 bytes"),
    (A, (8, 64), {"swizzle": 128}, ValueError, "at most the swizzle"),
    (A, (8, 32), {"swizzle": 3}, ValueError, "0, 32, 64 or 128"),
    (A.T, (8, 32), {}, ValueError, "contiguous innermost"),
    (A[:, 1:], (8, 32), {}, ValueError, "aligned to 16 bytes"),
    (np.zeros((8, 33), np.float32), (8, 32), {}, ValueError, "multiples of 16 bytes"),
    (A, (8, "x"), {}, TypeError, "argument 'box'"),
    (A, (8, 32), {"strides": (512, 4)}, ValueError, "at most 16380 bytes from the first"),
    (A, (8, 32), {"strides": (256,)}, ValueError, "the same number each"),
])  # fmt: skip
def test_bad_input(array, box, more, error, words):
    with pytest.raises(error, match="TensorMap: ") as raised:
        kernels.TensorMap(array, box, **more)
    assert words in str(raised.value)


def test_another_reading_of_the_memory():
    windows = kernels.TensorMap(A[:8], (4, 32), strides=(16, 4))  # that overlap
    assert windows.strides == (16, 4) and windows.of(A[8:16]).strides == (16, 4)
    assert windows.fact != tiles(A).fact


@pytest.mark.gpu
def test_on_a_device(cuda_engine):
    cp = cuda_engine.xp
    if int(cp.cuda.Device().compute_capability) < 90:
        pytest.skip("bulk copies need compute capability 9.0")
    kernel = twice(options=(), writes=None, reads=None)
    x = cp.arange(40 * 96, dtype=np.float32).reshape(40, 96)
    y = cp.zeros_like(x)
    new = kernel(tiles(y), tiles(x))
    assert (new == 2 * x).all() and (y == 0).all()
    for _ in range(3):  # the third is replayed
        y.fill(0)
        kernel.inplace(tiles(y), tiles(x))
        assert (y == 2 * x).all()
    with kernels.checked(ref=True):
        kernel.inplace(tiles(y), tiles(x))
    part = cp.zeros((40, 128), np.float32)
    kernel.inplace(tiles(part[:, 32:]), tiles(x))
    assert (part[:, :32] == 0).all() and (part[:, 32:] == 2 * x).all()
