"""What `benchmarks.sanitize` reads and changes, without a GPU."""

import sys
from contextlib import contextmanager

import numpy as np
import pytest

import sparsegpu
from benchmarks import trial
from benchmarks.barriers import find_barriers, takes_several_tiles, write_build
from benchmarks.lab import Lab, Outcome, differs, passed_by_none, ran, said_of
from benchmarks.operands import Operands
from benchmarks.readme import sanitizer_figures
from benchmarks.record import ROOT
from benchmarks.sanitize import passing, seen_by, some, steady
from benchmarks.sanitizer_log import merged, read, total
from benchmarks.small_cases import cases, digest
from benchmarks.trial import Request
from sparsegpu._kernel_table import KERNELS
from sparsegpu.engines.cuda._row_pieces import balanced_pieces
from sparsegpu.engines.cuda.runtime.source import expand
from sparsegpu.pattern import Pattern

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


LOOK_UP = """\
========= Program hit CUDA_ERROR_NOT_FOUND (error 500) due to "named symbol not found" on CUDA API \
call to cuGetProcAddress_v2.
=========     Saved host backtrace up to driver entry point at error
=========         Host Frame:  [0x31be92] in libcuda.so.1
=========         Host Frame: run in trial.py:162
=========
"""
API_ERROR = """\
========= Program hit CUDA_ERROR_INVALID_VALUE (error 1) due to "invalid argument" on CUDA API \
call to cuLaunchKernel.
=========     Saved host backtrace up to driver entry point at error
=========         Host Frame:  [0x31be92] in libcuda.so.1
=========
"""
INVALID_READ = """\
========= Invalid __global__ read of size 4 bytes
=========     at bsr_softmax+0x90 in bsr_softmax.cu:33
=========     by thread (0,0,0) in block (1,0,0)
=========     Access at 0x7f6510c00001 is misaligned
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame:  [0x31be92] in libcuda.so.1
=========
"""
LEAK = "========= Leaked 1,024 bytes at 0x7f6510c00000\n=========     Saved host backtrace\n"
OUR_RACE = """\
========= Error: Race reported between Read access at look_at(Stage &, unsigned int)+0xe30 in \
bsr_addmm_sm90.cu:233
=========     and Write access at void produce<unsigned int (*)[2]>(int, Ring, T1)+0x4a0 in \
bsr_addmm_sm90.cu:170 [4 hazards]
=========     and Write access at keep(Half &, T (&)[T1+(int)1])+0x2d in a.cuh:34 [504 hazards]
=========
"""
CUPY_RACE = """\
========= Warning: Race reported between Read access at cupy_nonzero_kernel_incomplete_scan+0x460
=========     and Write access at cupy_nonzero_kernel_incomplete_scan+0x630 [192 hazards]
=========
"""


def printed(reports, summary):
    """Return what the tool prints: it leaves a space behind the mark of an empty line."""
    text = "".join(reports).replace("=========\n", "========= \n")
    return f"========= COMPUTE-SANITIZER\n{text}========= {summary}\n"


def memcheck_log(*reports):
    return printed(reports, f"ERROR SUMMARY: {len(reports)} error" + "s" * (len(reports) != 1))


def racecheck_log(*reports):
    summary = (
        f"========= RACECHECK SUMMARY: {len(reports)} hazards displayed (0 errors, 0 warnings)"
    )
    return "========= COMPUTE-SANITIZER\n" + "".join(reports) + summary + "\n"


def test_look_ups_fail_nothing_and_other_calls_do():
    found = read(memcheck_log(*[LOOK_UP] * 34))
    assert found.look_ups == {"cuGetProcAddress_v2: CUDA_ERROR_NOT_FOUND": 34}
    assert found.failures() == [] and found.harmless
    found = read(memcheck_log(LOOK_UP, API_ERROR))
    assert found.calls == {"cuLaunchKernel: CUDA_ERROR_INVALID_VALUE": 1}
    assert found.failures() == ["1 x cuLaunchKernel: CUDA_ERROR_INVALID_VALUE"]
    assert not found.harmless


