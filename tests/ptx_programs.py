"""Random programs of PTX arithmetic, with what each register holds when they have run.

A program hides three addresses in words, halves, bytes and memory of its own, by rows of the tables
below: an instruction, and what it computes. Where a register holds an address in the end, a store
through it is a store to that array.
"""

from __future__ import annotations

import random
from typing import NamedTuple

#: Where the arrays lie; an address near one of them is in it.
ARRAYS = (0x7F1234560100, 0x7E8889A00200, 0x7D0403020300)
_NEAR = 4096
_MASK, _HALF = 2**64 - 1, 2**32 - 1
_SHIFTS = (1, 2, 3, 4, 8, 16, 24, 32)
_MASKS = (-8, -2, -256, 2**32 - 1, -(2**32), 255, 2**16 - 1, -(2**16), 15, 127, 128)
_FIELDS = ((0, 32), (32, 32), (0, 16), (16, 16), (8, 40))
_SELECTORS = (0x3210, 0x7654, 0x0123, 0x4567, 0x1054, 0x5410, 0x7632)


def _signed(x):
    return x - 2**64 if x >> 63 else x


def _field(x, field):
    return x >> field[0] & 2 ** field[1] - 1


def _insert(x, y, field):
    mask = 2 ** field[1] - 1 << field[0]
    return y & ~mask | x << field[0] & mask


def _reversed(x, bits):
    return int(f"{x:0{bits}b}"[::-1], 2)


def _looked_up(a, b, c, table):
    places = range(max(a.bit_length(), b.bit_length(), c.bit_length(), 32))
    index = ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1) for i in places)
    return sum((table >> at & 1) << i for i, at in enumerate(index))


def _permuted(a, b, selector):
    source = (b << 32 | a).to_bytes(8, "little")
    return int.from_bytes(bytes(source[selector >> 4 * i & 7] for i in range(4)), "little")


def _byte(x, number):
    return x >> 8 * number & 255


def _merged(low, high):
    return high & ~0xFFFF | low & 0xFFFF


def _differences(a, b):
    return _merged(a - b, (a >> 16) - (b >> 16) << 16)


def _largest(a, b):
    return sum(max(_byte(a, i), _byte(b, i)) << 8 * i for i in range(4))


