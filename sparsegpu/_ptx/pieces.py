"""What operands name, and parameters of a kernel that it reads in pieces."""

from __future__ import annotations

import re

from . import opcodes
from .lexer import Function, Instruction, Place

_NOWHERE = Place(0, 0)


class NotUnderstood(ValueError):
    """An instruction that the analysis does not know, and its source line; the kernel is opaque."""

    def __init__(self, why: str, place: Place = _NOWHERE):
        super().__init__(why)
        self.place = place


def not_understood(instruction: Instruction, error: Exception) -> NotUnderstood:
    """Return the error of an instruction, of what went wrong when it was taken in."""
    if not isinstance(error, NotUnderstood):
        return NotUnderstood(f"not understood: {instruction.text}", instruction.place)
    # Of a call, an instruction of the called function may have failed, which has a line.
    return NotUnderstood(str(error), error.place if error.place.line else instruction.place)


ADDRESS = re.compile(r"\[\s*([\w$%]+)\s*(?:\+\s*(-?\w+))?\s*(?:,\s*\{[^}]*\}\s*)?\]")
WORD = 8


class Words:
    """Which bytes of a kernel's parameters are read in pieces shorter than an address."""

    def __init__(self, entry: Function, formals: dict[str, int]):
        self._bytes: dict[int, set[int]] = {}
        for instruction in entry.body or ():
            if not instruction.opcode.startswith("ld.param."):
                continue
            words = instruction.opcode.split(".")
            try:
                match = ADDRESS.fullmatch(instruction.operands[1])
                width = opcodes.width_of(words)
            except (IndexError, ValueError) as error:
                raise not_understood(instruction, error) from error
            if match is None or match[1] not in formals or width >= WORD:
                continue
            start = int(match[2] or "0", 0)
            count = max(len(parts(instruction.operands[0])), 1)
            seen = self._bytes.setdefault(formals[match[1]], set())
            seen.update(range(start, start + width * count))

    def may_be_address(self, index: int, offset: int | None, width: int) -> bool:
        """Return whether what is read is an address, or one can be made of such pieces."""
        if offset is None or width >= WORD:
            return True
        seen = self._bytes.get(index, set())
        window = 0
        for byte in range(offset - WORD + 1, offset + width + WORD - 1):
            window = window + 1 if byte in seen else 0
            if window >= WORD:
                return True
        return False


def parts(operand: str) -> list[str]:
    return [part.strip() for part in operand.strip("{}() \t\n").split(",") if part.strip()]


def defined_often(function: Function) -> set[str]:
    """Return the registers that several instructions may put something into."""
    once: set[str] = set()
    often: set[str] = set()
    for instruction in function.body or ():
        if not instruction.operands:
            continue
        first = instruction.operands[0]
        if first[0] == "%" and "|" not in first:
            (often if first in once else once).add(first)
            continue
        names = parts(first) if first[0] == "{" else first.split("|")
        often.update(once.intersection(names))
        once.update(names)
    return often
