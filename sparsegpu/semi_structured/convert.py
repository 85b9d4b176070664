"""Conversions of a 2:4 array: dense, host, device, another backend, a file, a pickle."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .._arrays import check_dtype_name, device_of, float8_e4m3fn
from .._checks import bad_type, check_choice, check_flags
from .._device import Portable
from .._format_24 import DTYPE_NAMES, FORMATS
from .._npz import reading
from ..engines.cusparselt.availability import why_not
from ..ops._common import on_device
from ..ops.compress import compress_matrix, not_24
from ..ops.prune_tiles import compressed_swizzled_bitmask
from . import io
from .cast import cast
from .layout import padded_to_format

BACKENDS = ("native", "cusparselt")


def check_backend(function: str, backend: str, array: Any) -> None:
    """Refuse a name that is no backend, and a backend that cannot compute on this array."""
    check_choice(function, "backend", backend, BACKENDS)
    if backend != "cusparselt":
        return
    error = why_not(function)
    if error is not None:
        raise error
    if device_of(array) is None:
        raise bad_type(function, "backend", "'native' on the host", "'cusparselt'")


class Conversions(Portable):
    """Conversions of `SemiStructuredArray`."""

    __slots__ = ()

    def todense(self: Any) -> Any:
        """Return the dense matrix, of the logical shape (float8 in CuPy: its bytes)."""
        with on_device(self._halves.any().packed):
            return self._halves.dense(int(self._transposed))

    toarray = todense

    def _parts(self: Any) -> tuple:
        """Return what is held, as the constructor takes it."""
        sides = [self._halves.stored(int(t ^ self._transposed)) for t in (False, True)]
        halves = [(None, None) if half is None else (half.packed, half.meta) for half in sides]
        return *halves[0], *halves[1], self._bits()

    def copy(self: Any) -> Any:
        """Return an array of its own values and metadata; what is held, of the same backend."""
        with on_device(self._halves.any().packed):
            parts = [None if part is None else part.copy() for part in self._parts()]
            return self._of_parts(parts)

    def _of_parts(self: Any, parts: Any) -> Any:
        """Return an array of the same kind and backend from parts that the library made."""
        how = {"dtype": self.dtype, "backend": self.backend, "check": False}
        return type(self)(self.shape, *parts, **how)

    def astype(self: Any, dtype: Any, copy: bool = True) -> Any:
        """Return the array in another dtype, each value converted as by `numpy.ndarray.astype`.

        Parameters
        ----------
        dtype : dtype
            float16, bfloat16, float32, int8 or float8_e4m3fn.
        copy : bool
            False returns the array itself when it has the dtype already.

        Returns
        -------
        SemiStructuredArray
            Of the same backend, with the halves that are held now.

        Raises
        ------
        ValueError
            float32 of a matrix that keeps two of a pair: its format keeps one.
        TypeError
            Another dtype.
        NotImplementedError
            From float32 to float8_e4m3fn in CuPy, which does not know it.

        Notes
        -----
        Works on the dense matrix, since the formats differ; what becomes zero is not kept.
        """
        function = "SemiStructuredArray.astype"
        wanted = check_dtype_name(function, "dtype", dtype)
        check_flags(function, copy=copy)
        if wanted not in FORMATS or wanted == np.uint8:  # in CuPy: the bytes of float8_e4m3fn
            raise bad_type(function, "dtype", f"one of the 2:4 dtypes {DTYPE_NAMES}", wanted)
        if wanted == self.dtype:
            return self.copy() if copy else self
        if self._transposed:
            return self.T.astype(wanted).T
        held = [self._halves.stored(side) is not None for side in (0, 1)]
        with on_device(self._halves.any().packed):
            dense = cast(function, self.todense(), self.dtype, wanted)
            parts: list[Any] = []
            for side, matrix in enumerate((dense, dense.T)):
                first = side == held.index(True)
                parts += _half(function, matrix, required=first) if held[side] else (None, None)
            if self._bitmask is not None:
                parts.append(compressed_swizzled_bitmask(padded_to_format(dense, both=True)))
        return type(self)(self.shape, *parts, dtype=wanted, backend=self.backend, check=False)

    def get(self: Any) -> Any:
        """Return the array on the host (itself, if it is there already), its backend native."""
        if self._halves.xp is np:
            return self

        def fetch(name: str, array: Any) -> Any:
            if array is None:
                return None
            is_fp8 = name.startswith("packed") and self.dtype == float8_e4m3fn
            return array.get().view(float8_e4m3fn) if is_fp8 else array.get()

        parts = [fetch(n, a) for n, a in zip(io.PARTS, self._parts(), strict=True)]
        return type(self)(self.shape, *parts, check=False)

    def _moved(self: Any, cupy: Any) -> Any:
        def move(array: Any) -> Any:
            if array is None:
                return None
            return cupy.asarray(array.view(np.uint8) if array.dtype == float8_e4m3fn else array)

        return self._of_parts([move(array) for array in self._parts()])

    def to_backend(self: Any, backend: str) -> Any:
        """Return the array for another backend (itself, if it is that already).

        Parameters
        ----------
        backend : {"native", "cusparselt"}

        Raises
        ------
        ValueError
            Another name.
        TypeError
            "cusparselt" for an array on the host.
        ImportError
            "cusparselt" without nvmath-python or cuSPARSELt: what to install.

        Notes
        -----
        Nothing is copied to the host. The arrays share the halves that are held; for "cusparselt"
        the library compresses each once more, on the device, into a buffer that is kept with it.
        """
        function = "SemiStructuredArray.to_backend"
        check_choice(function, "backend", backend, BACKENDS)
        if backend == self.backend:
            return self
        check_backend(function, backend, self._halves.any().packed)
        other = self.T.T
        other._backend = backend
        if backend == "cusparselt":
            self._halves.convert_for_vendor()
        return other

    def _save(self: Any, function: str, file: Any, compressed: bool) -> None:
        io.write(function, file, self.get(), compressed=compressed)

    @classmethod
    def load_npz(cls: Any, file: Any) -> Any:
        """Return the array of a file that `save_npz` wrote, on the host.

        Raises
        ------
        ValueError
            A file that holds no 2:4 matrix, holds an illegal code, or is damaged: file and member.
        OSError
            A file that cannot be opened or read.
        TypeError
            No file.
        """
        with reading(f"{cls.__name__}.load_npz", file) as members:
            members.check_format(io.FORMAT)
            return io.read(members, cls)

    def __reduce__(self: Any) -> tuple:
        cls: Any = type(self)
        make = partial(cls, dtype=self.dtype.name, backend=self.backend, check=False)
        return make, (self.shape, *self._parts())


def _half(function: str, matrix: Any, *, required: bool) -> tuple[Any, Any]:
    """Return a matrix compressed; two None if it is not 2:4 and not ``required``."""
    stored = padded_to_format(matrix, both=False)
    packed, meta, group = compress_matrix(stored, True, function)
    if group < 0:
        return packed, meta
    if required:
        raise not_24(function, "self", stored.shape[1], group, FORMATS[stored.dtype])
    return None, None
