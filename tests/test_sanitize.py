"""What `tools.sanitize` reads and changes, without a GPU."""

import signal
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

import sparsegpu
from sparsegpu.engines.cuda.paths._row_split import balanced_splits
from sparsegpu.engines.cuda.runtime.source import expand
from sparsegpu.engines.cuda.support import kernels
from sparsegpu.pattern import Pattern
from tools import sanitize, sanitizer_report, trial
from tools.barriers import find_barriers, takes_several_tiles, write_build
from tools.operands import Operands
from tools.record import ROOT
from tools.sanitize import Harness, passing, some
from tools.small_cases import cases, digest
from tools.trial import Request
from tools.trial_runner import Outcome, TrialRunner, differs, passed_by_none, steady, summary_of

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


@pytest.fixture(autouse=True)
def handler():
    """A run leaves its handler to its process, which here runs other tests, too."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


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


def test_a_header_that_asks_for_the_grid_counts_where_it_is_used():
    assert takes_several_tiles("bsr_addmm_sm90", SOURCES)  # zigzag_tile
    assert takes_several_tiles("bsr_addmm_f32", SOURCES)
    assert takes_several_tiles("bsr_attention_sm90", SOURCES)  # a method of TeamTiles asks
    assert takes_several_tiles("bsr_attention_backward_sm90", SOURCES)
    assert not takes_several_tiles("bsr_addmm_groups", SOURCES)  # includes it for BandRaster


def test_barriers_in_functions_that_a_kernel_does_not_call():
    unused = [b.file for b in find_barriers("bsr_addmm_f32", SOURCES) if not b.used]
    assert unused == ["common/cp_async_pipeline.cuh"] * 2  # it only shares copies as that does
    assert all(b.used for b in find_barriers("bsr_addmm_sm80", SOURCES))


def test_every_barrier_of_our_kernels_is_found():
    for source in {kernel.source for kernel in kernels()}:
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


def test_barriers_that_no_warp_passes_are_named(sources):
    found = find_barriers("kernel", sources)
    change = {"rounds": 9, "passes": [3, 0, 1, 1, 0, 2, 2]}
    assert passed_by_none(found, change) == ["line 6", "line 8 (2)"]
    assert passed_by_none(found, None) == []


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
    assert summary_of(outcome, 2, 1) == (
        "1000 rounds of 2 cases, 2000 launches: 2000 results of the same bits, 0 of others; "
        "warps passed its place 0 times"
    )
    assert "was stopped" in summary_of(Outcome(None, "", []), 2, None)


class FakeLaunches:
    """Warps that pass the first of the barriers in every case but the second."""

    def __init__(self):
        self.count, self.modules, self.past = 0, [], 0

    def passes(self, places):
        return [self.past] + [0] * (places - 1) if places else []


@pytest.mark.parametrize(("differs_from", "rounds"), [(99, 25), (7, 10)])
def test_a_trial_with_delays(monkeypatch, differs_from, rounds):
    """It tells which cases pass a barrier, and stops after a difference."""
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
    """Only then is bsr_addmm_vector_reduce launched."""
    lengths = {name: case.args[0] for name, case in cases().items() if "pieces" in name}
    for name, of_matrices in lengths.items():
        for rows in of_matrices:
            indices = np.concatenate([np.arange(n) for n in rows])
            pattern = Pattern(np.cumsum([0, *rows]), indices, (len(rows), max(rows)), (1, 1))
            assert balanced_splits(pattern).parts > 1, name


def test_cases_run_and_repeat():
    on_device = "row_", "transpose_pattern"  # what these call is the CUDA engine's own
    on_the_host = [item for item in cases().items() if not item[0].startswith(on_device)]
    for name, prepare in on_the_host[::7]:
        with sparsegpu.use_engine("reference"):
            first, again = (prepare(Operands(np, name))() for _ in range(2))
        assert digest(first) == digest(again), name


def test_a_closed_runner_leaves_nothing_running(tmp_path):
    runner = TrialRunner(tmp_path, 2)
    runner.close()
    outcome = runner.run(["no such case"], limit=600)
    assert outcome.status is None
    assert outcome.answers == []


class EveryRemovalIsSeen:
    """In place of `TrialRunner`: its kernels are steady, and racecheck sees every removal."""

    kernels = ("bsr_addmm_f32", "bsr_softmax")
    gpus = SimpleNamespace(count=1)
    launches = 1000

    def __init__(self, folder, processes):
        pass

    def run(self, names, tool=None, *, kernel=None, barrier=None, delays=False, **limits):
        answers = [{"case": name, "digest": "1", "wanted": self.kernels} for name in names]
        for answer in answers:
            answer |= {"kernels": self.kernels, "again": self.kernels}
        places = len(find_barriers(kernel, SOURCES)) if kernel else 0
        change = {"rounds": 500, "differing": barrier is not None and not delays, "of": []}
        change |= {"launches": self.launches, "passes": [1] * places, "passing": [names] * places}
        log = "========= ERROR SUMMARY: 0 errors\n" if tool else ""
        return Outcome(0, log, [*answers, change])


@pytest.fixture
def record_of_a_run(monkeypatch):
    """Return what runs with `EveryRemovalIsSeen` have recorded, kept from run to run."""
    kept = {}

    def record(section, content):
        kept[section] = dict(content)

    monkeypatch.setattr(sanitize, "TrialRunner", EveryRemovalIsSeen)
    monkeypatch.setattr(sanitizer_report, "record", record)
    monkeypatch.setattr(sanitizer_report, "record_of_this_gpu", lambda: kept)
    monkeypatch.setattr(sanitizer_report, "is_of_these_sources", lambda section: True)
    monkeypatch.setattr(sanitize, "cases", lambda: dict.fromkeys(["one", "two", "three long"]))
    monkeypatch.setattr(sanitize, "_SHARE", 1)
    return kept


def test_a_run_is_resumed_where_its_record_ends(record_of_a_run, monkeypatch, capsys):
    assert sanitize.main([], seconds=-1) == 1  # the inspection alone
    first = record_of_a_run["sanitizer"]
    assert first["same bits in both runs"] and "barriers" not in first
    assert sorted(first["not yet looked at"]) == ["bsr_addmm_f32", "bsr_softmax"]
    assert "2 kernels are left to --resume" in capsys.readouterr().out

    known = {"bsr_softmax": {"line 1": "racecheck"}}
    record_of_a_run["sanitizer"] |= {"barriers": known, "seconds": 100}
    monkeypatch.setattr(Harness, "inspect", None)  # it is recorded: not again
    assert sanitize.main([], resume=True) == 0
    last = record_of_a_run["sanitizer"]
    assert last["barriers"]["bsr_softmax"] == known["bsr_softmax"]
    assert set(last["barriers"]["bsr_addmm_f32"].values()) == {"results"}
    assert list(last["whole under delays"]) == ["bsr_addmm_f32"]
    assert last["not yet looked at"] == last["failures"] == [] and last["seconds"] >= 100
    assert capsys.readouterr().out.endswith("sanitize: passed\n")


def test_of_other_sources_a_run_keeps_the_kernels_that_did_not_change(record_of_a_run, monkeypatch):
    by_hand = {"line 1": "racecheck"}
    kernels = {"bsr_softmax": by_hand, "bsr_addmm_f32": by_hand, "no_longer_there": by_hand}
    record_of_a_run["sanitizer"] = {
        "barriers": kernels,
        "sources": {
            "bsr_softmax": sanitizer_report.source_hash("bsr_softmax"),
            **dict.fromkeys(["bsr_addmm_f32", "no_longer_there"], "0"),
        },
        "not seen": {"bsr_addmm_f32 line 1": "", "bsr_softmax line 1": "0 of others"},
        "same bits in both runs": False,
        "failures": ["memcheck: 1 error", "bsr_addmm_f32 line 1: no warp passed it"],
        "seconds": 9,
    }
    monkeypatch.setattr(sanitizer_report, "is_of_these_sources", lambda section: False)
    assert sanitize.main([], resume=True) == 0
    last = record_of_a_run["sanitizer"]
    assert sorted(last["barriers"]) == sorted(last["sources"]) == ["bsr_addmm_f32", "bsr_softmax"]
    assert last["barriers"]["bsr_softmax"] == by_hand != last["barriers"]["bsr_addmm_f32"]
    assert list(last["not seen"]) == ["bsr_softmax line 1"]
    assert last["same bits in both runs"] and last["failures"] == []


def test_a_failure_stays_while_its_kernel_does_not_change(record_of_a_run, monkeypatch):
    failure = "bsr_softmax: no removal is detected, so clean runs prove nothing"
    sources = {"bsr_softmax": sanitizer_report.source_hash("bsr_softmax")}
    record_of_a_run["sanitizer"] = {
        "barriers": {"bsr_softmax": {}},
        "sources": sources,
        "failures": [failure],
    }
    monkeypatch.setattr(sanitizer_report, "is_of_these_sources", lambda section: False)
    assert sanitize.main([], resume=True) == 1
    assert record_of_a_run["sanitizer"]["failures"] == [failure]


def test_a_kernel_that_ran_too_rarely_under_delays_fails(record_of_a_run, monkeypatch):
    monkeypatch.setattr(EveryRemovalIsSeen, "launches", 999)
    assert sanitize.main(["bsr_softmax"]) == 1
    monkeypatch.setattr(EveryRemovalIsSeen, "launches", 1000)
    assert sanitize.main(["bsr_softmax"]) == 0


def test_a_failure_is_of_one_kernel_alone():
    """Not of another one with whose name that kernel's ends."""
    report = sanitizer_report.Report(False, failures=["bsr_softmax under random delays: 1 of 2"])
    assert report.failed("bsr_softmax under") and not report.failed("softmax under")


