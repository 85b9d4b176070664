"""Reads PTX text into functions, symbols and instructions; what it does not know is an error.

Source: "Parallel Thread Execution ISA", sections 4 (syntax) and 11 (directives).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from .opcodes import VIDEO


class SyntaxUnknown(ValueError):
    """Text that the lexer does not consume; the message holds its beginning."""


class Place(NamedTuple):
    """Where an instruction comes from: file number and line of its ``.loc``, 0 without one."""

    file: int
    line: int


#: The opcode of a place that a branch may lead to.
LABEL = ":"


class Instruction(NamedTuple):
    """One instruction: its opcode, the text of its operands, whole text and source line."""

    opcode: str
    operands: tuple[str, ...]
    text: str
    place: Place


@dataclass(frozen=True, slots=True)
class Parameter:
    """A formal parameter: ``pointer`` where the text says ``.ptr``, ``array`` for bytes."""

    name: str
    type: str
    size: int
    align: int
    array: bool
    pointer: bool


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable in ``global``, ``const``, ``shared``, ``local`` or ``param`` space."""

    name: str
    space: str
    size: int
    initial: str


@dataclass(slots=True)
class Function:
    """A function's declaration, and its body where it has one.

    Of its registers only those are kept whose names could be a symbol's, too.
    """

    name: str
    entry: bool
    results: tuple[Parameter, ...]
    parameters: tuple[Parameter, ...]
    body: list[Instruction] | None = None
    symbols: dict[str, Symbol] = field(default_factory=dict)
    registers: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Module:
    """Everything that a text declares."""

    functions: dict[str, Function]
    symbols: dict[str, Symbol]
    files: dict[int, str]

    def at(self, place: Place, text: str) -> str:
        """Return a text behind the source line that it is about, where that is known."""
        if not place.line:
            return text
        file = self.files.get(place.file, "").rpartition("/")[2]
        return f"{file}:{place.line}: {text}" if file else f"line {place.line}: {text}"


SIZES = {"8": 1, "16": 2, "32": 4, "64": 8, "128": 16}
_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_SECTION = re.compile(r"\.section\s+[.\w]+\s*\{[^}]*\}")
_OPERAND = (
    r"(?:[-!~]?[\w%$.]++(?:[+-]+\w+)?(?:\|[\w%$]+)?|\{[^{};]*\}|\([^();]*\)"
    r"|\[[^\[\]{};]*(?:\{[^{}\[\];]*\}[^\[\]{};]*)?\])"
)
_NAME = r"[\w$%]+"
_BODY = re.compile(
    rf"""\s*+(?:
      (?P<instruction>(?:@!?{_NAME}\s+)?(?P<opcode>[a-z][\w.:]*+)
          (?:\s++(?P<operands>{_OPERAND}(?:\s*+,\s*+{_OPERAND})*+))?\s*;)
    | (?P<loc>\.loc\s+(?P<file>\d+)\s+(?P<line>\d+)[^\n]*)
    | (?P<label>{_NAME}\s*:(?!:))
    | (?P<open>\{{)
    | (?P<close>\}})
    | (?P<registers>\.reg\s[^;]*;)
    | (?P<variable>\.(?:param|local|shared|global|const)\b[^;]*;)
    | (?P<ignored>\.(?:pragma|callprototype|branchtargets|calltargets)\b[^;]*;|;)
    )""",
    re.VERBOSE,
)
_OPERANDS = re.compile(_OPERAND)
_TOP = re.compile(
    rf"""\s*(?:
      (?P<function>(?:\.(?:visible|extern|weak|common)\s+)*\.(?P<kind>entry|func)\b\s*
          (?:\.attribute\s*\([^;{{]*?\)\s*)?(?:\.noreturn\s*)?
          (?P<results>\([^()]*\))?\s*(?P<name>{_NAME})\s*(?P<parameters>\([^()]*\))?
          (?:\s*\.[a-z]+[^;{{]*)?\s*(?P<end>[;{{]))
    | (?P<variable>(?:\.(?:visible|extern|weak|common)\s+)*\.(?:global|const|shared)\b[^;]*;)
    | (?P<filed>\.file\s+(?P<number>\d+)\s+"(?P<path>(?:\\.|[^"\\])*)"[^\n]*)
    | (?P<ignored>\.(?:version|target|address_size)\b[^\n]*|\.alias\b[^;]*;|\.pragma\b[^;]*;
        |\.loc\b[^\n]*|;)
    )""",
    re.VERBOSE,
)
_VARIABLE = re.compile(
    rf"""(?:\.(?:visible|extern|weak|common)\s+)*\.(?P<space>\w+)\s*
    (?:\.attribute\s*\([^;=]*?\)\s*)?(?:\.align\s+\d+\s*)?(?:\.(?P<vector>v[248])\s*)?
    \.(?P<type>[a-z]+\d*)\s+(?P<name>{_NAME})\s*(?P<dims>(?:\[\s*\d*\s*\]\s*)*)
    (?:<\s*(?P<count>\d+)\s*>)?\s*(?:=\s*(?P<initial>.*?))?\s*;""",
    re.VERBOSE | re.DOTALL,
)
_PARAMETER = re.compile(
    rf"""\s*\.param\s*(?:\.align\s+(?P<before>\d+)\s*)?\.(?P<type>[a-z]+\d*)\s*
    (?P<pointer>\.ptr)?\s*(?:\.(?:global|const|shared|local|param)\s*)?(?:\.align\s+\d+\s*)?
    (?P<name>{_NAME})\s*(?P<dims>\[\s*\d*\s*\])?\s*""",
    re.VERBOSE,
)


