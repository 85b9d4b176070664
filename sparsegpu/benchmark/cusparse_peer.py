"""cuSPARSE's products of CSR and of BSR matrices, each with its fastest algorithm; SpGEMM; SDDMM.

CuPy binds neither the BSR matrix, the preprocessing nor sampled products (SDDMM): these are called
by ctypes in the library that CuPy has loaded. Every algorithm is tried with a row-major and a
column-major dense operand. Preprocessing is not timed.

Source: docs.nvidia.com/cuda/cusparse, "cuSPARSE Generic APIs".
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from ..tuning.timing import device_ms, whole_us
from .peer import SDDMM_CSR, NotAvailableError, Prepared, compare
from .sampled import SampledProduct
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

    matrix = cupyx.scipy.sparse.csr_matrix(product.left.tocsr())
    arrays = (matrix.indptr, matrix.indices, matrix.data)
    algorithms = _CSR_VECTOR if _one_vector(product) else _CSR_VECTORS
    return _best(product, _csr_descriptor(matrix.shape, *arrays), algorithms, keep=arrays)


def bsr(product: Product, _: float) -> Prepared:
    """Return cuSPARSE's BSR product."""
    matrix = product.left
    arrays = (matrix.indptr, matrix.indices, matrix.data)
    return _best(product, _bsr_descriptor(matrix.shape, *arrays), (_DEFAULT,), keep=arrays)


def spgemm(workload: SpgemmWorkload) -> Prepared:
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
    compare(result @ x, workload.call() @ x)
    return Prepared(lambda: left @ right, result.data, keep=(left, right))


def sddmm(peer: str, product: SampledProduct) -> Prepared:
    """Return cuSPARSE's product at the stored elements, or at the stored blocks."""
    import cupy

    _library()  # before what imports it
    from cupy_backends.cuda.libs import cusparse

    (ours,) = product.results()
    pattern, dtype = product.out, product.mat1.dtype
    if dtype.kind == "i":
        raise NotAvailableError("not offered")
    structure, describe = (pattern.indptr, pattern.indices), _bsr_descriptor
    if peer == SDDMM_CSR:
        elements = pattern.astype(_accumulator(dtype)).tocsr()
        structure, describe = (elements.indptr, elements.indices), _csr_descriptor
        ours = elements.data
    found: list[tuple[float, Prepared]] = []
    refused = ""
    for order in (_ROW_MAJOR, _COLUMN_MAJOR):
        values = cupy.zeros(ours.shape, dtype)
        try:
            # One each: preprocessing changes a descriptor.
            descriptor = describe(pattern.shape, *structure, values)
            prepared = _sampled(product, descriptor, order, values, keep=structure)
            prepared.call()
            compare(values, ours)
        except (NotAvailableError, cusparse.CuSparseError) as reason:
            refused = str(reason)
            continue
        found.append((min(whole_us(prepared.call) for _ in range(2)), prepared))
    if not found:
        raise NotAvailableError(refused)
    return min(found, key=lambda pair: pair[0])[1]


def _sampled(
    product: SampledProduct, descriptor: int, order: int, values: Any, keep: Any
) -> Prepared:
    """Return a sampled product, preprocessed, with ``mat2`` in the given order."""
    import cupy
    from cupy.cuda import device
    from cupy_backends.cuda.libs import cusparse

    mat1 = cupy.array(product.mat1, order="C")
    mat2 = cupy.array(product.mat2, order="C" if order == _ROW_MAJOR else "F")
    compute = _accumulator(mat1.dtype)
    one, zero = np.ones((), compute), np.zeros((), compute)
    x, y = _dense_descriptor(mat1, _ROW_MAJOR), _dense_descriptor(mat2, order)
    handle = device.get_cusparse_handle()
    cusparse.setStream(handle, cupy.cuda.get_current_stream().ptr)
    plain = cusparse.CUSPARSE_OPERATION_NON_TRANSPOSE
    addresses = (one.ctypes.data, x, y, zero.ctypes.data, descriptor)
    arguments = (
        *(ctypes.c_void_p(handle), plain, plain, *map(ctypes.c_void_p, addresses)),
        *(_DATA_TYPES[compute.name], _DEFAULT),
    )
    size = ctypes.c_size_t()
    _checked("cusparseSDDMM_bufferSize", *arguments, ctypes.byref(size))
    workspace = cupy.empty(max(size.value, 1), np.uint8)
    buffer = ctypes.c_void_p(workspace.data.ptr)
    _checked("cusparseSDDMM_preprocess", *arguments, buffer)
    call = functools.partial(_checked, "cusparseSDDMM", *arguments, buffer)
    note = f"mat2 {'row' if order == _ROW_MAJOR else 'column'}-major"
    return Prepared(call, values, note, keep=(keep, mat1, mat2, one, zero, workspace))


