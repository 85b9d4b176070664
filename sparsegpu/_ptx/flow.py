"""Follows addresses through the registers and the memory of a kernel, to a fixpoint.

The order of instructions does not count, nor who calls a function: a register holds whatever any
instruction puts there. So branches, loops, recursion and predication need no care. (But from an
instruction up to the next label, what it put into a register is all that this holds.) Memory that a
kernel has for itself is followed, too: local variables and parameters of functions by words of
eight bytes, all shared memory as one cell, and each module symbol as one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from . import opcodes
from .lexer import LABEL, Function, Instruction, Module, Symbol
from .values import BOTTOM, LITERAL, TOP, UNKNOWN, WILD, Base, Values


class NotUnderstood(ValueError):
    """An instruction that the analysis does not know; the kernel is opaque."""


class Touch(NamedTuple):
    """One access to memory: what it does, through which value, which values it stores.

    ``tensor``: the address is that of a tensor map, of whose array this is an access.
    """

    instruction: Instruction
    reads: bool
    writes: bool
    register: int
    offset: int
    stored: tuple[int, ...] = ()
    tensor: bool = False


_ADDRESS = re.compile(r"\[\s*([\w$%]+)\s*(?:\+\s*(-?\w+))?\s*(?:,\s*\{[^}]*\}\s*)?\]")
_SYMBOLIC = re.compile(r"([A-Za-z_$][\w$]*)(?:\+(\d+))?")
_LITERAL = re.compile(r"[-~!]?\d\w*")
SHARED = Base("shared")
_WORD = 8


class Flow:
    """The fixpoint of one kernel.

    Parameters
    ----------
    module : Module
    entry : Function
    scalars : set of int
        Parameters that are known to be no addresses.

    Attributes
    ----------
    touches : list of Touch
        Every access to memory that other kernels see.
    effects : dict of str to Instruction
    converted : list of int
        Registers that are converted to addresses of global memory.
    indirect : list of (Instruction, set of str)
        Calls through a register, and the functions that they were found to lead to.
    """

    def __init__(self, module: Module, entry: Function, scalars: set[int]):
        self.module, self.entry, self.scalars = module, entry, scalars
        self.values = Values()
        self.held: list[int] = [LITERAL, TOP, BOTTOM]
        self.touches: list[Touch] = []
        self.effects: dict[str, Instruction | None] = {}
        self.converted: list[int] = []
        self.indirect: list[tuple[Instruction, set[str]]] = []
        self._numbers: dict[tuple[str, str], int] = {}
        self._constants: dict[int, int] = {LITERAL: 0, TOP: 1, BOTTOM: 2}
        self._rules: list[Callable[[], None]] = []
        self._cells: dict[Base, dict[int | None, int]] = {}
        self._formals = {p.name: i for i, p in enumerate(entry.parameters)}
        self._read = _Words(entry, self._formals)
        self._functions: dict[str, Function] = {}
        self._changed = False
        self._address_taken: set[str] = set()
        self._initialise()
        self._enter(entry)
        self._solve()

    # -- setting up --------------------------------------------------------------------------

    def _initialise(self) -> None:
        for symbol in self.module.symbols.values():
            if symbol.space == "shared":
                continue
            base = Base("global", symbol.name)
            self._store(base, None, TOP)
            for name in re.findall(r"[A-Za-z_$][\w$]*", symbol.initial):
                if name in self.module.functions:
                    self._address_taken.add(name)
                    self._store(base, None, self.values.base(Base("function", name)))
                elif name in self.module.symbols:
                    self._store(base, None, self.values.base(Base("global", name)))

    def _enter(self, function: Function) -> None:
        """Take the instructions of a function in, once."""
        if function.name in self._functions:
            return
        self._functions[function.name] = function
        self._several = _defined_often(function)
        self._current: dict[str, int] = {}
        calls: list[Instruction] = []
        for instruction in function.body or ():
            if instruction.opcode == LABEL:
                self._current.clear()
                continue
            if instruction.opcode.partition(".")[0] == "call":
                calls.append(instruction)  # which lead into other functions
                continue
            self._fresh: dict[str, int] = {}
            self._guarded = instruction.text[0] == "@"
            self._checked(self._take, function, instruction)
            self._current.update(self._fresh)
        self._current.clear()
        for instruction in calls:
            self._checked(self._call, function, instruction)

    @staticmethod
    def _checked(take: Callable[..., None], function: Function, instruction: Instruction) -> None:
        try:
            take(function, instruction)
        except (IndexError, KeyError, ValueError) as error:
            if isinstance(error, NotUnderstood):
                raise
            raise NotUnderstood(f"not understood: {instruction.text}") from error

    def _solve(self) -> None:
        self._changed = True
        while self._changed:
            self._changed = False
            rules = self._rules
            for rule in rules:
                rule()
            if len(rules) != len(self._rules):  # a call was found to lead to another function
                self._changed = True

    # -- operands ----------------------------------------------------------------------------

    def _register(self, function: Function, name: str) -> int:
        key = (function.name, name)
        number = self._numbers.get(key)
        if number is None:
            special = opcodes.SPECIAL.fullmatch(name)
            number = self._numbers[key] = len(self.held)
            self.held.append(TOP if special else BOTTOM)
        return number

    def _target(self, function: Function, name: str) -> int:
        """Return the number of a register that the current instruction puts something into.

        What it puts there counts as the register's only content up to the next label, unless the
        instruction is predicated.
        """
        number = self._register(function, name)
        if name not in self._several:
            return number
        if not self._guarded:
            version = len(self.held)
            self.held.append(BOTTOM)
            self._rule(self._copy, number, version)
            number = version
        self._fresh[name] = number
        return number

    def _constant(self, value: int) -> int:
        number = self._constants.get(value)
        if number is None:
            number = self._constants[value] = len(self.held)
            self.held.append(value)
        return number

    def _source(self, function: Function, operand: str) -> int:
        """Return the number of the register, or of the constant, that an operand names."""
        current = self._current.get(operand)
        if current is not None:
            return current
        key = (function.name, operand)
        number = self._numbers.get(key)
        if number is not None:
            return number
        if operand[0] in "-!~" and not _LITERAL.fullmatch(operand):
            return self._source(function, operand[1:])
        if operand[0] == "{":
            return self._packed(function, operand)
        if _LITERAL.fullmatch(operand) or operand == "WARP_SZ":
            return 0
        match = None if operand in function.registers else _SYMBOLIC.fullmatch(operand)
        if match is not None:
            value = self._named(function, match[1], int(match[2] or 0))
            if value is not None:
                return self._constant(value)
        if not re.fullmatch(r"[\w$%.]+", operand):
            raise NotUnderstood(f"not understood: {operand}")
        return self._register(function, operand)

    def _packed(self, function: Function, operand: str) -> int:
        parts = [self._source(function, part) for part in _parts(operand)]
        target = len(self.held)
        self.held.append(BOTTOM)
        self._rule(self._mix, target, parts)
        return target

    def _named(self, function: Function, name: str, offset: int) -> int | None:
        """Return the address that a name stands for, None where it is a register."""
        symbol = function.symbols.get(name) or self.module.symbols.get(name)
        if symbol is not None:
            return self.values.base(_base_of(function, symbol, offset))
        if function is self.entry and name in self._formals:
            return self.values.base(Base("address", self._formals[name], offset))
        if any(name == p.name for p in (*function.parameters, *function.results)):
            return self.values.base(Base("local", f"{function.name}::{name}", offset))
        if name in self.module.functions:
            self._address_taken.add(name)
            return self.values.base(Base("function", name))
        return None

    def _address(self, function: Function, operand: str) -> tuple[int, int]:
        """Return the register of an address, and the offset that is added to it."""
        match = _ADDRESS.fullmatch(operand)
        if match is None:
            raise NotUnderstood(f"an address: {operand}")
        return self._source(function, match[1]), int(match[2] or "0", 0)

    # -- rules -------------------------------------------------------------------------------

    def _rule(self, function: Callable[..., None], *arguments: object) -> None:
        self._rules.append(partial(function, *arguments))

    def _put(self, target: int, value: int) -> None:
        held = self.held
        joined = self.values.join(held[target], value)
        if joined != held[target]:
            held[target] = joined
            self._changed = True

    def _copy(self, target: int, source: int) -> None:
        value = self.held[source]
        if value != self.held[target]:
            self._put(target, value)

    def _apply(self, operation: Callable[[int, int], int], target: int, a: int, b: int) -> None:
        self._put(target, operation(self.held[a], self.held[b]))

    def _mad(self, target: int, a: int, b: int, c: int) -> None:
        product = self.values.scale(self.held[a], self.held[b])
        self._put(target, self.values.add(product, self.held[c]))

    def _mix(self, target: int, sources: list[int]) -> None:
        value = self.held[sources[0]]
        for source in sources[1:]:
            value = self.values.mix(value, self.held[source])
        self._put(target, value)

    def _change(self, operation: Callable[[int], int], target: int, source: int) -> None:
        self._put(target, operation(self.held[source]))

    def _move(self, target: int, source: int, by: int) -> None:
        self._put(target, self.values.shift(self.held[source], by))

    # -- memory ------------------------------------------------------------------------------

    def _store(self, base: Base, words: Iterable[int] | None, value: int) -> None:
        cell = self._cells.setdefault(base._replace(offset=None), {})
        for word in (None,) if words is None else words:
            joined = self.values.join(cell.get(word, BOTTOM), value)
            if joined != cell.get(word, BOTTOM):
                cell[word] = joined
                self._changed = True

    def _load(self, base: Base, words: Iterable[int] | None) -> int:
        cell = self._cells.get(base._replace(offset=None), {})
        value = cell.get(None, BOTTOM)
        for word in cell if words is None else words:
            value = self.values.join(value, cell.get(word, BOTTOM))
        return value

    def _loaded(self, base: Base, offset: int, width: int) -> int:
        """Return what memory may hold, read through one base."""
        if base.kind == "address":
            at = None if base.offset is None else base.offset + offset
            return self._argument(int(base.name), at, width)
        if base.kind in {"local", "shared", "global", "heap"}:
            return self._load(base, _words(base, offset, width))
        return TOP

    def _argument(self, index: int, offset: int | None, width: int) -> int:
        """Return what a kernel's parameter holds at an offset."""
        formal = self.entry.parameters[index]
        if index in self.scalars or not (formal.array or formal.type[1:] == "64"):
            return TOP
        if not self._read.may_be_address(index, offset, width):
            return TOP
        word = None if offset is None else offset // _WORD * _WORD
        return self.values.base(Base("param", index, word))

    def _read_through(self, targets: list[int], address: int, offset: int, width: int) -> None:
        for alternative in self.values.alternatives(self.held[address]):
            bases = {*self.values.strong(alternative), *self.values.weak(alternative)}
            for number, target in enumerate(targets):
                for base in bases:
                    self._put(target, self._loaded(base, offset + number * width, width))
                if not bases or alternative & WILD:
                    self._put(target, TOP)

    def _written_through(self, sources: list[int], address: int, offset: int, width: int) -> None:
        for base in self.values.bases_of(self.held[address]):
            if base.kind not in {"local", "shared", "global", "heap"}:
                continue
            for number, source in enumerate(sources):
                words = _words(base, offset + number * width, width)
                self._store(base, words, self.held[source])

    def _read_cell(self, targets: list[int]) -> None:
        for target in targets:
            self._put(target, self._load(SHARED, None))

    def _write_cell(self, sources: list[int]) -> None:
        for source in sources:
            self._store(SHARED, None, self.held[source])

    # -- instructions ------------------------------------------------------------------------

    def _take(self, function: Function, instruction: Instruction) -> None:
        words = instruction.opcode.split(".")
        word, operands = words[0], instruction.operands
        if word in opcodes.NOTHING and not (operands and "red" in words):
            return
        if word in opcodes.SIDE_EFFECTS:
            self.effects.setdefault(opcodes.SIDE_EFFECTS[word], instruction)
        elif word in opcodes.NUMBER:
            for target in self._targets(function, operands):
                self._put(target, TOP)
        elif word in opcodes.EITHER:
            (target,) = self._targets(function, operands)
            for operand in operands[1:] if word in {"min", "max"} else operands[1:3]:
                self._rule(self._copy, target, self._source(function, operand))
        elif word in opcodes.COPIED:
            self._copied(function, words, operands)
        elif word == "and" and opcodes.keeps_few_bits(operands[2]):
            self._put(self._targets(function, operands)[0], TOP)
        elif word in opcodes.MIXED or (word == "cvt" and len(operands) > 2):
            target = self._targets(function, operands)[0]
            count = opcodes.MIXED.get(word, len(operands) - 1)
            sources = [self._source(function, o) for o in operands[1 : 1 + count]]
            self._rule(self._mix, target, sources)
        elif word == "cvt":
            (target,) = self._targets(function, operands)
            self._rule(self._copy, target, self._source(function, operands[1]))
        elif word in opcodes.PARTS or word in opcodes.SUMS:
            self._arithmetic(function, words, operands)
        else:
            self._memory(function, words, instruction)

    def _targets(self, function: Function, operands: tuple[str, ...]) -> list[int]:
        """Return the registers that an instruction's first operand names."""
        if not operands or operands[0][0] in "[(":
            return []
        names = _parts(operands[0]) if operands[0][0] == "{" else operands[0].split("|")
        return [self._target(function, n) for n in names if n != "_" and not _LITERAL.match(n)]

    def _copied(self, function: Function, words: list[str], operands: tuple[str, ...]) -> None:
        if words[0] == "mov" and words[-1] == "pred":
            return
        targets = self._targets(function, operands)
        source = self._source(function, operands[1])
        if words[0] == "shfl":
            targets = targets[:1]
        if words[0] == "cvta" and words[1:3] == ["to", "global"]:
            self.converted.append(source)
        for target in targets:
            self._rule(self._copy, target, source)

    def _arithmetic(self, function: Function, words: list[str], operands: tuple[str, ...]) -> None:
        word, values = words[0], self.values
        if words[-1] == "pred":
            return
        (target,) = self._targets(function, operands)
        if opcodes.is_narrow_float(words):
            self._put(target, TOP)
            return
        sources = [self._source(function, operand) for operand in operands[1:]]
        if words[-1] == "f64":  # which holds an address exactly
            if word in {"div", "neg"}:
                self._rule(self._change, values.part, target, sources[0])
            elif len(sources) == 2:
                self._rule(self._apply, values.scale, target, *sources)
            else:
                self._rule(self._mad, target, *sources)
        elif word in opcodes.PARTS:
            known = word == "shl" and _LITERAL.fullmatch(operands[2]) and operands[2] != "0"
            change = values.scaled if known else values.part
            self._rule(self._change, change, target, sources[0])
        elif word in {"add", "sub"} and _LITERAL.fullmatch(operands[2]):
            by = _integer(operands[2])
            self._rule(self._move, target, sources[0], by if word == "add" else -by)
        elif word in {"add", "addc"}:
            self._rule(self._apply, values.add, target, *sources)
        elif word in {"sub", "subc"}:
            self._rule(self._apply, values.subtract, target, *sources)
        elif word == "mul" and operands[2] == "1":
            self._rule(self._copy, target, sources[0])
        elif word in {"mul", "mul24"}:
            self._rule(self._apply, values.scale, target, *sources)
        elif word == "mad" and operands[2] == "1":
            self._rule(self._apply, values.add, target, sources[0], sources[2])
        elif word in {"mad", "madc", "mad24", "fma"}:
            self._rule(self._mad, target, *sources)
        elif word in {"neg", "not"}:
            self._rule(self._change, values.negate, target, sources[0])
        elif word == "xor":
            self._rule(self._apply, values.exclusive, target, *sources)
        else:  # sad: the distance of two, plus a third
            a, b, c = sources
            between = self._register(function, f"{target} distance")
            self._rule(self._apply, values.subtract, between, a, b)
            self._rule(self._apply, values.add, target, between, c)

    def _touch(
        self,
        instruction: Instruction,
        address: tuple[int, int],
        *,
        reads: bool = False,
        writes: bool = False,
        stored: Iterable[int] = (),
        tensor: bool = False,
    ) -> None:
        touch = Touch(instruction, reads, writes, *address, tuple(stored), tensor)
        self.touches.append(touch)

    def _memory(self, function: Function, words: list[str], instruction: Instruction) -> None:
        word, operands = words[0], instruction.operands
        if word in {"ld", "ldu"}:
            self._loads(function, words, instruction)
        elif word == "st":
            self._stores(function, words, instruction)
        elif word in {"atom", "red"}:
            self._atomic(function, words, instruction)
        elif word in {"cp", "cp_async"}:
            self._bulk(function, words, instruction)
        elif word == "ldmatrix":
            self._rule(self._read_cell, self._targets(function, operands))
        elif word == "stmatrix":
            self._rule(self._write_cell, [self._source(function, operands[1])])
        elif word == "wmma":
            self._fragment(function, words, instruction)
        elif word in {"tex", "tld4", "suld"}:
            for target in self._targets(function, operands):
                self._put(target, TOP)
            self._touch(instruction, (1, 0), reads=True)
        elif word == "discard":
            self._touch(instruction, self._address(function, operands[0]), writes=True)
        elif word == "alloca":
            (target,) = self._targets(function, operands)
            self._put(target, self.values.base(Base("local", f"{function.name}::alloca")))
        else:
            raise NotUnderstood(f"an instruction that is not known: {instruction.text}")

    def _fragment(self, function: Function, words: list[str], instruction: Instruction) -> None:
        """Take in ``wmma``: of numbers, which are loaded and stored as such."""
        operands, shared = instruction.operands, opcodes.space_of(words) == "shared"
        for target in self._targets(function, operands):
            self._put(target, TOP)
        if words[1] == "load" and not shared:
            self._touch(instruction, self._address(function, operands[1]), reads=True)
        elif words[1] == "store" and shared:
            self._rule(self._write_cell, [self._source(function, operands[1])])
        elif words[1] == "store":
            stored = [self._source(function, operands[1])]
            address = self._address(function, operands[0])
            self._rule(self._written_through, stored, *address, _WORD)
            self._touch(instruction, address, writes=True, stored=stored)

    def _loads(self, function: Function, words: list[str], instruction: Instruction) -> None:
        operands = instruction.operands
        width, space = opcodes.width_of(words), opcodes.space_of(words)
        names = _parts(operands[0]) if operands[0][0] == "{" else [operands[0]]
        address = self._address(function, operands[1])
        targets = [self._target(function, name) for name in names]
        if space == "shared":
            self._rule(self._read_cell, targets)
            return
        self._rule(self._read_through, targets, *address, width)
        if space not in {"param", "local"}:
            self._touch(instruction, address, reads=True)
        elif space == "local":
            self._touch(instruction, address)

    def _stores(self, function: Function, words: list[str], instruction: Instruction) -> None:
        operands = instruction.operands
        width, space = opcodes.width_of(words), opcodes.space_of(words)
        names = _parts(operands[1]) if operands[1][0] == "{" else [operands[1]]
        sources = [self._source(function, name) for name in names]
        if space == "shared":
            self._rule(self._write_cell, sources)
            return
        address = self._address(function, operands[0])
        self._rule(self._written_through, sources, *address, width)
        if space != "param":
            self._touch(instruction, address, writes=True, stored=sources)

    def _atomic(self, function: Function, words: list[str], instruction: Instruction) -> None:
        operands = instruction.operands
        space = opcodes.space_of(words)
        at = 0 if words[0] == "red" else 1
        sources = [self._source(function, operand) for operand in operands[at + 1 :]]
        targets = self._targets(function, operands) if at else []
        if space == "shared":
            self._rule(self._write_cell, sources)
            self._rule(self._read_cell, targets)
            for target in targets:
                self._put(target, TOP)
            return
        address = self._address(function, operands[at])
        width = _WORD
        self._rule(self._written_through, sources, *address, width)
        self._rule(self._read_through, targets, *address, width)
        for target in targets:
            self._put(target, TOP)
        self._touch(instruction, address, reads=True, writes=True, stored=sources)

    def _bulk(self, function: Function, words: list[str], instruction: Instruction) -> None:
        """Take in a copy between global and shared memory."""
        operands = instruction.operands
        if not operands or operands[0][0] != "[" or "prefetch" in words:
            known = {"commit_group", "wait_group", "wait_all", "mbarrier", "prefetch"}
            if not known & set(words):
                raise NotUnderstood(f"an instruction that is not known: {instruction.text}")
            return
        if "mbarrier" in words and "bulk" not in words:  # cp.async.mbarrier.arrive
            return
        spaces = [w.partition(":")[0] for w in words if w.partition(":")[0] in {"shared", "global"}]
        if len(spaces) != 2 or not {"async"} & set(words):
            raise NotUnderstood(f"an instruction that is not known: {instruction.text}")
        tensor, reduces = "tensor" in words, "reduce" in words
        to, source = (self._address(function, operand) for operand in operands[:2])
        if spaces[0] == "shared":
            self._rule(self._write_cell, [1])
        else:
            stored = [self._register(function, "shared memory")]
            self._rule(self._read_cell, stored)
            self._touch(instruction, to, reads=reduces, writes=True, stored=stored, tensor=tensor)
        if spaces[1] == "global":
            self._touch(instruction, source, reads=True, tensor=tensor)

    # -- calls -------------------------------------------------------------------------------

    def _call(self, function: Function, instruction: Instruction) -> None:
        operands = list(instruction.operands)
        results = _parts(operands.pop(0)) if operands[0][0] == "(" else []
        callee = operands.pop(0)
        arguments = _parts(operands.pop(0)) if operands and operands[0][0] == "(" else []
        called = self.module.functions.get(callee)
        if called is not None:
            self._bind(function, instruction, called, results, arguments)
            return
        register = self._source(function, callee)
        bound: set[str] = set()
        self.indirect.append((instruction, bound))
        self._rule(self._indirect, function, instruction, register, results, arguments, bound)

    def _indirect(
        self,
        function: Function,
        instruction: Instruction,
        register: int,
        results: list[str],
        arguments: list[str],
        bound: set[str],
    ) -> None:
        """Bind every function that a register may hold; an unknown one is one of this module."""
        value = self.held[register]
        names = {str(b.name) for b in self.values.bases_of(value) if b.kind == "function"}
        if any(
            not alternative & ~UNKNOWN for alternative in self.values.alternatives(value)
        ) or any(b.kind != "function" for b in self.values.bases_of(value)):
            names |= {
                f.name
                for f in self.module.functions.values()
                if not f.entry and len(f.parameters) == len(arguments)
            }
        for name in sorted(names - bound):
            bound.add(name)
            self._bind(function, instruction, self.module.functions[name], results, arguments)

    def _bind(
        self,
        function: Function,
        instruction: Instruction,
        called: Function,
        results: list[str],
        arguments: list[str],
    ) -> None:
        if called.body is None:
            self._external(function, instruction, called.name, results, arguments)
            return
        if len(arguments) != len(called.parameters) or len(results) != len(called.results):
            raise NotUnderstood(f"a call with other arguments: {instruction.text}")
        self._enter(called)
        for actual, formal in zip(arguments, called.parameters, strict=True):
            target = Base("local", f"{called.name}::{formal.name}")
            self._rule(self._pass, self._slot(function, actual), target)
        for actual, formal in zip(results, called.results, strict=True):
            source = Base("local", f"{called.name}::{formal.name}")
            self._rule(self._pass, source, self._slot(function, actual))

    def _slot(self, function: Function, name: str) -> Base:
        symbol = function.symbols.get(name)
        if symbol is not None:
            return _base_of(function, symbol, 0)
        if any(name == p.name for p in (*function.parameters, *function.results)):
            return Base("local", f"{function.name}::{name}")
        raise NotUnderstood(f"an argument of a call: {name}")

    def _pass(self, source: Base, target: Base) -> None:
        for word, value in list(self._cells.get(source._replace(offset=None), {}).items()):
            self._store(target, None if word is None else (word,), value)

    def _external(
        self,
        function: Function,
        instruction: Instruction,
        name: str,
        results: list[str],
        arguments: list[str],
    ) -> None:
        if name not in opcodes.EXTERNAL:
            raise NotUnderstood(f"a call of {name}, which is not in the text")
        if name == "vprintf":
            self.effects.setdefault("printf", instruction)
        elif "assert" in name:
            self.effects.setdefault("trap", instruction)
        value = TOP
        if "malloc" in name:
            self.effects.setdefault("malloc", instruction)
            value = self.values.join(self.values.base(Base("heap")), LITERAL)
        for result in results:
            self._store(self._slot(function, result), None, value)


