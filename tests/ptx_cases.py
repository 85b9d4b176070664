"""Random PTX kernels whose writes are known: a generator that executes what it emits.

Every pointer parameter has an allocation of its own. Each emitted instruction is executed on
concrete numbers, and a store is only emitted where its address is in an allocation. So the set of
written parameters is a fact of this run, found without the analysis.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

BYTES = 1 << 20
WORD = (1 << 64) - 1
RUN_WORD = 8


def base_of(parameter: int) -> int:
    return 0x7F00_0000_0000 + (parameter + 1) * 0x1_2345_6700


@dataclass
class Generated:
    """A kernel's text, and which parameters one execution of it wrote and read."""

    seed: int
    text: str = ""
    written: set[int] = field(default_factory=set)
    read: set[int] = field(default_factory=set)


class Generator:
    """Emits one kernel.

    One that ``runs`` may be launched with one thread, on memory whose 64-bit words are all
    `RUN_WORD` and with that for the number, and does what was executed here: its addresses are
    aligned, it stores zeros, nothing depends on what it loads or on which array comes first.
    """

    def __init__(self, seed: int, runs: bool = False):
        self.runs = runs
        self.rng = random.Random(seed)
        self.result = Generated(seed)
        self.pointers = self.rng.randint(2, 5)
        self.lines: list[str] = []
        self.values: dict[str, int] = {}
        self.cells: dict[tuple[str, int], int] = {}
        self.count = 0
        self.labels = 0
        self.kept = 0

    def new(self) -> str:
        self.count += 1
        return f"%rd{self.count}"

    def emit(self, text: str, target: str = "", value: int = 0) -> str:
        self.lines.append(f"\t{text};")
        if target:
            self.values[target] = value & WORD
        return target

    def owner(self, value: int) -> int | None:
        for parameter in range(self.pointers):
            if base_of(parameter) <= value < base_of(parameter) + BYTES - 64:
                return parameter
        return None

    def addresses(self) -> list[str]:
        return [r for r, v in self.values.items() if self.owner(v) is not None]

    def numbers(self) -> list[str]:
        return [r for r, v in self.values.items() if v < 256]

    def kernel(self) -> Generated:
        rng = self.rng
        for parameter in range(self.pointers):
            register = self.new()
            self.emit(f"ld.param.u64 {register}, [k_{parameter}]", register, base_of(parameter))
            if rng.random() < 0.5:
                converted = self.new()
                self.emit(
                    f"cvta.to.global.u64 {converted}, {register}", converted, base_of(parameter)
                )
        number, lane = self.new(), self.new()
        given = RUN_WORD if self.runs else rng.randint(1, 8) * 8
        self.emit(f"ld.param.u64 {number}, [k_{self.pointers}]", number, given)
        self.emit("mov.u32 %r1, %tid.x")
        self.emit(f"cvt.u64.u32 {lane}, %r1", lane, 0)
        self.kept = len(self.values)  # registers that are put to no other use
        for _ in range(rng.randint(5, 40)):
            if rng.random() < 0.15:
                self.branch()
            else:
                self.step()
        self.store()
        formals = [f".param .u64 k_{i}" for i in range(self.pointers + 1)]
        self.result.text = "\n".join((
            ".version 8.0\n.target sm_80\n.address_size 64",
            f".visible .entry k({', '.join(formals)})\n{{",
            "\t.local .align 8 .b8 room[64];\n\t.shared .align 8 .b8 tile[64];",
            f"\t.reg .b64 %rd<{self.count + 1}>;\n\t.reg .b32 %r<2000>;\n\t.reg .pred %p<200>;",
            *self.lines,
            "\tret;\n}\n",
        ))  # fmt: skip
        return self.result

    def branch(self) -> None:
        """Emit a forward branch over some steps, which are executed or not."""
        taken = self.rng.random() < 0.5
        self.labels += 1
        label, predicate = f"L{self.labels}", f"%p{self.labels}"
        self.emit(f"setp.{'lt' if taken else 'gt'}.u32 {predicate}, %r1, 1")
        self.emit(f"@{predicate} bra {label}")
        if taken:
            kept, cells = dict(self.values), dict(self.cells)
            written, read = set(self.result.written), set(self.result.read)
        for _ in range(self.rng.randint(1, 4)):
            self.step()
        if taken:
            self.values, self.cells = kept, cells
            self.result.written, self.result.read = written, read
        self.lines.append(f"{label}:")

    def step(self) -> None:
        steps = (
            self.advance, self.advance, self.difference, self.either, self.swap, self.halves,
            self.mask, self.through_memory, self.store, self.load, self.scale, self.copy,
        )  # fmt: skip
        self.rng.choice(steps)()

    def target(self) -> str:
        """A new register, or one that is put to another use."""
        others = list(self.values)[self.kept :]
        return self.rng.choice(others) if others and self.rng.random() < 0.2 else self.new()

    def advance(self) -> None:
        address, target = self.rng.choice(self.addresses()), self.target()
        by: str | int
        if self.rng.random() < 0.5:
            by = self.rng.choice((8, 16, 64) if self.runs else (4, 8, 16, 64))
            value = by
        else:
            by = self.rng.choice(self.numbers())
            value = self.values[by]
        self.emit(f"add.s64 {target}, {address}, {by}", target, self.values[address] + value)

    def difference(self) -> None:
        """r = a + (b - a), which is b."""
        a, b = self.rng.choice(self.addresses()), self.rng.choice(self.addresses())
        between, target = self.new(), self.new()
        x, y = self.values[a], self.values[b]
        self.emit(f"sub.s64 {between}, {b}, {a}", between, y - x)
        if self.rng.random() < 0.3:
            kept = self.new()
            self.emit(f"mul.lo.s64 {kept}, {between}, 1", kept, y - x)
            between = kept
        self.emit(f"add.s64 {target}, {a}, {between}", target, y)

    def either(self) -> None:
        a, b = self.rng.choice(self.addresses()), self.rng.choice(self.addresses())
        target, x, y = self.target(), self.values[a], self.values[b]
        how = self.rng.choice(("selp", "guard") if self.runs else ("selp", "min", "max", "guard"))
        self.labels += 1
        predicate = f"%p{self.labels}"
        self.emit(f"setp.eq.u32 {predicate}, %r1, 0")
        if how == "selp":
            self.emit(f"selp.b64 {target}, {a}, {b}, {predicate}", target, x)
        elif how == "guard":
            target = self.new() if target == b else target  # which is read after the first move
            self.emit(f"mov.u64 {target}, {a}", target, x)
            self.emit(f"@{predicate} mov.u64 {target}, {b}", target, y)
        else:
            self.emit(f"{how}.u64 {target}, {a}, {b}", target, (min if how == "min" else max)(x, y))

    def swap(self) -> None:
        """Exchange two by xor."""
        a, b = self.rng.choice(self.addresses()), self.rng.choice(self.addresses())
        both, target = self.new(), self.new()
        x, y = self.values[a], self.values[b]
        self.emit(f"xor.b64 {both}, {a}, {b}", both, x ^ y)
        self.emit(f"xor.b64 {target}, {both}, {a}", target, y)

    def halves(self) -> None:
        a, target = self.rng.choice(self.addresses()), self.target()
        low = 10 + 2 * self.count + len(self.lines)
        x = self.values[a]
        self.emit(f"mov.b64 {{%r{low}, %r{low + 1}}}, {a}")
        if self.rng.random() < 0.5:
            self.emit(f"mov.b64 {target}, {{%r{low}, %r{low + 1}}}", target, x)
        else:
            high, rest = self.new(), self.new()
            self.emit(f"cvt.u64.u32 {high}, %r{low + 1}", high, x >> 32)
            self.emit(f"shl.b64 {high}, {high}, 32", high, x >> 32 << 32)
            self.emit(f"cvt.u64.u32 {rest}, %r{low}", rest, x & 0xFFFFFFFF)
            self.emit(f"or.b64 {target}, {high}, {rest}", target, x)

    def mask(self) -> None:
        a, target = self.rng.choice(self.addresses()), self.target()
        x = self.values[a]
        how = self.rng.choice(("and", "shift", "subtract"))
        if how == "and":
            self.emit(f"and.b64 {target}, {a}, -16", target, x & -16)
        elif how == "shift":
            part = self.new()
            self.emit(f"shr.u64 {part}, {a}, 4", part, x >> 4)
            self.emit(f"shl.b64 {target}, {part}, 4", target, x >> 4 << 4)
        else:
            part = self.new()
            self.emit(f"and.b64 {part}, {a}, 15", part, x & 15)
            self.emit(f"sub.s64 {target}, {a}, {part}", target, x - (x & 15))

    def through_memory(self) -> None:
        space = self.rng.choice((("local", "room"), ("shared", "tile")))
        a, offset = self.rng.choice(self.addresses()), 8 * self.rng.randint(0, 7)
        place, target = self.new(), self.new()
        self.lines.append(f"\tmov.u64 {place}, {space[1]};")
        self.lines.append(f"\tst.{space[0]}.u64 [{place}+{offset}], {a};")
        self.cells[space[0], offset] = self.values[a]
        choices = [o for s, o in self.cells if s == space[0]]
        there = self.rng.choice(choices)
        value = self.cells[space[0], there]
        self.emit(f"ld.{space[0]}.u64 {target}, [{place}+{there}]", target, value)

    def store(self) -> None:
        address = self.rng.choice(self.addresses())
        owner = self.owner(self.values[address])
        how = self.rng.choice(("st", "st", "atom", "red", "v2"))
        change, place = ("and.b32", 0) if self.runs else ("add.u32", 4)
        text = {
            "st": f"st.global.u32 [{address}+{place}], %r1",
            "v2": f"st.v2.u32 [{address}], {{%r1, %r1}}",
            "atom": f"atom.global.{change} %r2, [{address}], {int(not self.runs)}",
            "red": f"red.global.{change} [{address}], {int(not self.runs)}",
        }[how]
        self.emit(text)
        self.result.written.add(owner)
        if how in {"atom", "red"}:
            self.result.read.add(owner)

    def load(self) -> None:
        address, target = self.rng.choice(self.addresses()), self.new()
        self.result.read.add(self.owner(self.values[address]))
        value = self.rng.randint(0, 15) * 8
        self.emit(f"ld.global.u64 {target}, [{address}]", target, value)
        if self.runs:
            self.emit(f"shr.u64 {target}, {target}, 8", target, 0)

    def scale(self) -> None:
        number, target = self.rng.choice(self.numbers()), self.new()
        self.emit(f"shl.b64 {target}, {number}, 2", target, self.values[number] * 4)

    def copy(self) -> None:
        source = self.rng.choice(list(self.values))
        target = self.new()
        self.emit(f"mov.b64 {target}, {source}", target, self.values[source])


def generate(seed: int, runs: bool = False) -> Generated:
    """Return the kernel of a seed, called ``k``; ``runs`` as of `Generator`."""
    return Generator(seed, runs).kernel()