def parse(text: str) -> Module:
    """Read a PTX text.

    Raises
    ------
    SyntaxUnknown
        Where the text holds what is not known here.
    """
    text = _COMMENT.sub(lambda m: m[0] if m[0][0] == '"' else " ", text)
    text = _SECTION.sub("", text).rstrip()
    module = Module({}, {}, {})
    at, end, match = 0, len(text), _TOP.match
    while at < end:
        found = match(text, at)
        if found is None:
            raise SyntaxUnknown(f"not understood: {_beginning(text, at)}")
        at = found.end()
        if found["function"]:
            function = _function(found)
            if found["end"] == "{":
                at = _body(text, at, function)
            known = module.functions.get(function.name)
            if known is None or known.body is None:  # a declaration may come first
                module.functions[function.name] = function
            elif function.body is not None:
                raise SyntaxUnknown(f"two bodies of {function.name}")
        elif found["variable"]:
            symbol = _symbol(found["variable"])
            module.symbols[symbol.name] = symbol
        elif found["filed"]:
            module.files[int(found["number"])] = found["path"]
    return module


def _beginning(text: str, at: int) -> str:
    return " ".join(text[at : at + 80].split())


def _function(found: re.Match) -> Function:
    results, formals = _formals(found["results"]), _formals(found["parameters"])
    entry = found["kind"] == "entry"
    return Function(found["name"], entry, results, formals)


def _formals(text: str | None) -> tuple[Parameter, ...]:
    inside = (text or "()").strip()[1:-1]
    if not inside.strip():
        return ()
    return tuple(map(_formal, inside.split(",")))


def _formal(text: str) -> Parameter:
    match = _PARAMETER.fullmatch(text)
    if match is None:
        raise SyntaxUnknown(f"a parameter: {_beginning(text, 0)}")
    size = SIZES.get(match["type"].lstrip("abcdefghijklmnopqrstuvwxyz"), 8)
    align = int(match["before"] or size)
    if match["dims"]:
        size *= int(match["dims"].strip("[] \t\n") or 0)
    return Parameter(
        match["name"], match["type"], size, align, bool(match["dims"]), bool(match["pointer"])
    )


def _symbol(text: str) -> Symbol:
    match = _VARIABLE.fullmatch(text.strip())
    if match is None:
        raise SyntaxUnknown(f"a variable: {_beginning(text, 0)}")
    size = SIZES.get(match["type"].lstrip("abcdefghijklmnopqrstuvwxyz"), 8)
    size *= int(match["vector"][1:]) if match["vector"] else 1
    for count in re.findall(r"\d+", match["dims"]):
        size *= int(count)
    if re.search(r"\[\s*\]", match["dims"]):
        size = 0  # of an unknown number of elements
    return Symbol(match["name"], match["space"], size, match["initial"] or "")


def _body(text: str, at: int, function: Function) -> int:
    """Read a body into the function and return where it ends.

    Variables in ``param`` space live in blocks of a call each; they get names of their own.
    """
    function.body = body = []
    scopes: list[dict[str, str]] = [{}]
    place, match, serial = Place(0, 0), _BODY.match, 0
    while True:
        found = match(text, at)
        if found is None:
            raise SyntaxUnknown(f"{function.name}: not understood: {_beginning(text, at)}")
        at = found.end()
        kind = found.lastgroup  # the outermost one
        if kind == "instruction":
            whole, opcode, listed = found.group("instruction", "opcode", "operands")
            operands = _split(listed) if listed else ()
            if opcode[0] == "v" and opcode.partition(".")[0] in VIDEO:  # less .b0, .h1 and the like
                operands = tuple(operand.partition(".")[0] for operand in operands)
            if scopes[-1] and len(scopes) > 1:
                operands = tuple(_renamed(operands, scopes[-1]))
            body.append(Instruction(opcode, operands, whole, place))
        elif kind == "loc":
            place = Place(int(found["file"]), int(found["line"]))
        elif kind == "label":
            body.append(Instruction(LABEL, (), "", place))
        elif kind == "open":
            scopes.append(dict(scopes[-1]))
        elif kind == "close":
            scopes.pop()
            body.append(Instruction(LABEL, (), "", place))  # names may be others' again
            if not scopes:
                return at
        elif kind == "registers":
            function.registers.update(_registers(found["registers"]))
        elif kind == "variable":
            symbol = _symbol(found["variable"])
            if symbol.space == "param":
                serial += 1
                scopes[-1][symbol.name] = f"{symbol.name}$${serial}"
                symbol = Symbol(f"{symbol.name}$${serial}", "param", symbol.size, "")
            function.symbols[symbol.name] = symbol


def _split(operands: str) -> tuple[str, ...]:
    if "{" in operands or "[" in operands or "(" in operands:
        return tuple(_OPERANDS.findall(operands))
    return tuple(map(str.strip, operands.split(",")))


def _registers(text: str) -> Iterator[str]:
    """Yield the names without a percent sign that a ``.reg`` declares: ``a, b<3>``."""
    for declared in re.sub(r"\.\w+", "", text).strip(" ;\t\n").split(","):
        name, _, count = declared.strip().partition("<")
        if name[:1] == "%":  # no symbol's
            continue
        if count and not count.strip(" >").isdigit():
            raise SyntaxUnknown(f"registers: {_beginning(text, 0)}")
        if count:
            yield from (f"{name}{i}" for i in range(int(count.strip(" >"))))
        else:
            yield name


_IDENTIFIER = re.compile(r"[A-Za-z_$%][\w$%]*")


def _renamed(operands: tuple[str, ...], names: dict[str, str]) -> Iterator[str]:
    for operand in operands:
        yield _IDENTIFIER.sub(lambda m: names.get(m[0], m[0]), operand)
