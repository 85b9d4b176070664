"""A dense product by cuBLAS, called in a way that can be captured into a CUDA graph.

CuPy refuses cuBLAS while a stream is captured, and cuBLAS's default workspace would become memory
of the graph. So the library that CuPy has loaded is called directly, with CuPy's handle of the
thread and the caller's workspace. Afterwards the handle is again as CuPy expects it.

Source: cuBLAS documentation, ``cublasGemmEx``, ``cublasSetWorkspace``, "CUDA Graphs Support".
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

import numpy as np

from ...._arrays import bfloat16

#: Bytes of workspace that cuBLAS recommends for compute capability 9.0; others need less.
WORKSPACE = 32 << 20

_AS_IT_LIES = 0  # CUBLAS_OP_N
_COMPUTE_32F, _DEFAULT_ALGORITHM = 68, -1
# CUBLAS_DEFAULT_MATH, and CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
_DEFAULT_MATH, _SUMS_IN_FLOAT32 = 0, 16
_DATA_TYPES = {np.dtype(np.float16): 2, bfloat16: 14}
_ONE, _ZERO = ctypes.c_float(1), ctypes.c_float(0)


class Gemm:
    """``left @ right`` into ``out``: contiguous matrices of 16-bit floats, summed in float32.

    Parameters
    ----------
    left, right, out : cupy.ndarray (M, K), (K, N), (M, N)
        Only their addresses are kept.
    workspace : cupy.ndarray of uint8
        Kept alive.
    """

    __slots__ = ("_product", "_workspace")

    source = ""

    def __init__(self, left: Any, right: Any, out: Any, workspace: Any):
        (m, k), n, kind = left.shape, right.shape[-1], _DATA_TYPES[left.dtype]
        # cuBLAS counts along columns first: to it, all three are transposed.
        operands = (right.data.ptr, kind, n, left.data.ptr, kind, k)
        scales = ctypes.addressof(_ONE), ctypes.addressof(_ZERO)
        result = (out.data.ptr, kind, n, _COMPUTE_32F, _DEFAULT_ALGORITHM)
        self._product = (
            _AS_IT_LIES,
            _AS_IT_LIES,
            n,
            m,
            k,
            scales[0],
            *operands,
            scales[1],
            *result,
        )
        self._workspace = workspace

    def on(self, stream: int) -> None:
        """Multiply on the stream of an address."""
        from cupy.cuda import device

        handle = device.get_cublas_handle()
        _call("cublasSetStream_v2", handle, stream)
        _call("cublasSetWorkspace_v2", handle, self._workspace.data.ptr, self._workspace.nbytes)
        _call("cublasSetMathMode", handle, _SUMS_IN_FLOAT32)
        try:
            _call("cublasGemmEx", handle, *self._product)
        finally:
            _call("cublasSetMathMode", handle, _DEFAULT_MATH)
            _call("cublasSetStream_v2", handle, stream)  # resets the workspace to cuBLAS's own


def _call(name: str, *arguments: int) -> None:
    status = _functions()[name](*arguments)
    if status:
        raise RuntimeError(f"{name}: cuBLAS status {status}")


@cache
def _functions() -> dict[str, Any]:
    """Return the functions of the cuBLAS that CuPy has loaded."""
    from cupy.cuda import cublas, device

    # A loaded library is found by its name, whatever its folder.
    major = cublas.getVersion(device.get_cublas_handle()) // 10000
    windows = sys.platform == "win32"
    library = ctypes.CDLL(f"cublas64_{major}.dll" if windows else f"libcublas.so.{major}")
    pointer, number = ctypes.c_void_p, ctypes.c_int
    operand = (pointer, number, number)
    signatures: dict[str, tuple[Any, ...]] = {
        "cublasSetStream_v2": (pointer,),
        "cublasSetWorkspace_v2": (pointer, ctypes.c_size_t),
        "cublasSetMathMode": (number,),
        "cublasGemmEx": (
            *(number,) * 5,
            pointer,
            *operand,
            *operand,
            pointer,
            *operand,
            number,
            number,
        ),
    }
    for name, signature in signatures.items():
        getattr(library, name).argtypes = (pointer, *signature)
    return {name: getattr(library, name) for name in signatures}
