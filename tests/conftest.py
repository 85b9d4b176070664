"""One test body for all engines: the ``engine`` fixture and what it watches on a GPU."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sparsegpu
import suite_record
from sparsegpu._cache import cache_directory

# They check, and their failures should explain.
pytest.register_assert_rewrite(
    "addmm_cases",
    "long_sums_cases",
    "operator_cases",
    "path_contract",
    "prune_cases",
    "softmax_contract",
)

if worker := os.environ.get("PYTEST_XDIST_WORKER"):  # before CUDA looks for its GPUs
    from tools.gpus import take_turns

    take_turns(worker)
NO_GPU = suite_record.no_gpu()


class Engine:
    """An engine under test, with the array library it computes on."""

    def __init__(self, name: str):
        self.name = name
        self.on_gpu = name == "cuda"
        self._nested: Counter[str] = Counter()  # launches of blocks inside the open one
        if self.on_gpu:
            import cupy

            self.xp = cupy
            self._get = cupy.ndarray.get  # a test's own transfers are not under test
        else:
            self.xp = np

    def __repr__(self) -> str:
        return f"Engine({self.name})"

    def array(self, array: np.ndarray):
        """Return a NumPy array as this engine's kind, with the same strides order."""
        assert isinstance(array, np.ndarray | np.generic)  # on every engine, not on a GPU alone
        if not self.on_gpu:
            return array
        if array.dtype.name.startswith("float8"):
            array = array.view(np.uint8)  # CuPy has no fp8 dtype
        return self.xp.asarray(array)

    def bsr(self, triple, shape=None):
        """Return the block-sparse array of (data, indices, indptr) that lie on the host."""
        return sparsegpu.bsr_array(tuple(map(self.array, triple)), shape=shape)

    def look(self, *matrices) -> list[bool]:
        """Return whether patterns are canonical; else a kernel finds out for the first who asks."""
        return [matrix.has_canonical_format for matrix in matrices]

    def host(self, array) -> np.ndarray:
        """Return an engine's array as NumPy."""
        return self._get(array) if self.on_gpu else np.asarray(array)

    def nbytes(self, *arrays) -> int:
        """Return the device memory of arrays of their own, in CuPy's steps of 512 bytes."""
        return sum(-(-array.nbytes // 512) * 512 for array in arrays)

    @contextmanager
    def side_stream(self) -> Iterator[Any]:
        """Make a stream of its own the current one, once what was enqueued before has ended."""
        stream = self.xp.cuda.Stream(non_blocking=True)
        self.xp.cuda.Device().synchronize()
        with stream:
            yield stream
        stream.synchronize()

    def captured(self, call: Callable[[], Any]) -> Any:
        """Return the graph of a call, which is made once before, on the current stream."""
        call()
        stream = self.xp.cuda.get_current_stream()
        stream.begin_capture()
        try:
            call()
        finally:
            graph = stream.end_capture()
        return graph

    @contextmanager
    def runs(self, kernel: str | None, *more: str, peak_bytes: int | None = None) -> Iterator[None]:
        """Put an operation under test.

        The engine is selected. On a GPU, moving data (more than eight elements) to the host
        raises, and what is named here is held against the launches of this block (those of a
        block inside it are its own).

        Parameters
        ----------
        kernel, *more : str or None
            A kernel whose source name starts with each of these must have been launched by the
            end. None: none of ours may be, because there is only metadata, array arithmetic of
            CuPy's own, nothing to write, or an argument to refuse.
        peak_bytes : int, optional
            What device allocations may not exceed at any time: result and stated workspace.
        """
        with sparsegpu.use_engine(self.name):
            if not self.on_gpu:
                yield
                return
            from sparsegpu.engines.cuda.runtime.launch import launch_counts

            before, nested = Counter(launch_counts()), self._nested
            self._nested = Counter()
            memory = PeakMemory(self.xp) if peak_bytes is not None else nullcontext()
            try:
                with _no_transfers(self.xp), memory:
                    yield
            finally:
                launched = Counter(launch_counts()) - before
                ran, self._nested = sorted(launched - self._nested), nested + launched
            for name in (kernel, *more):
                if name is None:
                    assert not ran, f"no kernel was expected; launched were {ran}"
                else:
                    assert any(k.startswith(name) for k in ran), (
                        f"no kernel '{name}*' was launched; launched were {ran}"
                    )
            if peak_bytes is not None:
                assert memory.peak <= peak_bytes, (
                    f"peak device memory {memory.peak} over the {peak_bytes} allowed"
                )


@contextmanager
def _no_transfers(cupy) -> Iterator[None]:
    """Make ``.get``, ``asnumpy`` and so ``toarray`` raise for more than a few facts."""
    get, asnumpy = cupy.ndarray.get, cupy.asnumpy

    def refuse(array, *args, **kwargs):
        if array.size > 8:
            raise AssertionError(f"{array.shape} {array.dtype} moved to the host in an operation")
        return get(array, *args, **kwargs)

    cupy.ndarray.get, cupy.asnumpy = refuse, refuse
    try:
        yield
    finally:
        cupy.ndarray.get, cupy.asnumpy = get, asnumpy


class PeakMemory:
    """Largest sum of live allocations made inside the ``with`` block, in bytes."""

    def __init__(self, cupy):
        outer = self
        self.live = self.peak = 0

        class Hook(cupy.cuda.MemoryHook):
            name = "PeakMemory"

            def malloc_postprocess(self, *, mem_size, **_):
                outer.live += mem_size
                outer.peak = max(outer.peak, outer.live)

            def free_preprocess(self, *, mem_size, **_):
                outer.live -= mem_size

        self._hook = Hook()

    def __enter__(self):
        self._hook.__enter__()
        return self

    def __exit__(self, *error):
        return self._hook.__exit__(*error)


@pytest.fixture(params=["reference", "cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def engine(request) -> Engine:
    """Each engine in turn; cuda is skipped where there is no GPU, with the reason."""
    if request.param == "cuda" and NO_GPU is not None:
        pytest.skip(f"cuda engine: {NO_GPU}")
    return Engine(request.param)


@pytest.fixture
def cuda_engine() -> Engine:
    """Only the cuda engine, for what no other has (graphs, streams, memory)."""
    if NO_GPU is not None:
        pytest.skip(f"cuda engine: {NO_GPU}")
    return Engine("cuda")


@pytest.fixture
def hopper(cuda_engine: Engine) -> Engine:
    """The cuda engine on a GPU that has wgmma."""
    from sparsegpu.engines.cuda.runtime.architectures import HOPPER
    from sparsegpu.engines.cuda.runtime.device import runs_here

    if not runs_here(HOPPER):
        pytest.skip("wgmma needs compute capability 9.0")
    return cuda_engine


@pytest.fixture
def room() -> Iterator[Callable[[Engine, int], None]]:
    """Wait for so much memory of an engine's GPU, or skip the test (`far_values.take_room`)."""
    from far_values import take_room

    with ExitStack() as taken:
        yield lambda engine, nbytes: take_room(engine, nbytes, taken)


@pytest.fixture
def compiler_log(monkeypatch) -> Callable[[str, str, dict], str]:
    """Compile a kernel past the cache, without a GPU, and return what the compiler said."""
    pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings (NVRTC) is not installed")
    from sparsegpu.engines.cuda.runtime import compile as compiler

    said, read_resources = [], compiler.read_resources

    def listen(code, name, log):
        said.append(log)
        return read_resources(code, name, log)

    def log_of(source, architecture, defines):
        compiler.compile_kernel(source, architecture, defines)
        return said.pop()

    monkeypatch.setattr(compiler, "read_entry", lambda *_: None)
    monkeypatch.setattr(compiler, "write_entry", lambda *_: None)
    monkeypatch.setattr(compiler, "read_resources", listen)
    return log_of


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    """Where kernels are built for the host (tools/emulator)."""
    from tools.emulator.build import compiler

    if compiler() is None:
        pytest.skip("there is no C++ compiler")
    return tmp_path_factory.mktemp("emulated")


@pytest.fixture(params=[1, 3, 8])
def band(request, monkeypatch) -> None:
    """Have so many heads of attention take turns, whatever the device and the pattern."""
    from sparsegpu.engines.cuda.paths import _attention_tiles

    monkeypatch.setattr(_attention_tiles, "band_of_heads", lambda *_: request.param)


@pytest.fixture
def cuts(monkeypatch) -> list:
    """What int8 sums are cut of into pieces, in order (see `ops/_long_sums.py`)."""
    from sparsegpu.ops import _long_scatter, _long_sums

    counted, cut_groups = [], _long_sums.cut_groups

    def counting(*arguments):
        counted.append(arguments)
        return cut_groups(*arguments)

    for module in (_long_sums, _long_scatter):
        monkeypatch.setattr(module, "cut_groups", counting)
    return counted


@pytest.fixture
def short_switch_interval() -> Iterator[None]:
    """Let Python go to another thread as often as it can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.fixture
def rng() -> np.random.Generator:
    """Seeded data, the same in every run."""
    return np.random.default_rng(20240624)


@pytest.fixture
def cuda(monkeypatch) -> Any:
    """A CUDA by hand in place of the GPU's."""
    from fake_cuda import put_in_place

    return put_in_place(monkeypatch)


@pytest.fixture
def owner() -> SimpleNamespace:
    """What keeps the records of a sparse operand."""
    return SimpleNamespace(kept={}, device=0)


@pytest.fixture
def winner_cache(tmp_path, monkeypatch) -> Path:
    """A cache of the test's own, without winners."""
    from sparsegpu.engines.cuda import winners

    monkeypatch.setenv("SPARSEGPU_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(winners, "_snapshot", None)
    return tmp_path


def pytest_configure(config):
    """Give the tests, and the processes that they start, a cache beside the user's.

    Compiled kernels stay there for the next run. Winners do not: what a test reads should not
    depend on what was tuned before, least of all by the user.

    Workers of pytest-xdist have a core each, which OpenBLAS's threads would only wait for.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        return  # it has the environment of the process that did this
    if config.getoption("numprocesses", None):
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ["SPARSEGPU_CACHE_DIR"] = str(cache_directory() / "tests")
    shutil.rmtree(cache_directory() / "tuned", ignore_errors=True)


def pytest_addoption(parser, pluginmanager):
    pluginmanager.register(suite_record)  # adds its option, now
    # What an environment without CuPy skips is run in one that has it, without the rest. With an
    # "=": pytest knows these options only after it has looked for this file beside other words.
    parser.addoption("--skipped-to", metavar="FILE", help="write the names of skipped tests")
    parser.addoption("--only-from", metavar="FILE", help="run only the tests named in this file")


def _named(config) -> set[str]:
    """Return what `--only-from` names: tests, and modules that were skipped as a whole."""
    file = config.getoption("--only-from")
    return set(json.loads(Path(file).read_text())) if file else set()


def pytest_collection_modifyitems(config, items):
    """Leave out what `--only-from` does not name."""
    named = _named(config)
    if not named:
        return
    chosen, others = [], []
    for item in items:
        module = item.nodeid.partition("::")[0]
        (others if named.isdisjoint((item.nodeid, module)) else chosen).append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = chosen


def pytest_terminal_summary(terminalreporter, config):
    """Write down what was skipped, for the run that `--only-from` describes."""
    stats = terminalreporter.stats
    if config.getoption("--skipped-to"):
        skipped = {report.nodeid for report in stats.get("skipped", [])}
        Path(config.getoption("--skipped-to")).write_text(json.dumps(sorted(skipped), indent=0))
    ended = ("passed", "failed", "error", "skipped", "xfailed")
    seen = {report.nodeid for how in ended for report in stats.get(how, [])}
    unseen = [name for name in _named(config) - seen if "::" in name]
    if unseen:  # named otherwise by what is installed here: nobody would run it
        raise pytest.UsageError(f"--only-from names tests that are not here: {unseen}")
