"""The benchmark's workloads and their checks on the CPU: a wrong element anywhere is found."""

import ast
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sparsegpu as sg
from sparsegpu._arrays import float8_e4m3fn
from sparsegpu.benchmark import (
    arrays,
    attention,
    block_masks,
    cases,
    check,
    formats,
    measure,
    operations,
    own_kernels,
    patterns,
    preparation,
)
from sparsegpu.benchmark.bars import Bar
from sparsegpu.benchmark.case import Case
from sparsegpu.benchmark.workload import make_product
from sparsegpu.engines.cuda.runtime import replay
from sparsegpu.kernels import build
from sparsegpu.tuning.operands import _float8_bits


def _small(case: Case) -> Case:
    columns = min(case.size[2], 40)
    batch = min(case.batch, 2 * case.group)
    small = replace(case, size=(256, 256, columns), density=max(case.density, 0.25), batch=batch)
    return replace(small, path="", fields=())


KINDS = {
    (c.dtype, c.layout, c.fused, c.batch > 0, c.pattern, c.operation, c.section == "odd blocks"): c
    for c in cases.cases()
    if c.operation != own_kernels.TUNE  # which needs a device
}


def _need_nvrtc():
    if not build.can_compile():
        pytest.skip("cuda-bindings (NVRTC) is not installed")


HOST = {case.operation: case for case in cases.cases(["host"])}


def test_every_operation_has_its_host_time_measured():
    others = {"bsr", "2:4 blocks", "sampled_addmm", "bsr_spgemm"}
    conversions = {*cases.HOST_FORMATS, *cases.HOST_PREPARATIONS}
    assert {*operations.OPERATIONS, *conversions, *others} == HOST.keys()
    assert {*cases.HOST_FORMATS} <= formats.FORMATS.keys()
    assert {*cases.HOST_PREPARATIONS} <= preparation.PREPARATIONS.keys()


