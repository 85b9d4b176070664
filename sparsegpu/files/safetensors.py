"""Sparse and dense arrays to ``.safetensors`` files and back.

The format (https://github.com/huggingface/safetensors): the length of the header, 8 bytes, the
header in JSON, which says dtype, shape and place of every tensor, and the tensors. A sparse array
is the tensors of its parts, ``NAME.data``, ``NAME.indices``, ..., which any reader of the format
finds; the text under ``sparsegpu`` in the header's metadata says what they are parts of.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from math import prod
from typing import Any, NamedTuple

import numpy as np

from .._arrays import as_array, bfloat16, float8_e4m3fn, is_cupy
from .._checks import bad_type, bad_value, check_size, check_sizes, kind_of
from .._npz import path_of, replacing
from .._protocols import Sparse
from ..bsr.array import BsrSemiStructuredArray, bsr_array
from ..bsr.npz import FORMAT_24, PARTS_24
from ..semi_structured import SemiStructuredArray
from ..semi_structured.io import FORMAT, PARTS

_DTYPES = {
    "F64": np.dtype(np.float64), "F32": np.dtype(np.float32), "F16": np.dtype(np.float16),
    "BF16": bfloat16, "F8_E4M3": float8_e4m3fn, "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32), "I16": np.dtype(np.int16), "I8": np.dtype(np.int8),
    "U64": np.dtype(np.uint64), "U32": np.dtype(np.uint32), "U16": np.dtype(np.uint16),
    "U8": np.dtype(np.uint8), "BOOL": np.dtype(bool), "C64": np.dtype(np.complex64),
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_KEY = "sparsegpu"
_LARGEST_HEADER = 100_000_000  # as the format's own reader has it


class _Kind(NamedTuple):
    """A class of sparse arrays in files: its parts, and what makes one of them."""

    parts: tuple[str, ...]
    make: Callable[[tuple[int, ...], dict[str, Any]], Any]


_KINDS = {
    "bsr": _Kind(
        ("data", "indices", "indptr"),
        lambda shape, p: bsr_array((p["data"], p["indices"], p["indptr"]), shape),
    ),
    FORMAT_24: _Kind(
        PARTS_24,
        lambda shape, p: BsrSemiStructuredArray(
            (p["packed"], p["meta"], p["indices"], p["indptr"]), (shape[-2], shape[-1])
        ),
    ),
    FORMAT: _Kind(
        PARTS,
        lambda shape, p: SemiStructuredArray(
            (shape[0], shape[1]), *(p.get(name) for name in PARTS)
        ),
    ),
}


def save_safetensors(file: Any, arrays: dict[str, Any], *, metadata: Any = None) -> None:
    """Write named arrays to a ``.safetensors`` file.

    A path is written atomically; a file that it replaces passes its permissions on.

    Parameters
    ----------
    file : path or binary file object
    arrays : dict of str to bsr_array, SemiStructuredArray, BsrSemiStructuredArray or dense array
        Those on a GPU are copied to the host. The parts of a sparse array get its name, a dot and
        their own.
    metadata : dict of str to str, optional
        Kept in the header.

    Raises
    ------
    TypeError
        What is no such dictionary; a dtype that the format lacks, such as complex128; no file.
    ValueError
        Two tensors of one name; metadata under the library's own name.
    OSError
        A file that cannot be written; what stood under its name is as it was.

    Examples
    --------
    >>> import io, numpy as np, sparsegpu
    >>> file = io.BytesIO()
    >>> A = sparsegpu.bsr_array(np.eye(4, dtype="f4"), blocksize=(2, 2))
    >>> sparsegpu.save_safetensors(file, {"layer.weight": A, "layer.bias": np.zeros(4, "f4")})
    >>> _ = file.seek(0)
    >>> sparsegpu.load_safetensors(file)["layer.weight"]
    <sparsegpu.bsr_array, shape (4, 4), float32, 2 blocks of 2x2 stored (density 0.5), on cpu>
    """
    function = "save_safetensors"
    kept = _checked_metadata(function, metadata)
    if not isinstance(arrays, dict):
        raise bad_type(function, "arrays", "a dict of arrays by name", kind_of(arrays))
    for name in arrays:
        if not isinstance(name, str):
            raise bad_type(function, "arrays", "names that are str", kind_of(name))
    tensors: dict[str, np.ndarray] = {}
    described: dict[str, Any] = {}
    for name, array in arrays.items():
        for suffix, part in _parts(function, name, array, described).items():
            if f"{name}{suffix}" in tensors or f"{name}{suffix}" == "__metadata__":
                raise bad_value(function, "arrays", "each name once", repr(f"{name}{suffix}"))
            tensors[f"{name}{suffix}"] = part
    if described:
        kept[_KEY] = json.dumps(described)
    header: dict[str, Any] = {"__metadata__": kept} if kept else {}
    end = 0
    # The widest first, so that every tensor is aligned to its elements.
    ordered = sorted(tensors.items(), key=lambda item: -item[1].itemsize)
    for name, tensor in ordered:
        start, end = end, end + tensor.nbytes
        header[name] = {
            "dtype": _NAMES[tensor.dtype], "shape": tensor.shape, "data_offsets": [start, end],
        }  # fmt: skip
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    whole = nullcontext(file) if hasattr(file, "write") else replacing(path_of(function, file))
    with whole as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for _, tensor in ordered:
            stream.write(np.ascontiguousarray(tensor).view(np.uint8).data)


def load_safetensors(file: Any) -> dict[str, Any]:
    """Read the arrays of a ``.safetensors`` file.

    Sparse ones are those that `save_safetensors` wrote, all other tensors are dense. Sizes and
    places are checked before anything is read, sparse arrays as their constructors check them.

    Parameters
    ----------
    file : path or binary file object

    Returns
    -------
    dict of str to bsr_array, SemiStructuredArray, BsrSemiStructuredArray or numpy.ndarray
        On the host (`bsr_array.to_device` moves them).

    Raises
    ------
    ValueError
        A file that is none, or is damaged: what and where.
    OSError
        A file that cannot be opened or read.
    TypeError
        No file.

    Examples
    --------
    See `save_safetensors`.
    """
    function = "load_safetensors"
    is_stream = hasattr(file, "read")
    with nullcontext(file) if is_stream else open(path_of(function, file), "rb") as stream:
        name = str(getattr(stream, "name", type(stream).__name__))

        def refused(expected: str, got: Any) -> ValueError:
            return bad_value(function, "file", f"{expected} in {name}", got)

        header, size = _header(stream, refused)
        metadata = header.pop("__metadata__", {})
        tensors: dict[str, Any] = {}
        for tensor, (dtype, shape, count) in _places(header, size, refused).items():
            memory = np.frombuffer(bytearray(stream.read(count)), np.uint8)
            if memory.size != count:
                raise refused(f"{count} bytes of tensor {tensor!r}", memory.size)
            tensors[tensor] = memory.view(dtype).reshape(shape)
    text = metadata.get(_KEY, "{}") if isinstance(metadata, dict) else "{}"
    for name_of_array, said in _described(text, refused).items():
        array = _sparse(name_of_array, said, tensors, refused)
        tensors[name_of_array] = array
    return tensors


def _checked_metadata(function: str, metadata: Any) -> dict[str, str]:
    if metadata is None:
        return {}
    plain = isinstance(metadata, dict)
    if not plain or not all(isinstance(x, str) for pair in metadata.items() for x in pair):
        raise bad_type(function, "metadata", "a dict of str to str", kind_of(metadata))
    if _KEY in metadata:
        raise bad_value(function, "metadata", f"other names than {_KEY!r}", repr(_KEY))
    return dict(metadata)


def _parts(function: str, name: str, array: Any, described: dict[str, Any]) -> dict[str, Any]:
    """Return the tensors of an array on the host, by what is added to its name."""
    if not isinstance(array, Sparse):
        dense = as_array(array, function, "arrays")
        found = {"": dense.get() if is_cupy(dense) else dense}
    else:
        host = array.get()  # type: ignore[attr-defined]
        kind = {bsr_array: "bsr", SemiStructuredArray: FORMAT, BsrSemiStructuredArray: FORMAT_24}
        if type(host) not in kind:
            expected = "bsr_array, 2:4 and dense arrays (save_npz takes masks)"
            raise bad_type(function, "arrays", expected, kind_of(array))
        form = kind[type(host)]
        described[name] = {"format": form, "shape": host.shape}
        values = host._parts() if form == FORMAT else [getattr(host, n) for n in _KINDS[form].parts]
        named = zip(_KINDS[form].parts, values, strict=True)
        found = {f".{part}": x for part, x in named if x is not None}
    for tensor in found.values():
        if tensor.dtype not in _NAMES:
            expected = f"a dtype of safetensors ({', '.join(d.name for d in _NAMES)})"
            raise bad_type(function, "arrays", expected, f"{tensor.dtype} of {name!r}")
    return found


def _header(stream: Any, refused: Callable) -> tuple[dict[str, Any], int]:
    """Return the header, and how many bytes follow it."""
    start = stream.tell()
    end = stream.seek(0, os.SEEK_END)
    stream.seek(start)
    length = int.from_bytes(stream.read(8), "little")
    if end - start < 8 or length > min(end - start - 8, _LARGEST_HEADER):
        raise refused("a header of safetensors", f"a length of {length}")
    try:
        header = json.loads(stream.read(length), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise refused("a header in JSON", error) from error
    if not isinstance(header, dict):
        raise refused("a header that names tensors", kind_of(header))
    return header, end - start - 8 - length


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name twice")
    return found


def _places(
    header: dict[str, Any], size: int, refused: Callable
) -> dict[str, tuple[np.dtype, tuple[int, ...], int]]:
    """Return dtype, shape and bytes of the tensors in the order of the file, which they fill."""
    found = []
    for name, said in header.items():
        try:
            dtype, shape = _DTYPES[said["dtype"]], tuple(said["shape"])
            start, stop = (check_size("safetensors", "place", n) for n in said["data_offsets"])
            check_sizes("safetensors", "shape", shape, "sizes")
            np.broadcast_to(np.zeros((), dtype), shape)  # refuses what is no shape to NumPy
        except (KeyError, TypeError, ValueError) as error:
            raise refused(f"dtype, shape and data_offsets of {name!r}", repr(said)) from error
        if stop - start != prod(shape) * dtype.itemsize:
            raise refused(f"as many bytes as {name!r} of {shape} {dtype} has", stop - start)
        found.append((start, stop, name, dtype, shape))
    end, places = 0, {}
    for start, stop, name, dtype, shape in sorted(found, key=lambda item: item[:2]):
        if start != end:
            raise refused(f"{name!r} to begin at byte {end}", start)
        end, places[name] = stop, (dtype, shape, stop - start)
    if end != size:
        raise refused(f"{end} bytes of tensors", size)
    return places


def _described(text: Any, refused: Callable) -> dict[str, Any]:
    """Return what the header says of sparse arrays."""
    try:
        said = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise refused("what sparse arrays there are, in JSON", error) from error
    if not isinstance(said, dict):
        raise refused("what sparse arrays there are, by name", kind_of(said))
    return said


def _sparse(name: str, said: Any, tensors: dict[str, Any], refused: Callable) -> Any:
    """Return a sparse array of its parts, which it takes out of the tensors."""
    form = said.get("format") if isinstance(said, dict) else None
    kind = _KINDS.get(form) if isinstance(form, str) else None
    if kind is None:
        raise refused(f"a format of {name!r}, one of {', '.join(_KINDS)}", repr(said))
    parts = {p: tensors.pop(f"{name}.{p}") for p in kind.parts if f"{name}.{p}" in tensors}
    if name in tensors:
        raise refused("each name once", repr(name))
    try:
        shape = check_sizes("safetensors", "shape", tuple(said["shape"]), "(*batch, M, K)")
        return kind.make(shape, parts)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise refused(f"the parts of {name!r}, {', '.join(kind.parts)}", error) from error
