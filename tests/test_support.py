"""What is supported: questions to the paths, the choice of architecture, the Markdown table."""

from __future__ import annotations

import pytest

from sparsegpu.engines.cuda.kernels import OPERATIONS
from sparsegpu.engines.cuda.runtime.architectures import PORTABLE, matching_architecture
from sparsegpu.engines.cuda.support import is_supported, kernels, paths, support_table

KNOWN = (75, 80, 86, 87, 89, 90, 100, 103, 120, 121)


@pytest.mark.parametrize(
    "declared, cc, arch",
    [
        (("80", "90a"), (9, 0), "90a"),
        (("80", "90"), (9, 0), "90"),
        (("80",), (9, 0), "90"),
        (PORTABLE, (8, 0), "80"),
        (PORTABLE, (8, 7), "87"),
        (PORTABLE, (8, 8), "87"),
        (PORTABLE, (10, 3), "103"),
        (PORTABLE, (12, 1), "121"),
        (PORTABLE, (7, 5), None),
        (PORTABLE, (13, 0), None),
        (("89",), (8, 6), None),
        (("90a",), (10, 0), None),
        (("90a",), (8, 0), None),
    ],
)
def test_matching_architecture(declared, cc, arch):
    assert matching_architecture(declared, cc, KNOWN) == arch


def test_a_lower_number_must_still_hold_the_code():
    """fp8 code is for 8.9: a compiler that stops at 8.7 cannot make it for an 8.9 device."""
    assert matching_architecture(("89",), (8, 9), (80, 86, 87)) is None


def test_paths_and_support():
    everywhere = {"vector", "mma_f64", "simt"}
    assert everywhere | {"vector_mma"} <= {*paths("bsr_addmm", "float64", 90)}
    assert "vector_mma" not in paths("bsr_addmm", "float64", "8.6")
    assert everywhere <= {*paths("bsr_addmm", "float64", "8.6")}
    halves = paths("bsr_addmm", "float16", (9, 0))
    assert halves.index("wgmma") < halves.index("groups") < halves.index("mma") and (
        halves[-1] == "simt"
    )
    assert "wgmma" not in paths("bsr_addmm", "float16", 100)
    assert paths("scatter_mm", "int32", "8.0") == ()
    assert paths("semi_structured_addmm", "float8_e4m3fn", "90a")[0] == "wgmma_sp_skinny"
    assert paths("semi_structured_addmm", "float8_e4m3fn", (8, 6)) == ("simt",)
    assert not is_supported("bsr_addmm", "float64", 75)
    assert not is_supported("bsr_addmm", "int16", 90)


def test_bad_questions():
    with pytest.raises(
        ValueError, match="is_supported: argument 'op': expected one of 'bsr_addmm'"
    ):
        is_supported("matmul", "float32", 80)
    for cc in ("nine", 9, (9,), 9.0):
        with pytest.raises(ValueError, match="argument 'cc': expected a compute capability"):
            is_supported("bsr_addmm", "float32", cc)


def test_the_table():
    lines = support_table().splitlines()
    assert "| `bsr_addmm` | wgmma | float16, bfloat16, int8, float32 | 9.0 |" in lines
    assert "| `bsr_addmm` | vector_mma | float32, float64 | 8.0, 9.0, 10.0 |" in lines
    assert "| `semi_structured_addmm` | mma_sp | float8_e4m3fn | 8.9 and later |" in lines
    assert "| `scaled_mm` | mma_sp | int8 | 8.0 and later |" in lines


def test_rows_are_sound():
    for row in kernels():
        assert set(row.ops) <= set(OPERATIONS), row.source
        assert row.dtypes or not row.ops, row.source
        assert row.archs and row.variants, row.source


def test_operations_name_only_dtypes_they_take():
    assert is_supported("scaled_mm", "int8", 90) and is_supported("scaled_mm", "float8_e4m3fn", 90)
    assert not is_supported("scaled_mm", "float16", 90)
    assert is_supported("prune_24", "float8_e4m3fn", 80)
    with pytest.raises(TypeError, match="is_supported: argument 'dtype'"):
        is_supported("prune_24", "foo", 80)
