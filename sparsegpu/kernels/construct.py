"""`kernels.wrap` makes an operation of a CUDA kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .._checks import bad_type, bad_value, kind_of, not_offered
from . import build
from .config import Config, Meta, check_bytes, check_options, dimensions, sequence
from .foreign import Signature, compiled, is_foreign
from .kernel import Kernel


def wrap(
    kernel: Any,
    name: str | None = None,
    *,
    params: Sequence[str] | None = None,
    grid: Any = None,
    block: Any = None,
    shared_memory: int = 0,
    configs: Sequence[Config] | None = None,
    key: Sequence[str] = (),
    prune: Any = None,
    heuristics: Sequence[Callable[[Meta], Mapping[str, Any]]] = (),
    writes: Sequence[str] | None = None,
    reads: Sequence[str] | None = None,
    ref: Callable | None = None,
    options: Sequence[str] = (),
) -> Kernel:
    """Make an operation of a CUDA kernel; what it reads and writes is found in its PTX.

    Parameters
    ----------
    kernel : str, pathlib.Path, cupy.RawKernel, or pair
        CUDA C++ (a Path is a file) with an ``extern "C"`` kernel; ``(cupy.RawModule, name)``; the
        Path or the RawModule of a ``.cubin``, in which nothing is found: it needs ``writes``;
        ``(function, signature)`` of numba.cuda or cupyx.jit, with a signature as numba writes it:
        ``"void(float32[:], float32[:, ::1], int64)"``.
    name : str, optional
        Of the kernel; a RawKernel knows it.
    params : sequence of str, optional
        Names of the parameters, where the declaration in the source does not tell.
    grid, block : int, tuple of up to three ints, or callable
        A callable gets a mapping of arguments and defines by name.
    shared_memory : int
        Dynamic shared memory in bytes.
    configs : sequence of Config, optional
        Without a measured winner the first that is left after pruning runs.
    key : sequence of str
        Arguments that winners depend on; the shapes of all arrays when empty.
    prune : callable, or pair of callable and int
        ``early(configs, args)`` returns the configurations to keep; of ``(model, top_k)`` the
        ``top_k`` with the lowest ``model(config, args)`` are kept.
    heuristics : sequence of callables
        Each gets the mapping that grids get, and returns defines to add or to change.
    writes, reads : sequences of str, optional
        Where the analysis cannot know.
    ref : callable, optional
        The same on NumPy arrays, written in place.
    options : sequence of str
        Of NVRTC; ``-arch=sm_90`` chooses the architecture, which is otherwise the device's, 80
        without one.

    Returns
    -------
    Kernel

    Raises
    ------
    TypeError
        Arguments of other kinds.
    ValueError
        No name, a signature that is none of the function's.
    NotImplementedError
        A cupyx.jit function with cooperative groups or CUB.

    Notes
    -----
    Nothing is compiled here, but by the first call and by what asks about the code; of Python
    functions, PTX and CUDA C++ are made. These get arrays with their shapes and strides. No order
    between streams is added.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsegpu import kernels
    >>> source = '''extern "C" __global__ void scale(float* out, const float* x, float s, int n) {
    ...   int i = blockIdx.x * blockDim.x + threadIdx.x;
    ...   if (i < n) out[i] = s * x[i];
    ... }'''
    >>> def scaled(out, x, s, n):
    ...     out[:n] = s * x[:n]
    >>> scale = kernels.wrap(source, "scale", grid=lambda m: -(-m["n"] // 128), block=128,
    ...                      writes=["out"], reads=["x"], ref=scaled)
    >>> scale(kernels.Out(like="x"), np.ones(3, np.float32), 2.0, 3)
    array([2., 2., 2.], dtype=float32)
    """
    chosen = check_options("wrap", options)
    text, name, extra, signature = _source(kernel, name, chosen)
    if signature is not None and params is not None:
        raise bad_value("wrap", "params", "None, for a function with names of its own", params)
    if ref is not None and not callable(ref):
        raise bad_type("wrap", "ref", "a callable or None", kind_of(ref))
    expected = "a list of kernels.Config"
    given = sequence("wrap", "configs", [Config()] if configs is None else configs, expected)
    for config in given:
        if not isinstance(config, Config):
            raise bad_type("wrap", "configs", expected, kind_of(config))
    if not given:
        raise bad_value("wrap", "configs", "at least one", given)
    if not (prune is None or callable(prune)):
        pair = isinstance(prune, tuple) and len(prune) == 2 and callable(prune[0])
        if not pair or not isinstance(prune[1], int) or prune[1] < 1:
            raise bad_type("wrap", "prune", "a callable, or a pair (callable, int)", prune)
    added = sequence("wrap", "heuristics", heuristics, "a list of callables")
    if not all(map(callable, added)):
        raise bad_type("wrap", "heuristics", "a list of callables", heuristics)
    return Kernel(
        text=text,
        name=name,
        params=_names("params", params),
        grid=grid if grid is None or callable(grid) else dimensions("wrap", "grid", grid),
        block=block if block is None or callable(block) else dimensions("wrap", "block", block),
        shared_memory=check_bytes("wrap", shared_memory),
        configs=given,
        key=_names("key", key),
        prune=prune,
        heuristics=added,
        writes=_names("writes", writes),
        reads=_names("reads", reads),
        ref=ref,
        options=(*extra, *chosen),
        signature=signature,
    )


def _source(
    kernel: Any, name: str | None, chosen: tuple[str, ...]
) -> tuple[str | bytes, str, tuple[str, ...], Signature | None]:
    """Return a text or a cubin, its kernel's name and options, and a function's signature."""
    options: tuple[str, ...] = ()
    text: str | bytes
    if isinstance(kernel, tuple) and len(kernel) == 2 and is_foreign(kernel[0]):
        return compiled(*kernel, build.architecture_of(chosen) or build.DEFAULT_ARCHITECTURE)
    if is_foreign(kernel):
        return compiled(kernel, None, build.DEFAULT_ARCHITECTURE)  # which refuses it
    if isinstance(kernel, tuple) and len(kernel) == 2:
        kernel, name = kernel
    path = kernel if isinstance(kernel, Path) else Path(getattr(kernel, "file_path", None) or "")
    if path.suffix == ".cubin":
        text = path.read_bytes()
    elif isinstance(kernel, Path):
        text = path.read_text(encoding="utf-8")
    elif isinstance(kernel, str):
        text = kernel
    elif isinstance(getattr(kernel, "code", None), str):  # of CuPy, which need not be installed
        text, name = kernel.code, name or getattr(kernel, "name", None)
        options = tuple(getattr(kernel, "options", ()))
        if getattr(kernel, "enable_cooperative_groups", False):
            raise not_offered("wrap", "a cooperative launch", "kernels without grid-wide barriers")
    else:
        expected = "CUDA C++ (str, pathlib.Path), a cupy.RawKernel, or a cupy.RawModule and a name"
        raise bad_type("wrap", "kernel", expected, kind_of(kernel))
    if not isinstance(name, str) or not name:
        raise bad_value("wrap", "name", "the name of the kernel", name)
    if isinstance(text, bytes):
        build.of_cubin(name, text)  # which refuses what is none
    return text, name, options, None


def _names(argument: str, names: Any) -> tuple[str, ...] | None:
    if names is None:
        return None
    given = sequence("wrap", argument, names, "a list of names")
    if not all(isinstance(name, (str, int)) for name in given):
        raise bad_type("wrap", argument, "a list of names", repr(names))
    if argument == "params" and len(set(given)) < len(given):
        raise bad_value("wrap", argument, "names that are different", given)
    return given
