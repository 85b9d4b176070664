"""The compile matrix: what it finds, on tables made here (the real one runs in CI)."""

from __future__ import annotations

import pytest

pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings (NVRTC) is not installed")

from sparsegpu.engines.cuda import matrix
from sparsegpu.engines.cuda._kernel_source import KernelSource
from sparsegpu.engines.cuda.kernels import OPERATIONS
from sparsegpu.engines.cuda.runtime import cubin, source
from sparsegpu.engines.cuda.runtime.architectures import PORTABLE
from sparsegpu.engines.cuda.support import kernels

GOOD = 'extern "C" __global__ void {name}(float* x) {{ x[0] = VALUE; }}\n'
SPILLS = """
extern "C" __global__ void __launch_bounds__(1024, 2) spills(double* x) {
  double v[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) v[i] = x[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 64; ++i) x[i * 1024 + threadIdx.x] = v[i] * v[(i * 7 + 3) % 64];
}
"""
# The accumulator is changed before the product that adds to it has been waited for.
WAITS = """
extern "C" __global__ void waits(float* x, unsigned long long a, unsigned long long b) {
  float d[4] = {};
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
               "{%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  d[0] *= FACTOR;
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < 4; ++i) x[4 * threadIdx.x + i] = d[i];
}
"""
ONE, TWO = {"VALUE": 1}, {"VALUE": 2}


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """A directory of kernels and a cache for this test alone, in child processes too."""
    root = tmp_path / "cuda_src"
    root.mkdir()
    (root / "good.cu").write_text(GOOD.format(name="good"))
    (root / "spills.cu").write_text(SPILLS)
    monkeypatch.setenv("SPARSEGPU_CUDA_SRC", str(root))
    monkeypatch.setenv("SPARSEGPU_CACHE_DIR", str(tmp_path / "cache"))
    source.source_root.cache_clear()
    yield root
    source.source_root.cache_clear()


def use(monkeypatch, *rows: KernelSource) -> None:
    monkeypatch.setattr(matrix, "kernels", lambda: rows)


GOOD_ROW = KernelSource("good", OPERATIONS, ("float32",), variants=(ONE, TWO))
SPILLING = KernelSource("spills", "bsr_addmm", ("float64",), ("80",))
SPILLING_TENSOR = KernelSource("spills", "bsr_addmm", ("float64",), ("80",), tensor_core=True)


def test_a_sound_table_passes_and_uses_the_cache(sources, monkeypatch, capsys, tmp_path):
    use(monkeypatch, GOOD_ROW, SPILLING)
    assert matrix.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and lines[1].split()[:3] == ["good", "12", "0"]
    assert lines[-1].startswith("13 kernels, NVRTC ")
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*")}
    assert matrix.main(["good", "--jobs", "1"]) == 0
    assert kept == {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*")}


def test_spills_fail_in_tensor_core_rows_only(sources, monkeypatch, capsys):
    use(monkeypatch, GOOD_ROW, SPILLING_TENSOR)
    assert matrix.main(["spills"]) == 1
    assert "spills sm_80: a tensor-core kernel spills: " in capsys.readouterr().err


@pytest.mark.parametrize("factor, status", [(2, 1), (1, 0)])
def test_waits_that_ptxas_adds_fail(sources, monkeypatch, capsys, factor, status):
    (sources / "waits.cu").write_text(WAITS)
    variants = ({"FACTOR": factor},)
    use(monkeypatch, KernelSource("waits", "bsr_addmm", ("float16",), ("90a",), variants=variants))
    for _ in ("compiled", "from the cache"):
        assert matrix.main(["waits"]) == status
        said = "waits sm_90a FACTOR=2: ptxas makes other instructions wait for wgmma"
        assert (said in capsys.readouterr().err) == bool(status)


@pytest.mark.parametrize(
    "line, waits",
    [
        ("(C7517) wgmma.wait_group is injected in around line 43 in function 'f'", True),
        ("(C7517) warpgroup.wait is injected in around line 43 in function 'f'", True),
        ("(C7519) warpgroup.arrive is injected in around line 9 in function 'f'", False),
        ("(C7510) 'wgmma.mma_async' instructions are serialized in the function 'f'", True),
        ("(C7510) 'wgmma.mma_async' instructions are serialized in the function 'f_g'", False),
        ("Function properties for f", False),
    ],
)
def test_what_ptxas_says_of_waits(line, waits):
    log = f"ptxas info    : {line}\nptxas info    : Compiling entry function 'f' for 'sm_90a'"
    assert cubin.waits_for_wgmma(log, "f") == waits


def test_compile_errors_fail(sources, monkeypatch, capsys):
    (sources / "bad.cu").write_text('extern "C" __global__ void bad() {\n  oops;\n}\n')
    use(monkeypatch, KernelSource("bad", "bsr_addmm", ("float32",), ("80",)))
    assert matrix.main(["bad"]) == 1
    captured = capsys.readouterr()
    assert "cuda_src/bad.cu:2: kernel 'bad' does not compile" in captured.err
    assert captured.out.splitlines()[1].split()[:3] == ["bad", "1", "1"]


def test_gaps_in_the_table_fail(sources):
    rows = (
        KernelSource("good", ("bsr_addmm", "new_op"), ("float32",)),
        KernelSource("good", "scaled_mm", ("float8_e4m3fn",), ("89",)),
        KernelSource("good", "scatter_mm", ("float32",), ("80", "90a")),
        KernelSource("good", "bsr_softmax", ("float32",), ("90a",)),
    )
    found = matrix.gaps(rows)
    assert "spills.cu: of no kernel" in found
    assert "new_op: not one of kernels.OPERATIONS" in found
    assert "scaled_mm: no path on 80, 86" in found
    assert "bsr_softmax: no path on 80, 86, 89, 100, 120" in found
    assert "sampled_addmm: no path on 80, 86, 89, 90a, 100, 120" in found
    assert not [gap for gap in found if gap.startswith(("bsr_addmm:", "scatter_mm:", "good.cu"))]


def test_an_unknown_source_is_refused(sources, monkeypatch):
    use(monkeypatch, GOOD_ROW)
    with pytest.raises(SystemExit):
        matrix.main(["nothing"])


def test_the_real_table_names_real_sources():
    names = set(source.source_names())
    assert {row.source for row in kernels()} <= names
    assert all(set(row.archs) <= {*PORTABLE, "90a"} for row in kernels())


def test_a_sample_has_every_dtype_and_architecture_and_may_spill(sources, monkeypatch, capsys):
    types = tuple({"VALUE": n, "T": name} for n, name in ((1, "f32"), (2, "f32"), (3, "f64")))
    row = KernelSource("good", OPERATIONS, ("float32",), ("80", "90"), variants=types)
    use(monkeypatch, row, SPILLING_TENSOR)
    sampled = matrix.sample(matrix.builds((row,)))
    assert [(b.arch, b.defines["VALUE"]) for b in sampled] == [("80", 1), ("90", 1), ("80", 3)]
    assert matrix.main(["good", "spills", "--sample"]) == 0
    assert matrix.main(["spills"]) == 1
    (sources / "good.cu").write_text("no kernel")
    assert matrix.main(["good", "--sample"]) == 1
