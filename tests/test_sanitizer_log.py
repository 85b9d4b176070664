"""What is read out of compute-sanitizer's logs, and what becomes of it."""

import pytest

from tools.readme import sanitizer_figures
from tools.record import content_hashes
from tools.sanitize import detected_by
from tools.sanitizer_log import merged, read, total
from tools.trial_runner import Outcome, ran

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
    assert untold.failures() == ["2 errors without a report"]
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


def test_only_new_races_are_detected_by_racecheck():
    noisy = Outcome(9, racecheck_log(OUR_RACE), DONE)
    clean = Outcome(0, racecheck_log(), DONE)
    moved = OUR_RACE.replace("0xe30", "0xe90").replace("504 hazards", "12 hazards")
    assert detected_by(Outcome(9, racecheck_log(OUR_RACE), DONE), clean) == "racecheck"
    assert detected_by(Outcome(9, racecheck_log(moved), DONE), noisy) == "not seen"
    other_line = OUR_RACE.replace("a.cuh:34", "a.cuh:35")
    assert detected_by(Outcome(9, racecheck_log(other_line), DONE), noisy) == "racecheck"
    assert detected_by(Outcome(9, racecheck_log(CUPY_RACE), DONE), clean) == "not seen"
    others = [{"rounds": 1, "differing": 2}]
    assert detected_by(Outcome(9, racecheck_log(moved), others), noisy) == "results"
    broken = Outcome(None, "", [])  # without the whole kernel's races nothing is new
    assert detected_by(noisy, broken) == "not seen"


def test_the_readme_says_what_was_found():
    record = {
        "memcheck": {
            "memory errors": {},
            "API errors": {},
            "look-ups of symbols that the driver lacks": {"cuGetProcAddress_v2: X": 238},
        },
        "racecheck": {"races in our kernels": ["one"]},
        "failures": ["one race"],
        "date": "2026-01-01",
        "content": content_hashes(),
    }
    assert sanitizer_figures(record) == (
        "compute-sanitizer over every kernel: memcheck 0 memory errors, 0 errors of API calls "
        "(238 look-ups of symbols that the driver lacks left out); races in our kernels: 1; "
        "findings that fail the run: 1 (in the file); 2026-01-01, these sources."
    )


def test_summaries_are_added():
    assert total(["ERROR SUMMARY: 0 errors", "ERROR SUMMARY: 2 errors"]) == (
        "ERROR SUMMARY: 2 errors"
    )
    assert total(["1 hazard displayed", "2 hazards displayed"]) == "3 hazards displayed"
    assert total([]) == "no summary"
