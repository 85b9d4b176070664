"""Odd PTX texts: what each writes and reads is found, or it is opaque.

``tests/ptx_odd.txt`` holds them, and ``tests/ptx_opcodes.txt`` those of rare instructions: a name
with what a kernel of three 64-bit parameters, 0 to 2 in ``%rd1`` to ``%rd3``, does; lines before
the kernel and other parameters; the instructions.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from sparsegpu import kernels

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent / "docs" / "kernels.md"
REGISTERS = (
    ".reg .b64 %rd<20>; .reg .b32 %r<20>; .reg .pred %p<9>; .reg .b128 %q<3>; .reg .f32 %f<9>; "
    ".reg .b16 %h<9>;"
)


class Odd(NamedTuple):
    text: str
    writes: set[int]
    reads: set[int]
    opaque: bool


def kernel(body, before="", parameters="u64 u64 u64"):
    formals = []
    for i, kind in enumerate(parameters.split()):
        element, _, count = kind.partition("x")
        formals.append(f".param .{element} k_{i}{f'[{count}]' if count else ''}")
    return f""".version 9.0\n.target sm_100a\n.address_size 64\n{before}
.visible .entry k({", ".join(formals)})\n{{\n{REGISTERS}
.shared .align 16 .b8 sm[1024];\n.local .align 16 .b8 lo[64];
ld.param.u64 %rd1, [k_0]; ld.param.u64 %rd2, [k_1]; ld.param.u64 %rd3, [k_2];\n{body}\nret;\n}}\n"""


def read_texts(*files):
    blocks = [b for file in files for b in (FOLDER / file).read_text().split("\n\n")]
    for block in blocks:
        head, *lines = block.strip().splitlines()
        name, writes, reads, *opaque = head[2:].split("; ")
        given = {"before": [], "parameters": []}
        while lines[0].split()[0] in given:
            word, _, rest = lines.pop(0).partition(" ")
            given[word].append(rest)
        made = kernel("\n".join(lines), "\n".join(given["before"]), *given["parameters"])
        touched = ({int(i) for i in re.findall(r"\d+", part)} for part in (writes, reads))
        yield pytest.param(Odd(made, *touched, opaque == ["opaque"]), id=name)


ODD, RARE = (list(read_texts(file)) for file in ("ptx_odd.txt", "ptx_opcodes.txt"))


@pytest.mark.parametrize("odd", ODD + RARE)
def test_right_or_opaque(odd):
    found = kernels.analyse(odd.text, "k")
    assert found.opaque == odd.opaque, found.because
    if not odd.opaque:
        assert odd.writes <= found.writes and odd.reads <= found.reads, found.because


def test_most_are_exact():
    cases = [case.values[0] for case in ODD]
    found = [kernels.analyse(odd.text, "k") for odd in cases if not odd.opaque]
    exact = [odd for odd, f in zip([c for c in cases if not c.opaque], found, strict=True)
             if odd.writes == f.writes]  # fmt: skip
    assert len(exact) > 0.8 * len(found) and len(found) > 0.7 * len(cases) > 140


def test_rare_instructions_are_exact():
    for case in RARE:
        odd, found = case.values[0], kernels.analyse(case.values[0].text, "k")
        exact = odd.writes == found.writes and odd.reads == found.reads
        assert odd.opaque or exact != ("more is found" in case.id), (case.id, found)


#: An instruction of every opcode that makes a kernel opaque, and words of the reason.
OUTSIDE = {
    "multimem.cp": ("multimem.cp.async.bulk.global.shared::cta.bulk_group [%rd1], [sm], 16;",
                    "memory that has other addresses is written"),
    "multimem.red": ("multimem.red.relaxed.gpu.global.add.u32 [%rd1], %r1;",
                     "memory that has other addresses is written"),
    "multimem.st": ("multimem.st.relaxed.gpu.global.u32 [%rd1], %r1;",
                    "memory that has other addresses is written"),
    "sured": ("sured.b.add.1d.u32.clamp [%rd1, {%r1}], %r2;", "a surface"),
    "sust": ("sust.b.1d.b32.clamp [%rd1, {%r1}], {%r2};", "a surface"),
}  # fmt: skip


@pytest.mark.parametrize("opcode", OUTSIDE)
def test_opcodes_that_make_a_kernel_opaque(opcode):
    instruction, why = OUTSIDE[opcode]
    found = kernels.analyse(kernel(instruction), "k")
    assert found.opaque and found.writes == found.reads == found.escapes == {0, 1, 2}
    (because,) = found.because["opaque"]
    assert because.startswith(why) and because.endswith(instruction)


FILE = '.file 1 "/home/kernels/odd.cu"'
CALLED = f"""{FILE}
.func f() {{\n.loc 1 3 0\n.reg .b32 %r<2>;\nvote2.sync %r1;\nret;\n}}"""


@pytest.mark.parametrize(("body", "before", "expected"), [
    (".loc 1 7 0\nvote2.sync %r1;", FILE, "odd.cu:7: an instruction that is not known: vote2.sync"),
    (".loc 1 7 0\nadd.u64 %rd4;", FILE, "odd.cu:7: not understood: add.u64 %rd4;"),
    (".loc 1 7 0\nld.param.u32 %r1;", FILE, "odd.cu:7: not understood: ld.param.u32"),
    (".loc 1 7 0\ncall f, ();", CALLED, "odd.cu:3: an instruction that is not known: vote2.sync"),
    (".loc 1 7 0\ncall g, ();", FILE, "odd.cu:7: call g, (); calls an unknown function"),
    (".loc 2 7 0\nvote2.sync %r1;", "", "line 7: an instruction that is not known"),
    ("vote2.sync %r1;", FILE, "an instruction that is not known: vote2.sync"),
])  # fmt: skip
def test_why_a_kernel_is_opaque_begins_with_the_source_line(body, before, expected):
    (because,) = kernels.analyse(kernel(body, before), "k").because["opaque"]
    assert because.startswith(expected)


@pytest.mark.parametrize("body", [
    "tensormap.replace.tile.global_address.global.b1024.b64 [%rd1], %rd2;",
    "st.shared.u64 [sm], %rd2; tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic"
    ".release.gpu.sync.aligned [%rd1], [sm], 128;",
    "tensormap.replace.tile.global_address.shared::cta.b1024.b64 [sm], %rd2;"
    " cp.async.bulk.global.shared::cta.bulk_group [%rd1], [sm], 128;",
])  # fmt: skip
def test_the_address_in_a_changed_tensor_map_escapes(body):
    found = kernels.analyse(kernel(body), "k")
    assert not found.opaque and found.writes == {0} and found.escapes == {1}


@pytest.mark.skipif(not PAGE.is_file(), reason="the pages are not here")
def test_the_page_names_them():
    listed = PAGE.read_text().partition("Instructions that make a kernel opaque are")[2]
    listed = listed.partition("All other")[0]
    assert set(re.findall(r"`([\w.]+)`", listed)) == set(OUTSIDE)