@pytest.mark.parametrize(
    "report",
    [
        '========= Program hit CUDA_ERROR_INVALID_VALUE due to "invalid argument" on CUDA API call '
        "to cuGetProcAddress_v2.\n",
        "========= Program hit CUDA_ERROR_INVALID_VALUE (error 1) due to\n"
        '=========     "invalid argument" on CUDA API call to cuGetProcAddress_v2.\n',
    ],
)
def test_api_errors_in_other_forms(report):
    found = read(memcheck_log(report, LOOK_UP))
    assert found.look_ups["cuGetProcAddress_v2: CUDA_ERROR_INVALID_VALUE"] == 1
    assert found.failures() == []


def test_memory_errors_fail():
    found = read(memcheck_log(LOOK_UP, INVALID_READ, INVALID_READ, LEAK))
    assert found.memory == {
        "Invalid __global__ read of size 4 bytes at bsr_softmax+0x90 in bsr_softmax.cu:33": 2,
        "Leaked 1,024 bytes at 0x...": 1,
    }
    assert len(found.failures()) == 2
    untold = read("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 2 errors\n")
    assert untold.failures() == ["2 errors of which no report tells"]
    internal = read("========= Internal Sanitizer Error: it gave up\n" + memcheck_log())
    assert internal.failures() == ["1 x Internal Sanitizer Error: it gave up"]


def test_findings_of_several_runs_are_merged():
    both = merged([read(memcheck_log(LOOK_UP, INVALID_READ)), read(memcheck_log(LOOK_UP))])
    assert sum(both.look_ups.values()) == 2 and sum(both.memory.values()) == 1
    assert total(both.summaries) == "ERROR SUMMARY: 3 errors"


def test_races_are_told_apart():
    found = read(racecheck_log(OUR_RACE, CUPY_RACE))
    assert found.ours == [
        "Read in look_at(Stage &, unsigned int) at bsr_addmm_sm90.cu:233, "
        "Write in keep(Half &, T (&)[T1+(int)1]) at a.cuh:34",
        "Read in look_at(Stage &, unsigned int) at bsr_addmm_sm90.cu:233, "
        "Write in void produce<unsigned int (*)[2]>(int, Ring, T1) at bsr_addmm_sm90.cu:170",
    ]
    assert len(found.of_cupy) == 1 and len(found.failures()) == 2
    cupy_alone = read(racecheck_log(CUPY_RACE))
    assert cupy_alone.failures() == [] and cupy_alone.harmless
    assert read("Race reported somehow").failures() == []  # no line of the tool's
    assert read("========= Error: Race reported somehow").ours
    assert read(racecheck_log()).failures() == [] and not read(racecheck_log()).harmless


DONE = [{"case": "a"}, {"rounds": 1, "differing": 0}]


@pytest.mark.parametrize(
    ("status", "log", "answers", "expected"),
    [
        (0, racecheck_log(), DONE, True),
        (9, racecheck_log(CUPY_RACE), DONE, True),
        (9, memcheck_log(LOOK_UP), DONE, True),
        (9, memcheck_log(), DONE, False),  # it found something that the log does not tell
        (9, racecheck_log(CUPY_RACE), DONE[:1], False),
        (1, racecheck_log(CUPY_RACE), DONE, False),
        (0, "", DONE, False),
        (None, memcheck_log(), DONE, False),
    ],
)
def test_a_run_came_to_its_end(status, log, answers, expected):
    assert ran(Outcome(status, log, answers), read(log)) is expected


def test_only_new_races_are_seen_by_racecheck():
    noisy = Outcome(9, racecheck_log(OUR_RACE), DONE)
    clean = Outcome(0, racecheck_log(), DONE)
    moved = OUR_RACE.replace("0xe30", "0xe90").replace("504 hazards", "12 hazards")
    assert seen_by(Outcome(9, racecheck_log(OUR_RACE), DONE), clean) == "racecheck"
    assert seen_by(Outcome(9, racecheck_log(moved), DONE), noisy) == "not seen"
    other_line = OUR_RACE.replace("a.cuh:34", "a.cuh:35")
    assert seen_by(Outcome(9, racecheck_log(other_line), DONE), noisy) == "racecheck"
    assert seen_by(Outcome(9, racecheck_log(CUPY_RACE), DONE), clean) == "not seen"
    others = [{"rounds": 1, "differing": 2}]
    assert seen_by(Outcome(9, racecheck_log(moved), others), noisy) == "results"
    broken = Outcome(None, "", [])  # without the whole kernel's races nothing is new
    assert seen_by(noisy, broken) == "not seen"


