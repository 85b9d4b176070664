"""Handles, descriptors and plans of cuSPARSELt: made once, kept, destroyed at exit.

Source: cuSPARSELt documentation, "cuSPARSELt Functions" (Library Management, Matrix Descriptor,
Matmul Descriptor, Matmul Algorithm, Matmul Functions) and "cuSPARSELt Data Types"; through
``nvmath.bindings.cusparseLt``, whose names are the C interface's.
"""

from __future__ import annotations

import ctypes
import threading
from contextlib import ExitStack
from functools import lru_cache
from typing import Any, NamedTuple
from weakref import finalize

import numpy as np

from ..._arrays import bfloat16, float8_e4m3fn
from ..._locks import fork_safe
from .availability import bindings

#: Plans kept.
PLANS = 512
#: Bytes that every pointer is a multiple of, as the descriptors promise.
ALIGNMENT = 16

_FUNCTION = "backend 'cusparselt'"
# cudaDataType
_DATA_TYPES = {
    np.dtype(np.float32): 0,
    np.dtype(np.float16): 2,
    np.dtype(np.int8): 3,
    np.dtype(np.int32): 10,
    bfloat16: 14,
    float8_e4m3fn: 28,
}
_NON_TRANSPOSE, _TRANSPOSE = 0, 1  # cusparseOperation_t
_COLUMN_ORDER, _ROW_ORDER = 1, 2  # cusparseOrder_t


class Lines(NamedTuple):
    """Layout of a dense matrix.

    Attributes
    ----------
    by_rows : bool
        Whether rows are contiguous (row-major), or columns.
    pitch : int
        Elements from one row, or column, to the next.
    """

    by_rows: bool
    pitch: int


class Algorithm(NamedTuple):
    """An algorithm of the library: attributes of its algorithm selection."""

    config_id: int
    split_k: int
    split_k_mode: int
    split_k_buffers: int


class Key(NamedTuple):
    """Everything that a plan depends on, besides the device.

    Attributes
    ----------
    m, n, k : int
        As they are stored: with the format's padding.
    dtype, out_dtype : dtype
    dense, out : Lines
    relu : bool
    bias : int
        Address of M values of ``out_dtype`` on the device; 0 for none.
    algorithm : Algorithm or None
        None for the library's own choice.
    """

    m: int
    n: int
    k: int
    dtype: np.dtype
    out_dtype: np.dtype
    dense: Lines
    out: Lines
    relu: bool = False
    bias: int = 0
    algorithm: Algorithm | None = None


class Handle:
    """The library's context on one device, which is the current one when it is made."""

    __slots__ = ("__weakref__", "address", "lock", "lt")

    def __init__(self, lt: Any):
        self.lt = lt
        # The library does not promise that a handle is thread-safe.
        self.lock = fork_safe(threading.RLock())
        self.address: int = lt.init()
        # Finalizers run at exit, too, the youngest first: plans go before their handle.
        finalize(self, lt.destroy, self.address)


_handles: dict[int, Handle] = {}
_lock = fork_safe(threading.RLock())  # reentrant: a user's finalizer may run while it is held


def handle() -> Handle:
    """Return the handle of the current device."""
    device = current_device()
    found = _handles.get(device)
    if found is None:
        with _lock:
            found = _handles.get(device)
            if found is None:
                found = _handles[device] = Handle(bindings(_FUNCTION))
    return found


def current_device() -> int:
    """Return the number of CuPy's current device."""
    import cupy

    return cupy.cuda.runtime.getDevice()


