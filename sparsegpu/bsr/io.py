"""Block-sparse arrays to files and back."""

from __future__ import annotations

from typing import Any

from . import npz
from .array import bsr_array


def save_npz(file: Any, array: bsr_array, *, compressed: bool = True) -> None:
    """Write a `bsr_array` to an ``.npz`` file, which `scipy.sparse.load_npz` reads too.

    SciPy does not read batches, float16 and bfloat16. A file given by its name is written
    atomically; one that it replaces passes its permissions on.

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
        When ``array`` is no `bsr_array`, or ``file`` no file.
    OSError
        When it cannot be written; what stood under the name is as it was.

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
    npz.write(file, array, compressed=compressed)


def load_npz(file: Any) -> bsr_array:
    """Read a `bsr_array` from an ``.npz`` file of this library or of SciPy (format "bsr").

    A file may be damaged, or made to do harm: pickled objects are refused, everything is checked,
    and a member that is not what the file's shape needs is refused before it is inflated.

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
        When the file holds something else, is damaged, or describes no matrix: file and member.
    OSError
        When it cannot be opened or read.
    TypeError
        When ``file`` is no file.

    Examples
    --------
    See `save_npz`.
    """
    return bsr_array._of(*npz.read(file))
