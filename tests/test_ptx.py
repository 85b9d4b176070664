"""What is found in PTX: never a store too few, and nothing too many where a compiler optimised."""

from __future__ import annotations

import pickle

import pytest

from ptx_blackwell_kernels import BLACKWELL
from ptx_cases import generate
from ptx_kernels import CASES, FOLDER, HOPPER, compiled
from ptx_more_kernels import ADVERSARIAL, REALISTIC
from sparsegpu import kernels
from sparsegpu._ptx import stored
from sparsegpu._ptx.access import report

#: Cases in which one cell for shared memory or a local array, or a table of the module, gives more
#: than there is. At most one in twenty.
INEXACT = {"difference", "union", "table_of_functions", "list_in_shared_memory"}
ALL = {**CASES, **HOPPER, **BLACKWELL, **ADVERSARIAL, **REALISTIC}


def check(name, ptx, exact=True):
    case, found = ALL[name], kernels.analyse(ptx, "k")
    assert case.writes <= found.writes, found.because
    assert (case.reads or set()) <= found.reads, found.because
    assert found.opaque or not case.opaque
    assert case.effects <= found.side_effects
    if exact and not case.opaque and name not in INEXACT:
        assert not found.opaque, found.because
        assert found.side_effects == case.effects
        assert found.writes == case.writes, found.because
        assert case.reads is None or found.reads == case.reads, found.because


def test_how_many_there_are():
    assert len(CASES) + len(HOPPER) >= 41 and len(ADVERSARIAL) >= 15 and len(REALISTIC) >= 11
    assert len(ALL) == sum(map(len, (CASES, HOPPER, BLACKWELL, ADVERSARIAL, REALISTIC)))
    assert len(INEXACT) <= 0.05 * len(ALL)
    assert sum(case.opaque for case in REALISTIC.values()) <= 2


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ptx")), ids=lambda path: path.stem)
def test_kept_texts(path):
    check(path.name.partition(".")[0], path.read_text())


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ptx")), ids=lambda path: path.stem)
def test_a_report_as_text(path):
    found = report(path.read_text(), "k")
    again = stored.from_text(stored.to_text(found))
    assert again == found and list(again.because) == list(found.because)


def test_every_case_has_a_kept_text():
    kept = {path.name.partition(".")[0] for path in FOLDER.glob("*.ptx")}
    assert kept == ALL.keys()


@pytest.mark.parametrize("arch", ["80", "86", "89", "90a", "100", "100a", "120"])
@pytest.mark.parametrize("debug", [False, True], ids=["optimised", "debug"])
def test_compiled_now(arch, debug):
    pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings (NVRTC) is not installed")
    if arch == "100a":
        names = BLACKWELL.keys()
    else:
        names = ALL.keys() - BLACKWELL.keys() - (HOPPER.keys() if arch != "90a" else set())
    for name in sorted(names):
        check(
            name, compiled(ALL[name], arch, *(["-G"] if debug else ["-lineinfo"])), exact=not debug
        )


def test_generated_kernels():
    """10,000 by ``tests/ptx_cases.py``'s own seeds; here a tenth of them."""
    opaque = 0
    for seed in range(1000):
        kernel = generate(seed)
        found = kernels.analyse(kernel.text, "k")
        assert kernel.written <= found.writes, f"seed {seed}: {found}"
        assert kernel.read <= found.reads, f"seed {seed}: {found}"
        opaque += found.opaque
    assert opaque <= 100


def test_a_number_that_is_alone_on_a_way_never_taken():
    """It is added to an address, so that on other ways it was taken for the address itself."""
    kernel = generate(7481, runs=True)
    assert kernel.written <= kernels.analyse(kernel.text, "k").writes


def text(body, parameters="u64 u64"):
    formals = ", ".join(f".param .{kind} k_{i}" for i, kind in enumerate(parameters.split()))
    registers = ".reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<9>;"
    head = ".version 8.0\n.target sm_90\n.address_size 64\n"
    return f"{head}.visible .entry k({formals})\n{{\n{registers}\n{body}\nret;\n}}\n"


LOAD = "ld.param.u64 %rd1, [k_0]; ld.param.u64 %rd2, [k_1];\n"