def test_barriers_that_no_warp_passes_are_named(sources):
    found = find_barriers("kernel", sources)
    change = {"rounds": 9, "passes": [3, 0, 1, 1, 0, 2, 2]}
    assert passed_by_none(found, change) == ["line 6", "line 8 (2)"]
    assert passed_by_none(found, None) == []


def test_the_readme_says_what_was_found():
    record = {
        "memcheck": {
            "memory errors": {},
            "API errors": {},
            "look-ups of symbols that the driver lacks": {"cuGetProcAddress_v2: X": 238},
        },
        "racecheck": {"races in our kernels": ["one"]},
        "failures": ["one race"],
    }
    assert sanitizer_figures(record) == (
        "compute-sanitizer over every kernel: memcheck 0 memory errors, 0 errors of API calls "
        "(238 look-ups of symbols that the driver lacks left out); races in our kernels: 1; "
        "findings that fail the run: 1."
    )


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


class FakeLaunches:
    """Warps that come past the first of the barriers in every case but the second."""

    def __init__(self):
        self.count, self.modules, self.past = 0, [], 0

    def passes(self, places):
        return [self.past] + [0] * (places - 1) if places else []


@pytest.mark.parametrize(("differs_from", "rounds"), [(99, 25), (7, 10)])
def test_a_trial_with_delays(monkeypatch, differs_from, rounds):
    """It tells which cases come past a barrier, and stops behind a difference."""
    launches, names = FakeLaunches(), ["one", "two", "three"]

    def prepare(name):
        def computes():
            launches.count += 1
            launches.past += name != "two"
            return np.full(3, launches.count > 3 * differs_from)

        return lambda make: computes

    @contextmanager
    def changed(request):
        launches.count = launches.past = 0
        yield launches

    monkeypatch.setitem(sys.modules, "cupy", np)
    monkeypatch.setattr(trial, "cases", lambda: {name: prepare(name) for name in names})
    monkeypatch.setattr(trial, "changed", changed)
    monkeypatch.setattr(trial, "digest", str)
    monkeypatch.setattr(trial, "wanted_kernels", set)
    monkeypatch.setattr(trial, "launched_by", lambda computes: (computes(), ["bsr_scatter"]))
    request = Request(names, "", kernel="bsr_scatter", delays=True, rounds=25, stop=True)
    *_, last = trial.run(request)
    places = len(find_barriers("bsr_scatter", SOURCES))
    assert last["rounds"] == rounds and last["launches"] == 3 * rounds
    assert last["differing"] == 3 * max(rounds - differs_from, 0)
    assert last["passing"] == [["one", "three"]] + [[]] * (places - 1)
    outcome = Outcome(0, "", [last])
    assert passing(outcome, 0) == ["one", "three"] and passing(outcome, 1) == []
    assert steady(outcome) is (rounds == 25) and not steady(Outcome(None, "", []))


def test_a_few_cases_stand_for_all():
    names = [f"case {i}" for i in range(20)] + ["one long", "two long"]
    chosen = some(names)
    assert chosen[:2] == ["one long", "two long"]
    assert len(chosen) == len(set(chosen)) == 6
    assert some([f"{i} long" for i in range(99)] + ["other"]) == [f"{i} long" for i in range(20)]
    assert some(["only"]) == ["only"]


def test_some_rows_are_cut_into_pieces():
    """Only then is bsr_addmm_parts launched."""
    lengths = {name: case.args[0] for name, case in cases().items() if "pieces" in name}
    for name, of_matrices in lengths.items():
        for rows in of_matrices:
            indices = np.concatenate([np.arange(n) for n in rows])
            pattern = Pattern(np.cumsum([0, *rows]), indices, (len(rows), max(rows)), (1, 1))
            assert balanced_pieces(pattern).parts > 1, name


def test_cases_run_and_repeat():
    on_the_host = [item for item in cases().items() if not item[0].startswith("row_")]
    for name, prepare in on_the_host[::7]:
        with sparsegpu.use_engine("reference"):
            first, again = (prepare(Operands(np, name))() for _ in range(2))
        assert digest(first) == digest(again), name


def test_a_closed_lab_leaves_nothing_running(tmp_path):
    lab = Lab(tmp_path)
    lab.close()
    outcome = lab.trial(["no such case"], limit=600)
    assert outcome.status is None
    assert outcome.answers == []
