"""Follows addresses through the instructions of a kernel, to a fixpoint.

The order of instructions does not count, nor who calls a function: a register holds whatever any
instruction puts there. So branches, loops, recursion and predication need no care. (But from an
instruction up to the next label, what it put into a register is all that this holds.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from . import opcodes
from .lexer import LABEL, Function, Instruction, Module
from .machine import LITERAL_TEXT, integer
from .memory import Memory, Take
from .pieces import defined_often, not_understood
from .values import TOP


class Flow(Memory):
    """The fixpoint of one kernel.

    Attributes
    ----------
    converted : list of int
        Registers that are converted to addresses of global memory.
    """

    def __init__(self, module: Module, entry: Function, scalars: set[int]):
        super().__init__(module, entry, scalars)
        self.converted: list[int] = []
        self._functions: dict[str, Function] = {}
        self._takes: dict[str, tuple[list[str], Take | None]] = {}
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
            raise not_understood(instruction, error) from error

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

    def _known(self, opcode: str) -> tuple[list[str], Take | None]:
        """Return an opcode's words and what takes such an instruction in, if anything has to."""
        words = opcode.split(".")
        self._takes[opcode] = words, self._taken_by(words)
        return self._takes[opcode]

    def _taken_by(self, words: list[str]) -> Take | None:
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
        if word in opcodes.VIDEO:
            return self._computed
        if arithmetic:
            return self._one_number if opcodes.is_narrow_float(words) else self._arithmetic
        return self._accesses.get(word, self._unknown)

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
        sources = [self._source(function, operands[i]) for i in range(1, 1 + count)]
        values = self.values
        operation = values.pick
        if words[0] == "and":
            operation = values.mix if opcodes.aligns(operands[2]) else values.mask
        elif words[0] == "or" or (
            words[0] == "bfi" and opcodes.inserts_few_bits(operands[3], operands[4])
        ):
            operation = values.mix
        self._derive(target, sources, self._mix, operation, target, sources)

    def _computed(self, function: Function, _: list[str], instruction: Instruction) -> None:
        (target,) = self._targets(function, instruction.operands)
        sources = [self._source(function, operand) for operand in instruction.operands[1:]]
        if len(sources) < 2:
            raise ValueError("another number of operands")
        self._derive(target, sources, self._mix, self.values.compute, target, sources)

    def _converted(self, function: Function, words: list[str], instruction: Instruction) -> None:
        if len(instruction.operands) > 2:
            self._mixed(function, words, instruction)
            return
        (target,) = self._targets(function, instruction.operands)
        source = self._source(function, instruction.operands[1])
        self._derive(target, [source], self._copy, target, source)

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