@pytest.mark.parametrize("instruction", [
    "frobnicate.b64 %rd3, %rd1;", "st.global.u32 [%rd8], 1;", "?!", ".what 3;",
    "sust.b.1d.b32.trap [%rd1, {%r1}], {%r2};", "st.global.u32 [%rd1+x], 1;",
    "mov.u32 %r1, %tid.x; cvt.u64.u32 %rd3, %r1; st.global.u32 [%rd3], 1;",
    "st.param.u64 [k_0], %rd2; st.global.u32 [%rd1], 1;",
    "ld.param.u64 %rd3, [k_0+8]; st.global.u32 [%rd3], 1;",
    "ld.global.u64 %rd3, [%rd1]; sub.u64 %rd4, %rd2, %rd1; add.u64 %rd5, %rd3, %rd4;"
    " st.u8 [%rd5], 1; st.u8 [%rd2], 1;",
    "add.s64 %rd3, %rd1;", "add.s64 %rd3, %rd1, %rd2, %rd1;", "fma.rn.f64 %rd3, %rd1, %rd2;",
    "neg.s64 %rd3, %rd1, %rd2;", "ld.param.u64 %rd3;", "ld.param %rd3, [k_0];", ".reg .b32 q<x>;",
    ".reg .b32 r<<3>;", "call unknown, ();",
    "tensormap.frobnicate.tile.rank.global.b1024.b32 [%rd1], 1;", "tcgen05.ld;", "vadd.u32 %r1;",
    "@%p1 vadd.u32 %r1; @%p1 vadd.u32 %r1;", "@%p1 or.b64 %rd3; @%p1 or.b64 %rd3;",
    "bfi.b64 %rd3, %rd1, %rd2;",
])  # fmt: skip
def test_what_is_not_understood_is_opaque(instruction):
    found = kernels.analyse(text(LOAD + instruction), "k")
    assert found.opaque and found.writes == found.reads == {0, 1} and found.because["opaque"]


def test_a_reduction_through_memory_is_read_and_written():
    found = kernels.analyse(text(LOAD + "red.global.add.u32 [%rd2], 1;"), "k")
    assert (found.writes, found.reads) == ({1}, {1})


def test_null_is_no_address():
    body = "setp.eq.u64 %p1, %rd2, 0; selp.b64 %rd3, %rd1, 0, %p1; st.global.u32 [%rd3], 1;"
    found = kernels.analyse(text(LOAD + body), "k")
    assert not found.opaque and found.writes == {0}


def test_prefetch_does_nothing_and_discard_writes():
    found = kernels.analyse(text(LOAD + "prefetch.global.L2 [%rd1];"), "k")
    assert not found.writes | found.reads
    assert kernels.analyse(text(LOAD + "discard.global.L2 [%rd1], 128;"), "k").writes == {0}


def test_a_register_that_is_used_again_is_another_one():
    body = "mov.u64 %rd3, %rd1; st.global.u32 [%rd3], 1; mov.u64 %rd3, %rd2; ld.u32 %r1, [%rd3];"
    found = kernels.analyse(text(LOAD + body), "k")
    assert (found.writes, found.reads) == ({0}, {1})


def test_a_predicated_instruction_keeps_what_was_there():
    body = "mov.u64 %rd3, %rd1; @%p1 mov.u64 %rd3, %rd2; st.global.u32 [%rd3], 1;"
    assert kernels.analyse(text(LOAD + body), "k").writes == {0, 1}


def test_a_loop_that_exchanges():
    body = "L: mov.u64 %rd3, %rd1; mov.u64 %rd1, %rd2; mov.u64 %rd2, %rd3; @%p1 bra L;"
    assert kernels.analyse(text(LOAD + body + "st.u32 [%rd1], 1;"), "k").writes == {0, 1}


def test_escapes():
    found = kernels.analyse(text(LOAD + "st.global.u64 [%rd1], %rd2;"), "k")
    assert found.escapes == {1}


def test_reasons_name_line_and_instruction():
    found = kernels.analyse(text(".loc 1 12 3\n" + LOAD + "st.global.u32 [%rd1], 1;"), "k")
    assert found.because[0] == ("written: line 12: st.global.u32 [%rd1], 1;",)


def test_access_is_a_value():
    found = kernels.analyse(text(LOAD + "st.global.u32 [%rd1], 1;"), "k")
    assert pickle.loads(pickle.dumps(found)) == found and hash(found) == hash(found)
    with pytest.raises(AttributeError):
        found.writes = frozenset()


@pytest.mark.parametrize(("ptx", "name", "error", "words"), [
    (text(""), "other", ValueError, "argument 'name': expected one of: k, got other"),
    ("", "k", ValueError, "argument 'name'"),
    (b"", "k", TypeError, "argument 'ptx': expected a str"),
    (".entry k(.param k_0) { }", "k", ValueError, "argument 'ptx': expected the parameters of k"),
    (text(""), None, TypeError, "argument 'name': expected a str"),
])  # fmt: skip
def test_errors(ptx, name, error, words):
    with pytest.raises(error, match=words):
        kernels.analyse(ptx, name)


