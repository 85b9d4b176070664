"""Sources and compilation; nothing here needs a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings (NVRTC) is not installed")

from sparsegpu import _cache, kernels
from sparsegpu.engines.cuda.runtime import compile as compiler
from sparsegpu.engines.cuda.runtime.compile import CompileError, compile_kernel
from sparsegpu.engines.cuda.runtime.cubin import read_resources
from sparsegpu.engines.cuda.runtime.source import expand, source_names, source_root
from sparsegpu.kernels import build

PROBES = Path(__file__).parent / "cuda_probes"
SMALL = {"VALUE": 3, "SHARED": 0}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("SPARSEGPU_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def entries(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*") if path.is_file())


# -- sources --------------------------------------------------------------------------------


def test_kernel_sources_are_found():
    assert (source_root() / "common" / "types.cuh").is_file()
    assert all((source_root() / f"{name}.cu").is_file() for name in source_names())


def test_includes_are_expanded_once_with_real_lines(tmp_path):
    (tmp_path / "common").mkdir()
    (tmp_path / "k.cu").write_text('int a;\n#include "common/x.cuh"\n#include "y.cuh"\nint b;\n')
    (tmp_path / "common" / "x.cuh").write_text('#pragma once\n#include "y.cuh"\nint x;\n')
    (tmp_path / "y.cuh").write_text("int y;\n#include <cuda_fp16.h>\n")
    text = expand("k", tmp_path)
    assert text.count("int y;") == text.count("int x;") == 1
    assert "#pragma once" not in text and "#include <cuda_fp16.h>" in text
    assert '#line 1 "cuda_src/common/x.cuh"' in text
    assert text.endswith('#line 3 "cuda_src/k.cu"\n\nint b;\n')


def test_missing_files_are_named_with_who_includes_them(tmp_path):
    (tmp_path / "k.cu").write_text('int a;\n#include "nowhere.cuh"\n')
    with pytest.raises(FileNotFoundError, match=r"cuda_src/k.cu:2: .*nowhere.cuh"):
        expand("k", tmp_path)
    with pytest.raises(FileNotFoundError, match="kernel source 'other' not found"):
        expand("other", tmp_path)


# -- the compiler ---------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["80", "86", "89", "90a", "100", "120"])
def test_instruction_wrappers_compile_everywhere(arch):
    cubin = compile_kernel("probe_ptx", arch, root=PROBES)
    assert cubin.code[:4] == b"\x7fELF"
    assert cubin.resources.registers > 0
    assert cubin.resources.shared in {2048, 3072}  # 9.0 and later reserve 1 KB
    assert not cubin.resources.spills


@pytest.mark.parametrize("side", ["f32", None])
@pytest.mark.parametrize("t", ["bf16", "s8", "f64", "c64", "c128"])
def test_epilogue_compiles_for_every_type(t, side):
    defines = {
        "T": t,
        "INPUT": t if side else "none",
        "LEFT": side or t,
        "RIGHT": t if side else "none",
        "REAL": t[0] != "c",
        "INTEGER": t == "s8",
        "OUTPUTS": 1 if t in {"f64", "c64", "c128"} else 3,
    }
    compile_kernel("probe_epilogue_all", "80", defines, root=PROBES)


def test_an_error_names_file_line_flags_and_log():
    with pytest.raises(CompileError) as caught:
        compile_kernel("probe_broken", "80", {"T": "bf16"}, root=PROBES)
    message = str(caught.value)
    assert message.startswith("cuda_src/probe_broken.cu:6: kernel 'probe_broken' does not compile")
    assert "--gpu-architecture=sm_80" in message and "-DT=bf16" in message
    assert 'identifier "no_such_thing" is undefined' in message


def test_an_error_in_an_included_file_names_that_file(tmp_path):
    (tmp_path / "bad.cuh").write_text("\n\nint x = ;\n")
    (tmp_path / "k.cu").write_text('#include "bad.cuh"\nextern "C" __global__ void k() {}\n')
    with pytest.raises(CompileError, match=r"^cuda_src/bad\.cuh:3: kernel 'k' does not compile"):
        compile_kernel("k", "80", root=tmp_path)


def test_a_missing_entry_point_is_an_error(tmp_path, cache):
    (tmp_path / "k.cu").write_text('extern "C" __global__ void other() {}\n')
    with pytest.raises(CompileError, match=r'no extern "C" entry point k'):
        compile_kernel("k", "80", root=tmp_path)
    assert not entries(cache)


def test_instructions_of_another_architecture_are_an_error(tmp_path):
    (tmp_path / "k.cu").write_text(
        'extern "C" __global__ void k() { asm volatile("wgmma.fence.sync.aligned;"); }\n'
    )
    assert compile_kernel("k", "90a", root=tmp_path).code
    with pytest.raises(CompileError, match="wgmma"):
        compile_kernel("k", "80", root=tmp_path)


def test_spills_are_seen(tmp_path):
    (tmp_path / "k.cu").write_text(
        'extern "C" __global__ void __launch_bounds__(1024, 2) k(double* x) {\n'
        "  double v[64];\n#pragma unroll\n"
        "  for (int i = 0; i < 64; ++i) v[i] = x[i * 1024 + threadIdx.x];\n"
        "  __syncthreads();\n#pragma unroll\n"
        "  for (int i = 0; i < 64; ++i) x[i * 1024 + threadIdx.x] = v[i] * v[(i * 7 + 3) % 64];\n"
        "}\n"
    )
    cubin = compile_kernel("k", "80", root=tmp_path)
    assert cubin.resources.spills
    without_report = read_resources(cubin.code, "k")
    assert without_report.registers == cubin.resources.registers == 32
    assert without_report.spills and without_report.stack >= 64 * 8 // 2
    assert read_resources(cubin.code, "other") is None


def test_headers_of_pip_alone_are_enough(monkeypatch):
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.delenv("CUDA_HOME", raising=False)
    compiler.include_paths.cache_clear()
    try:
        (found,) = compiler.include_paths()
    finally:
        compiler.include_paths.cache_clear()
    assert all(Path(found, name).is_file() for name in ("cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h"))


def test_dump_source(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARSEGPU_DUMP_SOURCE", str(tmp_path / "dump"))
    compile_kernel("probe_small", "80", SMALL, root=PROBES)
    (path,) = (tmp_path / "dump").iterdir()
    assert path.name.startswith("probe_small.sm_80.")
    assert (
        "-DVALUE=3" in path.read_text() and '#line 1 "cuda_src/probe_small.cu"' in path.read_text()
    )


# -- the cubin cache ------------------------------------------------------------------------


@pytest.fixture
def compilations(monkeypatch) -> list[str]:
    """Names of what was really compiled."""
    done: list[str] = []
    real = compiler._compile

    def counting(name, text, flags):
        done.append(name)
        return real(name, text, flags)

    monkeypatch.setattr(compiler, "_compile", counting)
    return done


def test_a_second_call_reads_the_cache(cache, compilations):
    first = compile_kernel("probe_small", "80", SMALL, root=PROBES)
    assert compile_kernel("probe_small", "80", SMALL, root=PROBES) == first
    assert len(compilations) == 1 and len(entries(cache)) == 1


def test_the_key_sees_text_flags_architecture_and_compiler(cache, compilations, monkeypatch):
    compile_kernel("probe_small", "80", SMALL, root=PROBES)
    compile_kernel("probe_small", "86", SMALL, root=PROBES)
    compile_kernel("probe_small", "80", {**SMALL, "VALUE": 4}, root=PROBES)
    monkeypatch.setattr(compiler, "nvrtc_version", lambda: (99, 0))
    compile_kernel("probe_small", "80", SMALL, root=PROBES)
    monkeypatch.setattr(compiler, "expand", lambda name, root: expand(name, root) + "// more\n")
    compile_kernel("probe_small", "80", SMALL, root=PROBES)
    assert len(compilations) == len(entries(cache)) == 5


def test_the_key_sees_the_headers_of_cuda(cache, compilations, monkeypatch, tmp_path):
    """An upgrade puts others in the same directory, and NVRTC may stay."""
    folder = tmp_path / "include"
    folder.mkdir()
    header = folder / "cuda_fp16.h"
    monkeypatch.setattr(compiler, "include_paths", lambda: (str(folder),))
    text = 'extern "C" __global__ void k(int* x) { *x = 1; }'
    for content in ("// one\n", "// another\n", "// one\n"):
        header.write_text(content)
        compiler.header_sizes.cache_clear()  # as in another process
        build.build.cache_clear()
        compile_kernel("probe_small", "80", SMALL, root=PROBES)
        assert kernels.wrap(text, "k").access.writes == {"x"}
    assert len(compilations) == 2 and len(entries(cache)) == 4


@pytest.mark.parametrize("damage", [b"", b"short", None])
def test_a_damaged_entry_is_rebuilt(cache, compilations, damage):
    good = compile_kernel("probe_small", "80", SMALL, root=PROBES)
    (path,) = entries(cache)
    content = path.read_bytes()
    path.write_bytes(content[:-100] if damage is None else damage)
    assert compile_kernel("probe_small", "80", SMALL, root=PROBES).code[:4] == b"\x7fELF"
    again = compile_kernel("probe_small", "80", SMALL, root=PROBES)
    assert again.resources.registers == good.resources.registers
    assert len(compilations) == 2


OTHER = [b"", b"no JSON", b"{}\nno cubin", b'{"registers": 1, "stack": 0, "shared": 0}\n\x7fELF']


@pytest.mark.parametrize("content", OTHER)
def test_other_content_is_compiled_anew(cache, compilations, monkeypatch, content):
    """Content with the right digest: written by something else than `compile_kernel`."""
    monkeypatch.setattr(_cache, "_warned", set())
    good = compile_kernel("probe_small", "80", SMALL, root=PROBES)
    (path,) = entries(cache)
    _cache.write_entry("cubin", path.name, content)
    with pytest.warns(RuntimeWarning, match="ignored the cache entry"):
        assert compile_kernel("probe_small", "80", SMALL, root=PROBES).resources == good.resources
    assert compile_kernel("probe_small", "80", SMALL, root=PROBES).resources == good.resources
    assert len(compilations) == 2


COMPILE = """
import sys
from pathlib import Path
from sparsegpu.engines.cuda.runtime.compile import compile_kernel
root, value = Path(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for v in (0, value, 0):
    cubin = compile_kernel("probe_small", "80", {"VALUE": v, "SHARED": 0}, root=root)
    assert cubin.code[:4] == b"\\x7fELF" and cubin.resources.registers > 0
"""


def test_several_processes_compile_at_once(cache):
    """Four processes start together on one kernel (VALUE=0) and on one of their own each."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", COMPILE, str(PROBES), str(value)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for value in (1, 2, 3, 4)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    assert len(entries(cache)) == 5, "one entry a kernel and nothing half-written"
