"""The benchmark's workloads and their checks on the CPU: a wrong element anywhere is found."""

from dataclasses import replace

import numpy as np
import pytest

from sparsegpu._arrays import float8_e4m3fn
from sparsegpu.benchmark import cases, check, formats, measure, operations, patterns
from sparsegpu.benchmark.case import Case
from sparsegpu.benchmark.workload import make_product
from sparsegpu.tuning.operands import _float8_bits


def _small(case: Case) -> Case:
    columns = min(case.size[2], 40)
    return replace(case, size=(256, 256, columns), density=max(case.density, 0.25))


KINDS = {
    (c.dtype, c.layout, c.fused, c.batch, c.pattern, c.operation, c.section == "odd blocks"): c
    for c in cases.cases()
}


HOST = {case.operation: case for case in cases.cases(["host"])}


def test_every_operation_has_its_host_time_measured():
    others = {"bsr", "2:4 blocks", "sampled_addmm"}
    assert {*operations.OPERATIONS, *cases.HOST_FORMATS, *others} == HOST.keys()
    assert {*cases.HOST_FORMATS} <= formats.FORMATS.keys()


@pytest.mark.parametrize("case", KINDS.values(), ids=lambda case: case.name)
def test_every_kind_of_case_passes_its_check(case):
    small = measure.make_workload(_small(case), np)
    assert small.same_bits()
    assert small.error() <= (0 if case.operation in formats.FORMATS else 1)
    row = measure.describe(small)
    assert row.flops == small.flops > 0
    assert row.bytes > row.stored_bytes > 0


@pytest.mark.parametrize("operation", [*operations.OPERATIONS, "sampled_addmm"])
def test_a_wrong_result_of_an_operation_is_found(operation, monkeypatch):
    small = measure.make_workload(_small(HOST[operation]), np)
    right = small.call

    def wrong():
        answer = right()
        values = answer if isinstance(answer, np.ndarray) else answer.data
        values.ravel()[-1] += 0.5
        return answer

    monkeypatch.setattr(small, "call", wrong)
    with pytest.raises(AssertionError, match=r"1 of \d+ elements outside the bound"):
        small.error()


def test_a_wrong_element_in_any_tile_is_found():
    case = Case("main", (16, 16), 0.5, (256, 256, 256), "float32")
    small = make_product(case, np)
    small.call()
    for corner in ((0, 0), (64, 192), (255, 255)):
        right = small.out.copy()
        small.out[corner[0] // 64 * 64 :, corner[1] // 64 * 64 :][:64, :64] *= 1.001
        with pytest.raises(AssertionError, match="outside the bound"):
            check.error_in_bounds(small)
        small.out[...] = right


def test_an_unwritten_element_is_found():
    small = make_product(Case("main", (16, 16), 0.5, (64, 64, 64)), np)
    small.poison()
    with pytest.raises(AssertionError, match="not written"):
        check.error_in_bounds(small)


@pytest.mark.parametrize("name", ["packed_t", "meta", "bitmask"])
def test_a_wrong_bit_of_a_format_is_found(name, monkeypatch):
    case = Case("2:4 formats", (1, 4), 0.5, (256, 128, 8), operation="tile")
    small = formats.make_format(case, np)
    assert small.error() == 0
    whole = formats.FormatWorkload.results

    def wrong(self):
        results = whole(self)
        found = results[formats.FORMATS["tile"].results.index(name)]
        found.view(np.uint8)[-1, -1] ^= 1
        return results

    monkeypatch.setattr(formats.FormatWorkload, "results", wrong)
    with pytest.raises(AssertionError, match=f"{name} differs in the slab from"):
        small.error()


def test_float8_is_rounded_to_the_nearest(rng):
    values = rng.standard_normal(4096).astype(np.float32) * 20
    found = _float8_bits(values).view(float8_e4m3fn)
    expected = np.where(abs(values) < 2.0**-6, 0, values).astype(float8_e4m3fn)
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))


def test_an_answer_that_changes_is_found():
    small = make_product(Case("main", (16, 16), 0.5, (64, 64, 64), "float32"), np)
    product, runs = small.call, []

    def unsteady():
        product()
        runs.append(1)
        small.out[3, 5] += len(runs)

    small.call = unsteady
    assert not small.same_bits()


@pytest.mark.parametrize("kind", ["uniform", "power law", "full row", "strata"])
def test_patterns(kind, rng):
    indptr, indices = patterns.block_pattern(kind, (64, 48), 0.1, rng)
    rows = np.split(indices, indptr[1:-1])
    lengths = np.diff(indptr)
    assert all((np.diff(row) > 0).all() for row in rows)
    assert indices.min() >= 0 and indices.max() < 48
    expected = {"strata": 64 * 5, "full row": None}.get(kind, round(0.1 * 64 * 48))
    if expected is not None:
        assert indptr[-1] == expected
    if kind == "full row":
        assert lengths.max() == 48 and np.sort(lengths)[-2] < 20
    if kind == "power law":
        assert lengths.max() > 10 * np.median(lengths)
