"""What a 2:4 array turns into: dense, host, device, another backend, a file, a pickle."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays import device_of, float8_e4m3fn
from .._checks import bad_type, check_choice
from ..engines.cusparselt.availability import why_not
from ..ops._common import on_device
from . import io

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


class Conversions:
    """Conversions of `SemiStructuredArray`."""

    __slots__ = ()

    def todense(self: Any) -> Any:
        """Return the dense matrix, of the logical shape (float8 in CuPy: its bytes)."""
        with on_device(self._halves.any().packed):
            return self._halves.dense(int(self._transposed))

    toarray = todense

    def _parts(self: Any) -> tuple:
        return tuple(getattr(self, name) for name in io.PARTS)

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
        return type(self)(self.shape, *parts)

    def to_device(self: Any, device: int | None = None) -> Any:
        """Return the array on a CUDA device (itself, if it is there already).

        Parameters
        ----------
        device : int, optional
            Device number; the current device by default. The backend stays as it is.

        Raises
        ------
        ImportError
            When CuPy is not installed.
        """
        import cupy

        if device is None:
            device = cupy.cuda.runtime.getDevice()
        if device_of(self._halves.any().packed) == device:
            return self

        def move(array: Any) -> Any:
            if array is None:
                return None
            return cupy.asarray(array.view(np.uint8) if array.dtype == float8_e4m3fn else array)

        with cupy.cuda.Device(device):
            parts = [move(array) for array in self._parts()]
            return type(self)(self.shape, *parts, dtype=self.dtype, backend=self.backend)

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
        Nothing goes through the host. The arrays share the halves that are held; for "cusparselt"
        the library compresses each once more, on the device, into a buffer that is kept with it.
        """
        function = "SemiStructuredArray.to_backend"
        if backend == self.backend:
            return self
        check_backend(function, backend, self._halves.any().packed)
        other = self.T.T
        other._backend = backend
        if backend == "cusparselt":
            self._halves.convert_for_vendor()
        return other

    def save_npz(self: Any, file: Any, compressed: bool = True) -> None:
        """Write the array to a ``.npz`` file that `load_npz` reads.

        Parameters
        ----------
        file : str, path or binary file
        compressed : bool
        """
        io.save_npz(file, self.get(), compressed=compressed)

    @classmethod
    def load_npz(cls: Any, file: Any) -> Any:
        """Return the array of a file that `save_npz` wrote, on the host.

        Raises
        ------
        ValueError
            A file that holds no 2:4 matrix.
        """
        fields = io.load_npz(file)
        return cls(**fields)

    def __reduce__(self: Any) -> tuple:
        return _restore, (type(self), self.shape, self._parts(), self.dtype.name, self.backend)


def _restore(cls: type, shape: tuple, parts: tuple, dtype: str, backend: str) -> Any:
    return cls(shape, *parts, dtype=dtype, backend=backend)
