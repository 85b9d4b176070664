"""`Config(cluster=...)`: what is refused, and what the driver is asked for."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import numpy as np
import pytest

from sparsegpu import kernels
from sparsegpu.kernels import build, winners

RANKS = """
extern "C" __global__ BOUNDS void ranks(unsigned* out) {
  unsigned rank = 0, size = 1;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
#endif
  out[blockIdx.y * gridDim.x + blockIdx.x] = 100 * size + rank;
}"""
needs_nvrtc = pytest.mark.skipif(
    not build.can_compile(), reason="cuda-bindings (NVRTC) is not installed"
)


def nothing(out):
    pass


def ranks(cluster, grid=8, bounds="", arch="90"):
    config = kernels.Config({"BOUNDS": bounds}, block=32, cluster=cluster)
    options = [f"-arch=sm_{arch}"] if arch else []
    return kernels.wrap(RANKS, "ranks", grid=grid, configs=[config], options=options, ref=nothing)


def test_a_part_of_what_a_configuration_is():
    one, other = kernels.Config(cluster=2), kernels.Config()
    assert one.cluster == (2,) == kernels.Config(cluster=(2,)).cluster and one != other
    assert pickle.loads(pickle.dumps(one)) == one != kernels.Config(cluster=(2, 1))


def test_winners_keep_it(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARSEGPU_CACHE_DIR", str(tmp_path))
    one = kernels.Config({"A": 1}, 64, 128, ("-G",), (2, 2))
    winners.keep("a kernel's", one)
    winners._known.clear()
    assert winners.find("a kernel's", [kernels.Config(), one]) == one
    winners.forget()


@needs_nvrtc
@pytest.mark.parametrize(("made", "words"), [
    (dict(cluster=2, arch="80"), r"'cluster': expected None below compute capability 9.0.*80"),
    (dict(cluster=(2, 2), arch="89"), r"'cluster': expected None below"),
    (dict(cluster=3), r"'grid': expected multiples of the cluster's \(3,\), got \(8,\)"),
    (dict(cluster=(2, 2), grid=(8, 3)), r"'grid': expected multiples of the cluster's \(2, 2\)"),
    (dict(cluster=(1, 2)), r"'grid': expected multiples of the cluster's \(1, 2\), got \(8,\)"),
    (dict(cluster=4, bounds="__cluster_dims__(2,1,1)"), r"'cluster': expected \(2, 1, 1\), which"),
    (dict(cluster=4, bounds="__launch_bounds__(128,1,2)"), r"'cluster': expected at most 2 blocks"),
    (dict(cluster=None, bounds="__cluster_dims__(3,1,1)"), r"'grid': expected multiples .*\(3, "),
])  # fmt: skip
def test_what_is_refused(made, words):
    with pytest.raises(ValueError, match=f"^ranks: argument {words}"):
        ranks(**made).inplace(np.zeros(24, np.uint32))


@needs_nvrtc
@pytest.mark.parametrize(("made", "asked"), [
    (dict(cluster=2), (2,)), (dict(cluster=(2, 2), grid=(4, 2), arch="90a"), (2, 2)),
    (dict(cluster=2, arch="120"), (2,)), (dict(cluster=2, arch=None), (2,)),
    (dict(cluster=2, bounds="__launch_bounds__(128,1,2)"), (2,)),
    (dict(cluster=(2, 1), bounds="__cluster_dims__(2)"), None),  # the kernel's own
    (dict(cluster=None), None),
])  # fmt: skip
def test_what_is_asked_for(made, asked):
    kernel = ranks(**made)
    (config,) = kernel.configs
    assert kernel._launch({"out": None}, config, None, None).cluster == asked
    kernel.inplace(np.zeros(24, np.uint32))


def test_the_driver_gets_the_dimensions(monkeypatch):
    pytest.importorskip("cupy")
    driver = pytest.importorskip("cuda.bindings.driver")
    from cupy.cuda import driver as cupys

    from sparsegpu.engines.cuda.runtime.cluster import ClusterLaunch
    from sparsegpu.engines.cuda.runtime.launch import LaunchError

    told = []
    status = [0]

    def launch(config, function, parameters, extra):
        dimension = config.attrs[0].value.clusterDim
        told.append((
            (config.gridDimX, config.gridDimY, config.gridDimZ),
            (config.blockDimX, config.blockDimY, config.blockDimZ),
            config.sharedMemBytes, int(config.hStream), config.numAttrs,
            (dimension.x, dimension.y, dimension.z), int(function), parameters, extra,
        ))  # fmt: skip
        return (status[0],)

    monkeypatch.setattr(driver, "cuLaunchKernelEx", launch)
    kernel = SimpleNamespace(source="k", prepared=lambda shared_memory: 1234)
    work = ClusterLaunch(kernel, (8, 4), (32,), (np.int32(3),), 256, (2, 2))
    work.on(77)
    (seen,) = told
    assert seen[:6] == ((8, 4, 1), (32, 1, 1), 256, 77, 1, (2, 2, 1))
    assert seen[6] == 1234 and seen[7] > 0 and seen[8] == 0
    ClusterLaunch(kernel, (0, 4), (32,), (), 0, (2,)).on(77)
    assert len(told) == 1
    status[0] = 999

    class Refused(RuntimeError):  # CuPy's own asks the driver for its name
        def __init__(self, status):
            self.status = status

    monkeypatch.setattr(cupys, "CUDADriverError", Refused)
    with pytest.raises(Refused):
        work.on(77)
    for refused in (701, 912):
        status[0] = refused
        with pytest.raises(LaunchError, match=r"'k' does not launch with grid \(8, 4, 1\), block"):
            work.on(77)


@pytest.mark.gpu
def test_on_a_device(cuda_engine):
    cp = cuda_engine.xp
    if int(cp.cuda.Device().compute_capability) < 90:
        with pytest.raises(ValueError, match="below compute capability"):
            ranks(2, arch=None)(cp.zeros(8, np.uint32))
        return
    for made, expected in (
        (dict(cluster=None), [100] * 8),
        (dict(cluster=2), [200, 201] * 4),
        (dict(cluster=8), [800 + rank for rank in range(8)]),
        (dict(cluster=(2, 2), grid=(4, 2)), [400, 401, 400, 401, 402, 403, 402, 403]),
        (dict(cluster=2, bounds="__cluster_dims__(2)"), [200, 201] * 4),
    ):
        kernel, out = ranks(arch=None, **made), cp.zeros(8, np.uint32)
        for _ in range(2):
            out[:] = 0
            kernel.inplace(out)
            assert out.get().tolist() == expected
