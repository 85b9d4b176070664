"""Files: SciPy's ``.npz`` layout wherever SciPy can hold the array.

=============  =====================================================================
key            value
=============  =====================================================================
``format``     ``b"bsr"``; ``b"sparsegpu.bsr"`` where SciPy has no such array (a batch,
               float16, bfloat16), so that SciPy refuses the file by its format
``shape``      (*batch, M, K)
``data``       the blocks; bfloat16 as uint16 with the same bits
``indices``, ``indptr``  as the fields
``_is_array``  True, SciPy's mark of a sparse array
``dtype``      name of the dtype, beside ``sparsegpu.bsr``
=============  =====================================================================
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np

from .._arrays import HALF_DTYPES, bfloat16, dtype_of
from .._checks import bad_type, bad_value
from ..ops._common import check_sparse, is_sparse

if TYPE_CHECKING:
    from .array import bsr_array

_OURS = b"sparsegpu.bsr"
_KEYS = ("data", "indices", "indptr", "shape")


def save_npz(file: Any, array: bsr_array, *, compressed: bool = True) -> None:
    """Write a `bsr_array` to an ``.npz`` file, which `scipy.sparse.load_npz` reads too.

    SciPy does not read batches, float16 and bfloat16. A file given by its name appears whole or
    not at all.

    Parameters
    ----------
    file : path or binary file object
        ``.npz`` is appended to a path without it, as NumPy does.
    array : bsr_array
        On a GPU, it is copied to the host.
    compressed : bool
        Compress the file.

    Raises
    ------
    TypeError
        When ``array`` is no `bsr_array`.

    Examples
    --------
    >>> import io, numpy as np, sparsegpu
    >>> A = sparsegpu.bsr_array(np.eye(4), blocksize=(2, 2))
    >>> file = io.BytesIO()
    >>> sparsegpu.save_npz(file, A)
    >>> _ = file.seek(0)
    >>> sparsegpu.load_npz(file)
    <sparsegpu.bsr_array, shape (4, 4), float64, 2 blocks of 2x2 stored (density 0.5), on cpu>
    """
    if not (is_sparse(array) and hasattr(array, "get")):
        expected = "a bsr_array (others have a method save_npz)"
        raise bad_type("save_npz", "array", expected, type(array).__name__)
    check_sparse("save_npz", "array", array)
    array = array.get()
    parts: dict[str, Any] = {
        "format": b"bsr",
        "shape": np.array(array.shape, dtype=np.int64),
        "data": array.data,
        "indices": array.indices,
        "indptr": array.indptr,
        "_is_array": True,
    }
    if array.ndim > 2 or array.dtype in HALF_DTYPES:
        parts |= {"format": _OURS, "dtype": array.dtype.name}
    if array.dtype == bfloat16:
        parts["data"] = np.ascontiguousarray(array.data).view(np.uint16)
    write_npz(file, parts, compressed=compressed)


def write_npz(file: Any, parts: dict[str, Any], *, compressed: bool) -> None:
    """Write arrays to a file object, or to a path where the file appears whole or not at all.

    ``.npz`` is appended to a path without it, as NumPy does.
    """
    write = np.savez_compressed if compressed else np.savez
    if hasattr(file, "write"):
        write(file, **parts)
        return
    path = os.fspath(file)
    path = path if path.endswith(".npz") else f"{path}.npz"
    with tempfile.NamedTemporaryFile(
        dir=os.path.dirname(path) or ".", prefix=".sparsegpu-", suffix=".npz", delete=False
    ) as whole:
        try:
            write(whole, **parts)
            whole.close()
            os.chmod(whole.name, 0o666 & ~_umask())
            os.replace(whole.name, path)
        except BaseException:
            os.unlink(whole.name)
            raise


def _umask() -> int:
    """Return the process's mask of file permissions (it can only be read by setting it)."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def load_npz(file: Any) -> bsr_array:
    """Read a `bsr_array` from an ``.npz`` file of this library or of SciPy (format "bsr").

    The contents are checked, and pickled objects refused.

    Parameters
    ----------
    file : path or binary file object

    Returns
    -------
    bsr_array
        On the host (`to_device` moves it).

    Raises
    ------
    ValueError
        When the file holds something else, or describes no matrix.
    OSError
        When it cannot be read.

    Examples
    --------
    See `save_npz`.
    """
    from .array import bsr_array

    try:
        loaded = np.load(file, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise bad_value("load_npz", "file", "an .npz file", error) from error
    if not isinstance(loaded, np.lib.npyio.NpzFile):
        raise bad_value("load_npz", "file", "an .npz file", "a single array")
    with loaded:
        kind = loaded["format"].item() if "format" in loaded else "none"
        kind = kind.encode() if isinstance(kind, str) else kind
        if kind not in {b"bsr", _OURS}:
            raise bad_value(
                "load_npz",
                "file",
                "a block-sparse array (format 'bsr'; for SciPy's others: "
                "bsr_array(scipy.sparse.load_npz(file), blocksize=...); for 2:4: load_npz of "
                "SemiStructuredArray and BsrSemiStructuredArray)",
                f"format {kind!r}",
            )
        missing = [key for key in _KEYS if key not in loaded]
        if missing:
            raise bad_value("load_npz", "file", f"the keys {', '.join(_KEYS)}", f"no {missing}")
        data, shape = loaded["data"], loaded["shape"].tolist()
        if kind == _OURS:
            dtype = dtype_of(str(loaded["dtype"]))
            data = data.view(bfloat16) if dtype == bfloat16 else data
        return bsr_array((data, loaded["indices"], loaded["indptr"]), shape=shape)
