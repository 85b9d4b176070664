"""What a register may hold: a set of alternatives, each of them a set of bases.

An alternative is a sum of addresses, indices and numbers, as one int: seven flags, then two bits a
base. The *strong* bit says that the base entered with factor one, the *weak* bit that it was
scaled, shifted or subtracted. No bits at all are null. What is computed of other literals alone is
a number: the choice between them may depend on anything. Of an alternative that has a base, what
else was added does not count: a pointer plus an offset stays in its allocation.

A value is an interned frozenset of alternatives, known by its number, so that the operations of a
whole kernel are look-ups. The empty set is what no instruction has defined yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

#: Flags of an alternative. UNKNOWN: it holds a number that is no literal (and no base). TANGLED:
#: bits of several bases were mixed, any of which may be what is left. WILD: a number that is no
#: literal was added to weak bases alone: where these are pointers, it may be one, too.
#: PART: weak bases were divided or shifted right, so that they may be scaled back to one.
#: NEGATED: weak bases were subtracted, or multiplied by what may be less than zero. Once more, they
#: may be strong again. ONCE: weak bases were multiplied by a number that may be one. FIXED: another
#: literal than null (and no base).
UNKNOWN, TANGLED, WILD, PART, NEGATED, ONCE, FIXED = 1, 2, 4, 8, 16, 32, 64
_FLAGS = 7
#: Alternatives from which on a value is simplified.
_MOST = 12


class Base(NamedTuple):
    """Where an address may point to.

    Attributes
    ----------
    kind : str
        ``"param"`` (what parameter ``name`` holds at ``offset``), ``"address"`` (the parameter
        itself), ``"local"``, ``"global"``, ``"shared"``, ``"tensor"``, ``"heap"``, ``"function"``.
    name : int or str
    offset : int or None
        In bytes; None: anywhere in it.
    """

    kind: str
    name: int | str = ""
    offset: int | None = None

    @property
    def anywhere(self) -> Base:
        """It with any offset."""
        return self if self.offset is None else self._replace(offset=None)


BOTTOM, NULL, TOP, LITERAL = 0, 1, 2, 3


class Values:
    """The values of one analysis, by number."""

    def __init__(self) -> None:
        self.bases: list[Base] = []
        self._index: dict[Base, int] = {}
        self.sets: list[frozenset[int]] = []
        self._numbers: dict[frozenset[int], int] = {}
        self._strong = 0  # the strong bits of all bases
        self._placed = 0  # both bits of the bases that have an offset
        self._known: dict[tuple, int] = {}
        self._bases: dict[int, frozenset[Base]] = {}
        for alternatives in ((), (0,), (UNKNOWN,), (FIXED,)):
            self._number(alternatives)

    def base(self, base: Base) -> int:
        """Return the value that is exactly this base."""
        return self._number((1 << self._bit(base),))

    def alternatives(self, value: int) -> frozenset[int]:
        """Return the alternatives of a value."""
        return self.sets[value]

    def strong(self, alternative: int) -> list[Base]:
        """Return the bases that entered with factor one."""
        return self._at(alternative >> _FLAGS)

    def weak(self, alternative: int) -> list[Base]:
        """Return the bases that were scaled, shifted or subtracted."""
        return self._at(alternative >> _FLAGS + 1)

    def bases_of(self, value: int) -> frozenset[Base]:
        """Return every base of a value."""
        known = self._bases.get(value)
        if known is None:
            known = self._bases[value] = frozenset(
                base for a in self.sets[value] for base in (*self.strong(a), *self.weak(a))
            )
        return known

    def is_loose(self, value: int) -> bool:
        """Return whether a value may be an address that has none of its bases."""
        return any(not a >> _FLAGS or a & WILD for a in self.sets[value])

    def _at(self, bits: int) -> list[Base]:
        found = []
        bits &= self._strong >> _FLAGS
        while bits:
            lowest = bits & -bits
            found.append(self.bases[lowest.bit_length() >> 1])
            bits ^= lowest
        return found

    def _bit(self, base: Base) -> int:
        index = self._index.get(base)
        if index is None:
            index = self._index[base] = len(self.bases)
            self.bases.append(base)
            self._strong |= 1 << (_FLAGS + 2 * index)
            if base.offset is not None and base.kind != "param":
                self._placed |= 3 << (_FLAGS + 2 * index)
        return _FLAGS + 2 * index

    def _number(self, alternatives: Iterable[int]) -> int:
        kept = frozenset(alternatives)
        if len(kept) > 1:
            kept = self._without_covered(kept)
        if len(kept) > _MOST:
            kept = self._simplified(kept)
        number = self._numbers.get(kept)
        if number is None:
            number = self._numbers[kept] = len(self.sets)
            self.sets.append(kept)
        return number

    def _without_covered(self, kept: frozenset[int]) -> frozenset[int]:
        """Return the alternatives that no other one stands for.

        A base without offset stands for itself with any, a tangled sum for its parts, and a sum
        for one with fewer weak bases. So values that were simplified grow no more.
        """
        covered = {a for a in kept if a & self._placed and self._blurred(a) in kept - {a}}
        strong = self._strong
        anchored = [a for a in kept if a >> _FLAGS]
        for wide in anchored:
            for a in anchored:
                covers = wide & TANGLED or not (a ^ wide) & strong
                if covers and a | wide == wide and a != wide:
                    covered.add(a)
        return kept - covered if covered else kept

    def _simplified(self, kept: frozenset[int]) -> frozenset[int]:
        """Return fewer alternatives that stand for at least as much."""
        kept = self._without_covered(frozenset(map(self._blurred, kept)))
        if len(kept) <= _MOST:
            return kept
        alike: dict[int, int] = {}
        for alternative in kept:
            if alternative >> _FLAGS:
                strong = alternative & self._strong
                alike[strong] = alike.get(strong, PART) | alternative
        kept = frozenset(alike.values()) | {a for a in kept if not a >> _FLAGS}
        if len(kept) <= _MOST:
            return kept
        anchored = TANGLED
        for alternative in kept:
            if alternative >> _FLAGS:
                anchored |= alternative
        rest = frozenset(a for a in kept if not a >> _FLAGS)
        return rest | {anchored & ~UNKNOWN}  # at most two are left of those without a base

    def _blurred(self, alternative: int) -> int:
        """Return an alternative without offsets."""
        placed = alternative & self._placed
        if not placed:
            return alternative
        alternative &= ~placed
        for shift, bases in ((0, self.strong(placed)), (1, self.weak(placed))):
            for base in bases:
                alternative |= 1 << (self._bit(base.anywhere) + shift)
        return alternative

    # -- operations: of values, by number ----------------------------------------------------

    def join(self, a: int, b: int) -> int:
        """Either of two."""
        if a == b or not b:
            return a
        if not a:
            return b
        key = ("join", a, b)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._number(self.sets[a] | self.sets[b])
        return known

    def add(self, a: int, b: int) -> int:
        """Sum."""
        if b == TOP and a == TOP:
            return TOP
        return self._pairs("add", self._sum, a, b)

    def subtract(self, a: int, b: int) -> int:
        """Difference."""
        return self._pairs("sub", self._difference, a, b)

    def mix(self, a: int, b: int) -> int:
        """Bits of both: or, and."""
        return self._pairs("mix", self._mixed, a, b)

    def pick(self, a: int, b: int) -> int:
        """Bits of both, or of one alone: prmt, lop3, the halves of a word."""
        mixed = self.mix(a, b)
        return self.join(mixed, TOP) if self._has_number_beside(a, b) else mixed

    def mask(self, a: int, b: int) -> int:
        """Bits of both by a mask that may leave none of an address."""
        mixed = self.mix(a, b)
        beside = self._has_number_beside(self.number(a), self.number(b))
        return self.join(mixed, NULL) if beside else mixed

    def _has_number_beside(self, a: int, b: int) -> bool:
        """Return whether one of two values may be a number where the other has a base."""
        return any(
            UNKNOWN in self.sets[x] and any(z >> _FLAGS for z in self.sets[y])
            for x, y in ((a, b), (b, a))
        )

    def compute(self, a: int, b: int) -> int:
        """Whatever is computed of both, or put together of their parts."""
        found = self._pairs("compute", self._tangled, a, b)
        return self.join(found, TOP) if found else BOTTOM

    def exclusive(self, a: int, b: int) -> int:
        """Bits of both, from which either can be restored: xor."""
        return self._pairs("xor", self._exclusive, a, b)

    def scale(self, a: int, b: int) -> int:
        """Product."""
        return self._pairs("scale", self._product, a, b)

    def scaled(self, a: int) -> int:
        """Multiple by a power of two."""
        return self._each("scaled", self._shifted, a)

    def multiple(self, a: int, by: int) -> int:
        """Multiple by a literal."""
        if by == 1:
            return a
        return self._each(("multiple", by % 2), self._doubled if by % 2 == 0 else self._odd, a)

    def number(self, a: int) -> int:
        """It, where a literal but null counts as any number."""
        return self._each("number", lambda x: UNKNOWN if x == FIXED else x, a)

    def place(self, a: int) -> int:
        """It, where every literal counts as any number."""
        return self._each("place", lambda x: x if x >> _FLAGS else UNKNOWN, a)

    def part(self, a: int) -> int:
        """What is left after a division or a shift to the right."""
        return self._each("part", self._divided, a)

    def negate(self, a: int) -> int:
        """Minus it, or its complement."""
        return self.subtract(LITERAL, a)

    def shift(self, a: int, by: int) -> int:
        """Sum with a literal: only this keeps offsets."""
        if a in {BOTTOM, TOP} or not by:
            return a
        # Null besides an address stays none, however often it is moved. Literals alone may be
        # counted up to any number.
        counted = FIXED if any(x >> _FLAGS for x in self.sets[a]) else UNKNOWN
        literals = {0: FIXED, FIXED: counted}
        return self._each(("shift", by), lambda x: literals.get(x) or self._moved(x, by), a)

    def of_shared(self, a: int) -> int:
        """Return a generic address, of one in shared memory."""
        return self.join(a, self.base(Base("shared")))

    def _pairs(self, name: str, join: Callable[[int, int], int], a: int, b: int) -> int:
        key = (name, a, b)
        known = self._known.get(key)
        if known is None:
            found = {self._blurred(join(x, y)) for x in self.sets[a] for y in self.sets[b]}
            known = self._known[key] = self._number(found)
        return known

    def _each(self, name: object, change: Callable[[int], int], a: int) -> int:
        key = (name, a)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._number({change(x) for x in self.sets[a]})
        return known

    def _moved(self, x: int, by: int) -> int:
        placed = x & self._placed
        if not placed:
            return x
        strong = self.strong(placed)
        if len(strong) != 1 or 1 << self._bit(strong[0]) != x:
            return self._blurred(x)
        (base,) = strong
        return 1 << self._bit(base._replace(offset=(base.offset or 0) + by))

    @staticmethod
    def _tidy(x: int) -> int:
        """Return an alternative without what does not count besides others."""
        if x >> _FLAGS:
            return x & ~(UNKNOWN | FIXED)
        return UNKNOWN if x & UNKNOWN else x

    def _sum(self, x: int, y: int) -> int:
        found = UNKNOWN if x == y == FIXED else self._tidy(x | y)
        for left, right in ((x, y), (y, x)):
            # Minus a pointer, plus a number that may be another one.
            number = left == UNKNOWN and right >> _FLAGS
            if number and (right & NEGATED or not right & self._strong):
                found |= WILD
        return found

    def _difference(self, x: int, y: int) -> int:
        if not y >> _FLAGS:
            return self._number_of(x | y)
        wild = WILD if x == UNKNOWN else 0
        twice = PART if y & NEGATED else 0
        return self._tidy(x | self._weakened(y) | NEGATED | twice | wild)

    def _mixed(self, x: int, y: int) -> int:
        mixed = 0
        if x >> _FLAGS and y >> _FLAGS and x != y:
            mixed = TANGLED if (x | y) & self._strong else PART
        return self._number_of(x | y | mixed)

    def _exclusive(self, x: int, y: int) -> int:
        found = self._mixed(x, y)
        if found >> _FLAGS:
            found |= self._weakened(found) | TANGLED
            if UNKNOWN in (x, y):
                found |= WILD
        return found

    def _tangled(self, x: int, y: int) -> int:
        found = self._number_of(x | y) or UNKNOWN
        return found | TANGLED if found >> _FLAGS else found

    def _doubled(self, x: int) -> int:
        return self._shifted(x) | (NEGATED if x >> _FLAGS else 0)

    def _odd(self, x: int) -> int:
        found = self._product(x, 0)
        return found if x & ONCE else found & ~ONCE

    def _product(self, x: int, y: int) -> int:
        found = self._tidy(self._weakened(x) | self._weakened(y))
        twice = PART if (x | y) & NEGATED else 0
        return found | NEGATED | ONCE | twice if found >> _FLAGS else self._number_of(found)

    def _divided(self, x: int) -> int:
        return self._weakened(x) | PART if x >> _FLAGS else self._number_of(x)

    def _shifted(self, x: int) -> int:
        return self._weakened(x) & ~ONCE if x >> _FLAGS else self._number_of(x)

    def _number_of(self, x: int) -> int:
        """Return an alternative that is none of its literals, but for null."""
        return self._tidy(x) if x >> _FLAGS or not x else UNKNOWN

    def _weakened(self, x: int) -> int:
        strong = x & self._strong
        return (x & ~strong) | strong << 1
