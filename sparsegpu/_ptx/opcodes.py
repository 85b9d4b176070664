"""The instructions that the analysis knows, by the first word of their opcodes.

Any other makes a kernel opaque. Source: "Parallel Thread Execution ISA", section 9.
"""

from __future__ import annotations

import re

#: The result is a number that no address is made of.
NUMBER = frozenset((
    "popc", "clz", "bfind", "fns", "set", "rcp", "sqrt", "rsqrt", "sin", "cos", "ex2",
    "lg2", "tanh", "copysign", "testp", "vote", "match", "activemask", "elect", "mma",
    "isspacep", "istypep", "txq", "suq", "createpolicy", "getctarank", "bmsk", "wgmma",
    "mbarrier", "bar", "barrier", "dp2a", "dp4a", "stacksave",
))  # fmt: skip
#: Nothing that the analysis follows: control flow, order, predicates.
NOTHING = frozenset((
    "bra", "brx", "ret", "exit", "fence", "membar", "griddepcontrol", "setmaxnreg",
    "pmevent", "prefetch", "prefetchu", "applypriority", "setp", "bar", "barrier",
    "stackrestore",
))  # fmt: skip
#: What a kernel does besides reading and writing.
SIDE_EFFECTS = {"trap": "trap", "brkpt": "trap", "nanosleep": "nanosleep"}
#: Results that hold one of the sources, unchanged.
EITHER = frozenset((
    "selp", "slct", "min", "max",
))  # fmt: skip
#: Results that hold bits of all sources: the number of them.
MIXED = {"or": 2, "and": 2, "lop3": 3, "prmt": 2, "shf": 2, "bfi": 2}
#: Results that hold the first source: a copy, or one of another lane.
COPIED = frozenset((
    "mov", "cvta", "shfl", "movmatrix", "mapa", "redux", "abs", "cnot",
))  # fmt: skip
#: Results that hold a part of the first source.
PARTS = frozenset((
    "shl", "shr", "bfe", "brev", "div", "rem", "szext",
))  # fmt: skip
SUMS = frozenset((
    "add", "addc", "sub", "subc", "mul", "mul24", "mad", "madc", "mad24", "fma", "sad",
    "neg", "not", "xor",
))  # fmt: skip

#: Arithmetic of bytes, halves and words, which are put together, compared, shifted, added up.
VIDEO = frozenset((
    "vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vmad", "vset",
    *(f"{name}{count}" for count in (2, 4)
      for name in ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax", "vset")),
))  # fmt: skip
#: What else ``tcgen05`` does, besides loads, stores, copies and allocations.
TENSOR = frozenset((
    "mma", "shift", "commit", "fence", "wait", "dealloc", "relinquish_alloc_permit",
))  # fmt: skip
#: Why a kernel with these is opaque.
UNFOLLOWED = dict.fromkeys(("sust", "sured"), "a surface is written, which may be any array's")

#: How many sources they have, where these are not two.
SOURCES = {"neg": 1, "not": 1, "mad": 3, "madc": 3, "mad24": 3, "fma": 3, "sad": 3}

SPACES = frozenset((
    "global", "shared", "local", "param", "const",
))  # fmt: skip
_FLOAT = re.compile(r"(?:f16|bf16|f32|tf32|e\dm\d)")

#: Functions that a kernel may call without their bodies being in its text.
EXTERNAL = frozenset(
    ("vprintf", "malloc", "free", "__assertfail", "__assert_fail", "__nv_aligned_device_malloc")
)

SPECIAL = re.compile(
    r"%(?:n?tid|n?ctaid|n?clusterid|cluster_n?ctaid|cluster_n?ctarank|laneid|n?warpid|n?smid"
    r"|gridid|lanemask_\w+|clock(?:_hi|64)?|pm\d+(?:_64)?|envreg\d+|globaltimer\w*"
    r"|dynamic_smem_size|total_smem_size|aggr_smem_size|is_explicit_cluster"
    r"|reserved_smem_offset_\w+|current_graph_exec)(?:\.[xyzw])?"
)

#: Compilers' names of registers, without their numbers; none of the special ones has such a name.
PLAIN = frozenset(("%p", "%rs", "%r", "%rd", "%f", "%fd", "%h", "%hh"))


def space_of(words: list[str]) -> str:
    """Return the state space that an opcode's words name, "" for a generic address."""
    for word in words[1:]:
        space = word.partition(":")[0]
        if space in SPACES:
            return space
    return ""


def is_narrow_float(words: list[str]) -> bool:
    """Return whether an instruction computes in a type too narrow for an address."""
    return _FLOAT.match(words[-1]) is not None


def width_of(words: list[str]) -> int:
    """Return the bytes of one element of a load or a store."""
    for word in reversed(words):
        digits = word.lstrip("bfsu")
        if word[0] in "bfsu" and digits.isdigit():
            return int(digits) // 8
    raise ValueError(f"no type in {'.'.join(words)}")


def keeps_null(words: list[str], by: int) -> bool:
    """Return whether a literal plus another is null and an offset, not an address made of parts."""
    return words[-1].endswith("64") and abs(by) < 1 << 20


def keeps_few_bits(mask: str) -> bool:
    """Return whether a mask leaves what is left of an address by an alignment, not a part of it.

    Parts from which addresses are put together again are bytes or longer.
    """
    return mask.isdigit() and int(mask) < 128


def aligns(mask: str) -> bool:
    """Return whether a mask is a literal that leaves an address but for some of its low bits."""
    try:
        return int(mask.rstrip("U"), 0) & 0xFFFF_FFFF != 0
    except ValueError:  # a register
        return False


def inserts_few_bits(start: str, length: str) -> bool:
    """Return whether a field lies in the low half of an address: an index below an alignment."""
    return start.isdigit() and length.isdigit() and int(start) + int(length) < 32