class Plan:
    """A product that is ready to run, with the descriptors it was made of.

    Parameters
    ----------
    handle : Handle
    key : Key

    Attributes
    ----------
    workspace : int
        Bytes of device memory that a run needs.
    """

    __slots__ = ("__weakref__", "_plan", "_selection", "handle", "key", "workspace")

    def __init__(self, handle: Handle, key: Key):
        self.handle, self.key = handle, key
        lt, h = handle.lt, handle.address
        with ExitStack() as made:  # where a step fails, those before it are undone

            def keep(destroy: Any, descriptor: int) -> int:
                made.callback(destroy, descriptor)
                return descriptor

            sparse = keep(lt.mat_descriptor_destroy, sparse_descriptor(handle, key))
            dense = keep(lt.mat_descriptor_destroy, _dense_operand(handle, key))
            out = keep(lt.mat_descriptor_destroy, _output(handle, key))
            product = keep(
                lt.matmul_descriptor_destroy,
                lt.matmul_descriptor_init(
                    h,
                    _NON_TRANSPOSE,
                    _NON_TRANSPOSE if key.dense.by_rows else _TRANSPOSE,
                    sparse,
                    dense,
                    out,
                    out,
                    _compute_type(lt, key.dtype),
                ),
            )
            attribute = lt.MatmulDescAttribute
            if key.relu:
                self._describe(product, attribute.ACTIVATION_RELU, ctypes.c_int32(1))
            if key.bias:
                self._describe(product, attribute.BIAS_POINTER, ctypes.c_int64(key.bias))
            self._selection = keep(
                lt.matmul_alg_selection_destroy,
                lt.matmul_alg_selection_init(h, product, lt.MatmulAlg.DEFAULT),
            )
            if key.algorithm is not None:
                self._choose(key.algorithm)
            self._plan = keep(
                lt.matmul_plan_destroy, lt.matmul_plan_init(h, product, self._selection)
            )
            self.workspace: int = lt.matmul_get_workspace(h, self._plan)
            finalize(self, made.pop_all().close)

    def _describe(self, product: int, attribute: int, value: Any) -> None:
        self.handle.lt.matmul_desc_set_attribute(
            self.handle.address, product, attribute, ctypes.addressof(value), ctypes.sizeof(value)
        )

    def _choose(self, wanted: Algorithm) -> None:
        """Set what differs from the library's choice, of whose own values it refuses some."""
        lt, address = self.handle.lt, self.handle.address
        for name, now, then in zip(Algorithm._fields, self.algorithm(), wanted, strict=True):
            if now != then:
                value = ctypes.c_int32(then)
                where = ctypes.addressof(value), ctypes.sizeof(value)
                lt.matmul_alg_set_attribute(address, self._selection, _named(lt, name), *where)

    def algorithm(self) -> Algorithm:
        """Return what is selected now."""
        return Algorithm(*map(self._selected, Algorithm._fields))

    def count(self) -> int:
        """Return how many algorithms the library has for this product; they count from 0."""
        return self._selected("config_max_id")

    def _selected(self, name: str) -> int:
        lt, value = self.handle.lt, ctypes.c_int32()
        where = ctypes.addressof(value), ctypes.sizeof(value)
        lt.matmul_alg_get_attribute(self.handle.address, self._selection, _named(lt, name), *where)
        return value.value

    def run(self, *arguments: int, stream: int) -> None:
        """Enqueue: host addresses of alpha and beta, device addresses in the library's order.

        Parameters
        ----------
        *arguments
            alpha, sparse, dense, beta, input, out, workspace.
        stream : int
        """
        streams = ctypes.c_void_p(stream)  # an array of one
        handle = self.handle
        with handle.lock:
            handle.lt.matmul(handle.address, self._plan, *arguments, ctypes.addressof(streams), 1)


@lru_cache(maxsize=PLANS)
def _plan(handle: Handle, key: Key) -> Plan:
    return Plan(handle, key)


def plan(key: Key) -> Plan:
    """Return the plan of a product on the current device, the same for the same key.

    Raises
    ------
    cuSPARSELtError
        The library does not offer such a product.
    """
    context = handle()
    with context.lock:
        return _plan(context, key)


def sparse_descriptor(handle: Handle, key: Any) -> int:
    """Return a structured matrix of ``key.m`` rows and ``key.k`` columns (caller destroys it)."""
    lt = handle.lt
    return lt.structured_descriptor_init(
        handle.address,
        key.m,
        key.k,
        key.k,
        ALIGNMENT,
        _DATA_TYPES[key.dtype],
        _ROW_ORDER,
        lt.Sparsity.SPARSITY_50_PERCENT,
    )


def _dense_operand(handle: Handle, key: Key) -> int:
    """Describe a column-major operand as its row-major transpose, which the product undoes."""
    shape = (key.k, key.n) if key.dense.by_rows else (key.n, key.k)
    return handle.lt.dense_descriptor_init(
        handle.address, *shape, key.dense.pitch, ALIGNMENT, _DATA_TYPES[key.dtype], _ROW_ORDER
    )


def _output(handle: Handle, key: Key) -> int:
    order = _ROW_ORDER if key.out.by_rows else _COLUMN_ORDER
    kind = _DATA_TYPES[key.out_dtype]
    return handle.lt.dense_descriptor_init(
        handle.address, key.m, key.n, key.out.pitch, ALIGNMENT, kind, order
    )


def _compute_type(lt: Any, dtype: np.dtype) -> int:
    return lt.ComputeType.COMPUTE_32I if dtype == np.int8 else lt.ComputeType.COMPUTE_32F


def _named(lt: Any, field: str) -> int:
    return getattr(lt.MatmulAlgAttribute, field.upper())
