"""What `benchmarks.sanitize` reads and changes, without a GPU."""

import numpy as np
import pytest

import sparsegpu
from benchmarks.barriers import find_barriers, takes_several_tiles, write_build
from benchmarks.record import ROOT
from benchmarks.sanitize import Outcome, differs, hazards, said_of, some, total
from benchmarks.small_cases import Operands, cases, digest
from sparsegpu._kernel_table import KERNELS
from sparsegpu.engines.cuda.runtime.source import expand

SOURCES = ROOT / "cuda_src"

KERNEL = """\
#include "common/tile.cuh"
#include "ptx/wait.cuh"
// __syncthreads() in a comment is none, /* and */ __syncwarp() neither
extern "C" __global__ void kernel() {
  if (threadIdx.x > 3) __syncthreads();  // conditional
  for (int i = blockIdx.x; i < 9; i += gridDim.x) fill(), __syncwarp();
  while (!full[i % 2].try_wait(parity(i))) {}
  arrive(3); named<1>(4, (5)); both(0);
  if (__syncthreads_or(found(1))) return;
}
"""
TILE = "__device__ void fill() {\n  __syncthreads();\n}\n"
WAIT = """\
template <int N> __device__ __forceinline__ void named(int id, int n) {
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(id), "r"(n));
}
__device__ void arrive(int id) { asm volatile("bar.arrive %0, 64;" ::"r"(id)); }
__device__ void both(int id) { arrive(id); named<0>(id, 64); }
struct Barrier {
  __device__ bool try_wait(int parity) const { asm("mbarrier.try_wait.parity.shared.b64 ..."); }
};
"""


@pytest.fixture
def sources(tmp_path):
    for name, text in (
        ("kernel.cu", KERNEL),
        ("common/tile.cuh", TILE),
        ("ptx/wait.cuh", WAIT),
    ):
        path = tmp_path / "cuda_src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "cuda_src"


def test_barriers_are_found_wherever_they_stand(sources):
    found = find_barriers("kernel", sources)
    assert [(b.label, b.returns) for b in found] == [
        ("line 5", "void"),
        ("line 6", "void"),
        ("line 7", "bool"),
        ("line 8", "void"),
        ("line 8 (2)", "void"),
        ("line 9", "argument"),
        ("common/tile.cuh line 2", "void"),
    ]
    calls = [KERNEL[b.start : b.end] for b in found[2:6]]
    assert calls[0] == "full[i % 2].try_wait(parity(i))"
    assert calls[1:] == ["named<1>(4, (5))", "both(0)", "__syncthreads_or(found(1))"]
    assert takes_several_tiles("kernel", sources)


def test_every_barrier_of_our_kernels_is_found():
    for source in {kernel.source for kernel in KERNELS}:
        code = [line.split("//")[0] for line in expand(source).splitlines()]
        count = sum(line.count("__syncthreads(") + line.count("__syncwarp(") for line in code)
        assert len(find_barriers(source, SOURCES)) >= count, source


@pytest.mark.parametrize(
    ("number", "line", "left"),
    [
        (0, 5, "  if (threadIdx.x > 3) void(0);  // conditional"),
        (2, 7, "  while (!true) {}"),
        (3, 8, "  arrive(3); void(0); both(0);"),
        (5, 9, "  if ((found(1))) return;"),
    ],
)
def test_one_barrier_is_taken_out(sources, tmp_path, number, line, left):
    removed = find_barriers("kernel", sources)[number]
    write_build("kernel", sources, tmp_path, removed=removed, delays=False)
    lines = KERNEL.splitlines()
    lines[line - 1] = left
    assert (tmp_path / "kernel.cu").read_text().splitlines() == lines
    assert (tmp_path / "common/tile.cuh").read_text() == TILE


def test_delays_stand_around_every_barrier(sources, tmp_path):
    removed = find_barriers("kernel", sources)[1]
    write_build("kernel", sources, tmp_path, removed=removed, delays=True)
    text = (tmp_path / "kernel.cu").read_text()
    assert text.startswith('#include "random_delay.cuh"\n#line 1 "cuda_src/kernel.cu"\n')
    assert "if (threadIdx.x > 3) (random_delay(0), __syncthreads(), random_delay(0));" in text
    assert "fill(), (random_delay(1), void(0), random_delay(1));" in text
    assert "while (!(random_delay(2), full[i % 2].try_wait(parity(i)))) {}" in text
    assert (
        "(random_delay(6), __syncthreads(), random_delay(6))"
        in (tmp_path / "common/tile.cuh").read_text()
    )
    assert (tmp_path / "random_delay.cuh").is_file()


def test_hazards_are_told_apart():
    log = (
        "========= Warning: Race reported between Read access at bsr_softmax+0x90 in a.cu:3\n"
        "=========     and Write access at bsr_softmax+0x80\n"
        "========= Error: Race reported between Write access at keep(Half &, T (&)[T1+(int)1])+0x2d"
        " in a.cu:34\n"
        "=========     and Read access at write(const Half &)+0x49f0 in a.cu:46 [504 hazards]\n"
        "========= Warning: Race reported between Read access at cupy_nonzero+0x10\n"
    )
    assert hazards(log) == (["bsr_softmax", "keep(Half &, T (&)[T1+(int)1])"], ["cupy_nonzero"])
    assert hazards("Race reported somehow")[0]
    assert hazards("") == ([], [])


def test_summaries_are_added():
    assert total(["ERROR SUMMARY: 0 errors", "ERROR SUMMARY: 2 errors"]) == (
        "ERROR SUMMARY: 2 errors"
    )
    assert total(["1 hazard displayed", "2 hazards displayed"]) == "3 hazards displayed"
    assert total([]) == "no summary"


@pytest.mark.parametrize(
    ("status", "log", "answers", "ends", "expected"),
    [
        (0, "", [{"rounds": 5, "differing": 0}], True, False),
        (9, "", [{"rounds": 5, "differing": 1}], False, True),
        (1, "CUDAError: an illegal memory access", [{"case": "a"}], False, True),
        (1, "CUDAError: an illegal memory access", [], False, False),
        (1, "KeyError", [{"case": "a"}], False, False),
        (None, "", [{"case": "a"}], False, False),
        (None, "", [{"case": "a"}], True, True),
    ],
)
def test_what_counts_as_a_difference(status, log, answers, ends, expected):
    assert differs(Outcome(status, log, answers), ends=ends) is expected


def test_facts_of_a_delayed_trial():
    change = {"rounds": 1000, "differing": 0, "launches": 2000, "passes": [7, 0]}
    outcome = Outcome(0, "", [change])
    assert said_of(outcome, 2, 1) == (
        "1000 rounds of 2 cases, 2000 launches: 2000 results of the same bits, 0 of others; "
        "warps came past its place 0 times"
    )
    assert "was stopped" in said_of(Outcome(None, "", []), 2, None)


def test_a_few_cases_stand_for_all():
    names = [f"case {i}" for i in range(20)] + ["one long", "two long"]
    chosen = some(names)
    assert chosen[:2] == ["one long", "two long"]
    assert len(chosen) == len(set(chosen)) == 6
    assert some(["only"]) == ["only"]


def test_cases_run_and_repeat():
    on_the_host = [item for item in cases().items() if not item[0].startswith("row_groups")]
    for name, prepare in on_the_host[::7]:
        with sparsegpu.use_engine("reference"):
            first, again = (prepare(Operands(np, name))() for _ in range(2))
        assert digest(first) == digest(again), name
