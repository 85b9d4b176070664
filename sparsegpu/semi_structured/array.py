"""`SemiStructuredArray`: a 2:4 matrix, compressed by rows, by columns, or both."""

from __future__ import annotations

from typing import Any

from .._arrays import check_dtype_name, device_name
from .._checks import check_axes, check_flags
from .._format_24 import FORMATS
from .._protocols import leaves
from ..ops._common import optional_array
from ..ops.prune_tiles import tiled
from ..ops.semi_structured import matmul
from .arithmetic import Arithmetic
from .compare import Comparisons
from .convert import Conversions, check_backend
from .draw import Drawings
from .fields import Fields
from .from_dense import compressed_matrix, dense_matrix
from .layout import Halves, padded_to_format


class SemiStructuredArray(Fields, Arithmetic, Comparisons, Conversions, Drawings):
    """A 2:4 matrix over NumPy or CuPy: of four consecutive elements of a row two are kept.

    float32 keeps one of each two. Made by `from_dense`, `prune_dense_static_sort` or
    `load_npz`; the constructor takes the parts.

    Parameters
    ----------
    shape : (m, k)
        Logical shape; the parts may be larger by zero padding.
    packed, meta : arrays, or None
        As `semi_structured_from_dense` gives them.
    packed_t, meta_t : arrays, or None
        The same of the transpose. At least one of the halves is needed.
    bitmask : uint8 array, optional
        As `compressed_swizzled_bitmask` gives it.
    dtype : dtype, optional
        What the values stand for; in CuPy float8_e4m3fn is held as uint8 under this tag.
    backend : {"native", "cusparselt"}
    check : bool
        Look at every code of the metadata, as `check_meta` does (one synchronisation on a GPU).
        False trusts the caller: a group with an illegal code may lose a value.

    Attributes
    ----------
    shape, dtype, backend
    packed, meta, packed_t, meta_t, bitmask : arrays, or None where not held
        Not to be written to: a half that was built from the other does not follow.

    Raises
    ------
    ValueError, TypeError
        Parts that do not match; an illegal code (ValueError), naming row and group.
    ImportError
        ``backend="cusparselt"`` without nvmath-python or cuSPARSELt: what to install.
    NotImplementedError
        With ``check``, while a CUDA graph is captured.

    Notes
    -----
    ``A @ x`` works on the half by rows, ``x @ A`` on the transposed one. A half that is missing
    is built by the first product that needs it and kept. The transpose of a 2:4 matrix need not
    be 2:4; then the product uses ``[first | rest]``, two 2:4 matrices side by side that add up
    to it, which take twice the memory and are not attributes.

    Comparisons (``A == 0``, ``A != B``) are elementwise and dense, of bool. ``2 * A``, ``A / 2``,
    ``-A``, ``abs(A)``, functions that are zero at zero (``numpy.sqrt(A)``), and ``A + B``,
    ``A - B`` and ``A * B`` of arrays that keep the same elements work on the kept values.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsegpu import SemiStructuredArray
    >>> dense = np.tile(np.array([0, 5, 0, 7], np.float32), (32, 4))
    >>> A = SemiStructuredArray.from_dense(dense)
    >>> A
    <sparsegpu.SemiStructuredArray, shape (32, 16), float32, 1:2, native, on cpu>
    >>> A @ np.ones(16, np.float32)  # doctest: +ELLIPSIS
    array([48., 48., ...], dtype=float32)
    """

    __slots__ = ("__weakref__", "_backend", "_bitmask", "_halves", "_kept_bitmask", "_transposed")

    ndim = 2

    def __init__(
        self,
        shape: tuple[int, int],
        packed: Any,
        meta: Any,
        packed_t: Any = None,
        meta_t: Any = None,
        bitmask: Any = None,
        *,
        dtype: Any = None,
        backend: str = "native",
        check: bool = True,
    ):
        parts = (packed, meta, packed_t, meta_t, bitmask)
        check_flags("SemiStructuredArray", check=check)
        self._fill("SemiStructuredArray", shape, parts, dtype, backend, check=check)

    def _fill(
        self, function: str, shape: Any, parts: tuple, dtype: Any, backend: str, *, check: bool
    ) -> None:
        packed, meta, packed_t, meta_t, bitmask = parts
        check_backend(function, backend, packed if packed is not None else packed_t)
        wanted = None if dtype is None else check_dtype_name(function, "dtype", dtype)
        self._halves = Halves(shape, ((packed, meta), (packed_t, meta_t)), wanted, check, function)
        self._bitmask = optional_array(bitmask, function, "bitmask")
        self._kept_bitmask = None
        if self._bitmask is not None:
            self._halves.check_bitmask(function, self._bitmask)
            self._kept_bitmask = self._bitmask.view()  # no user can set the shape of this view
        self._transposed = False
        self._backend = backend
        if backend == "cusparselt":
            self._halves.convert_for_vendor()

    # -- making one ---------------------------------------------------------------------------

    @classmethod
    def from_dense(
        cls,
        dense: Any,
        backend: str = "native",
        pad: bool = False,
        strict: bool = True,
        *,
        dtype: Any = None,
    ) -> SemiStructuredArray:
        """Compress a dense 2:4 matrix.

        Parameters
        ----------
        dense : array (m, k)
            float16, bfloat16, float32, int8 or float8_e4m3fn (in CuPy: its bytes, uint8); any
            strides.
        backend : {"native", "cusparselt"}
        pad : bool
            Pad with zeros to the multiples of the format; products have the logical shape. The
            end of a row that is shorter than a group, which `prune_24` leaves as it is, becomes
            a group like any other.
        strict : bool
            Refuse a matrix that is not 2:4; False drops what is too much.
        dtype : dtype, optional
            What ``dense`` stands for, if its own dtype cannot say.

        Raises
        ------
        ValueError
            A shape that does not fit without ``pad``; ``strict`` and not 2:4.
        TypeError
            Another dtype.
        ImportError
            As the class.

        Examples
        --------
        >>> import numpy as np
        >>> from sparsegpu import SemiStructuredArray
        >>> A = SemiStructuredArray.from_dense(np.eye(5, dtype=np.float16), pad=True)
        >>> A.shape, A.packed.shape
        ((5, 5), (32, 16))
        """
        function = "SemiStructuredArray.from_dense"
        return compressed_matrix(function, cls, dense, backend, pad, strict, dtype)

    @classmethod
    def prune_dense_static_sort(
        cls,
        dense: Any,
        algorithm: str = "largest_abs_values_greedy",
        *,
        backend: str = "native",
        pad: bool = False,
        dtype: Any = None,
    ) -> SemiStructuredArray:
        """Prune by 4 x 4 tiles and hold the matrix, its transpose and the bitmask.

        Parameters
        ----------
        dense : array (m, k)
            float16, bfloat16, int8 or float8_e4m3fn.
        algorithm : str
            See `prune_tile`.
        backend, pad, dtype
            As in `from_dense`.

        Raises
        ------
        ValueError
            A shape that does not fit both orientations without ``pad``; another algorithm.
        TypeError
            float32, or another dtype.

        Examples
        --------
        >>> import numpy as np
        >>> from sparsegpu import SemiStructuredArray
        >>> A = SemiStructuredArray.prune_dense_static_sort(np.ones((32, 64), np.float16))
        >>> A.T.packed.shape, int(A.todense().sum())
        ((64, 16), 1024)
        """
        function = "SemiStructuredArray.prune_dense_static_sort"
        check_flags(function, pad=pad)
        check_backend(function, backend, dense)
        dense = dense_matrix(function, dense)
        stored = padded_to_format(dense, both=True) if pad else dense
        parts = tiled(function, stored, algorithm)
        return cls._made(function, dense.shape, parts, dtype, backend)

    @classmethod
    def _made(cls, function: str, shape: Any, parts: tuple, dtype: Any, backend: str) -> Any:
        """Return an array for a function of another name than the constructor's."""
        array = object.__new__(cls)
        array._fill(function, shape, parts, dtype, backend, check=False)
        return array

    # -- the other side ------------------------------------------------------------------------

    @property
    def T(self) -> SemiStructuredArray:
        """The transpose: the two halves are swapped, nothing is computed."""
        other = object.__new__(type(self))
        other._halves, other._bitmask = self._halves, self._bitmask
        other._kept_bitmask = self._kept_bitmask
        other._transposed, other._backend = not self._transposed, self._backend
        return other

    def transpose(self, axes: Any = None, copy: bool = False) -> SemiStructuredArray:
        """Return `T`; the arguments are those of `bsr_array.transpose`, where nothing is copied.

        Raises
        ------
        ValueError
            Other axes than None or (1, 0).
        TypeError
            ``axes`` that are no pair of integers.
        """
        del copy
        check_axes("SemiStructuredArray.transpose", axes)
        return self.T

    # -- operators ----------------------------------------------------------------------------

    def __matmul__(self, other: Any) -> Any:
        if leaves(other, "__rmatmul__"):
            return NotImplemented
        return matmul("SemiStructuredArray @", self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return matmul("SemiStructuredArray @", self, other, from_the_right=True)

    def __repr__(self) -> str:
        rule = FORMATS[self.dtype].rule
        return (
            f"<sparsegpu.SemiStructuredArray, shape {self.shape}, {self.dtype}, {rule}, "
            f"{self.backend}, on {device_name(self._halves.any().packed)}>"
        )


def to_semi_structured(
    dense: Any,
    *,
    backend: str = "native",
    pad: bool = False,
    strict: bool = True,
    dtype: Any = None,
) -> SemiStructuredArray:
    """Return a dense 2:4 matrix as a `SemiStructuredArray`: its `SemiStructuredArray.from_dense`.

    Parameters
    ----------
    dense : array (m, k)
    backend, pad, strict, dtype
        As in `SemiStructuredArray.from_dense`.

    Returns
    -------
    SemiStructuredArray

    Raises
    ------
    ValueError, TypeError, ImportError
        As `SemiStructuredArray.from_dense`.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsegpu import prune_24, to_semi_structured
    >>> to_semi_structured(prune_24(np.ones((32, 64), np.float16)))
    <sparsegpu.SemiStructuredArray, shape (32, 64), float16, 2:4, native, on cpu>
    """
    function = "to_semi_structured"
    return compressed_matrix(function, SemiStructuredArray, dense, backend, pad, strict, dtype)
