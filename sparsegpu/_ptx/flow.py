"""Follows addresses through the instructions of a kernel, to a fixpoint.

The order of instructions does not count, nor who calls a function: a register holds whatever any
instruction puts there. So branches, loops, recursion and predication need no care. (But from an
instruction up to the next label, what it put into a register is all that this holds.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from . import opcodes
from .calls import Calls
from .lexer import LABEL, Function, Instruction, Module
from .machine import LITERAL_TEXT, integer
from .pieces import WORD, NotUnderstood, defined_often, parts
from .values import TOP, Base

_Take = Callable[[Function, list[str], Instruction], None]


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


class Flow(Calls):
    """The fixpoint of one kernel.

    Attributes
    ----------
    touches : list of Touch
        Every access to memory that other kernels see.
    converted : list of int
        Registers that are converted to addresses of global memory.
    """

    def __init__(self, module: Module, entry: Function, scalars: set[int]):
        super().__init__(module, entry, scalars)
        self.touches: list[Touch] = []
        self.converted: list[int] = []
        self._functions: dict[str, Function] = {}
        self._takes: dict[str, tuple[list[str], _Take | None]] = {}
        self._enter(entry)
        self._solve()

    def _enter(self, function: Function) -> None:
        """Take the instructions of a function in, once."""
        if function.name in self._functions:
            return
        self._functions[function.name] = function
        self._several = defined_often(function)
        self._current.clear()
        calls: list[Instruction] = []
        takes = self._takes
        try:
            for instruction in function.body or ():
                if instruction.opcode == LABEL:
                    self._current.clear()
                    continue
                words, take = takes.get(instruction.opcode) or self._known(instruction.opcode)
                if take is None:
                    if words[0] == "call":
                        calls.append(instruction)  # which lead into other functions
                    continue
                self._guarded = instruction.text[0] == "@"
                take(function, words, instruction)
                if self._fresh:
                    self._end_instruction()
            self._current.clear()
            for instruction in calls:
                self._call(function, instruction)
        except (IndexError, KeyError, ValueError) as error:
            if isinstance(error, NotUnderstood):
                raise
            raise NotUnderstood(f"not understood: {instruction.text}") from error

    # -- instructions ------------------------------------------------------------------------

    def _end_instruction(self) -> None:
        """Let the registers that it put something into hold that, besides what others put there."""
        self._current.update(self._fresh)
        self._fresh = {}
        for number, version in self._versions:
            if version in self._settled:
                self._copy(number, version)
            else:
                self._follow([version], self._copy, number, version)
        self._versions.clear()

    def _known(self, opcode: str) -> tuple[list[str], _Take | None]:
        """Return an opcode's words and what takes such an instruction in, if anything has to."""
        words = opcode.split(".")
        self._takes[opcode] = words, self._taken_by(words)
        return self._takes[opcode]

    def _taken_by(self, words: list[str]) -> _Take | None:
        word, last = words[0], words[-1]
        arithmetic = word in opcodes.PARTS or word in opcodes.SUMS
        if word == "call" or (word in opcodes.NOTHING and "red" not in words):
            return None
        if last == "pred" and (arithmetic or word == "mov"):
            return None
        if word in opcodes.SIDE_EFFECTS:
            return self._effect
        if word in opcodes.NUMBER:
            return self._any_numbers
        if word in opcodes.EITHER:
            return self._either
        if word in opcodes.COPIED:
            return self._copied
        if word in opcodes.MIXED:
            return self._mixed
        if word == "cvt":
            return self._converted
        if arithmetic:
            return self._one_number if opcodes.is_narrow_float(words) else self._arithmetic
        return self._memory

    def _effect(self, _: Function, words: list[str], instruction: Instruction) -> None:
        self.effects.setdefault(opcodes.SIDE_EFFECTS[words[0]], instruction)

    def _any_numbers(self, function: Function, _: list[str], instruction: Instruction) -> None:
        self._numbered(self._targets(function, instruction.operands))

    def _one_number(self, function: Function, _: list[str], instruction: Instruction) -> None:
        (target,) = self._targets(function, instruction.operands)
        self._put(target, TOP)
        if target in self._once:
            self._settled.add(target)

    def _either(self, function: Function, words: list[str], instruction: Instruction) -> None:
        operands = instruction.operands
        (target,) = self._targets(function, operands)
        chosen = operands[1:] if words[0] in {"min", "max"} else operands[1:3]
        sources = [self._source(function, operand) for operand in chosen]
        self._derive(target, sources, self._choose, target, sources)

    def _mixed(self, function: Function, words: list[str], instruction: Instruction) -> None:
        operands = instruction.operands
        if words[0] == "and" and opcodes.keeps_few_bits(operands[2]):
            self._numbered(self._targets(function, operands))
            return
        target = self._targets(function, operands)[0]
        count = opcodes.MIXED.get(words[0], len(operands) - 1)
        sources = [self._source(function, o) for o in operands[1 : 1 + count]]
        values = self.values
        operation = values.pick
        if words[0] == "and":
            operation = values.mix if opcodes.aligns(operands[2]) else values.mask
        elif words[0] == "or" or (words[0] == "bfi" and opcodes.inserts_few_bits(*operands[3:5])):
            operation = values.mix
        self._derive(target, sources, self._mix, operation, target, sources)

    def _converted(self, function: Function, words: list[str], instruction: Instruction) -> None:
        if len(instruction.operands) > 2:
            self._mixed(function, words, instruction)
            return
        (target,) = self._targets(function, instruction.operands)
        source = self._source(function, instruction.operands[1])
        self._derive(target, [source], self._copy, target, source)

    def _numbered(self, targets: list[int]) -> None:
        """Put numbers into registers."""
        for target in targets:
            self._put(target, TOP)
        self._settled.update(self._once.intersection(targets))

    def _targets(self, function: Function, operands: tuple[str, ...]) -> list[int]:
        """Return the registers that an instruction's first operand names."""
        if not operands or operands[0][0] in "[(":
            return []
        first = operands[0]
        if first[0] == "%" and "|" not in first:
            return [self._target(function, first)]
        names = parts(first) if first[0] == "{" else first.split("|")
        return [self._target(function, n) for n in names if n != "_" and not LITERAL_TEXT.match(n)]

    def _copied(self, function: Function, words: list[str], instruction: Instruction) -> None:
        operands = instruction.operands
        targets = self._targets(function, operands)
        source = self._source(function, operands[1])
        if words[0] == "shfl":
            targets = targets[:1]
        if words[0] == "cvta" and words[1:3] == ["to", "global"]:
            self.converted.append(source)
        change = self._derived_copy(function, words, source)
        for target in targets:
            self._derive(target, [source], change, target, source)

    def _derived_copy(self, function: Function, words: list[str], source: int) -> Callable:
        """Return the rule of a copy; lanes' literals make a number, as window and offset do."""
        values, to = self.values, "to" in words
        if words[0] in {"redux", "movmatrix"}:
            return partial(self._change, values.number)
        if words[0] != "cvta" or to or words[1].partition(":")[0] not in {"shared", "local"}:
            return self._copy
        return partial(self._change, values.of_shared if words[1] != "local" else values.place)

    def _multiplied(
        self, words: list[str], target: int, operands: tuple[str, ...], sources: list[int]
    ) -> None:
        """Take in a product, plus a third source if there is one."""
        a, b, *rest = sources
        literal = next((i for i in (2, 1) if LITERAL_TEXT.fullmatch(operands[i])), 0)
        if "hi" in words:
            self._derive(target, sources, self._high, target, a, b, *rest)
        elif literal:
            by, factor = integer(operands[literal]), (a, b)[2 - literal]
            self._derive(target, sources, self._multiply, target, factor, by, *rest)
        else:
            self._derive(target, sources, self._mad, target, a, b, *rest)

    def _arithmetic(self, function: Function, words: list[str], instruction: Instruction) -> None:
        word, values, operands = words[0], self.values, instruction.operands
        (target,) = self._targets(function, operands)
        sources = [self._source(function, operand) for operand in operands[1:]]
        if word in opcodes.SUMS and len(sources) != opcodes.SOURCES.get(word, 2):
            raise ValueError("another number of operands")
        if words[-1] == "f64":  # which holds an address exactly
            self._derive(target, sources, self._any_part, target, sources)
        elif word in opcodes.PARTS:
            literal = word == "shl" and LITERAL_TEXT.fullmatch(operands[2])
            change = values.scaled if literal and integer(operands[2]) else values.part
            self._derive(target, sources, self._change, change, target, sources[0])
        elif word in {"add", "sub"} and LITERAL_TEXT.fullmatch(operands[2]):
            by = integer(operands[2])
            by = by if word == "add" else -by
            move = self._move if opcodes.keeps_null(words, by) else self._move_to_number
            self._derive(target, sources, move, target, sources[0], by)
        elif word in {"add", "addc"}:
            self._derive(target, sources, self._apply, values.add, target, *sources)
        elif word in {"sub", "subc"}:
            self._derive(target, sources, self._apply, values.subtract, target, *sources)
        elif word in {"mul", "mul24", "mad", "madc", "mad24", "fma"}:
            self._multiplied(words, target, operands, sources)
        elif word in {"neg", "not"}:
            self._derive(target, sources, self._change, values.negate, target, sources[0])
        elif word == "xor":
            self._derive(target, sources, self._apply, values.exclusive, target, *sources)
        else:  # sad: the distance of two, plus a third
            a, b, c = sources
            between = self._register(function, f"{target} distance")
            self._follow([a, b], self._apply, values.subtract, between, a, b)
            self._follow([a, b], self._apply, values.subtract, between, b, a)
            self._follow([between, c], self._apply, values.add, target, between, c)

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

    def _into_shared(self, sources: list[int]) -> None:
        self._follow(sources, self._write_cell, sources)

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
            self._remember((), self._read_cell, self._targets(function, operands))
        elif word == "stmatrix":
            self._into_shared([self._source(function, operands[1])])
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
            self._into_shared([self._source(function, operands[1])])
        elif words[1] == "store":
            stored = [self._source(function, operands[1])]
            address = self._address(function, operands[0])
            self._take_store(stored, *address, WORD)
            self._touch(instruction, address, writes=True, stored=stored)

    def _loads(self, function: Function, words: list[str], instruction: Instruction) -> None:
        operands = instruction.operands
        width, space = opcodes.width_of(words), opcodes.space_of(words)
        names = parts(operands[0]) if operands[0][0] == "{" else [operands[0]]
        address = self._address(function, operands[1])
        if space == "local":  # whose first byte has the address 0
            address = self._changed_by(self.values.place, address[0]), address[1]
        targets = [self._target(function, name) for name in names]
        if space == "shared":
            self._remember((), self._read_cell, targets)
            return
        self._take_load(targets, *address, width)
        if space not in {"param", "local"}:
            self._touch(instruction, address, reads=True)
        elif space == "local":
            self._touch(instruction, address)

    def _stores(self, function: Function, words: list[str], instruction: Instruction) -> None:
        operands = instruction.operands
        width, space = opcodes.width_of(words), opcodes.space_of(words)
        names = parts(operands[1]) if operands[1][0] == "{" else [operands[1]]
        sources = [self._source(function, name) for name in names]
        if space == "shared":
            self._into_shared(sources)
            return
        address = self._address(function, operands[0])
        if space == "param" and self._is_formal(function, operands[0]):
            raise NotUnderstood(f"a kernel's parameter is written: {instruction.text}")
        if space == "local":
            address = self._changed_by(self.values.place, address[0]), address[1]
        self._take_store(sources, *address, width)
        if space != "param":
            self._touch(instruction, address, writes=True, stored=sources)

    def _atomic(self, function: Function, words: list[str], instruction: Instruction) -> None:
        operands = instruction.operands
        space = opcodes.space_of(words)
        at = 0 if words[0] == "red" else 1
        sources = [self._source(function, operand) for operand in operands[at + 1 :]]
        targets = self._targets(function, operands) if at else []
        if not {"exch", "cas"} & set(words):  # then memory holds no literal, but a sum of some
            sources = [self._changed_by(self.values.number, source) for source in sources]
        if space == "shared":
            self._into_shared(sources)
            self._remember((), self._read_cell, targets)
            for target in targets:
                self._put(target, TOP)
            return
        address = self._address(function, operands[at])
        for source in sources:  # each of them may be what is kept: of cas the second
            self._take_store([source], *address, 2 * WORD)
        for target in targets:
            arguments = [target], *address, 2 * WORD
            self._remember([address[0]], self._read_through, *arguments)
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
            self._into_shared([1])
        else:
            stored = [self._register(function, "shared memory")]
            self._remember((), self._read_cell, stored)
            self._touch(instruction, to, reads=reduces, writes=True, stored=stored, tensor=tensor)
        if spaces[1] == "global":
            self._touch(instruction, source, reads=True, tensor=tensor)
