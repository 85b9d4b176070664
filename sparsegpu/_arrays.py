"""Array libraries, dtypes and devices: the only module that tells NumPy from CuPy.

CuPy is looked for only when an array that is not NumPy's arrives, so that importing the
package needs neither CuPy nor a GPU.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Collection
from contextlib import suppress
from os import PathLike
from types import ModuleType
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from . import _install
from ._checks import bad_type, bad_value, kind_of, not_offered, shown
from ._protocols import Sparse

bfloat16 = np.dtype(ml_dtypes.bfloat16)
float8_e4m3fn = np.dtype(ml_dtypes.float8_e4m3fn)

HALF_DTYPES = (np.dtype(np.float16), bfloat16)
REAL_DTYPES = (*HALF_DTYPES, np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int8))
COMPLEX_DTYPES = (np.dtype(np.complex64), np.dtype(np.complex128))
OPERAND_DTYPES = REAL_DTYPES + COMPLEX_DTYPES
CONTAINER_DTYPES = (*REAL_DTYPES, np.dtype(np.int32), np.dtype(bool), *COMPLEX_DTYPES)

_HOST_TYPES = frozenset({np.ndarray, type(None)})
#: Classes of arrays that `as_array` returns as they are: CuPy's joins with the first of its arrays.
_PASSED: set[type] = {np.ndarray}
_KDLCPU, _KDLCUDA, _KDLCUDAHOST, _KDLCUDAMANAGED = 1, 2, 3, 13


def dtype_of(name: Any) -> np.dtype:
    """``numpy.dtype`` that also knows ``"bfloat16"`` and ``"float8_e4m3fn"`` by name."""
    if isinstance(name, str) and name in {"bfloat16", "float8_e4m3fn"}:
        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)


def check_dtype_name(function: str, argument: str, dtype: Any) -> np.dtype:
    """Return a dtype argument as a ``numpy.dtype``, or refuse what names none.

    NumPy would take the dtype of any array but its own. What has a dtype and no shape, as JAX's
    names of dtypes, is taken here, too.
    """
    is_array = isinstance(getattr(dtype, "shape", None), tuple)
    with suppress(TypeError, ValueError):
        if not is_array or isinstance(dtype, np.dtype | np.generic):
            return dtype_of(dtype)
    raise bad_type(function, argument, "a dtype or the name of one", shown(dtype, repr))


def check_dtype_among(
    function: str, argument: str, dtype: np.dtype, allowed: Collection[np.dtype], kind: str = ""
) -> None:
    """Refuse a dtype that is not one of ``allowed``; ``kind`` names them in the message."""
    if dtype not in allowed:
        names = ", ".join(d.name for d in allowed)
        raise bad_type(function, argument, f"one of the {kind}dtypes {names}", dtype)


def check_range(function: str, argument: str, values: Any, stop: int, expected: str) -> None:
    """Refuse an index array with values outside ``0..stop - 1``, which ``expected`` says."""
    unsigned = f"{values.dtype.byteorder}u{values.itemsize}"  # where negative ones are the largest
    if values.size and int(values.view(unsigned).max()) >= stop:
        low, high = int(values.min()), int(values.max())
        raise bad_value(function, argument, expected, low if low < 0 else high)


def accumulator_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype in which products of ``dtype`` are summed."""
    if dtype in HALF_DTYPES or dtype == float8_e4m3fn:
        return np.dtype(np.float32)
    if dtype == np.int8:
        return np.dtype(np.int32)
    return dtype


def is_complex(dtype: np.dtype) -> bool:
    """Return whether ``dtype`` is complex64 or complex128."""
    return dtype.kind == "c"


def cupy_installed() -> bool:
    """Return whether CuPy could be imported (without importing it)."""
    return "cupy" in sys.modules or importlib.util.find_spec("cupy") is not None


def is_cupy(array: Any) -> bool:
    """Return whether ``array`` is a ``cupy.ndarray`` (CuPy is not imported to find out)."""
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(array, cupy.ndarray)


def namespace(array: Any) -> ModuleType:
    """Return the array library of one array: ``numpy`` or ``cupy``."""
    return sys.modules["cupy"] if is_cupy(array) else np


def device_of(array: Any) -> int | None:
    """Return the CUDA device number of an array, None for host arrays."""
    return array.data.device_id if is_cupy(array) else None


def device_name(array: Any) -> str:
    """Return the device of an array by name: ``"cpu"``, ``"cuda:0"``."""
    device = device_of(array)
    return "cpu" if device is None else f"cuda:{device}"


