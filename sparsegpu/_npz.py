"""``.npz`` files: written whole or not at all, read without trust.

A file may come from anybody, damaged or made to do harm. So no pickle is read, only the members
that are asked for are inflated, each after its declared size, dtype and shape were looked at, and
whatever is wrong is a ValueError that names file and member.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from math import prod
from typing import Any, BinaryIO

import numpy as np

from ._checks import bad_type, bad_value, check_flags, check_sizes

#: Deflate makes at most so many bytes of one: 258 of a code of two bits.
_MOST_INFLATED = 1032
#: Bytes of the longest word, and integers of the longest shape, that a file of ours has.
_LONGEST_WORD, _LONGEST_SHAPE = 256, 64
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def write_npz(function: str, file: Any, parts: dict[str, Any], *, compressed: bool) -> None:
    """Write arrays to a file object, or to a path: by renaming a temporary file beside it.

    ``.npz`` is appended to a path without it, as NumPy does. See `replacing`.
    """
    check_flags(function, compressed=compressed)
    write = np.savez_compressed if compressed else np.savez
    if hasattr(file, "write"):
        write(file, **parts)
        return
    path = path_of(function, file)
    with replacing(path if path.endswith(".npz") else f"{path}.npz") as stream:
        write(stream, **parts)


@contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """Open a temporary file that takes the place of ``path`` in the end, or none on an error.

    A file that is replaced passes its permissions on, and a link goes on pointing to it.
    """
    given, path = path, os.path.realpath(path)
    name = f".sparsegpu-{os.urandom(8).hex()}{os.path.splitext(path)[1]}"
    whole = os.path.join(os.path.dirname(path), name)
    try:
        with open(whole, "xb") as stream:  # the system gives it the permissions of any new file
            yield stream
        if os.path.exists(path):
            os.chmod(whole, os.stat(path).st_mode & 0o777)
        os.replace(whole, path)
    except BaseException as error:
        with suppress(FileNotFoundError):
            os.unlink(whole)
        if isinstance(error, OSError) and error.filename == whole:  # which no caller knows
            raise type(error)(error.errno, error.strerror, given) from None
        raise


def path_of(function: str, file: Any) -> str:
    """Return the path that a caller gave for a file."""
    try:
        return os.fsdecode(file)
    except TypeError:
        expected = "a path or a binary file object"
        raise bad_type(function, "file", expected, type(file).__name__) from None


@contextmanager
def reading(function: str, file: Any) -> Iterator[Members]:
    """Give the members of a file, a path or a binary file object, while the ``with`` block lasts.

    Raises
    ------
    ValueError
        No ``.npz`` file.
    OSError
        A file that cannot be opened or read.
    """
    is_stream = hasattr(file, "read")
    with nullcontext(file) if is_stream else open(path_of(function, file), "rb") as stream:
        yield Members(function, stream)


class Members:
    """The arrays in an ``.npz`` file, each read when it is asked for.

    Parameters
    ----------
    function : str
        Whose argument ``file`` this is, for messages.
    stream : binary file object

    Attributes
    ----------
    name : str
        The file, for messages.
    """

    def __init__(self, function: str, stream: Any):
        self._function = function
        self.name = str(getattr(stream, "name", type(stream).__name__))
        import zipfile  # what only readers of files need

        with self.explained("an .npz file"):
            self._size = stream.seek(0, os.SEEK_END)
            self._archive = zipfile.ZipFile(stream)

    @contextmanager
    def explained(self, expected: str, member: str = "") -> Iterator[None]:
        """Say of which file, and member, whatever is wrong with its contents was found.

        What the parsers of archives and headers raise at damaged bytes is no closed list
        (BadZipFile, zlib.error, EOFError, NotImplementedError, tokenize.TokenError, ...).
        """
        try:
            yield
        except MemoryError:  # of a large file that is in order
            raise
        except OSError as error:
            where = self._where(expected, member)
            message = f"{self._function}: argument 'file': cannot read {where}: {error}"
            raise OSError(message) from error
        except Exception as error:
            got = f"{type(error).__name__}: {error!s:.300}"  # some quote all that they read
            raise self.refusal(expected, got, member) from error

    def refusal(self, expected: str, got: Any, member: str = "") -> ValueError:
        """Return the error for a file, or a member, that is not as expected."""
        return bad_value(self._function, "file", self._where(expected, member), got)

    def _where(self, expected: str, member: str) -> str:
        return f"{expected} in {f'member {member!r} of ' * bool(member)}{self.name}"

    def named(self) -> str:
        """Return what the arrays of the file are called, for messages: the first few."""
        names = [name.removesuffix(".npy") for name in self._archive.NameToInfo]
        shown = ", ".join(repr(name[:40]) for name in names[:4])
        return f"{shown}, ..." if len(names) > 4 else shown or "no array"

    def __contains__(self, member: str) -> bool:
        return f"{member}.npy" in self._archive.NameToInfo

    def declared(self, member: str) -> np.ndarray:
        """Return an array of the dtype and shape that a member declares, without its memory.

        Checks of metadata take it for the array itself, which is not inflated.
        """
        info = self._archive.NameToInfo.get(f"{member}.npy")
        if info is None:
            raise self.refusal("an array", "none", member)
        from zipfile import ZIP_DEFLATED, ZIP_STORED

        sizes = {
            ZIP_STORED: (info.file_size == info.compress_size),
            ZIP_DEFLATED: info.file_size <= _MOST_INFLATED * info.compress_size,
        }
        if not sizes.get(info.compress_type, False) or info.compress_size > self._size:
            got = f"{info.file_size} (method {info.compress_type})"
            expected = f"a size that {min(info.compress_size, self._size)} bytes, deflated, hold"
            raise self.refusal(expected, got, member)
        with self.explained("an array", member), self._archive.open(info) as stream:
            version = np.lib.format.read_magic(stream)
            if version not in _HEADERS:
                raise ValueError(f"version {version} of the .npy format")
            try:
                shape, _, dtype = _HEADERS[version](stream)
            except MemoryError as error:  # Python's parser says so, not the machine
                raise ValueError("a header that is nested too deep") from error
            start = stream.tell()
            array = np.broadcast_to(np.zeros((), dtype), shape)
        if dtype.hasobject:
            raise self.refusal("an array without pickled objects", f"dtype {dtype}", member)
        nbytes = start + prod(shape) * dtype.itemsize
        if info.file_size != nbytes:
            got = f"{info.file_size} bytes"
            raise self.refusal(f"{nbytes} bytes, as its header says,", got, member)
        return array

    def array(
        self, member: str, shape: tuple[int, ...] | None = None, dtype: Any = None
    ) -> np.ndarray:
        """Return a member, inflated only if it has the shape and dtype (None: any)."""
        declared = self.declared(member)
        if shape is not None and declared.shape != shape:
            raise self.refusal(f"shape {shape}", declared.shape, member)
        if dtype is not None and declared.dtype != dtype:
            raise self.refusal(f"dtype {dtype}", declared.dtype, member)
        with self.explained("an array", member), self._archive.open(f"{member}.npy") as stream:
            return np.lib.format.read_array(stream, allow_pickle=False)

    def word(self, member: str) -> str:
        """Return a member that is one short string."""
        declared = self.declared(member)
        if declared.shape or declared.dtype.kind not in "SU" or declared.nbytes > _LONGEST_WORD:
            raise self.refusal("a word", described(declared), member)
        word = self.array(member).item()
        return word.decode(errors="replace") if isinstance(word, bytes) else word

    def choice(self, member: str, name: str, choices: dict[str, Any]) -> Any:
        """Return what a name that was found in a member stands for."""
        if name not in choices:
            raise self.refusal(f"one of {', '.join(choices)}", name, member)
        return choices[name]

    def check_format(self, expected: str) -> None:
        """Refuse a file of another kind."""
        found = self.word("format") if "format" in self else "none"
        if found != expected:
            kind = self._function.partition(".")[0]
            raise self.refusal(f"a saved {kind}", f"format {found!r}")

    def shape(self, member: str, *, ndim: int | None = None) -> Any:
        """Return a member that is a shape, of ``ndim`` dimensions, as ints."""
        declared = self.declared(member)
        most = _LONGEST_SHAPE if ndim is None else ndim
        count = declared.size
        if (
            declared.dtype.kind not in "iu"
            or declared.ndim != 1
            or not (ndim or 2) <= count <= most
        ):
            raise self.refusal("the integers of a shape", described(declared), member)
        shape = tuple(self.array(member).tolist())
        with self.explained("a shape", member):
            return check_sizes(self._function, member, shape, "integers")


def described(array: np.ndarray) -> str:
    """Return dtype and shape, for messages."""
    return f"{array.dtype} of shape {array.shape}"
