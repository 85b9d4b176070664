"""Launches in clusters of thread blocks, of kernels that do not say their dimensions themselves.

Source: CUDA driver API, ``cuLaunchKernelEx``, ``CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from .launch import Kernel, Launch


class ClusterLaunch(Launch):
    """A `Launch` in clusters of up to three dimensions, which divide the grid's."""

    __slots__ = ()

    def __init__(
        self,
        kernel: Kernel,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: tuple,
        shared_memory: int,
        cluster: tuple[int, ...],
    ):
        super().__init__(kernel, grid, block, args, shared_memory)
        self._enqueue = partial(_launcher((*cluster, 1, 1)[:3]), *self._enqueue.args)


def _launcher(cluster: tuple[int, ...]) -> Callable[..., None]:
    """Return what does the job of CuPy's ``driver.launchKernel``, in clusters."""

    def launch(function: int, *given: Any) -> None:
        from cuda.bindings import driver
        from cupy.cuda import driver as cupys

        *sizes, shared_memory, stream, parameters, _ = given
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        dimension = attribute.value.clusterDim
        dimension.x, dimension.y, dimension.z = cluster
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = sizes[:3]
        config.blockDimX, config.blockDimY, config.blockDimZ = sizes[3:]
        config.sharedMemBytes, config.hStream = shared_memory, driver.CUstream(stream)
        config.attrs, config.numAttrs = [attribute], 1
        (status,) = driver.cuLaunchKernelEx(config, driver.CUfunction(function), parameters, 0)
        if int(status) != 0:
            raise cupys.CUDADriverError(int(status))

    return launch