#: Of 64 bits: the instruction with {d}, {a}, {b}, {c} and {n}, the choices of n, what it computes.
WIDE = (
    ("mov.u64 {d}, {a};", (0,), lambda a, b, c, n: a),
    ("add.s64 {d}, {a}, {b};", (0,), lambda a, b, c, n: a + b),
    ("add.s64 {d}, {a}, {n};", (0, 4, 8, -8, 255), lambda a, b, c, n: a + n),
    ("sub.s64 {d}, {a}, {b};", (0,), lambda a, b, c, n: a - b),
    ("and.b64 {d}, {a}, {n};", _MASKS, lambda a, b, c, n: a & n),
    ("and.b64 {d}, {a}, {b};", (0,), lambda a, b, c, n: a & b),
    ("or.b64 {d}, {a}, {b};", (0,), lambda a, b, c, n: a | b),
    ("xor.b64 {d}, {a}, {b};", (0,), lambda a, b, c, n: a ^ b),
    ("shl.b64 {d}, {a}, {n};", _SHIFTS, lambda a, b, c, n: a << n),
    ("shr.u64 {d}, {a}, {n};", _SHIFTS, lambda a, b, c, n: a >> n),
    ("not.b64 {d}, {a};", (0,), lambda a, b, c, n: ~a),
    ("neg.s64 {d}, {a};", (0,), lambda a, b, c, n: -a),
    ("mul.lo.s64 {d}, {a}, {n};", (1, 2, 3, 256, -1, 2**32), lambda a, b, c, n: a * n),
    ("mad.lo.s64 {d}, {a}, {n}, {b};", (1, 2, -1, 256), lambda a, b, c, n: a * n + b),
    ("min.u64 {d}, {a}, {b};", (0,), lambda a, b, c, n: min(a, b)),
    ("max.s64 {d}, {a}, {b};", (0,), lambda a, b, c, n: max(a, b, key=_signed)),
    ("sad.u64 {d}, {a}, {b}, {c};", (0,), lambda a, b, c, n: abs(a - b) + c),
    ("div.u64 {d}, {a}, {n};", (3, 1000, 256), lambda a, b, c, n: a // n),
    ("rem.u64 {d}, {a}, {n};", (3, 1000, 256), lambda a, b, c, n: a % n),
    ("brev.b64 {d}, {a};", (0,), lambda a, b, c, n: _reversed(a, 64)),
    ("bfe.u64 {d}, {a}, {n[0]}, {n[1]};", _FIELDS, lambda a, b, c, n: _field(a, n)),
    ("bfi.b64 {d}, {a}, {b}, {n[0]}, {n[1]};", _FIELDS, lambda a, b, c, n: _insert(a, b, n)),
)
#: Of 32 bits, likewise.
NARROW = (
    ("mov.b32 {d}, {a};", (0,), lambda a, b, c, n: a),
    ("add.s32 {d}, {a}, {n};", (0, 8, -8, 255), lambda a, b, c, n: a + n),
    ("xor.b32 {d}, {a}, {b};", (0,), lambda a, b, c, n: a ^ b),
    ("brev.b32 {d}, {a};", (0,), lambda a, b, c, n: _reversed(a, 32)),
    ("shf.l.clamp.b32 {d}, {a}, {b}, {n};", _SHIFTS, lambda a, b, c, n: (b << 32 | a) << n >> 32),
    ("shf.r.clamp.b32 {d}, {a}, {b}, {n};", _SHIFTS, lambda a, b, c, n: (b << 32 | a) >> n),
    ("prmt.b32 {d}, {a}, {b}, {n};", _SELECTORS, lambda a, b, c, n: _permuted(a, b, n)),
    ("lop3.b32 {d}, {a}, {b}, {c}, {n};", range(256), lambda a, b, c, n: _looked_up(a, b, c, n)),
)
#: Of 32 bits, by video instructions.
VIDEO = (
    ("vadd.u32.u32.u32 {d}, {a}, {b};", (0,), lambda a, b, c, n: a + b),
    ("vadd.u32.u32.u32 {d}.h0, {a}.h0, {n}, {b};", (0, 8), lambda a, b, c, n: _merged(a + n, b)),
    ("vsub.s32.u32.u32 {d}, {a}, {b};", (0,), lambda a, b, c, n: a - b),
    ("vabsdiff.u32.u32.u32.add {d}, {a}, {b}, {c};", (0,), lambda a, b, c, n: abs(a - b) + c),
    ("vmin.u32.u32.u32 {d}, {a}, {b};", (0,), lambda a, b, c, n: min(a, b)),
    ("vmax.u32.u32.u32.min {d}, {a}, {b}, {c};", (0,), lambda a, b, c, n: min(max(a, b), c)),
    ("vshl.u32.u32.u32.wrap {d}, {a}, {n};", (1, 8, 16), lambda a, b, c, n: a << n),
    ("vshr.u32.u32.u32.wrap {d}, {a}.b{n}, 1;", (0, 3), lambda a, b, c, n: _byte(a, n) >> 1),
    ("vmad.u32.u32.u32 {d}, {a}, {n}, {b};", (1, 256), lambda a, b, c, n: a * n + b),
    ("vmad.u32.u32.u32 {d}, {a}, 1, -{b};", (0,), lambda a, b, c, n: a - b),
    ("vset.u32.u32.lt.add {d}, {a}, {b}, {c};", (0,), lambda a, b, c, n: (a < b) + c),
    ("vsub2.u32.u32.u32 {d}, {a}, {b}, {c};", (0,), lambda a, b, c, n: _differences(a, b)),
    ("vmax4.u32.u32.u32 {d}, {a}, {b}, {c};", (0,), lambda a, b, c, n: _largest(a, b)),
)
#: What leaves a register as it is.
SAME = (
    "vadd.u32.u32.u32 {d}, {d}, 0;",
    "vsub.u32.u32.u32.add {d}, {d}, {d}, {d};",
    "vmin.u32.u32.u32 {d}, {d}, {d};",
    "vmad.u32.u32.u32 {d}, {d}, 1, 0;",
    "vadd.u32.u32.u32 {d}.h0, {d}.h0, 0, {d};",
    "vset.u32.u32.lt.add {d}, {d}, {d}, {d};",
    "vmax4.u32.u32.u32 {d}.b20, {d}, {d}, {d};",
    "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r8], {{{d}}};"
    " tcgen05.ld.sync.aligned.32x32b.x1.b32 {{{d}}}, [%r8];",
    "tcgen05.st.sync.aligned.32x32b.x2.b32 [%r8], {{{d}, {d}}};"
    " tcgen05.ld.red.sync.aligned.32x32b.x2.min.u32 {{%r9, %r10}}, {d}, [%r8];",
)


class Program(NamedTuple):
    """Its text before the last store, and the arrays that registers are addresses in."""

    text: str
    addresses: dict[str, int]

    def storing(self, register):
        """Return the whole text, with a store through a register."""
        return f"{self.text}\nst.global.u8 [{register}], 1;\nret;\n}}\n"


class _Runner:
    def __init__(self, seed, rare):
        self.random, self.rare = random.Random(seed), rare
        self.lines, self.wide, self.narrow = [], {}, {}
        self.memory = {"room": bytearray(64), "tile": bytearray(64)}
        self.truth = False  # of %p1
        number = self.random.choice((1, 3, 8, 16, 24))
        for i, value in enumerate((*ARRAYS, number)):
            self.wide[f"%rd{i}"] = value
            self.lines.append(f"ld.param.u64 %rd{i}, [k_{i}];")
        for name, space in (("room", "local"), ("tile", "shared")):
            self.lines += [f"st.{space}.u64 [{name}+{at}], 0;" for at in range(0, 64, 8)]

    def step(self):
        """Add an instruction, and do what it does."""
        kinds = ("wide",) * 5 + ("narrow", "halves", "join", "memory", "compare")
        kind = self.random.choice(("carry", "narrow", *kinds) if self.rare else kinds)
        if kind == "wide":
            self.compute(WIDE, self.wide, "%rd", _MASK)
        elif kind == "narrow" and self.narrow:
            self.compute(VIDEO if self.rare else NARROW, self.narrow, "%r", _HALF)
        elif kind == "carry":
            self.carry()
        elif kind == "halves":
            source = self.any_of(self.wide)
            low, high = self.random.sample(range(8), 2)
            self.lines.append(f"mov.b64 {{%r{low}, %r{high}}}, {source};")
            self.narrow |= {f"%r{low}": self.wide[source] & _HALF}
            self.narrow |= {f"%r{high}": self.wide[source] >> 32}
        elif kind == "join" and self.narrow:
            low, high, target = self.any_of(self.narrow), self.any_of(self.narrow), self.target()
            self.lines.append(f"mov.b64 {target}, {{{low}, {high}}};")
            self.wide[target] = self.narrow[high] << 32 | self.narrow[low]
        elif kind == "memory":
            self.remember()
        elif kind == "compare":
            a, b = self.any_of(self.wide), self.any_of(self.wide)
            self.lines.append(f"setp.gt.u64 %p1, {a}, {b};")
            self.truth = self.wide[a] > self.wide[b]

    def any_of(self, registers):
        """Return a register, half of the times one that holds an address."""
        addresses = [name for name, value in registers.items() if array_of(value) is not None]
        among = addresses if addresses and self.random.random() < 0.5 else sorted(registers)
        return self.random.choice(among)

    def target(self):
        return f"%rd{self.random.randrange(10)}"

    def compute(self, rows, registers, prefix, mask):
        template, numbers, function = self.random.choice(rows)
        a, b, c = (self.any_of(registers) for _ in range(3))
        target, n = f"{prefix}{self.random.randrange(8)}", self.random.choice(numbers)
        guarded = target in registers and self.random.random() < 0.2
        line = template.format(d=target, a=a, b=b, c=c, n=n)
        self.lines.append(f"@%p1 {line}" if guarded else line)
        if self.truth or not guarded:
            registers[target] = function(registers[a], registers[b], registers[c], n) & mask

    def carry(self):
        """Take the difference of two registers by rare instructions, and add it to one of them."""
        a, b, target = self.any_of(self.wide), self.any_of(self.wide), self.target()
        self.lines += [f"sub.s64 %rd20, {a}, {b};", "mov.b64 {%r0, %r1}, %rd20;"]
        for half in ("%r0", "%r1"):
            self.lines.append(self.random.choice(SAME).format(d=half))
        self.lines += ["mov.b64 %rd20, {%r0, %r1};", f"add.s64 {target}, {b}, %rd20;"]
        difference = self.wide[a] - self.wide[b] & _MASK
        self.narrow |= {"%r0": difference & _HALF, "%r1": difference >> 32}
        self.wide[target] = self.wide[a]

    def remember(self):
        """Store, load or exchange eight bytes, or half of them."""
        name, space = self.random.choice((("room", "local"), ("tile", "shared")))
        memory, at = self.memory[name], self.random.choice((0, 8, 16))
        source, target = self.any_of(self.wide), self.target()
        kind = self.random.choice(("st", "ld", "exch", "cas", "half"))
        old = bytes(memory[at : at + 8])
        if kind == "st":
            self.lines.append(f"st.{space}.u64 [{name}+{at}], {source};")
            memory[at : at + 8] = self.wide[source].to_bytes(8, "little")
        elif kind == "half" and self.narrow:
            half = self.any_of(self.narrow)
            self.lines.append(f"st.{space}.u32 [{name}+{at + 4}], {half};")
            memory[at + 4 : at + 8] = self.narrow[half].to_bytes(4, "little")
        elif kind == "ld":
            self.lines.append(f"ld.{space}.u64 {target}, [{name}+{at}];")
            self.wide[target] = int.from_bytes(old, "little")
        elif kind in {"exch", "cas"}:
            expected = self.any_of(self.wide)
            operands = source if kind == "exch" else f"{expected}, {source}"
            self.lines.append(f"mov.u64 %rd20, {name}; cvta.{space}.u64 %rd20, %rd20;")
            self.lines.append(f"atom.{kind}.b64 {target}, [%rd20+{at}], {operands};")
            if kind == "exch" or self.wide[expected].to_bytes(8, "little") == old:
                memory[at : at + 8] = self.wide[source].to_bytes(8, "little")
            self.wide[target] = int.from_bytes(old, "little")


def array_of(value):
    """Return the number of the array that an address is in, None where it is in none."""
    return next((i for i, at in enumerate(ARRAYS) if abs(value - at) < _NEAR), None)


def program(seed, rare=False):
    """Return the random program of a seed, with ``rare`` instructions or without."""
    runner = _Runner(seed, rare)
    for _ in range(runner.random.randint(4, 24)):
        runner.step()
    head = f".version 9.0\n.target {'sm_103a' if rare else 'sm_80'}\n.address_size 64\n"
    head += """\
.visible .entry k(.param .u64 k_0, .param .u64 k_1, .param .u64 k_2, .param .u64 k_3)\n{
.reg .b64 %rd<24>; .reg .b32 %r<11>; .reg .pred %p<2>;
.local .align 8 .b8 room[64];\n.shared .align 8 .b8 tile[64];
setp.ne.u32 %p1, 0, 0; mov.u32 %r8, 0;\n"""
    found = {name: array_of(value) for name, value in runner.wide.items()}
    addresses = {name: array for name, array in found.items() if array is not None}
    return Program(head + "\n".join(runner.lines), addresses)