def _csr_descriptor(shape: tuple[int, ...], indptr: Any, indices: Any, values: Any) -> int:
    from cupy_backends.cuda.libs import cusparse

    index = _INDEX_TYPES[indices.dtype.itemsize]
    types = (index, index, cusparse.CUSPARSE_INDEX_BASE_ZERO, _DATA_TYPES[values.dtype.name])
    pointers = (a.data.ptr for a in (indptr, indices, values))
    descriptor: int = cusparse.createCsr(*shape, indices.size, *pointers, *types)
    return descriptor


def _bsr_descriptor(shape: tuple[int, ...], indptr: Any, indices: Any, values: Any) -> int:
    index = _INDEX_TYPES[indices.dtype.itemsize]
    (m, k), (bm, bk) = shape, values.shape[-2:]
    descriptor = ctypes.c_void_p()
    _checked(
        "cusparseCreateBsr",
        ctypes.byref(descriptor),
        *map(ctypes.c_int64, (m // bm, k // bk, indices.size, bm, bk)),
        *(ctypes.c_void_p(a.data.ptr) for a in (indptr, indices, values)),
        *(index, index, 0, _DATA_TYPES[values.dtype.name], _ROW_MAJOR),
    )
    assert descriptor.value is not None
    return descriptor.value


def _dense_descriptor(matrix: Any, order: int) -> int:
    from cupy_backends.cuda.libs import cusparse

    leading = max(matrix.strides) // matrix.itemsize
    dtype = _DATA_TYPES[matrix.dtype.name]
    descriptor: int = cusparse.createDnMat(*matrix.shape, leading, matrix.data.ptr, dtype, order)
    return descriptor


def _checked(name: str, *arguments: Any) -> None:
    """Call a function of cuSPARSE; raise `NotAvailableError` where it is missing or refuses."""
    function = getattr(_library(), name, None)
    if function is None:
        raise NotAvailableError(f"{name}: missing")
    status = function(*arguments)
    if status:
        raise NotAvailableError(f"{name}: status {status}")


def _accumulator(dtype: np.dtype) -> np.dtype:
    """Return in what cuSPARSE sums: 16-bit floats in float32."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


@functools.cache
def _library() -> Any:
    """Return the cuSPARSE that CuPy has loaded as a ctypes library."""
    try:
        import cupyx.cusparse  # noqa: F401
    except ImportError as error:
        raise NotAvailableError("missing") from error
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
    compute = _accumulator(dense.dtype)
    one, zero = np.ones((), compute), np.zeros((), compute)
    plain = cusparse.CUSPARSE_OPERATION_NON_TRANSPOSE
    if _one_vector(product):
        name, matmul, size = "SpMV", cusparse.spMV, cusparse.spMV_bufferSize
        operations = [plain]
        dtype = _DATA_TYPES[dense.dtype.name]
        x, y = (cusparse.createDnVec(a.size, a.data.ptr, dtype) for a in (dense, result))
    else:
        name, matmul, size = "SpMM", cusparse.spMM, cusparse.spMM_bufferSize
        operations = [plain, plain]
        x, y = (_dense_descriptor(a, order) for a in (dense, result))
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
