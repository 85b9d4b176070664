"""Follows values into functions and out of them."""

from __future__ import annotations

from . import opcodes
from .lexer import Function, Instruction, Module
from .machine import Machine, base_of
from .pieces import NotUnderstood, parts
from .values import _FLAGS, NULL, TOP, Base


class Calls(Machine):
    """The calls of a kernel. Who calls a function does not count.

    Attributes
    ----------
    effects : dict of str to Instruction
        What a kernel does besides reading and writing memory.
    indirect : list of (Instruction, set of str)
        Calls through a register, and the functions that they were found to lead to.
    """

    def __init__(self, module: Module, entry: Function, scalars: set[int]):
        super().__init__(module, entry, scalars)
        self.effects: dict[str, Instruction] = {}
        self.indirect: list[tuple[Instruction, set[str]]] = []

    def _enter(self, function: Function) -> None:
        """Take the instructions of a function in, once."""
        raise NotImplementedError

    def _call(self, function: Function, instruction: Instruction) -> None:
        operands = list(instruction.operands)
        results = parts(operands.pop(0)) if operands[0][0] == "(" else []
        callee = operands.pop(0)
        arguments = parts(operands.pop(0)) if operands and operands[0][0] == "(" else []
        called = self.module.functions.get(callee)
        if called is not None:
            self._bind(function, instruction, called, results, arguments)
            return
        register = self._source(function, callee)
        bound: set[str] = set()
        self.indirect.append((instruction, bound))
        more = function, instruction, register, results, arguments, bound
        self._remember([register], self._indirect, *more)

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
        if any(not alternative >> _FLAGS for alternative in self.values.alternatives(value)) or any(
            b.kind != "function" for b in self.values.bases_of(value)
        ):
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
            self._remember((), self._pass, self._slot(function, actual), target)
        for actual, formal in zip(results, called.results, strict=True):
            source = Base("local", f"{called.name}::{formal.name}")
            self._remember((), self._pass, source, self._slot(function, actual))

    def _slot(self, function: Function, name: str) -> Base:
        symbol = function.symbols.get(name)
        if symbol is not None:
            return base_of(function, symbol, 0)
        if any(name == p.name for p in (*function.parameters, *function.results)):
            return Base("local", f"{function.name}::{name}")
        raise NotUnderstood(f"an argument of a call: {name}")

    def _pass(self, source: Base, target: Base) -> None:
        for word, value in list(self._cells.get(source.anywhere, {}).items()):
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
            value = self.values.join(self.values.base(Base("heap")), NULL)
        for result in results:
            self._store(self._slot(function, result), None, value)
