"""`analyse`: what a kernel of a PTX text may read and write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from .flow import Flow
from .lexer import Function, Instruction, Module, SyntaxUnknown, parse
from .memory import Touch
from .pieces import NotUnderstood
from .values import _FLAGS, LITERAL, ONCE, PART, TANGLED, UNKNOWN, WILD, Base

Name = int | str

#: Kinds of parameters: an address, a number, a number of 64 bits that may be an address, bytes.
POINTER, SCALAR, WORD = "pointer", "scalar", "pointer or 64-bit integer"
STRUCT, TENSOR_MAP = "struct", "TensorMap"
#: The type of a parameter whose size alone is known.
UNTYPED = "b"


@dataclass(frozen=True, slots=True)
class Access:
    """What a kernel may do to the memory that it is given.

    Attributes
    ----------
    reads, writes : frozenset
        Names of parameters, a struct by its own. Written does not mean wholly overwritten.
    opaque : bool
        The kernel holds what the analysis does not know, or it stores through an address that it
        loaded: every array counts as read and written.
    escapes : frozenset
        Parameters whose addresses the kernel stores in memory that outlives it.
    side_effects : frozenset of str
        ``"printf"``, ``"trap"``, ``"nanosleep"``, ``"malloc"``, and ``"module"`` where a variable
        of the module is written.
    because : mapping of name to tuple of str
        The instructions that decide, each with its source line. Why a kernel is opaque is under
        the name ``"opaque"``, a side effect under its own.

    Examples
    --------
    >>> Access(reads=frozenset({"x"}), writes=frozenset({"out"})).writes
    frozenset({'out'})
    """

    reads: frozenset[Name] = frozenset()
    writes: frozenset[Name] = frozenset()
    opaque: bool = False
    escapes: frozenset[Name] = frozenset()
    side_effects: frozenset[str] = frozenset()
    because: Mapping[Name, tuple[str, ...]] = field(
        default_factory=lambda: MappingProxyType({}), compare=False
    )

    def __reduce__(self) -> tuple:
        fields = (self.reads, self.writes, self.opaque, self.escapes, self.side_effects)
        return _restored, (*fields, dict(self.because))

    def __or__(self, other: Access) -> Access:
        """Return what either of two may do."""
        because = {
            name: tuple(dict.fromkeys((*self.because.get(name, ()), *other.because.get(name, ()))))
            for name in (*self.because, *other.because)
        }
        return Access(
            self.reads | other.reads,
            self.writes | other.writes,
            self.opaque or other.opaque,
            self.escapes | other.escapes,
            self.side_effects | other.side_effects,
            MappingProxyType(because),
        )


def _restored(*fields: Any) -> Access:
    reads, writes, opaque, escapes, effects, because = fields
    return Access(reads, writes, opaque, escapes, effects, MappingProxyType(because))


@dataclass(frozen=True, slots=True)
class Formal:
    """A kernel's parameter as its PTX has it."""

    kind: str
    size: int
    type: str


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that is found of one kernel, by the numbers and offsets of its parameters."""

    formals: tuple[Formal, ...]
    reads: frozenset[tuple[int, int | None]]
    writes: frozenset[tuple[int, int | None]]
    escapes: frozenset[tuple[int, int | None]]
    reads_all: bool
    opaque: str
    side_effects: frozenset[str]
    because: Mapping[Name, tuple[str, ...]]

    def access(self, names: Sequence[Name]) -> Access:
        """Return it with the names of the parameters."""
        arrays = frozenset(
            names[i] for i, formal in enumerate(self.formals) if formal.kind != SCALAR
        )
        reads, writes, escapes = (
            frozenset(names[i] for i, _ in places)
            for places in (self.reads, self.writes, self.escapes)
        )
        because = {names[k] if isinstance(k, int) else k: v for k, v in self.because.items()}
        return Access(
            arrays if self.opaque or self.reads_all else reads,
            arrays if self.opaque else writes,
            bool(self.opaque),
            arrays if self.opaque else escapes,
            self.side_effects,
            MappingProxyType(because),
        )


def analyse(ptx: str, name: str) -> Access:
    """Find what a kernel may read and write, from its PTX.

    Parameters
    ----------
    ptx : str
        A PTX text.
    name : str
        Of its ``.entry``.

    Returns
    -------
    Access
        Its names are the numbers of the parameters, from 0. A parameter of 64 bits that the text
        does not tell from an address counts as one.

    Raises
    ------
    TypeError
        Arguments that are no str.
    ValueError
        A text without this entry.

    Notes
    -----
    Two things are assumed: an address plus an offset stays in the allocation it points to, and no
    literal but null is an address.

    Examples
    --------
    >>> ptx = '''.version 8.0
    ... .target sm_80
    ... .address_size 64
    ... .visible .entry twice(.param .u64 twice_0, .param .u64 twice_1) {
    ...   .reg .b32 %r<2>;
    ...   .reg .b64 %rd<3>;
    ...   ld.param.u64 %rd1, [twice_0];
    ...   ld.param.u64 %rd2, [twice_1];
    ...   ld.global.u32 %r1, [%rd2];
    ...   st.global.u32 [%rd1], %r1;
    ...   ret;
    ... }'''
    >>> access = analyse(ptx, "twice")
    >>> access.writes, access.reads
    (frozenset({0}), frozenset({1}))
    """
    for argument, value in (("ptx", ptx), ("name", name)):
        if not isinstance(value, str):
            raise TypeError(f"analyse: argument '{argument}': expected a str, got {type(value)}")
    found = report(ptx, name)
    return found.access(range(len(found.formals)))


def report(
    ptx: str,
    name: str,
    scalars: frozenset[int] = frozenset(),
    pointers: frozenset[int] = frozenset(),
) -> Report:
    """Analyse one entry; its source declares ``scalars`` as numbers, ``pointers`` as such.

    Raises
    ------
    ValueError
        A text without this entry.
    """
    try:
        module = parse(ptx)
    except SyntaxUnknown as error:
        return _unreadable(ptx, name, str(error))
    entry = module.functions.get(name)
    if entry is None or not entry.entry:
        entries = ", ".join(f.name for f in module.functions.values() if f.entry) or "none"
        raise ValueError(f"analyse: argument 'name': expected one of: {entries}, got {name}")
    told = {i for i, formal in enumerate(entry.parameters) if formal.pointer}
    if told:  # then the text tells all of them
        pointers |= told
        scalars |= {i for i, f in enumerate(entry.parameters) if not (f.pointer or f.array)}
    try:
        flow = Flow(module, entry, set(scalars))
    except NotUnderstood as error:
        why = module.at(error.place, str(error))
        return opaque(_formals(entry, scalars, pointers, set()), why)
    return _Verdict(module, entry, flow, scalars, pointers).report()


def _formals(
    entry: Function, scalars: frozenset[int], pointers: frozenset[int], maps: set[int]
) -> tuple[Formal, ...]:
    found = []
    for index, formal in enumerate(entry.parameters):
        if formal.array:
            kind = TENSOR_MAP if index in maps else STRUCT
        elif formal.type[1:] == "64" and formal.type[0] != "f" and index not in scalars:
            kind = POINTER if index in pointers else WORD
        else:
            kind = SCALAR
        found.append(Formal(kind, formal.size, formal.type))
    return tuple(found)


def opaque(formals: tuple[Formal, ...], why: str) -> Report:
    """Return the report of a kernel of which nothing but its parameters is known."""
    nothing: frozenset = frozenset()
    because: dict[Name, tuple[str, ...]] = {"opaque": (why,)}
    return Report(formals, nothing, nothing, nothing, True, why, frozenset(), because)


def _unreadable(ptx: str, name: str, why: str) -> Report:
    """Return the report of a text that is not understood, whose entry's declaration is."""
    start = ptx.find(f".entry {name}(")
    end = ptx.find(")", start)
    if start < 0 or end < 0:
        raise ValueError(f"analyse: argument 'name': expected an entry of the text, got {name}")
    try:
        declared = parse(f".visible {ptx[start : end + 1]} {{ ret; }}").functions[name]
    except SyntaxUnknown as error:
        expected = f"the parameters of {name}"
        raise ValueError(f"analyse: argument 'ptx': expected {expected}, got {error}") from error
    return opaque(_formals(declared, frozenset(), frozenset(), set()), why)


