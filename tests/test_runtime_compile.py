"""Sources, compilation and the cubin cache; nothing here needs a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings (NVRTC) is not installed")

from sparsegpu.engines.cuda.runtime.compile import compile_kernel

PROBES = Path(__file__).parent / "cuda_probes"


@pytest.fixture(autouse=True)
def private_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("SPARSEGPU_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))


def spills(cubin) -> bool:
    """Whether ptxas reported spills (not every NVRTC passes its report on)."""
    return cubin.resources is not None and cubin.resources.spills


@pytest.mark.parametrize("arch", ["80", "86", "89", "90a", "100", "120"])
def test_instruction_wrappers_compile_everywhere(arch):
    cubin = compile_kernel("probe_ptx", arch, root=PROBES)
    assert cubin.code[:4] == b"\x7fELF"
    assert cubin.resources is None or cubin.resources.registers > 0
    assert not spills(cubin)


FLOATS = ("f16", "bf16", "f32")
OUTPUTS = {
    "f16": FLOATS,
    "bf16": FLOATS,
    "f32": FLOATS,
    "e4m3": FLOATS,
    "s8": ("s32", "s8", *FLOATS),
    "f64": ("f64",),
    "c64": ("c64",),
    "c128": ("c128",),
}


@pytest.mark.parametrize("t, out", [(t, out) for t in OUTPUTS for out in OUTPUTS[t]])
def test_epilogue_compiles_for_every_type(t, out):
    modes = [("identity", "none"), ("scaled", "none")]
    if t[0] != "c":
        modes += [("scaled", a) for a in ("relu", "gelu", "gelu_erf", "silu")]
    if t == "s8" and out == "s32":
        modes += [("exact", "none"), ("exact", "relu")]
    for mode, act in modes:
        defines = {"T": t, "OUT": out, "EPILOGUE": mode, "ACT": act}
        cubin = compile_kernel("probe_epilogue", "80", defines, root=PROBES)
        assert not spills(cubin)
