"""A kernel's registers, stack and shared memory, read from its cubin by a small ELF reader.

ptxas's report (``-Xptxas=-v``) says more, but some builds of NVRTC do not pass it on. Attributes
are those that ``cuobjdump -elf`` prints as EIATTR_REGCOUNT and EIATTR_FRAME_SIZE.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_HEADER = struct.Struct("<16x2HI3QI6H")  # ELF64 file header, after its 16 identifying bytes
_SECTION = struct.Struct("<2I4Q2I2Q")
_SYMBOL = struct.Struct("<I2BH2Q")
_REGCOUNT, _FRAME_SIZE, _PARAMETER = 0x2F, 0x11, 0x17
#: What ptxas prints where it serialises ``wgmma`` (C7510, C7514) or adds a wait (C7517), which it
#: calls warpgroup.wait before CUDA 13.
_WAITS = r"\(C75\d\d\) [^\n]*(?:wgmma|warpgroup\.wait)[^\n]* in (?:the )?function '{}'"
_PARAMETER_INFO = struct.Struct("<I2HI")  # of EIATTR_KPARAM_INFO: -, number, offset, size << 18


@dataclass(frozen=True, slots=True)
class Resources:
    """What a kernel uses: bytes a thread, and static shared memory in bytes a block.

    ``waits_for_wgmma``: ptxas's report says that it could not let products by ``wgmma`` run beside
    other instructions, and made these wait.
    """

    registers: int
    stack: int
    shared: int
    spill_stores: int | None = None
    spill_loads: int | None = None
    waits_for_wgmma: bool = False

    @property
    def spills(self) -> bool:
        """Whether registers go to local memory.

        Without ptxas's report, any use of local memory counts.
        """
        if self.spill_stores is None:
            return self.stack > 0
        return bool(self.spill_stores or self.spill_loads)


def read_resources(code: bytes, entry: str, log: str = "") -> Resources | None:
    """Return the resources of an entry point, or None where the cubin does not hold it.

    Parameters
    ----------
    code : bytes
        The cubin.
    entry : str
        Name of the kernel.
    log : str
        The compiler's log; spills, and waits for wgmma, are read from it when they are there.
    """
    sections = _sections(code)
    if f".text.{entry}" not in sections:
        return None
    symbol = _symbol_index(code, sections, entry)
    attributes = _attributes(code, sections.get(".nv.info"), symbol)
    shared = sections.get(f".nv.shared.{entry}")
    stores, loads = _spills(log, entry)
    return Resources(
        registers=attributes.get(_REGCOUNT, 0),
        stack=attributes.get(_FRAME_SIZE, 0),
        shared=0 if shared is None else shared[1],
        spill_stores=stores,
        spill_loads=loads,
        waits_for_wgmma=waits_for_wgmma(log, entry),
    )


def waits_for_wgmma(log: str, entry: str) -> bool:
    """Return whether ptxas says that an entry point waits for ``wgmma`` (see `Resources`)."""
    return re.search(_WAITS.format(re.escape(entry)), log) is not None


def parameter_sizes(code: bytes, entry: str) -> list[int]:
    """Return the bytes of each parameter of an entry point that the cubin holds."""
    sizes = {}
    for attribute, at, size in _values(code, _sections(code).get(f".nv.info.{entry}")):
        if attribute == _PARAMETER and size == _PARAMETER_INFO.size:
            _, number, _, word = _PARAMETER_INFO.unpack_from(code, at)
            sizes[number] = word >> 18
    return [sizes[number] for number in sorted(sizes)]


def _sections(code: bytes) -> dict[str, tuple[int, int]]:
    """Return where each section lies: name to (offset, size)."""
    if len(code) < _HEADER.size or code[:4] != b"\x7fELF":
        return {}
    fields = _HEADER.unpack_from(code)
    table, width, count, names = fields[5], fields[10], fields[11], fields[12]
    headers = [_SECTION.unpack_from(code, table + i * width) for i in range(count)]
    text = headers[names][4]
    found = {}
    for header in headers:
        end = code.index(b"\0", text + header[0])
        found[code[text + header[0] : end].decode()] = (header[4], header[5])
    return found


def _symbol_index(code: bytes, sections: dict[str, tuple[int, int]], name: str) -> int:
    offset, size = sections[".symtab"]
    text = sections[".strtab"][0]
    wanted = name.encode() + b"\0"
    for index in range(size // _SYMBOL.size):
        start = text + _SYMBOL.unpack_from(code, offset + index * _SYMBOL.size)[0]
        if code[start : start + len(wanted)] == wanted:
            return index
    return -1


def _attributes(code: bytes, section: tuple[int, int] | None, symbol: int) -> dict[int, int]:
    """Return the attributes that ``.nv.info`` holds for one symbol."""
    found: dict[int, int] = {}
    for attribute, at, size in _values(code, section):
        if size == 8:
            owner, value = struct.unpack_from("<2I", code, at)
            if owner == symbol:
                found[attribute] = value
    return found


def _values(code: bytes, section: tuple[int, int] | None) -> Iterator[tuple[int, int, int]]:
    """Yield the attributes of a section, each with the place of its value and its size."""
    at, size = section or (0, 0)
    end = at + size
    while at + 4 <= end:
        kind, attribute, size = struct.unpack_from("<2BH", code, at)
        at += 4
        if kind == 4:  # else the value is the size field itself
            yield attribute, at, size
            at += size


def _spills(log: str, entry: str) -> tuple[int | None, int | None]:
    start = log.find(f"Function properties for {entry}\n")
    if start < 0:
        return None, None
    match = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log[start:])
    return (int(match[1]), int(match[2])) if match else (None, None)