def test_a_survey_alone_replaces_no_record(record_of_a_run, monkeypatch):
    earlier = {"memcheck": {}, "failures": [], "seconds": 9}
    record_of_a_run["sanitizer"] = earlier

    def ended(harness):
        assert harness.report.content["cases"]
        raise SystemExit("terminated")

    monkeypatch.setattr(Harness, "inspect", ended)
    with pytest.raises(SystemExit):
        sanitize.main([])
    assert record_of_a_run["sanitizer"] == earlier


def test_several_gpus_have_shorter_shards(record_of_a_run, monkeypatch):
    names, given = [f"case {i}" for i in range(200)], []

    class OnFour(EveryRemovalIsSeen):
        gpus = SimpleNamespace(count=4)

        def run(self, names, tool=None, *, kernel=None, **limits):
            given.append((names, tool, kernel))
            return super().run(names, tool, kernel=kernel, **limits)

    monkeypatch.setattr(sanitize, "cases", lambda: dict.fromkeys(names))
    monkeypatch.setattr(sanitize, "TrialRunner", OnFour)
    assert sanitize.main([]) == 0
    for tool, processes in ((None, 56), ("memcheck", 28), ("racecheck", 28)):
        shards = [its for its, by, kernel in given if by == tool and kernel is None]
        assert len(shards) == processes and sorted(sum(shards, ())) == sorted(names)