def is_masked(x: Any) -> bool:
    """Return whether ``x`` is a masked array (`numpy.ma` is not imported to find out)."""
    masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)
    return masked is not None and isinstance(x, masked)


def is_plain(x: Any) -> bool:
    """Return whether ``x`` is a NumPy or CuPy array of no subclass, as far as one was seen."""
    return type(x) in _PASSED


def as_array(x: Any, function: str, argument: str) -> Any:
    """Return ``x`` as a NumPy or CuPy array without moving it across the bus.

    NumPy and CuPy arrays pass through, NumPy's subclasses as views of class ``ndarray`` (indexing
    a ``numpy.matrix`` would always give two dimensions). Device arrays of other libraries come in
    zero-copy through DLPack (``cupy.asarray`` would turn torch's bfloat16 into raw records), host
    sequences and scalars through ``numpy.asarray``.
    """
    if type(x) in _PASSED:  # every call of an operation comes here a few times
        return x
    if is_cupy(x):
        _PASSED.add(namespace(x).ndarray)
        return x
    if isinstance(x, np.ndarray):
        if is_masked(x):
            expected = "an array without a mask (x.filled(value))"
            raise bad_type(function, argument, expected, type(x).__name__)
        return x.view(np.ndarray)
    if is_torch(x):
        bits = _torch_bits(x, function, argument)
        if bits is not None:
            seen = as_array(x.view(bits.of_torch), function, argument)
            return seen.view(bits.dtype) if namespace(seen) is np else seen
    if hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__"):
        kind = x.__dlpack_device__()[0]
        if kind in {_KDLCUDA, _KDLCUDAMANAGED}:
            return _cupy(function, argument).from_dlpack(x)
        if kind in {_KDLCPU, _KDLCUDAHOST}:
            return _from_host(x, function, argument)
        raise bad_type(function, argument, "an array on the host or a CUDA device", type(x))
    if hasattr(x, "__cuda_array_interface__"):
        return _cupy(function, argument).asarray(x)
    sequence = isinstance(x, (list, tuple, int, float, complex, np.generic))
    if sequence or (hasattr(x, "__array__") and not isinstance(x, Sparse)):
        try:
            array = np.asarray(x)
        except ValueError as error:
            lengths = sequence and "inhomogeneous" in str(error)
            got = "sequences of different lengths" if lengths else str(error)
            raise bad_value(function, argument, "an array", got) from error
        if array.dtype != object:
            return array
        if sequence:
            raise bad_type(function, argument, "numbers that NumPy has a dtype for", kind_of(x))
    hint = ""
    if isinstance(x, (str, PathLike)):
        hint = " (load_npz or numpy.load reads a file)"
    elif isinstance(x, np.lib.npyio.NpzFile):
        hint = " (of the file that numpy.load opened, one array: file[name])"
    raise bad_type(function, argument, f"a NumPy or CuPy array{hint}", kind_of(x))


class _Bits(NamedTuple):
    """What DLPack carries as bits: as what of torch's dtypes, and what NumPy has for it."""

    of_torch: Any
    dtype: np.dtype


def is_torch(x: Any) -> bool:
    """Return whether ``x`` is a tensor of PyTorch (which is not imported to find out)."""
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    return tensor is not None and isinstance(x, tensor)


def is_jax(x: Any) -> bool:
    """Return whether ``x`` is an array of JAX (which is not imported to find out)."""
    array = getattr(sys.modules.get("jax"), "Array", None)
    return array is not None and isinstance(x, array)


def _torch_bits(x: Any, function: str, argument: str) -> _Bits | None:
    """Return how a tensor is passed on whose dtype DLPack does not carry, None for all others.

    Refuses tensors whose memory does not hold their values, or whose gradients would be lost.
    """
    torch: Any = sys.modules["torch"]
    got = f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape)} on {x.device}"
    if x.requires_grad:
        expected = "a tensor without gradient (x.detach(): the gradient would be lost)"
        raise bad_type(function, argument, expected, f"one that requires it, {got}")
    if x.layout is not torch.strided:
        expected = "a dense tensor (bsr_array takes one of layout torch.sparse_bsr)"
        raise bad_type(function, argument, expected, f"layout {x.layout}, {got}")
    if x.is_conj() or x.is_neg():
        expected = "a tensor that is in memory as it reads (x.resolve_conj().resolve_neg())"
        raise bad_type(function, argument, expected, f"a lazily conjugated or negated one, {got}")
    if x.device.type not in {"cpu", "cuda"}:
        raise bad_type(function, argument, "a tensor on the CPU or a CUDA device", got)
    if x.dtype == torch.float8_e4m3fn:
        return _Bits(torch.uint8, float8_e4m3fn)
    if x.dtype == torch.bfloat16 and x.device.type == "cpu":  # CuPy has it
        return _Bits(torch.int16, bfloat16)
    return None


