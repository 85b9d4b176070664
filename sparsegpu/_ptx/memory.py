"""Takes in the instructions that read or write memory: which of it, and what they put there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from . import opcodes
from .calls import Calls
from .lexer import Function, Instruction, Module
from .machine import LITERAL_TEXT, SHARED
from .pieces import WORD, NotUnderstood, parts
from .values import TOP, Base

Take = Callable[[Function, list[str], Instruction], None]

#: Bytes of a tensor map.
TENSOR_MAP = 128
#: The memory of the tensor cores of compute capability 10. No instruction but theirs reaches it.
TENSOR_MEMORY = Base("tensor")


def _not_known(instruction: Instruction) -> NotUnderstood:
    return NotUnderstood(f"an instruction that is not known: {instruction.text}")


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


class Memory(Calls):
    """What the instructions of a kernel do to memory.

    Attributes
    ----------
    touches : list of Touch
        Every access to memory that other kernels see.
    """

    def __init__(self, module: Module, entry: Function, scalars: set[int]):
        super().__init__(module, entry, scalars)
        self.touches: list[Touch] = []
        self._accesses: dict[str, Take] = {
            "ld": self._loads, "ldu": self._loads, "st": self._stores,
            "atom": self._atomic, "red": self._atomic,
            "cp": self._bulk, "cp_async": self._bulk,
            "ldmatrix": self._load_matrix, "stmatrix": self._store_matrix, "wmma": self._fragment,
            "tex": self._sampled, "tld4": self._sampled, "suld": self._sampled,
            "discard": self._discard, "alloca": self._alloca, "tcgen05": self._tensor_memory,
            "tensormap": self._tensor_map, "multimem": self._multimem,
            "clusterlaunchcontrol": self._cancel,
            **dict.fromkeys(opcodes.UNFOLLOWED, self._unfollowed),
        }  # fmt: skip

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

    def _read_cell(self, cell: Base, targets: list[int]) -> None:
        for target in targets:
            self._put(target, self._load(cell, None))

    def _write_cell(self, cell: Base, sources: list[int]) -> None:
        for source in sources:
            self._store(cell, None, self.held[source])

    def _into_shared(self, sources: list[int]) -> None:
        self._follow(sources, self._write_cell, SHARED, sources)

    def _unknown(self, _: Function, __: list[str], instruction: Instruction) -> None:
        raise _not_known(instruction)

    def _unfollowed(self, _: Function, words: list[str], instruction: Instruction) -> None:
        raise NotUnderstood(f"{opcodes.UNFOLLOWED[words[0]]}: {instruction.text}")

    def _load_matrix(self, function: Function, _: list[str], instruction: Instruction) -> None:
        self._remember((), self._read_cell, SHARED, self._targets(function, instruction.operands))

    def _store_matrix(self, function: Function, _: list[str], instruction: Instruction) -> None:
        self._into_shared([self._source(function, instruction.operands[1])])

    def _sampled(self, function: Function, _: list[str], instruction: Instruction) -> None:
        """Take in a load through a handle, which may be that of any array."""
        for target in self._targets(function, instruction.operands):
            self._put(target, TOP)
        self._touch(instruction, (1, 0), reads=True)

    def _discard(self, function: Function, _: list[str], instruction: Instruction) -> None:
        self._touch(instruction, self._address(function, instruction.operands[0]), writes=True)

    def _alloca(self, function: Function, _: list[str], instruction: Instruction) -> None:
        (target,) = self._targets(function, instruction.operands)
        self._put(target, self.values.base(Base("local", f"{function.name}::alloca")))

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
            self._remember((), self._read_cell, SHARED, targets)
            return
        self._take_load(targets, *address, width)
        if space not in {"param", "local"}:
            self._touch(instruction, address, reads=True)
        elif space == "local":
            self._touch(instruction, address)

    def _stores(self, function: Function, words: list[str], instruction: Instruction) -> None:
        operands = instruction.operands
        if words[1] == "bulk":  # fills shared memory, whatever the address
            self._into_shared([self._source(function, operands[2])])
            return
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
        if words[1] == "async":  # which has a barrier behind its value
            operands = operands[:2]
        sources = [self._source(function, operand) for operand in operands[at + 1 :]]
        targets = self._targets(function, operands) if at else []
        if not {"exch", "cas"} & set(words):  # then memory holds no literal, but a sum of some
            sources = [self._changed_by(self.values.number, source) for source in sources]
        if space == "shared":
            self._into_shared(sources)
            self._remember((), self._read_cell, SHARED, targets)
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
                raise _not_known(instruction)
            return
        if "mbarrier" in words and "bulk" not in words:  # cp.async.mbarrier.arrive
            return
        spaces = [w.partition(":")[0] for w in words if w.partition(":")[0] in {"shared", "global"}]
        if len(spaces) != 2 or not {"async"} & set(words):
            raise _not_known(instruction)
        tensor, reduces = "tensor" in words, "reduce" in words
        to, source = (self._address(function, operand) for operand in operands[:2])
        copied = [1]
        if spaces[1] == "global":
            self._touch(instruction, source, reads=True, tensor=tensor)
            if not tensor:
                copied.append(self._new_register())
                self._take_load(copied[1:], *source, WORD)
        if spaces[0] == "shared":
            self._into_shared(copied)
        else:
            self._from_shared(function, instruction, to, reads=reduces, tensor=tensor)

    def _from_shared(
        self,
        function: Function,
        instruction: Instruction,
        to: tuple[int, int],
        *,
        reads: bool = False,
        tensor: bool = False,
    ) -> None:
        """Take in a copy out of shared memory."""
        stored = [self._register(function, "shared memory")]
        self._remember((), self._read_cell, SHARED, stored)
        if not tensor:
            self._take_store(stored, *to, WORD)
        self._touch(instruction, to, reads=reads, writes=True, stored=stored, tensor=tensor)

    def _tensor_map(self, function: Function, words: list[str], instruction: Instruction) -> None:
        """Take in a change of a tensor map in memory, or its copy there.

        It changes one field and keeps the others. Where the map points to does not count here: an
        access through a map in memory may be to any array.
        """
        operands = instruction.operands
        if words[1] == "cp_fenceproxy":
            self._from_shared(function, instruction, self._address(function, operands[0]))
            return
        if words[1] != "replace":
            raise _not_known(instruction)
        stored = [self._source(function, operands[-1])]
        if opcodes.space_of(words) == "shared":
            self._into_shared([*stored, 1])
            return
        address = self._address(function, operands[0])
        for source in (*stored, 1):  # the field's place and its form are not told
            self._take_store([source], *address, TENSOR_MAP)
        self._touch(instruction, address, reads=True, writes=True, stored=stored)

    def _tensor_memory(
        self, function: Function, words: list[str], instruction: Instruction
    ) -> None:
        """Take in ``tcgen05``: of tensor memory and shared memory alone.

        What it computes are numbers, and as such they are loaded, besides what was stored.
        """
        what, operands = words[1].partition(":")[0], instruction.operands
        if what == "ld":
            targets = self._targets(function, operands)
            if words[2] == "red":
                targets += self._targets(function, operands[1:])
            self._remember((), self._read_cell, TENSOR_MEMORY, targets)
            for target in targets:
                self._put(target, TOP)
        elif what == "st":
            sources = [self._source(function, name) for name in parts(operands[-1])]
            self._follow(sources, self._write_cell, TENSOR_MEMORY, sources)
        elif what == "cp":
            self._remember((), self._pass, SHARED, TENSOR_MEMORY)
        elif what == "alloc":  # stores an address of tensor memory
            self._into_shared([1])
        elif what not in opcodes.TENSOR:
            raise _not_known(instruction)

    def _multimem(self, function: Function, words: list[str], instruction: Instruction) -> None:
        """Take in a sum over the memory of several devices.

        The memory behind such an address has an ordinary one, too, on each of them. So it may be
        that of any array, and what is stored there may change any array.
        """
        if words[1] != "ld_reduce":
            raise NotUnderstood(f"memory that has other addresses is written: {instruction.text}")
        self._numbered(self._targets(function, instruction.operands))
        self._touch(instruction, self._address(function, instruction.operands[1]), reads=True)
        self._touch(instruction, (1, 0), reads=True)

    def _cancel(self, function: Function, words: list[str], instruction: Instruction) -> None:
        """Take in a request for another cluster's work, or a question about its answer."""
        if words[1] == "try_cancel":
            self._into_shared([1])
        elif words[1] == "query_cancel":
            self._numbered(self._targets(function, instruction.operands))
        else:
            raise _not_known(instruction)
