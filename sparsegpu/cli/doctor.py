"""``doctor``: what was found, what can run, and how to fix what cannot; ``info``: what is here.

The exit status is 0 when all that is here works to the end (code was compiled, run and its result
checked): with a GPU on both paths, without a GPU and CuPy on NumPy. It is 1 otherwise, where a GPU
or CuPy is present and its path is broken, too; each failed line says what to do.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import _install
from .._arrays import cupy_installed
from .._cache import cache_directory, why_not_used
from .._version import __version__
from ..bsr import bsr_array
from ..engines.cuda.runtime.compile import (
    CompileError,
    include_paths,
    nvrtc_version,
    supported_architectures,
)
from ..engines.cuda.runtime.device import compute_capability, runs_here
from ..engines.cuda.runtime.source import source_names, source_root
from ..engines.cuda.support import kernels
from ..engines.cusparselt import availability
from .arguments import report
from .table import print_table


@dataclass(frozen=True)
class Finding:
    """One line of the report; ``fix`` says what to do when it is not ``ok``."""

    what: str
    text: str
    ok: bool = True
    fix: str = ""


_REPORT = "report this with the text above"
_CUDA_EXTRA = f"{_install.for_cuda()}; CUDA 13 needs driver 580 or later"
_CUDA_NO_DEVICE, _CUDA_STUB = 100, 34  # CUresult, of cuInit


def run(*, json_path: str | None = None) -> int:
    """Print the report, write it as JSON, and return the exit status."""
    with report(json_path) as content:
        on_numpy = _checked([_python, _libraries, _engine_on_host, _cache, _on_numpy])
        on_gpu: list[Callable[[], Finding]] = [_sources, _no_cupy]
        if cupy_installed():
            on_gpu = [_sources, _cupy, _driver, _devices, _nvrtc, _headers, _kernels, _launch]
            on_gpu.append(_cusparselt)
        findings = [*on_numpy, *_checked(on_gpu)]
        rows = []
        for f in findings:
            rows.append({"": "ok" if f.ok else "FAIL", "part": f.what, "found": f.text})
            if not f.ok:
                rows.append({"": "", "part": "", "found": f"fix: {f.fix}"})
        print_table(rows)
        works = all(f.ok for f in findings)
        if not on_numpy[-1].ok:
            print("NumPy arrays cannot be computed here yet.")
        elif not works:
            print("The GPU path cannot work here yet. NumPy arrays can be computed.")
        elif cupy_installed():
            print("The GPU path works, and so does NumPy's.")
        else:
            print("GPU: none, NumPy path works.")
        said = [asdict(f) | {"fix": "" if f.ok else f.fix} for f in findings]
        content |= {"works": works, "findings": said}
    return 0 if works else 1


def info(*, json_path: str | None = None) -> int:
    """Print what is installed and where, for a report of a fault; nothing is computed or judged."""
    with report(json_path) as content:
        gpu = [_cupy, _driver, _devices] if cupy_installed() else [_no_cupy]
        here = [_python(), _libraries(), _engine_on_host(), _sources(), _cache(), *_checked(gpu)]
        print_table([{"part": f.what, "found": f.text} for f in here])
        content |= {f.what: f.text for f in here}
    return 0


def _checked(checks: list[Callable[[], Finding]]) -> list[Finding]:
    """Return what checks find, up to the first that fails: the next would for the same reason."""
    findings = []
    for check in checks:
        findings.append(check())
        if not findings[-1].ok:
            break
    return findings


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("sparsegpu", f"{__version__} on Python {version}")


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def _libraries() -> Finding:
    names = ("numpy", "ml_dtypes")
    versions = {name: _version(name) for name in names}
    text = ", ".join(f"{name} {version}" for name, version in versions.items())
    missing = [name for name, version in versions.items() if version == "missing"]
    return Finding("libraries", text, not missing, f"pip install {' '.join(missing)}")


def _engine_on_host() -> Finding:
    # Never a failure: the reference engine computes everything.
    versions = {name: _version(name) for name in ("numba", "scipy")}
    text = ", ".join(f"{name} {version}" for name, version in versions.items())
    if "missing" in versions.values():
        return Finding(
            "NumPy engine", f"reference, which is slow ({text}); {_install.with_extra('cpu')}"
        )
    return Finding("NumPy engine", f"cpu ({text})")


def _sources() -> Finding:
    try:
        return Finding("kernel sources", f"{len(source_names())} in {source_root()}")
    except FileNotFoundError as error:
        fix = _install.again()
        if os.environ.get("SPARSEGPU_CUDA_SRC"):  # what was installed is not looked at
            fix = "unset SPARSEGPU_CUDA_SRC, or let it name a directory of kernel sources"
        return Finding("kernel sources", str(error), False, fix)


def _cache() -> Finding:
    # Never a failure: without it, code is compiled again in every process.
    try:
        directory = cache_directory()
        why = why_not_used(directory)
        if why is not None:
            return Finding("cache", f"not used: {why}, or set SPARSEGPU_CACHE_DIR to another")
        place = next(p for p in (directory, *directory.parents) if p.exists())
        if not (place.is_dir() and _writable(place)):
            return Finding("cache", f"{directory} is not writable; set SPARSEGPU_CACHE_DIR")
        size = sum(map(_size, directory.rglob("*"))) / 2**20
    except OSError as error:
        return Finding("cache", f"not used: {error}; set SPARSEGPU_CACHE_DIR to a directory")
    return Finding("cache", f"{directory}, {size:.1f} MiB")


def _writable(folder: Path) -> bool:
    try:  # permissions alone do not tell: an administrator has all, and still /proc takes no file
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:  # another process has renamed or removed it since it was listed
        return 0


def _on_numpy() -> Finding:
    try:
        correct = _product_is_right(np)
    except Exception as error:  # whatever it is, it is what was to be found
        return Finding("NumPy path", f"{type(error).__name__}: {error}", False, _REPORT)
    text = "a product is right" if correct else "a product is wrong"
    return Finding("NumPy path", text, correct, _REPORT)


def _product_is_right(xp: Any) -> bool:
    dense = np.arange(64, dtype=np.float32).reshape(8, 8)
    product = bsr_array(xp.asarray(dense), blocksize=(4, 4)) @ xp.ones(8, dtype="float32")
    return bool((product == xp.asarray(dense.sum(axis=1))).all())


def why_no_gpu() -> str:
    """Return, where CuPy is not installed, why no GPU can be used, and what to do if it can."""
    found = _no_cupy()
    return "none was found" if found.ok else f"CuPy is {found.text}; fix: {found.fix}"


def _no_cupy() -> Finding:
    """Look for a GPU through its driver: without one, CuPy is not missed."""
    found = _device_of_driver()
    if found is None:
        return Finding("GPU", "none")
    return Finding("CuPy", f"not installed, for {found}", False, _CUDA_EXTRA)


def _cuda_driver() -> Any:
    """Return the library of the CUDA driver, None where there is none."""
    try:
        return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return None


def _device_of_driver() -> str | None:
    """Return what the driver says of its GPUs, None where there is no driver or no GPU."""
    driver = _cuda_driver()
    if driver is None:
        return None
    status = driver.cuInit(0)
    if status in {_CUDA_NO_DEVICE, _CUDA_STUB}:
        return None
    if status:
        return f"a GPU whose driver does not start (cuInit returned {status})"
    count = ctypes.c_int()
    driver.cuDeviceGetCount(ctypes.byref(count))
    return f"{count.value} CUDA device{'s' * (count.value > 1)}" if count.value else None


def _cupy() -> Finding:
    try:
        import cupy
    except ImportError as error:
        return Finding("CuPy", f"cannot be imported: {error}", False, _CUDA_EXTRA)
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
    try:
        correct = _product_is_right(cupy)
    except (CompileError, runtime_error, driver_error) as e:
        return Finding("a product", str(e), False, _REPORT)
    text = "compiled, launched and right" if correct else "launched, but the result is wrong"
    return Finding("a product", text, correct, _REPORT)


def _cusparselt() -> Finding:
    missing = availability.why_not("cuSPARSELt")
    if missing is None:
        return Finding(
            "cuSPARSELt", f"{availability.version()}, for 2:4 arrays of backend 'cusparselt'"
        )
    # Not a failure: it is an extra.
    return Finding("cuSPARSELt", f"optional; {str(missing).removeprefix('cuSPARSELt: ')}")
