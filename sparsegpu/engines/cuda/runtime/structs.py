"""Structs that kernels take by value: read from their sources, packed by the names of their fields.

A struct's declaration in ``cuda_src`` is its one description. It is plain: integers and pointers,
in lines such as ``long long batches, groups;  // what they are``.
"""

from __future__ import annotations

import re
import struct
from functools import lru_cache

from .source import expand

# The codes of `struct` for the types of C, on platforms that CUDA runs on.
_CODES = {"long long": "q", "unsigned long long": "Q", "int": "i", "unsigned": "I"}
_POINTER = "Q"
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_FIELDS = re.compile(r"(?:const\s+)?(\w+(?:\s+long)*)\s*(.+)", re.DOTALL)


class KernelStruct:
    """A struct as a kernel takes it.

    Parameters
    ----------
    name : str
    body : str
        The text between the braces of its declaration, without comments.

    Attributes
    ----------
    fields : tuple of str
        Names, as they are declared.
    size : int
        Bytes.

    Examples
    --------
    >>> problem = KernelStruct("Problem", "long long batches; int m, n; const float* values;")
    >>> problem.fields, problem.size
    (('batches', 'm', 'n', 'values'), 24)
    >>> problem(batches=2, m=3, n=4, values=0)[:12].hex()
    '020000000000000003000000'
    """

    __slots__ = ("_struct", "fields", "name")

    def __init__(self, name: str, body: str):
        self.name = name
        fields: dict[str, str] = {}
        for declaration in filter(None, map(str.strip, body.split(";"))):
            match = _FIELDS.fullmatch(declaration)
            kind = " ".join(match[1].split()) if match else ""
            for declared in match[2].split(",") if match else ():
                field = declared.strip()
                pointer = field.startswith("*")
                if not pointer and kind not in _CODES:
                    raise TypeError(f"struct {name}: no plain field: {declaration!r}")
                fields[field.lstrip("* ")] = _POINTER if pointer else _CODES[kind]
        self.fields = tuple(fields)
        # The last code rounds the size up to the alignment of the widest field, as C does.
        widest = max(fields.values(), key=lambda code: struct.calcsize(code), default="i")
        self._struct = struct.Struct(f"@{''.join(fields.values())}0{widest}")

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return self._struct.size

    def __call__(self, **values: int) -> bytes:
        """Return the struct as the argument of a launch; every field must be named."""
        try:
            ordered = [values[field] for field in self.fields]
        except KeyError:
            ordered = []
        if len(ordered) != len(values):
            odd = ", ".join(sorted(values.keys() ^ set(self.fields)))
            raise TypeError(f"struct {self.name}: fields that lack or are unknown: {odd}")
        return self._struct.pack(*ordered)


@lru_cache(maxsize=256)
def kernel_struct(source: str, name: str) -> KernelStruct:
    """Return a struct that ``cuda_src/<source>.cu`` declares, or a header that it includes.

    Raises
    ------
    LookupError
        There is none of that name.
    """
    text = _COMMENT.sub("", expand(source))
    match = re.search(rf"^struct {name} \{{([^}}]*)\}};", text, re.MULTILINE)
    if match is None:
        raise LookupError(f"cuda_src/{source}.cu declares no plain struct {name}")
    return KernelStruct(name, match[1])
