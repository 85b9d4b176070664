"""cuSPARSE's generic products, of CSR and of BSR matrices, each at its best.

CuPy binds the products but neither the BSR matrix nor the preprocessing step: these two are called
in the library that CuPy has loaded. Every algorithm and both orders of the dense operand are tried,
the preprocessing is not timed (docs.nvidia.com/cuda/cusparse, "cuSPARSE Generic APIs").
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .contest import Contestant, NotAvailableError
from .problem import Problem
from .timing import device_ms

_ROW_MAJOR, _COLUMN_MAJOR = 2, 1
_DEFAULT = 0
#: cusparseSpMVAlg_t and cusparseSpMMAlg_t of CSR matrices.
_CSR_VECTOR, _CSR_VECTORS = (2, 3), (4, 6, 12)
_DATA_TYPES = {"float32": 0, "float64": 1, "float16": 2, "int8": 3, "bfloat16": 14}
_INDEX_TYPES = {4: 2, 8: 3}  # by itemsize


def csr(problem: Problem, _: float) -> Contestant:
    """Return cuSPARSE's CSR product."""
    import cupyx.scipy.sparse
    from cupy_backends.cuda.libs import cusparse

    matrix = cupyx.scipy.sparse.csr_matrix(problem.left.tocsr())
    index = _INDEX_TYPES[matrix.indices.dtype.itemsize]
    arrays = (matrix.indptr, matrix.indices, matrix.data)
    descriptor = cusparse.createCsr(
        *matrix.shape,
        matrix.nnz,
        *(a.data.ptr for a in arrays),
        index,
        index,
        cusparse.CUSPARSE_INDEX_BASE_ZERO,
        _DATA_TYPES[matrix.dtype.name],
    )
    algorithms = _CSR_VECTOR if _one_vector(problem) else _CSR_VECTORS
    return _best(problem, descriptor, algorithms, keep=arrays)


def bsr(problem: Problem, _: float) -> Contestant:
    """Return cuSPARSE's BSR product."""
    matrix = problem.left
    index = _INDEX_TYPES[matrix.indices.dtype.itemsize]
    arrays = (matrix.indptr, matrix.indices, matrix.data)
    descriptor = ctypes.c_void_p()
    status = _library().cusparseCreateBsr(
        ctypes.byref(descriptor),
        *(ctypes.c_int64(n) for n in matrix.pattern.block_shape),
        ctypes.c_int64(matrix.nnzb),
        *(ctypes.c_int64(n) for n in matrix.blocksize),
        *(ctypes.c_void_p(a.data.ptr) for a in arrays),
        *(index, index, 0, _DATA_TYPES[matrix.dtype.name], _ROW_MAJOR),
    )
    if status:
        raise NotAvailableError(f"cusparseCreateBsr: status {status}")
    assert descriptor.value is not None
    return _best(problem, descriptor.value, (_DEFAULT,), keep=arrays)


@functools.cache
def _library() -> Any:
    """Return cuSPARSE as ctypes sees it: the one that CuPy loads."""
    import cupy_backends.cuda.libs.cusparse  # noqa: F401

    for name in ("libcusparse.so.12", "libcusparse.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise NotAvailableError("missing")


def _one_vector(problem: Problem) -> bool:
    return problem.dense.shape[-1] == 1


def _best(problem: Problem, descriptor: int, algorithms: tuple[int, ...], keep: Any) -> Contestant:
    """Return the fastest of some algorithms, in either order of the dense operand."""
    from cupy_backends.cuda.libs import cusparse

    orders = (_ROW_MAJOR,) if _one_vector(problem) else (_ROW_MAJOR, _COLUMN_MAJOR)
    found: list[tuple[float, Contestant]] = []
    refused = ""
    for algorithm in algorithms:
        for order in orders:
            try:
                contestant = _product(problem, descriptor, algorithm, order, keep)
                found.append((device_ms(contestant.call, repeats=5), contestant))
            except cusparse.CuSparseError as error:
                refused = str(error)
    if not found:
        raise NotAvailableError(f"no kernel ({refused})")
    return min(found, key=lambda pair: pair[0])[1]


def _product(
    problem: Problem, descriptor: int, algorithm: int, order: int, keep: Any
) -> Contestant:
    """Return a generic product, preprocessed."""
    import cupy
    from cupy.cuda import device
    from cupy_backends.cuda.libs import cusparse

    layout = "C" if order == _ROW_MAJOR else "F"
    dense = cupy.array(problem.dense, order=layout)
    result = cupy.empty(problem.out.shape, problem.out.dtype, order=layout)
    dtype = _DATA_TYPES[dense.dtype.name]
    # 16-bit floats accumulate in float32.
    compute = np.dtype(np.float64 if dense.dtype == np.float64 else np.float32)
    one, zero = np.ones((), compute), np.zeros((), compute)
    plain = cusparse.CUSPARSE_OPERATION_NON_TRANSPOSE
    if _one_vector(problem):
        name, product, size = "SpMV", cusparse.spMV, cusparse.spMV_bufferSize
        operations = [plain]
        x, y = (cusparse.createDnVec(a.size, a.data.ptr, dtype) for a in (dense, result))
    else:
        name, product, size = "SpMM", cusparse.spMM, cusparse.spMM_bufferSize
        operations = [plain, plain]
        x, y = (
            cusparse.createDnMat(*a.shape, max(a.strides) // a.itemsize, a.data.ptr, dtype, order)
            for a in (dense, result)
        )
    head = [device.get_cusparse_handle(), *operations]
    pointers = [one.ctypes.data, descriptor, x, zero.ctypes.data, y]
    tail = [_DATA_TYPES[compute.name], algorithm]
    workspace = cupy.empty(max(size(*head, *pointers, *tail), 1), np.uint8)
    preprocess = getattr(_library(), f"cusparse{name}_preprocess")
    preprocess(
        ctypes.c_void_p(head[0]),
        *operations,
        *(ctypes.c_void_p(p) for p in pointers),
        *tail,
        ctypes.c_void_p(workspace.data.ptr),
    )
    call: Callable[[], Any] = functools.partial(
        product, *head, *pointers, *tail, workspace.data.ptr
    )
    note = f"algorithm {algorithm}, {'row' if order == _ROW_MAJOR else 'column'}-major"
    return Contestant(call, result, note, keep=(keep, dense, one, zero, workspace))
