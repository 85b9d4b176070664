"""All sparse arrays to ``.npz`` files and back."""

from __future__ import annotations

from typing import Any

from .._checks import bad_type, kind_of
from .._npz import reading
from .._protocols import Sparse
from ..bsr import npz
from ..bsr.array import BsrSemiStructuredArray, bsr_array
from ..bsr.block_mask import BlockMask
from ..ops._common import is_sparse
from ..semi_structured import SemiStructuredArray, io


def save_npz(file: Any, array: Any, *, compressed: bool = True) -> None:
    """Write a sparse array of any class to an ``.npz`` file.

    Files of a `bsr_array` are read by `scipy.sparse.load_npz`, too, unless they hold batches,
    float16 or bfloat16. A file given by its name is written atomically; one that it replaces
    passes its permissions on.

    Parameters
    ----------
    file : path or binary file object
        ``.npz`` is appended to a path without it, as NumPy does.
    array : bsr_array, SemiStructuredArray, BsrSemiStructuredArray or BlockMask
        On a GPU, it is copied to the host.
    compressed : bool
        Compress the file.

    Raises
    ------
    TypeError
        When ``array`` is no such array, or ``file`` no file.
    ValueError
        An array whose parts no longer fit its pattern.
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
    function = "save_npz"
    if isinstance(array, Sparse):
        array._save(function, file, compressed)
    elif is_sparse(array) and hasattr(array, "get"):  # as operations take it
        npz.write(function, file, array, compressed=compressed)
    else:
        raise bad_type(function, "array", "a sparse array of sparsegpu", kind_of(array))


def load_npz(file: Any) -> Any:
    """Read a sparse array from an ``.npz`` file of `save_npz`, or of SciPy (format "bsr").

    A file may be damaged, or made to do harm: pickled objects are refused, everything is checked,
    and a member that is not what the file's shape needs is refused before it is inflated.

    Parameters
    ----------
    file : path or binary file object

    Returns
    -------
    bsr_array, SemiStructuredArray, BsrSemiStructuredArray or BlockMask
        On the host (`bsr_array.to_device` moves it).

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
    with reading("load_npz", file) as members:
        if "format" not in members:
            raise members.refusal(
                "a sparse array of sparsegpu or SciPy (for an array of numpy.savez: "
                "bsr_array(numpy.load(file)[name], blocksize=...))",
                f"{members.named()}, and no 'format'",
            )
        kind = members.word("format")
        if kind in npz.FORMATS:
            return bsr_array._of(*npz.read(members))
        if kind == npz.FORMAT_24:
            return npz.read_24(members, BsrSemiStructuredArray)
        if kind == npz.FORMAT_MASK:
            return npz.read_mask(members, BlockMask)
        if kind == io.FORMAT:
            return io.read(members, SemiStructuredArray)
        raise members.refusal(
            "a sparse array of sparsegpu, or SciPy's format 'bsr' (for SciPy's others: "
            "bsr_array(scipy.sparse.load_npz(file), blocksize=...))",
            f"format {kind!r}",
        )