def _defined_often(function: Function) -> set[str]:
    """Return the registers that several instructions may put something into."""
    once: set[str] = set()
    often: set[str] = set()
    for instruction in function.body or ():
        if not instruction.operands:
            continue
        first = instruction.operands[0]
        names = _parts(first) if first[0] == "{" else first.split("|")
        often.update(once.intersection(names))
        once.update(names)
    return often


class _Words:
    """Which bytes of a kernel's parameters are read in pieces shorter than an address."""

    def __init__(self, entry: Function, formals: dict[str, int]):
        self._bytes: dict[int, set[int]] = {}
        for instruction in entry.body or ():
            words = instruction.opcode.split(".")
            if words[:2] != ["ld", "param"]:
                continue
            match = _ADDRESS.fullmatch(instruction.operands[1])
            width = opcodes.width_of(words)
            if match is None or match[1] not in formals or width >= _WORD:
                continue
            start = int(match[2] or "0", 0)
            count = max(len(_parts(instruction.operands[0])), 1)
            seen = self._bytes.setdefault(formals[match[1]], set())
            seen.update(range(start, start + width * count))

    def may_be_address(self, index: int, offset: int | None, width: int) -> bool:
        """Return whether what is read is an address, or one can be made of such pieces."""
        if offset is None or width >= _WORD:
            return True
        seen = self._bytes.get(index, set())
        window = 0
        for byte in range(offset - _WORD + 1, offset + width + _WORD - 1):
            window = window + 1 if byte in seen else 0
            if window >= _WORD:
                return True
        return False


def _base_of(function: Function, symbol: Symbol, offset: int) -> Base:
    if symbol.space == "shared":
        return SHARED
    if symbol.space in {"local", "param"}:
        return Base("local", f"{function.name}::{symbol.name}", offset)
    return Base("global", symbol.name)


def _words(base: Base, offset: int, width: int) -> Iterable[int] | None:
    """Return the words that an access touches, None where its place is not known."""
    if base.kind != "local" or base.offset is None:
        return None
    start = base.offset + offset
    return range(start // _WORD * _WORD, start + width, _WORD)


def _parts(operand: str) -> list[str]:
    return [part.strip() for part in operand.strip("{}() \t\n").split(",") if part.strip()]


def _integer(text: str) -> int:
    return int(text.rstrip("U"), 0)
