"""Names and C types of a kernel's parameters, read from the declaration in its source."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

import ml_dtypes
import numpy as np


class Declared(NamedTuple):
    """One parameter: ``type`` is the C type's words; of a pointer, of what it points to."""

    name: str
    type: str
    pointer: bool
    const: bool


#: The types of C and CUDA that are numbers.
DTYPES = {
    "bool": "bool", "char": "i1", "signed char": "i1", "unsigned char": "u1", "short": "i2",
    "unsigned short": "u2", "int": "i4", "unsigned": "u4", "unsigned int": "u4", "long": "i8",
    "unsigned long": "u8", "long long": "i8", "unsigned long long": "u8", "size_t": "u8",
    "float": "f4", "double": "f8", "int8_t": "i1", "uint8_t": "u1", "int16_t": "i2",
    "uint16_t": "u2", "int32_t": "i4", "uint32_t": "u4", "int64_t": "i8", "uint64_t": "u8",
    "uintptr_t": "u8", "intptr_t": "i8", "ptrdiff_t": "i8", "CUdeviceptr": "u8", "uchar": "u1",
    "ushort": "u2", "uint": "u4", "ulong": "u8", "__half": "f2", "half": "f2",
    "__nv_bfloat16": "bfloat16",
}  # fmt: skip
_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_ENTRY = r"__global__\b[^;{{}}]*?\b{name}\s*\((?P<inside>[^()]*)\)"
_FORMAL = re.compile(r"\s*(?P<type>[\w\s:*&<>,]+?)\s*\b(?P<name>\w+)\s*(?P<array>\[\d*\])?\s*")
_ALIAS = re.compile(
    r"\btypedef\b(?P<old>[^;{}()]+);|\busing\s+(?P<new>\w+)\s*=(?P<type>[^;{}()]+);"
)
_QUALIFIERS = {"const", "volatile", "__restrict__", "__restrict", "__grid_constant__", "struct"}


def dtype_of(words: str) -> np.dtype | None:
    """Return the dtype of a C type, None of one that is not known."""
    name = DTYPES.get(words)
    if name is None:
        return None
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def parameters_of(text: str, name: str, defined: Collection[str] = ()) -> list[Declared] | None:
    """Return what a source declares of a kernel's parameters.

    None where the declaration is not found or not plain, or where macros (those of the text, and
    the ``defined`` ones) may hide what it says.
    """
    text = _COMMENT.sub(lambda m: m[0] if m[0][0] == '"' else " ", text)
    found = list(re.finditer(_ENTRY.format(name=re.escape(name)), text))
    if not found or len({match["inside"] for match in found}) > 1:
        return None
    inside = found[0]["inside"]
    macros = {*defined, *re.findall(r"^\s*#\s*define\s+(\w+)", text, re.MULTILINE)}
    if macros.intersection(re.findall(r"\w+", inside)):
        return None
    if inside.strip() in {"", "void"}:
        return []
    aliases = _aliases(text)
    declared = [_declared(part, aliases) for part in re.split(r",(?![^<]*>)", inside)]
    known = [d for d in declared if d is not None]
    return known if len(known) == len(declared) == len({d.name for d in known}) else None


def _aliases(text: str) -> dict[str, str]:
    """Return what a text's ``typedef`` and ``using`` say: names of types, "" of pointers."""
    found: dict[str, str] = {}
    for match in _ALIAS.finditer(text):
        if match["new"]:
            named = [(match["type"], match["new"])]
        else:
            first, *others = match["old"].split(",")
            parts = re.fullmatch(r"(.*?)(\w+)\s*(\[.*)?", first.strip(), re.DOTALL)
            named = [(parts[1] + (parts[3] or ""), parts[2])] if parts else []
            named += [("", word) for other in others for word in re.findall(r"\w+", other)]
        for words, name in named:
            plain = "" if set(words) & set("*&<>:[]") else _plain(words)
            found[name] = plain if found.get(name, plain) == plain else ""
    return found


def _plain(words: str) -> str:
    return _sorted(" ".join(word for word in words.split() if word not in _QUALIFIERS))


def _declared(text: str, aliases: Mapping[str, str]) -> Declared | None:
    match = _FORMAL.fullmatch(text)
    if match is None or match["name"] in DTYPES or match["name"] in _QUALIFIERS:
        return None
    pointed = match["type"].partition("*")[0]
    words = pointed.split()
    plain = _plain(pointed)
    for _ in aliases:  # of which some may be others'
        plain = aliases.get(plain, plain)
    pointer = "*" in match["type"] or bool(match["array"])
    deep = match["type"].count("*") > 1
    return Declared(match["name"], "" if deep else plain, pointer, "const" in words)


def _sorted(words: str) -> str:
    """Return a type's words in one order: ``long unsigned int`` is ``unsigned long``."""
    split = words.split()
    if not {"unsigned", "long", "short", "signed"} & set(split):
        return words
    rest = [w for w in split if w not in {"unsigned", "signed", "int"}]
    sign = ["unsigned"] if "unsigned" in split else ["signed"] if rest == ["char"] else []
    return " ".join([*sign, *rest]) or "int"
