"""cuSPARSE's generic products of CSR and of BSR matrices, each with its fastest algorithm; SpGEMM.

CuPy binds the products but neither the BSR matrix nor the preprocessing: these two are called by
ctypes in the library that CuPy has loaded. Every algorithm is tried with a row-major and a
column-major dense operand. Preprocessing is not timed.

Source: docs.nvidia.com/cuda/cusparse, "cuSPARSE Generic APIs".
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from ..tuning.timing import device_ms
from .peer import NotAvailableError, Prepared
from .spgemm import SpgemmWorkload
from .workload import Product

_ROW_MAJOR, _COLUMN_MAJOR = 2, 1
_DEFAULT = 0
#: cusparseSpMVAlg_t and cusparseSpMMAlg_t of CSR matrices.
_CSR_VECTOR, _CSR_VECTORS = (2, 3), (4, 6, 12)
_DATA_TYPES = {"float32": 0, "float64": 1, "float16": 2, "int8": 3, "bfloat16": 14}
_INDEX_TYPES = {4: 2, 8: 3}  # by itemsize


def csr(product: Product, _: float) -> Prepared:
    """Return cuSPARSE's CSR product."""
    import cupyx.scipy.sparse
    from cupy_backends.cuda.libs import cusparse

    matrix = cupyx.scipy.sparse.csr_matrix(product.left.tocsr())
    index = _INDEX_TYPES[matrix.indices.dtype.itemsize]
    arrays = (matrix.indptr, matrix.indices, matrix.data)
    types = (index, index, cusparse.CUSPARSE_INDEX_BASE_ZERO, _DATA_TYPES[matrix.dtype.name])
    pointers = (a.data.ptr for a in arrays)
    descriptor = cusparse.createCsr(*matrix.shape, matrix.nnz, *pointers, *types)
    algorithms = _CSR_VECTOR if _one_vector(product) else _CSR_VECTORS
    return _best(product, descriptor, algorithms, keep=arrays)


def bsr(product: Product, _: float) -> Prepared:
    """Return cuSPARSE's BSR product."""
    matrix = product.left
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
    return _best(product, descriptor.value, (_DEFAULT,), keep=arrays)


def spgemm(workload: SpgemmWorkload, agreement: float) -> Prepared:
    """Return cuSPARSE's product of two CSR matrices, whole, as cupyx calls it.

    Compared with ours on a vector.
    """
    import cupy
    import cupyx.scipy.sparse
    from cupy_backends.cuda.libs import cusparse

    if workload.left.dtype.name not in {"float32", "float64"}:
        raise NotAvailableError("float32 and float64 only")
    left, right = (
        cupyx.scipy.sparse.csr_matrix(m.tocsr()) for m in (workload.left, workload.right)
    )
    try:
        result = left @ right
    except (cusparse.CuSparseError, cupy.cuda.memory.OutOfMemoryError) as error:
        raise NotAvailableError(f"no product ({error})") from error
    x = cupy.random.default_rng(0).standard_normal(right.shape[1]).astype(left.dtype)
    theirs, ours = result @ x, workload.call() @ x
    difference, largest = float(abs(theirs - ours).max()), float(abs(ours).max())
    if not difference <= agreement * largest:
        raise NotAvailableError(f"differs by {difference:.3g}")
    return Prepared(lambda: left @ right, result.data, keep=(left, right))


@functools.cache
def _library() -> Any:
    """Return the cuSPARSE that CuPy has loaded as a ctypes library."""
    import cupy_backends.cuda.libs.cusparse  # noqa: F401

    for name in ("libcusparse.so.12", "libcusparse.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise NotAvailableError("missing")


def _one_vector(product: Product) -> bool:
    return product.dense.shape[-1] == 1


def _best(product: Product, descriptor: int, algorithms: tuple[int, ...], keep: Any) -> Prepared:
    """Return the fastest of some algorithms, with the dense operand in either order."""
    from cupy_backends.cuda.libs import cusparse

    orders = (_ROW_MAJOR,) if _one_vector(product) else (_ROW_MAJOR, _COLUMN_MAJOR)
    found: list[tuple[float, Prepared]] = []
    refused = ""
    for algorithm in algorithms:
        for order in orders:
            try:
                prepared = _product(product, descriptor, algorithm, order, keep)
                found.append((device_ms(prepared.call, repeats=5), prepared))
            except cusparse.CuSparseError as error:
                refused = str(error)
    if not found:
        raise NotAvailableError(f"no kernel ({refused})")
    return min(found, key=lambda pair: pair[0])[1]


def _product(product: Product, descriptor: int, algorithm: int, order: int, keep: Any) -> Prepared:
    """Return a generic product, preprocessed."""
    import cupy
    from cupy.cuda import device
    from cupy_backends.cuda.libs import cusparse

    layout = "C" if order == _ROW_MAJOR else "F"
    dense = cupy.array(product.dense, order=layout)
    result = cupy.empty(product.out.shape, product.out.dtype, order=layout)
    dtype = _DATA_TYPES[dense.dtype.name]
    # 16-bit floats accumulate in float32.
    compute = np.dtype(np.float64 if dense.dtype == np.float64 else np.float32)
    one, zero = np.ones((), compute), np.zeros((), compute)
    plain = cusparse.CUSPARSE_OPERATION_NON_TRANSPOSE
    if _one_vector(product):
        name, matmul, size = "SpMV", cusparse.spMV, cusparse.spMV_bufferSize
        operations = [plain]
        x, y = (cusparse.createDnVec(a.size, a.data.ptr, dtype) for a in (dense, result))
    else:
        name, matmul, size = "SpMM", cusparse.spMM, cusparse.spMM_bufferSize
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
    handle, *addresses, buffer = map(ctypes.c_void_p, (head[0], *pointers, workspace.data.ptr))
    preprocess(handle, *operations, *addresses, *tail, buffer)
    call = functools.partial(matmul, *head, *pointers, *tail, workspace.data.ptr)
    note = f"algorithm {algorithm}, {'row' if order == _ROW_MAJOR else 'column'}-major"
    return Prepared(call, result, note, keep=(keep, dense, one, zero, workspace))
