"""What a kernel's registers and memory may hold: the state of the fixpoint, and its rules.

Memory that a kernel has for itself is followed: local variables and parameters of functions by
words of eight bytes; all shared memory, all tensor memory and each module symbol as a cell.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from . import opcodes
from .lexer import Function, Module, Symbol
from .pieces import ADDRESS, WORD, NotUnderstood, Words, parts
from .values import BOTTOM, LITERAL, NULL, TOP, Base, Values

_SYMBOLIC = re.compile(r"([A-Za-z_$][\w$]*)(?:\+(\d+))?")
_ZERO = re.compile(r"-?0[xXfFdD]?0*U?")
LITERAL_TEXT = re.compile(r"[-~!]?\d\w*")
SHARED = Base("shared")
#: What the kernel itself may write, so that its content is followed.
_MEMORY = frozenset(("local", "shared", "global", "heap"))


class Machine:
    """Registers by number, cells of memory by base, and rules that put values into them.

    Parameters
    ----------
    module : Module
    entry : Function
    scalars : set of int
        Parameters that are known to be no addresses.

    Attributes
    ----------
    values : Values
    held : list of int
        The value of each register and constant.
    """

    def __init__(self, module: Module, entry: Function, scalars: set[int]):
        self.module, self.entry, self.scalars = module, entry, scalars
        self.values = Values()
        self.held: list[int] = [NULL, TOP, BOTTOM, LITERAL]
        # By function: the numbers of its registers.
        self._numbers: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self._constants: dict[int, int] = {NULL: 0, TOP: 1, BOTTOM: 2, LITERAL: 3}
        # Rules; which of them are to run (again); those that read a register; and those that read
        # memory, too; whether memory has changed since these are due, and once more since then.
        self._rules: list[Callable[[], None]] = []
        self._due = bytearray()
        self._users: defaultdict[int, list[int]] = defaultdict(list)
        self._readers: list[int] = []
        self._stored = self._stored_again = False
        self._cells: dict[Base, dict[int | None, int]] = {}
        self._formals = {p.name: i for i, p in enumerate(entry.parameters)}
        self._read = Words(entry, self._formals)
        # Of the function that is taken in: registers that several instructions put something into,
        # what they hold since the last label, what the current instruction puts where.
        self._several: set[str] = set()
        self._current: dict[str, int] = {}
        self._fresh: dict[str, int] = {}
        self._versions: list[tuple[int, int]] = []
        self._guarded = False
        # Registers that one instruction alone puts something into; those that hold it for good.
        self._once: set[int] = set()
        self._settled = {0, 1, 2, 3}
        self._initialise()

    def _initialise(self) -> None:
        for symbol in self.module.symbols.values():
            if symbol.space == "shared":
                continue
            base = Base("global", symbol.name)
            self._store(base, None, TOP)
            for name in re.findall(r"[A-Za-z_$][\w$]*", symbol.initial):
                if name in self.module.functions:
                    self._store(base, None, self.values.base(Base("function", name)))
                elif name in self.module.symbols:
                    self._store(base, None, self.values.base(Base("global", name)))

    # -- operands ----------------------------------------------------------------------------

    def _register(self, function: Function, name: str) -> int:
        numbers = self._numbers[function.name]
        number = numbers.get(name)
        if number is None:
            plain = name.rstrip("0123456789") in opcodes.PLAIN
            special = not plain and opcodes.SPECIAL.fullmatch(name)
            number = numbers[name] = len(self.held)
            self.held.append(TOP if special else BOTTOM)
            if special:
                self._settled.add(number)
        return number

    def _target(self, function: Function, name: str) -> int:
        """Return the number of a register that the current instruction puts something into.

        What it puts there counts as the register's only content up to the next label, unless the
        instruction is predicated.
        """
        number = self._register(function, name)
        if name not in self._several:
            self._once.add(number)
            return number
        if not self._guarded:
            version = len(self.held)
            self.held.append(BOTTOM)
            self._versions.append((number, version))
            self._once.add(version)
            number = version
        self._fresh[name] = number
        return number

    def _new_register(self) -> int:
        """Return the number of a register that has no name, for one value."""
        self.held.append(BOTTOM)
        number = len(self.held) - 1
        self._once.add(number)
        return number

    def _constant(self, value: int) -> int:
        number = self._constants.get(value)
        if number is None:
            number = self._constants[value] = len(self.held)
            self.held.append(value)
            self._settled.add(number)
        return number

    def _source(self, function: Function, operand: str) -> int:
        """Return the number of the register, or of the constant, that an operand names."""
        current = self._current.get(operand)
        if current is not None:
            return current
        number = self._numbers[function.name].get(operand)
        if number is not None:
            return number
        if operand[0] in "-!~" and not LITERAL_TEXT.fullmatch(operand):
            return self._source(function, operand[1:])
        if operand[0] == "{":
            return self._packed(function, operand)
        if LITERAL_TEXT.fullmatch(operand) or operand == "WARP_SZ":
            return 0 if _ZERO.fullmatch(operand) else 3
        match = None if operand in function.registers else _SYMBOLIC.fullmatch(operand)
        if match is not None:
            value = self._named(function, match[1], int(match[2] or 0))
            if value is not None:
                return self._constant(value)
        if not re.fullmatch(r"[\w$%.]+", operand):
            raise NotUnderstood(f"not understood: {operand}")
        return self._register(function, operand)

    def _packed(self, function: Function, operand: str) -> int:
        sources = [self._source(function, part) for part in parts(operand)]
        target = self._new_register()
        self._derive(target, sources, self._mix, self.values.pick, target, sources)
        return target

    def _named(self, function: Function, name: str, offset: int) -> int | None:
        """Return the address that a name stands for, None where it is a register."""
        symbol = function.symbols.get(name) or self.module.symbols.get(name)
        if symbol is not None:
            return self.values.base(base_of(function, symbol, offset))
        if function is self.entry and name in self._formals:
            return self.values.base(Base("address", self._formals[name], offset))
        if any(name == p.name for p in (*function.parameters, *function.results)):
            return self.values.base(Base("local", f"{function.name}::{name}", offset))
        if name in self.module.functions:
            return self.values.base(Base("function", name))
        return None

    def _address(self, function: Function, operand: str) -> tuple[int, int]:
        """Return the register of an address, and the offset that is added to it."""
        match = ADDRESS.fullmatch(operand)
        if match is None:
            raise NotUnderstood(f"an address: {operand}")
        return self._source(function, match[1]), int(match[2] or "0", 0)

    def _is_formal(self, function: Function, operand: str) -> bool:
        """Return whether an address is that of a parameter of the kernel."""
        match = ADDRESS.fullmatch(operand)
        return function is self.entry and match is not None and match[1] in self._formals

    # -- rules -------------------------------------------------------------------------------

    def _follow(
        self, sources: Iterable[int], rule: Callable[..., None], *arguments: object
    ) -> None:
        """Do what a rule does, again whenever a register that it reads changes."""
        number = len(self._rules)
        self._rules.append(partial(rule, *arguments))
        self._due.append(1)
        for source in sources:
            self._users[source].append(number)

    def _remember(
        self, sources: Iterable[int], rule: Callable[..., None], *arguments: object
    ) -> None:
        """Do what a rule does, again whenever a register or memory changes."""
        self._readers.append(len(self._rules))
        self._follow(sources, rule, *arguments)

    def _solve(self) -> None:
        """Run the rules until none of them changes anything."""
        due, rules, at = self._due, self._rules, -1
        self._stored = False
        while True:
            at = due.find(1, at + 1)
            if at >= 0:
                due[at] = 0
                rules[at]()
                continue
            if self._stored_again:  # some of the readers ran between two changes
                self._tell_readers()
            self._stored = self._stored_again = False
            if due.find(1) < 0:  # none before the last that ran, either
                return

    def _tell_readers(self) -> None:
        for rule in self._readers:
            self._due[rule] = 1

    def _changed_by(self, change: Callable[[int], int], source: int) -> int:
        """Return the number of a register that holds what is made of another's content."""
        target = self._new_register()
        self._derive(target, [source], self._change, change, target, source)
        return target

    def _derive(
        self, target: int, sources: Sequence[int], rule: Callable[..., None], *arguments: object
    ) -> None:
        """Do what a rule does of registers alone, once if none of them will change."""
        if target in self._once and self._settled.issuperset(sources):
            rule(*arguments)
            self._settled.add(target)
        else:
            self._follow(sources, rule, *arguments)

    def _put(self, target: int, value: int) -> None:
        before = self.held[target]
        if value == before:
            return
        joined = self.values.join(before, value)
        if joined != before:
            self.held[target] = joined
            if target in self._users:
                for rule in self._users[target]:
                    self._due[rule] = 1

    def _copy(self, target: int, source: int) -> None:
        value = self.held[source]
        if value != self.held[target]:
            self._put(target, value)

    def _apply(self, operation: Callable[[int, int], int], target: int, a: int, b: int) -> None:
        self._put(target, operation(self.held[a], self.held[b]))

    def _mad(self, target: int, a: int, b: int, *c: int) -> None:
        product = self.values.scale(self.held[a], self.held[b])
        self._put_sum(target, product, c)

    def _high(self, target: int, a: int, b: int, *c: int) -> None:
        product = self.values.scale(self.held[a], self.held[b])
        self._put_sum(target, self.values.part(product), c)

    def _multiply(self, target: int, a: int, by: int, *c: int) -> None:
        self._put_sum(target, self.values.multiple(self.held[a], by), c)

    def _put_sum(self, target: int, value: int, rest: tuple[int, ...]) -> None:
        for source in rest:
            value = self.values.add(value, self.held[source])
        self._put(target, value)

    def _choose(self, target: int, sources: list[int]) -> None:
        for source in sources:
            self._copy(target, source)

    def _any_part(self, target: int, sources: list[int]) -> None:
        """What is computed in double precision, which holds an address exactly."""
        value = self.held[sources[0]]
        for source in sources[1:]:
            value = self.values.scale(value, self.held[source])
        self._put(target, self.values.part(value))

    def _mix(self, operation: Callable, target: int, sources: list[int]) -> None:
        value = self.held[sources[0]]
        for source in sources[1:]:
            value = operation(value, self.held[source])
        self._put(target, value)

    def _change(self, operation: Callable[[int], int], target: int, source: int) -> None:
        self._put(target, operation(self.held[source]))

    def _move(self, target: int, source: int, by: int) -> None:
        self._put(target, self.values.shift(self.held[source], by))

    def _move_to_number(self, target: int, source: int, by: int) -> None:
        self._put(target, self.values.number(self.values.shift(self.held[source], by)))

    # -- memory ------------------------------------------------------------------------------

    def _store(self, base: Base, words: Iterable[int] | None, value: int) -> None:
        cell = self._cells.setdefault(base.anywhere, {})
        for word in (None,) if words is None else words:
            joined = self.values.join(cell.get(word, BOTTOM), value)
            if joined != cell.get(word, BOTTOM):
                cell[word] = joined
                if self._stored:
                    self._stored_again = True
                else:
                    self._stored = True
                    self._tell_readers()

    def _load(self, base: Base, words: Iterable[int] | None) -> int:
        cell = self._cells.get(base.anywhere, {})
        value = cell.get(None, BOTTOM)
        for word in cell if words is None else words:
            value = self.values.join(value, cell.get(word, BOTTOM))
        return value

    def _loaded(self, base: Base, offset: int, width: int) -> int:
        """Return what memory may hold, read through one base."""
        if base.kind == "address":
            at = None if base.offset is None else base.offset + offset
            return self._argument(int(base.name), at, width)
        if base.kind in _MEMORY:
            return self._load(base, words(base, offset, width))
        return TOP

    def _argument(self, index: int, offset: int | None, width: int) -> int:
        """Return what a kernel's parameter holds at an offset."""
        formal = self.entry.parameters[index]
        if index in self.scalars or not (formal.array or formal.type[1:] == "64"):
            return TOP
        if offset is not None and not 0 <= offset <= formal.size - width:
            return TOP  # of another parameter
        if not self._read.may_be_address(index, offset, width):
            return TOP
        word = None if offset is None else offset // WORD * WORD
        return self.values.base(Base("param", index, word))

    def _take_load(self, targets: list[int], address: int, offset: int, width: int) -> None:
        """Take in a load, at once where no instruction can change what it gives."""
        if self._once.issuperset(targets) and address in self._settled:
            bases = self.values.bases_of(self.held[address])
            if all(base.kind not in _MEMORY for base in bases):
                self._read_through(targets, address, offset, width)
                self._settled.update(targets)
                return
        self._remember([address], self._read_through, targets, address, offset, width)

    def _take_store(self, sources: list[int], address: int, offset: int, width: int) -> None:
        arguments = sources, address, offset, width
        self._follow([*sources, address], self._written_through, *arguments)

    def _read_through(self, targets: list[int], address: int, offset: int, width: int) -> None:
        value = self.held[address]
        bases, loose = self.values.bases_of(value), self.values.is_loose(value)
        for number, target in enumerate(targets):
            for base in bases:
                self._put(target, self._loaded(base, offset + number * width, width))
            if loose:
                self._put(target, TOP)

    def _written_through(self, sources: list[int], address: int, offset: int, width: int) -> None:
        for base in self.values.bases_of(self.held[address]):
            if base.kind not in _MEMORY:
                continue
            for number, source in enumerate(sources):
                at = words(base, offset + number * width, width)
                self._store(base, at, self.held[source])


def base_of(function: Function, symbol: Symbol, offset: int) -> Base:
    if symbol.space == "shared":
        return SHARED
    if symbol.space in {"local", "param"}:
        return Base("local", f"{function.name}::{symbol.name}", offset)
    return Base("global", symbol.name)


def words(base: Base, offset: int, width: int) -> Iterable[int] | None:
    """Return the words that an access touches, None where its place is not known."""
    if base.kind != "local" or base.offset is None:
        return None
    start = base.offset + offset
    return range(start // WORD * WORD, start + width, WORD)


def integer(text: str) -> int:
    return int(text.rstrip("U"), 0)