def test_every_call_that_is_replayed_has_its_host_time_measured(monkeypatch):
    """Whatever function of the library makes a `replay.Call` is reached by a row of host times."""
    makers = {
        (path, function.name)
        for path in map(str, Path(sg.__file__).parent.rglob("*.py"))
        for function in ast.walk(ast.parse(Path(path).read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef)
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Call"
    }
    reached, make = set(), replay.Call.__init__

    def noted(self, *arguments, **keywords):
        code = sys._getframe(1).f_code
        reached.add((code.co_filename, code.co_name))
        make(self, *arguments, **keywords)

    for case in cases.cases():
        if case.measure == "host" and case.operation not in own_kernels.OPERATIONS:
            repeated = measure.make_workload(_small(case), np).call
            repeated()
            with monkeypatch.context() as patched:
                patched.setattr(replay.Call, "__init__", noted)
                repeated()
    assert len(makers) > 15 and makers == reached


def test_a_repeated_call_takes_15_us_unless_it_waits():
    every = [case for case in cases.cases() if case.measure == "host"]
    assert {c.operation for c in every if not c.bars} == {"bsr_array"}
    own = own_kernels.OPERATIONS
    assert {c.bars for c in every if c.bars and c.operation not in own} == {(Bar("ms", 0.015),)}


@pytest.mark.parametrize("case", KINDS.values(), ids=lambda case: case.name)
def test_every_kind_of_case_passes_its_check(case):
    if case.operation in own_kernels.OPERATIONS:
        _need_nvrtc()
    small = measure.make_workload(_small(case), np)
    assert small.same_bits()
    exact = {*formats.FORMATS, *preparation.PREPARATIONS}
    assert small.error() <= (0 if case.operation in exact else 1)
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


ATTENTION = {
    (case.operation, case.pattern): case
    for case in cases.cases(["attention", "gradients"])
    if case.pattern != "strata"
}


@pytest.mark.parametrize("case", ATTENTION.values(), ids=lambda case: case.name)
def test_a_wrong_query_or_key_of_attention_is_found(case, monkeypatch):
    small = measure.make_workload(_small(case), np)
    right = small.call
    backward = case.operation == "attention gradients"

    def wrong(matrix, place):
        answer = right()
        (answer[matrix] if backward else answer)[0, place] += 9
        return answer

    for matrix in range(3 if backward else 1):
        # The last key of a causal mask has one query only, whose weight has no gradient.
        block = small._exact(0, 0)[1][0] if matrix else [0]
        place = int(block[0]) if matrix else small.query.shape[1] - 1
        monkeypatch.setattr(small, "call", lambda matrix=matrix, place=place: wrong(matrix, place))
        with pytest.raises(AssertionError, match="outside the bound"):
            small.error()


@pytest.mark.parametrize("operation", attention.OPERATIONS)
def test_paths_of_attention_share_operands_and_what_the_results_must_be(operation, monkeypatch):
    case = _small(ATTENTION[operation, "diagonal"])
    plain, other = (measure.make_workload(replace(case, path=path), np) for path in ("", "mma"))
    assert other.query is plain.query and other.mask is plain.mask
    expected = plain.exact()
    monkeypatch.setattr(type(other), "_exact", None)  # is not called again
    assert other.exact() is expected
    another = measure.make_workload(replace(case, density=0.5), np)
    assert another.mask is not plain.mask and another.known == []


@pytest.mark.parametrize("operation", block_masks.OPERATIONS)
def test_a_wrong_mask_is_found(operation, monkeypatch):
    (case,) = (c for c in cases.cases(["masks"]) if c.operation == operation)
    small = measure.make_workload(_small(case), np)
    mask = small.call()
    kind = mask.kind.copy()
    kind.ravel()[0] = 0
    wrong = type(mask)(mask.pattern, kind, mask.bits[1:], check=False)
    monkeypatch.setattr(small, "call", lambda: wrong)
    with pytest.raises(AssertionError, match="kind differs"):
        small.error()


def test_attention_counts_the_scores_of_its_mask():
    for case in ATTENTION.values():
        small = measure.make_workload(_small(case), np)
        scores = small.mask.toarray().sum() * small.query.shape[0]
        products = {"attention": 2, "attention gradients": 5}[case.operation]
        assert small.stored == scores and small.flops == 2 * products * scores * small.case.size[2]
        seen = np.flatnonzero(small.mask.toarray()[77])
        np.testing.assert_array_equal(np.sort(small.keys_of(77)), seen)
    assert ATTENTION.keys() >= {(name, "causal") for name in attention.OPERATIONS}


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


@pytest.mark.parametrize("operation", arrays.OPERATIONS)
def test_a_wrong_result_of_what_is_done_with_arrays_is_found(operation, monkeypatch):
    (case,) = (c for c in cases.cases(["arrays", "solvers"]) if c.operation == operation)
    small = measure.make_workload(_small(case), np)
    assert small.error() <= 1
    right = small.call() if operation != "block_jacobi" else small.work.seen(small.call())
    values = right if isinstance(right, np.ndarray) else right.data
    values.reshape(-1)[values.size // 2] += 1
    monkeypatch.setattr(small, "call", lambda: right)
    monkeypatch.setattr(small, "work", small.work._replace(seen=lambda result: result))
    with pytest.raises(AssertionError, match="the result is off by"):
        small.error()
    monkeypatch.setattr(small, "call", lambda: np.zeros(7))
    with pytest.raises(AssertionError, match="the result has shape"):
        small.error()


@pytest.mark.parametrize("operation", preparation.PREPARATIONS)
def test_a_wrong_bit_of_a_preparation_is_found(operation, monkeypatch):
    (case,) = (c for c in cases.cases(["2:4 formats"]) if c.operation == operation)
    small = measure.make_workload(_small(case), np)
    answer = small.call()
    parts = [part.copy() for part in (answer if isinstance(answer, tuple) else (answer,))]
    monkeypatch.setattr(small, "call", lambda: tuple(parts) if len(parts) > 1 else parts[0])
    assert small.error() == 0
    parts[-1].view(np.uint8).reshape(-1)[-1 if operation != "permute_for_24" else 0] ^= 1
    with pytest.raises(AssertionError, match=r"differs from the reference|no permutation"):
        small.error()
    if operation == "permute_for_24":
        parts[-1] = np.arange(256)
        with pytest.raises(AssertionError, match="pruning keeps"):
            small.error()


@pytest.mark.parametrize("case", cases.cases(["kernels"])[:3], ids=lambda case: case.name)
def test_a_wrong_result_of_a_wrapped_kernel_is_found(case, monkeypatch):
    _need_nvrtc()
    small = measure.make_workload(_small(case), np)
    assert len(small.results()) == (1 if case.operation == own_kernels.REPEATED else 8)
    right = small.made

    def wrong():
        results = right()
        results[-1][7] += 1e-5 * abs(results[-1]).max()
        return results

    monkeypatch.setattr(small, "made", wrong)
    with pytest.raises(AssertionError, match="a result is off by"):
        small.error()


def test_the_kernel_that_is_tuned_is_of_a_hundred_lines():
    first, second = map(own_kernels.stencil_text, range(2))
    assert 100 <= first.count("\n") <= 110 and first != second


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


def test_a_stencil(rng):
    """Of a cube, and of a part of it: points are neighbours both ways round, and of themselves."""
    for points in (27, 125, 85):
        indptr, indices = patterns.block_pattern("stencil", (points, points), 0.5, rng)
        mask = np.zeros((points, points), bool)
        mask[np.repeat(np.arange(points), np.diff(indptr)), indices] = True
        assert len(indices) == mask.sum() and mask.diagonal().all() and (mask == mask.T).all()
        if points == 27:
            assert mask[13].all() and mask[0].sum() == 8 and len(indices) == 7**3


def test_a_wrong_block_of_a_sparse_product_is_found(monkeypatch):
    small = measure.make_workload(_small(cases.cases(["spgemm"])[0]), np)
    right = small.call()
    for place in (0, -1):
        wrong = right.copy()
        wrong.data[place] += 1
        monkeypatch.setattr(small, "call", lambda wrong=wrong: wrong)
        with pytest.raises(AssertionError, match="outside the bound"):
            small.error()
    monkeypatch.setattr(small, "call", lambda: sg.tril(right))
    with pytest.raises(AssertionError, match="stores other blocks"):
        small.error()


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