class _Verdict:
    """Reads off a fixpoint what was touched."""

    def __init__(
        self,
        module: Module,
        entry: Function,
        flow: Flow,
        scalars: frozenset[int],
        pointers: frozenset[int],
    ):
        self._module, self._entry, self._flow = module, entry, flow
        self._scalars, self._pointers = scalars, pointers
        self._values = flow.values
        self._places: dict[str, set[tuple[int, int | None]]] = {
            "read": set(), "written": set(), "escapes": set(),
        }  # fmt: skip
        self._because: dict[Name, dict[str, None]] = {}
        self._effects = set(flow.effects)
        self._opaque, self._reads_all = "", False
        self._maps: set[int] = set()
        self._certain = self._certain_bases()
        self._known: dict[int, tuple[list[Base], bool]] = {}  # of `_counted`

    def report(self) -> Report:
        for word, instruction in self._flow.effects.items():
            self._reason(word, word, instruction)
        for touch in self._flow.touches:
            self._judge(touch)
        for instruction, bound in self._flow.indirect:
            if not bound:
                text = f"{self._line(instruction)} calls an unknown function"
                self._opaque = self._opaque or text
                self._because.setdefault("opaque", {})[text] = None
        places = self._places
        pointers = frozenset(int(b.name) for b in self._certain if b.kind == "param")
        because = {name: tuple(lines) for name, lines in self._because.items()}
        return Report(
            _formals(self._entry, self._scalars, pointers, self._maps),
            frozenset(places["read"]),
            frozenset(places["written"]),
            frozenset(places["escapes"]),
            self._reads_all,
            self._opaque,
            frozenset(self._effects),
            because,
        )

    def _certain_bases(self) -> set[Base]:
        """Return the bases that are addresses for certain.

        They are declared so, or an address has no other base with factor one, whatever way led
        there: some of the ways may never be taken.
        """
        found = {Base("param", i, 0) for i in self._pointers}
        used = [touch.register for touch in self._flow.touches if not touch.tensor]
        for value in {self._flow.held[register] for register in (*used, *self._flow.converted)}:
            ways = [a for a in self._values.alternatives(value) if a >> _FLAGS]
            strong = [self._values.strong(way) for way in ways]
            if all(len(s) == 1 and not w & (TANGLED | PART | ONCE) for s, w in zip(strong, ways)):
                found.update(s[0] for s in strong)
        return found

    def _is_certain(self, base: Base) -> bool:
        return base.kind != "param" or base in self._certain

    def _counted(self, alternative: int) -> tuple[list[Base], bool]:
        """Return the bases of which one is the address, and whether it may be none of them."""
        if not alternative >> _FLAGS:
            return [], bool(alternative & UNKNOWN)  # else it is null
        strong, weak = self._values.strong(alternative), self._values.weak(alternative)
        certain, scaled = (any(map(self._is_certain, bases)) for bases in (strong, weak))
        if certain and not alternative & TANGLED and not scaled:
            return strong, False
        return [*strong, *weak], bool(alternative & WILD and scaled)

    def _judge(self, touch: Touch) -> None:
        alternatives = self._values.alternatives(self._flow.held[touch.register])
        if not alternatives:
            self._lost(touch, "an address that nothing defines")
        for alternative in alternatives:
            if alternative not in self._known:
                self._known[alternative] = self._counted(alternative)
            bases, unknown = self._known[alternative]
            if unknown:
                self._lost(touch, "an address that is none of the parameters'")
            for base in bases:
                self._note(touch, base)
        for register in touch.stored:
            self._escape(touch, register)

    def _lost(self, touch: Touch, why: str) -> None:
        if touch.writes or not touch.reads:
            text = f"{self._line(touch.instruction)} stores through {why}"
            self._opaque = self._opaque or text
            self._because.setdefault("opaque", {})[text] = None
        else:
            self._reads_all = True
            self._reason("reads all", f"loads through {why}", touch.instruction)

    def _note(self, touch: Touch, base: Base) -> None:
        if base.kind == "address":
            if touch.tensor:
                self._maps.add(int(base.name))
                self._add(touch, base)
            elif touch.writes:
                self._lost(touch, "the address of a parameter")
        elif base.kind == "param" and not touch.tensor:
            self._add(touch, base)
        elif touch.tensor:
            self._lost(touch, "a tensor map in memory")
        elif base.kind == "global" and touch.writes:
            self._effects.add("module")
            self._reason("module", f"writes {base.name}", touch.instruction)
        elif base.kind == "function" and touch.writes:
            self._lost(touch, "the address of a function")

    def _add(self, touch: Touch, base: Base) -> None:
        place = (int(base.name), base.offset)
        for done, what in ((touch.reads, "read"), (touch.writes, "written")):
            if done:
                self._places[what].add(place)
                self._reason(int(base.name), what, touch.instruction)

    def _escape(self, touch: Touch, register: int) -> None:
        """Note the parameters whose addresses are stored where others can read them."""
        value = self._flow.held[register]
        if value <= LITERAL or not self._outlives(touch):
            return
        for alternative in self._values.alternatives(value):
            bases = {*self._values.strong(alternative)}
            if alternative & TANGLED or any(map(self._is_certain, self._values.weak(alternative))):
                bases |= {*self._values.weak(alternative)}
            for base in bases:
                if base.kind == "param":
                    self._places["escapes"].add((int(base.name), base.offset))
                    self._reason(int(base.name), "escapes", touch.instruction)

    def _outlives(self, touch: Touch) -> bool:
        bases = self._values.bases_of(self._flow.held[touch.register])
        return not bases or any(b.kind in {"param", "global", "heap", "address"} for b in bases)

    def _reason(self, name: Name, what: str, instruction: Instruction) -> None:
        self._because.setdefault(name, {})[f"{what}: {self._line(instruction)}"] = None

    def _line(self, instruction: Instruction) -> str:
        return self._module.at(instruction.place, " ".join(instruction.text.split()))
