"""``doctor``: what was found, what can run, and how to fix what cannot.

The exit status is 0 when the GPU path works to the end (a kernel was compiled, launched and its
result checked), 1 otherwise: then NumPy still works, and each failed line says what to do.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .._cache import cache_directory, why_not_used
from .._version import __version__
from ..bsr import bsr_array
from ..engines.cuda.runtime.compile import (
    CompileError,
    include_paths,
    nvrtc_version,
    supported_architectures,
)
from ..engines.cuda.runtime.launch import compute_capability, runs_here
from ..engines.cuda.runtime.source import source_names, source_root
from ..engines.cuda.support import kernels
from ..engines.cusparselt import availability


@dataclass(frozen=True)
class Finding:
    """One line of the report; ``fix`` says what to do when it is not ``ok``."""

    what: str
    text: str
    ok: bool = True
    fix: str = ""


_CUDA_EXTRA = "pip install 'sparsegpu[cuda13]' (driver 580 or later) or 'sparsegpu[cuda12]'"


def run() -> int:
    """Print the report and return the exit status."""
    checks: list[Callable[[], Finding]] = [_python, _libraries, _sources, _cache]
    gpu_checks: list[Callable[[], Finding]] = [
        _cupy,
        _driver,
        _devices,
        _nvrtc,
        _headers,
        _kernels,
        _launch,
        _cusparselt,
    ]
    findings = [check() for check in checks]
    for check in gpu_checks:
        findings.append(check())
        if not findings[-1].ok:
            break  # the next checks would fail for the same reason
    width = max(len(f.what) for f in findings)
    for f in findings:
        print(f"{'ok  ' if f.ok else 'FAIL'}  {f.what.ljust(width)}  {f.text}")
        if not f.ok:
            print(f"{'':{width + 6}}  fix: {f.fix}")
    works = all(f.ok for f in findings)
    print()
    if works:
        print("The GPU path works. CuPy arrays run on our kernels, NumPy arrays on the CPU engine.")
    else:
        print("The GPU path cannot work here yet. NumPy arrays run on the CPU engine all the same.")
    return 0 if works else 1


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("sparsegpu", f"{__version__} on Python {version}")


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def _libraries() -> Finding:
    names = ("numpy", "ml_dtypes", "scipy", "numba")
    versions = {name: _version(name) for name in names}
    text = ", ".join(f"{name} {version}" for name, version in versions.items())
    missing = [name for name, version in versions.items() if version == "missing"]
    return Finding("libraries", text, not missing, f"pip install {' '.join(missing)}")


def _sources() -> Finding:
    try:
        return Finding("kernel sources", f"{len(source_names())} in {source_root()}")
    except FileNotFoundError as error:
        return Finding(
            "kernel sources", str(error), False, "pip install --force-reinstall sparsegpu"
        )


def _cache() -> Finding:
    # Never a failure: without it, code is compiled again in every process.
    try:
        directory = cache_directory()
        why = why_not_used(directory)
        if why is not None:
            return Finding("cache", f"not used: {why}, or set SPARSEGPU_CACHE_DIR to another")
        place = next(p for p in (directory, *directory.parents) if p.exists())
        if not (place.is_dir() and os.access(place, os.W_OK)):
            return Finding("cache", f"{directory} is not writable; set SPARSEGPU_CACHE_DIR")
        size = sum(f.stat().st_size for f in directory.rglob("*") if f.is_file()) / 2**20
    except OSError as error:
        return Finding("cache", f"not used: {error}; set SPARSEGPU_CACHE_DIR to a directory")
    return Finding("cache", f"{directory}, {size:.1f} MiB")


def _cupy() -> Finding:
    if importlib.util.find_spec("cupy") is None:
        return Finding("CuPy", "not installed", False, _CUDA_EXTRA)
    import cupy

    version = tuple(int(n) for n in cupy.__version__.split(".")[:2])
    return Finding("CuPy", cupy.__version__, version >= (14, 2), _CUDA_EXTRA)


def _driver() -> Finding:
    import cupy

    fix = "install an NVIDIA driver (580 or later for CUDA 13); check with nvidia-smi"
    try:
        version = cupy.cuda.runtime.driverGetVersion()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return Finding("driver", str(error), False, fix)
    if version == 0:
        return Finding("driver", "not found", False, fix)
    text = f"supports CUDA {version // 1000}.{version % 1000 // 10}"
    built = cupy.cuda.runtime.runtimeGetVersion()
    enough = version // 1000 >= built // 1000
    fix = f"update the driver, or use the extra for CUDA {version // 1000}"
    return Finding("driver", text, enough, fix)


def _devices() -> Finding:
    import cupy

    runtime = cupy.cuda.runtime
    try:
        found = [runtime.getDeviceProperties(i) for i in range(runtime.getDeviceCount())]
    except runtime.CUDARuntimeError as error:
        return Finding("GPU", str(error), False, "check nvidia-smi and CUDA_VISIBLE_DEVICES")
    text = ", ".join(
        f"{p['name'].decode()} (compute capability {p['major']}.{p['minor']}, "
        f"{p['totalGlobalMem'] / 2**30:.0f} GiB)"
        for p in found
    )
    usable = any(p["major"] >= 8 for p in found)
    return Finding("GPU", text, usable, "a GPU of compute capability 8.0 or later is needed")


def _nvrtc() -> Finding:
    try:
        major, minor = nvrtc_version()
        archs = ", ".join(str(a) for a in supported_architectures() if a >= 80)
    except (ImportError, RuntimeError) as error:  # missing binding, or a library it cannot load
        return Finding("NVRTC", str(error), False, _CUDA_EXTRA)
    text = f"{major}.{minor}, compiles for {archs}"
    return Finding("NVRTC", text, (major, minor) >= (12, 9), _CUDA_EXTRA)


def _headers() -> Finding:
    try:
        return Finding("CUDA headers", ", ".join(include_paths()))
    except FileNotFoundError as error:
        return Finding("CUDA headers", str(error), False, _CUDA_EXTRA)


def _kernels() -> Finding:
    cc = compute_capability()
    runnable = {row.source for row in kernels() if runs_here(row.archs)}
    not_here = sorted({row.source for row in kernels()} - runnable)
    text = f"{len(runnable)} can run on compute capability {cc[0]}.{cc[1]}"
    if not_here:
        text += f"; other architectures only: {', '.join(not_here)}"
    return Finding("kernels", text, bool(runnable), "a GPU of compute capability 8.0 or later")


def _launch() -> Finding:
    import cupy

    runtime_error = cupy.cuda.runtime.CUDARuntimeError
    driver_error = cupy.cuda.driver.CUDADriverError
    dense = np.arange(64, dtype=np.float32).reshape(8, 8)
    try:
        product = bsr_array(cupy.asarray(dense), blocksize=(4, 4)) @ cupy.ones(8, dtype="float32")
        correct = bool((product.get() == dense.sum(axis=1)).all())
    except (CompileError, runtime_error, driver_error) as e:
        return Finding("a product", str(e), False, "report this with the text above")
    text = "compiled, launched and right" if correct else "launched, but the result is wrong"
    return Finding("a product", text, correct, "report this with the text above")


def _cusparselt() -> Finding:
    missing = availability.why_not("cuSPARSELt")
    if missing is None:
        return Finding(
            "cuSPARSELt", f"{availability.version()}, for 2:4 arrays of backend 'cusparselt'"
        )
    # Not a failure: it is an extra.
    return Finding("cuSPARSELt", f"optional; {str(missing).removeprefix('cuSPARSELt: ')}")
