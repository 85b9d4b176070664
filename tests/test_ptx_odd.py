"""Odd PTX texts: what each writes and reads is found, or it is opaque.

``tests/ptx_odd.txt`` holds them: a name with what a kernel of three 64-bit parameters, 0 to 2 in
``%rd1`` to ``%rd3``, does; lines before the kernel and other parameters; the instructions.
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


def read_texts():
    for block in (FOLDER / "ptx_odd.txt").read_text().split("\n\n"):
        head, *lines = block.strip().splitlines()
        name, writes, reads, *opaque = head[2:].split("; ")
        given = {"before": [], "parameters": []}
        while lines[0].split()[0] in given:
            word, _, rest = lines.pop(0).partition(" ")
            given[word].append(rest)
        made = kernel("\n".join(lines), "\n".join(given["before"]), *given["parameters"])
        touched = ({int(i) for i in re.findall(r"\d+", part)} for part in (writes, reads))
        yield pytest.param(Odd(made, *touched, opaque == ["opaque"]), id=name)


@pytest.mark.parametrize("odd", list(read_texts()))
def test_right_or_opaque(odd):
    found = kernels.analyse(odd.text, "k")
    assert found.opaque == odd.opaque, found.because
    if not odd.opaque:
        assert odd.writes <= found.writes and odd.reads <= found.reads, found.because


def test_most_are_exact():
    cases = [case.values[0] for case in read_texts()]
    found = [kernels.analyse(odd.text, "k") for odd in cases if not odd.opaque]
    exact = [odd for odd, f in zip([c for c in cases if not c.opaque], found, strict=True)
             if odd.writes == f.writes]  # fmt: skip
    assert len(exact) > 0.8 * len(found) and len(found) > 0.7 * len(cases) > 140


#: An instruction of every opcode that is not on the list of the analysis.
OUTSIDE = {
    "clusterlaunchcontrol": "clusterlaunchcontrol.try_cancel.async.shared::cta"
    ".mbarrier::complete_tx::bytes.b128 [sm], [sm+16];",
    "multimem": "multimem.red.relaxed.gpu.global.add.u32 [%rd1], %r1;",
    "red.async": "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32"
    " [sm], %r1, [sm+8];",
    "st.bulk": "st.bulk.weak.shared::cta [sm], 64, 0;",
    "stackrestore": "stackrestore.u64 %rd4;",
    "stacksave": "stacksave.u64 %rd4;",
    "sured": "sured.b.add.1d.u32.clamp [%rd1, {%r1}], %r2;",
    "sust": "sust.b.1d.b32.clamp [%rd1, {%r1}], {%r2};",
    "tcgen05": "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r1], {%r2};",
    "tensormap": "tensormap.replace.tile.global_address.global.b1024.b64 [%rd1], %rd2;",
    **{
        video: f"{video}.u32.u32.u32 %r1, %r2, %r3;"
        for video in ("vabsdiff", "vadd", "vmad", "vmax", "vmin", "vset", "vshl", "vshr", "vsub")
    },
    **{
        video: f"{video}.u32.u32.u32 %r1, %r2, %r3, 0;"
        for name in ("vabsdiff", "vadd", "vavrg", "vmax", "vmin", "vset", "vsub")
        for video in (f"{name}2", f"{name}4")
    },
}


@pytest.mark.parametrize("opcode", OUTSIDE)
def test_opcodes_that_are_not_known(opcode):
    found = kernels.analyse(kernel(OUTSIDE[opcode]), "k")
    assert found.opaque and found.writes == {0, 1, 2}


@pytest.mark.skipif(not PAGE.is_file(), reason="the pages are not here")
def test_the_page_names_them():
    listed = PAGE.read_text().partition("Not on the analysis's list of instructions are")[2]
    listed = listed.partition("All other")[0]
    assert set(re.findall(r"`([\w.]+)`", listed)) == set(OUTSIDE)