def _from_host(x: Any, function: str, argument: str) -> np.ndarray:
    """Return another library's host array, by DLPack where NumPy supports the dtype."""
    try:
        return np.from_dlpack(x)
    except (BufferError, RuntimeError) as error:  # bfloat16 is not supported
        if hasattr(x, "__array__"):
            return np.asarray(x)
        expected = "an array that NumPy can read by DLPack"
        raise bad_type(function, argument, expected, f"one of which it says: {error}") from error


def _cupy(function: str, argument: str) -> ModuleType:
    return import_cupy(function, f"argument '{argument}' is on a CUDA device")


def import_cupy(function: str, why: str) -> ModuleType:
    """Return CuPy, or refuse with what to install."""
    try:
        import cupy
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{function}: {why}, and CuPy is not installed; {_install.for_cuda()}"
        ) from error
    return cupy


def import_scipy(function: str) -> ModuleType:
    """Return ``scipy.sparse``, or refuse with what to install."""
    try:
        import scipy.sparse
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{function}: SciPy is not installed; {_install.with_extra('cpu')}"
        ) from error
    return scipy.sparse


def common_namespace(function: str, **arrays: Any) -> ModuleType:
    """Return the one array library of all arrays given; None values are skipped.

    Raises
    ------
    TypeError
        Host and device arrays in one call.
    ValueError
        Arrays on two devices in one call.
    """
    if _HOST_TYPES.issuperset(map(type, arrays.values())):
        return np
    first: Any = None
    for name, array in arrays.items():
        if array is None:
            continue
        if first is None:
            first_name, first, kind = name, array, type(array)
            xp, device = namespace(array), device_of(array)
            continue
        if type(array) is not kind and namespace(array) is not xp:
            raise bad_type(
                function,
                name,
                f"a {xp.__name__} array like '{first_name}' (no silent copy across the bus)",
                f"a {namespace(array).__name__} array",
            )
        if device is not None and array.data.device_id != device:
            raise bad_value(
                function,
                name,
                f"an array on device {device} like '{first_name}'",
                f"device {device_of(array)}",
            )
    return xp


def is_captured(stream: int) -> bool:
    """Return whether a stream, given by its address, is being captured into a CUDA graph."""
    # 0 and 1 are the legacy default stream, which cannot be captured.
    return stream > 1 and sys.modules["cupy"].cuda.runtime.streamIsCapturing(stream)


def check_may_wait(xp: ModuleType, what: str) -> None:
    """Refuse to synchronise while the current stream is being captured into a CUDA graph.

    Call it before anything is enqueued: a synchronisation invalidates the capture.
    """
    if xp is np:
        return
    if is_captured(xp.cuda.get_current_stream().ptr):
        raise not_offered(
            "CUDA graph capture",
            f"{what}, which waits for the device,",
            "the same call once before the capture, or outside of it",
        )


def index_dtype(largest: int) -> np.dtype:
    """Return int32, or int64 where 32 bits do not reach ``largest``."""
    return np.dtype(np.int32 if largest < 2**31 else np.int64)


def cast_indices(function: str, argument: str, array: Any, dtype: np.dtype, copy: bool) -> Any:
    """Return an index array as a read-only one of ``dtype``; refuse values it does not hold."""
    xp = namespace(array)
    if array.size and not np.can_cast(array.dtype, dtype):
        limits, low, high = np.iinfo(dtype), int(array.min()), int(array.max())
        if low < limits.min or high > limits.max:
            got = low if low < limits.min else high
            raise bad_value(function, argument, f"integers that {dtype} holds", got)
    return read_only(xp.array(array, dtype=dtype, order="C", copy=copy or None))


def read_only(array: Any) -> Any:
    """Make a host array and its bases read-only, and return it; CuPy's have no such flag."""
    owner = array
    while isinstance(owner, np.ndarray):
        owner.flags.writeable = False
        owner = owner.base
    return array


def swap_last(array: Any) -> Any:
    """Return the matrix transpose of the last two axes, as a view."""
    return array.swapaxes(-1, -2)