@pytest.mark.parametrize("body", [
    "neg.s64 %rd3, %rd1; sub.s64 %rd4, %rd2, %rd3; st.global.u32 [%rd4], 1;",
    "mul.lo.s64 %rd3, %rd1, 1; add.s64 %rd4, %rd3, %rd2; st.global.u32 [%rd4], 1;",
    "mad.lo.s64 %rd4, %rd1, 1, %rd2; st.global.u32 [%rd4], 1;",
    "not.b64 %rd3, %rd1; not.b64 %rd4, %rd3; st.global.u32 [%rd4], 1;",
    "sub.s64 %rd3, %rd2, %rd1; sub.s64 %rd4, %rd2, %rd3; st.global.u32 [%rd4], 1;",
    "shl.b64 %rd3, %rd1, %r1; add.s64 %rd4, %rd3, %rd2; st.global.u32 [%rd4], 1;",
    "shl.b64 %rd3, %rd1, 16; shr.u64 %rd3, %rd3, 16; add.s64 %rd4, %rd3, %rd2; st.u32 [%rd4], 1;",
    "cvt.rn.f64.u64 %rd3, %rd1; add.f64 %rd3, %rd3, 0d4020000000000000;"
    " cvt.rzi.u64.f64 %rd4, %rd3; st.u32 [%rd4], 1;",
    "prmt.b32 %r1, %rd1, %rd1, 0x3210; shr.u64 %rd3, %rd1, 32; cvt.u32.u64 %r2, %rd3;"
    " mov.b64 %rd4, {%r1, %r2}; st.u32 [%rd4], 1;",
    "shfl.sync.idx.b32 %r1|%p1, %rd1, 0, 31, -1; mov.b64 %rd4, {%r1, %r1}; st.u32 [%rd4], 1;",
    "{ .reg .b64 %rd1; mov.u64 %rd1, %rd2; } st.global.u32 [%rd1], 1;",
    "{ .reg .b64 k_name; mov.u64 k_name, %rd1; st.global.u32 [k_name], 1; }",
    "st.async.weak.global.b32 [%rd1], %r1;",
    "st.local.u64 [room+%r1], %rd1; ld.local.u64 %rd4, [room+8]; st.u32 [%rd4], 1;",
    "mov.u64 %rd3, room; cvta.local.u64 %rd3, %rd3; atom.cas.b64 %rd4, [%rd3], %rd2, %rd1;"
    " ld.local.u64 %rd4, [room]; st.u32 [%rd4], 1;",
    "st.local.u64 [room], %rd1; mov.u64 %rd3, room; cvta.local.u64 %rd3, %rd3;"
    " atom.exch.b64 %rd4, [%rd3], %rd2; st.u32 [%rd4], 1;",
])  # fmt: skip
def test_the_first_parameter_is_written_whatever_is_done_to_it(body):
    ptx = text(LOAD + ".local .align 8 .b8 room[16];" + body)
    ptx = ptx.replace(".visible .entry", ".global .u64 k_name;\n.visible .entry")
    assert 0 in kernels.analyse(ptx, "k").writes


HALVES = "mov.b64 {%r1, %r2}, %rd1; ld.global.v2.u32 {%r3, %r4}, [%rd2];"
PUT = "mov.b64 %rd4, {%r5, %r6}; st.global.u32 [%rd4], 1;"
BLEND = "and.b64 %rd3, %rd1, %rd5; not.b64 %rd6, %rd5; and.b64 %rd7, %rd4, %rd6;"
LOADED = "ld.global.u64 %rd4, [%rd2]; ld.global.u64 %rd5, [%rd2+8];"


@pytest.mark.parametrize("body", [
    HALVES + "prmt.b32 %r5, %r1, %r3, 0x7654; prmt.b32 %r6, %r2, %r4, 0x7654;" + PUT,
    HALVES + "lop3.b32 %r5, %r1, %r3, 0, 0xCC; lop3.b32 %r6, %r2, %r4, 0, 0xCC;" + PUT,
    HALVES + "shf.r.clamp.b32 %r5, %r1, %r3, 32; shf.r.clamp.b32 %r6, %r2, %r4, 32;" + PUT,
    HALVES + "mov.b32 %r5, %r3; mov.b32 %r6, %r2;" + PUT,
    HALVES + "vote.sync.ballot.b32 %r5, %p1, -1; mov.b32 %r6, %r2;" + PUT,
    LOADED + "bfi.b64 %rd4, %rd4, %rd1, 0, 64; st.global.u32 [%rd4], 1;",
    LOADED + "bfi.b64 %rd4, %rd4, %rd1, 0, %r1; st.global.u32 [%rd4], 1;",
    LOADED + "bfi.b64 %rd6, %rd4, %rd1, 0, 31; shr.u64 %rd5, %rd4, 31;"
    " bfi.b64 %rd4, %rd5, %rd6, 31, 31; st.global.u32 [%rd4], 1;",
    LOADED + "and.b64 %rd5, %rd1, -281474976710656; or.b64 %rd4, %rd4, %rd5; st.u32 [%rd4], 1;",
    LOADED + "and.b64 %rd5, %rd1, 0xFFFF000000000000; add.s64 %rd4, %rd4, %rd5; st.u32 [%rd4], 1;",
    LOADED + BLEND + "or.b64 %rd4, %rd3, %rd7; st.global.u32 [%rd4], 1;",
    LOADED + BLEND + "add.s64 %rd4, %rd3, %rd7; st.global.u32 [%rd4], 1;",
    "mov.u64 %rd4, 0; up: add.s64 %rd4, %rd4, 4096; setp.lt.u64 %p1, %rd4, %rd2; @%p1 bra up;"
    " st.global.u32 [%rd4], 1;",
])  # fmt: skip
def test_a_number_may_take_the_place_of_an_address(body):
    assert kernels.analyse(text(LOAD + body), "k").opaque
