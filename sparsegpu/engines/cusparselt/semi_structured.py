"""2:4 @ dense through cuSPARSELt: a plan that is kept, and one call of it for each batch."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from ..._arrays import accumulator_dtype
from ..._checks import not_offered
from ..._epilogue import Epilogue
from ..._math import ceil_div, round_up
from ..cuda._epilogue_args import batched_operands, epilogue_args
from ..cuda._grid import grid
from ..cuda.paths._fields import MODEL, ConfigError, refused
from ..cuda.runtime.device import architecture
from ..cuda.runtime.launch import Launch, Work, kernel, submit
from ..cuda.runtime.structs import kernel_struct
from ..cuda.runtime.submission import workspace
from ..cuda.runtime.types import ctype
from ..cuda.runtime.view import batch_dims, matrix_view, merged_batch
from ..cuda.winners import Config, Family, Kind, density_bucket, snapshot
from .availability import version
from .compress import Compressed
from .epilogue import Fused, fused
from .library import ALIGNMENT, Algorithm, Key, Lines, Plan, handle, plan

PATH = "cusparselt"

_FUNCTION = "semi_structured_addmm"
_THREADS = 256


class Matmul:
    """One product of two matrices, ready to be enqueued again and again.

    Only addresses of the operands are kept; ``memory`` is `memory_for` the plan.
    """

    __slots__ = ("_arguments", "_keep", "_plan", "_scales")

    source = ""

    def __init__(
        self,
        plan: Plan,
        memory: Any,
        sparse: Compressed,
        dense: Any,
        out: Any,
        input: Any,
        e: Epilogue,
    ):
        self._plan = plan
        self._scales = (ctypes.c_float * 2)(e.alpha, 0 if input is None else e.beta)
        self._keep = sparse, memory
        alpha = ctypes.addressof(self._scales)
        self._arguments = (
            alpha,
            sparse.buffer.data.ptr,
            dense.data.ptr,
            alpha + ctypes.sizeof(ctypes.c_float),
            (out if input is None else input).data.ptr,  # C is not read where beta is 0
            out.data.ptr,
            0 if memory is None else memory.data.ptr,
        )

    def on(self, stream: int) -> None:
        """Enqueue on the stream of an address."""
        self._plan.run(*self._arguments, stream=stream)


def semi_structured_addmm(
    out: Any,
    sparse: Compressed,
    dense: Any,
    epilogue: Epilogue,
    *,
    operand_dtype: np.dtype,
    allow_tf32: bool = False,
    config: Config | None = None,
) -> None:
    """Write ``act(beta * input + left_alpha * (alpha * (sparse @ dense)) * right_alpha)``.

    ``config`` is a dict from `tune`; without it, what was tuned for this kind of product is used,
    or the library's own choice. `epilogue` says what the library fuses and what is refused.
    """
    if operand_dtype == np.float32 and not allow_tf32:
        raise not_offered(
            _FUNCTION,
            "float32 by backend 'cusparselt' without TF32",
            "allow_tf32=True, or to_backend('native')",
        )
    how = fused(_FUNCTION, epilogue, operand_dtype, out)
    if epilogue.alpha == 0:
        sums = _zeros(out, operand_dtype)  # to outlive the launch
        submit(finish(out, sums, epilogue, operand_dtype))
        return
    described, written, input = operands(out, sparse, dense, epilogue, how)
    by_library = epilogue if how.finished else Epilogue()
    bias_copied = how.bias and not _aligned(epilogue.input)
    if bias_copied:
        by_library = replace(epilogue, input=epilogue.input.copy())
    work: list[Work] = [*products(written, sparse, described, input, by_library, how, config)]
    if not how.finished:
        sums = written[..., : out.shape[-2], : out.shape[-1]]
        work.append(finish(out, sums, epilogue, operand_dtype))
    written_apart = how.finished and written is not out
    copied = bias_copied or described is not dense or written_apart
    submit(*work, whole=not copied)
    if written_apart:
        out[...] = written[..., : out.shape[-2], : out.shape[-1]]


def operands(
    out: Any, sparse: Compressed, dense: Any, epilogue: Epilogue, how: Fused
) -> tuple[Any, Any, Any]:
    """Return the dense operand, what the library writes and its C as it can describe them.

    Each is the caller's own array where the library can read it: rows or columns that are multiples
    of 16 bytes and begin at one; contiguous along k unless the dtype has 16 bits (row-major, the
    library refuses 8 bits, and float32 products of 0.8.0 did not return). Rows and columns are
    padded to what the library multiplies.
    """
    import cupy

    step = ALIGNMENT // dense.itemsize
    n, batch = out.shape[-1], out.shape[:-2]
    columns = round_up(n, step)
    lines, along_k_only = lines_of(dense), dense.itemsize != 2
    if columns != n or lines is None or (along_k_only and lines.by_rows):
        by_rows = not along_k_only and (lines is None or lines.by_rows)
        *own, k, _ = dense.shape
        shape = (*own, k, columns) if by_rows else (*own, columns, k)
        copy = _matrices(cupy.zeros(shape, dtype=dense.dtype), by_rows)
        copy[..., :n] = dense
        dense = copy
    by_rows = out.strides[-2] >= out.strides[-1]
    shape = (*batch, sparse.shape[0], columns) if by_rows else (*batch, columns, sparse.shape[0])
    if not how.finished:
        sums = workspace(prod(shape) * how.out_dtype.itemsize)
        return dense, _matrices(sums.view(how.out_dtype).reshape(shape), by_rows), None
    input = epilogue.input if how.matrix else None
    fits = (sparse.shape[0], columns) == out.shape[-2:] and lines_of(out) is not None
    if fits and (input is None or (input.strides == out.strides and _aligned(input))):
        return dense, out, input
    written = _matrices(cupy.empty(shape, dtype=how.out_dtype), by_rows)
    if input is not None:
        padded = _matrices(cupy.zeros(shape, dtype=how.out_dtype), by_rows)
        padded[..., :n] = input
        input = padded
    return dense, written, input


def _matrices(array: Any, by_rows: bool) -> Any:
    """Return an array's matrices, or their transposes, as views."""
    return array if by_rows else array.swapaxes(-1, -2)


def products(
    out: Any,
    sparse: Compressed,
    dense: Any,
    input: Any,
    epilogue: Epilogue,
    how: Fused,
    config: Config | None,
) -> Iterator[Matmul]:
    """Yield the product of each batch; all have one plan."""
    key = key_of(out, sparse, dense, epilogue, how)
    chosen = chosen_plan(key, config)
    memory = memory_for(chosen)
    for place in np.ndindex(*out.shape[:-2]):
        result = out[place]
        beside = None if input is None else input[place]
        yield Matmul(chosen, memory, sparse, _of_batch(dense, place), result, beside, epilogue)


def memory_for(plan: Plan) -> Any:
    """Return the workspace of a plan's products, None where it needs none."""
    return workspace(plan.workspace) if plan.workspace else None


def key_of(out: Any, sparse: Compressed, dense: Any, epilogue: Epilogue, how: Fused) -> Key:
    """Return the key of a plan, of operands as `operands` returns them."""
    m, k = sparse.shape
    bias = epilogue.input.data.ptr if how.bias else 0
    lines, out_lines = lines_of(dense), lines_of(out)
    assert lines is not None and out_lines is not None  # `operands` sees to that
    return Key(m, out.shape[-1], k, sparse.dtype, how.out_dtype, lines, out_lines, how.relu, bias)


def kind_of(key: Key) -> Kind:
    """Return the kind of product that an algorithm is tuned for.

    Every version of the library numbers its algorithms differently, so the version is part of it.
    """
    orders = "->".join("rows" if lines.by_rows else "columns" for lines in (key.dense, key.out))
    dtypes = f"{key.dtype.name}->{key.out_dtype.name}"
    family = Family(PATH, architecture(), dtypes, (2, 4), f"{orders}, {version()}")
    return Kind(family, (key.m, key.k, key.n), density_bucket(0.5))


def config_of(algorithm: Algorithm, key: Key) -> Config:
    """Return an algorithm that was tried for a plan as ``config=`` takes it."""
    return {"path": PATH, **algorithm._asdict(), "tried": _tried(key)}


def _tried(key: Key) -> str:
    """Describe what an algorithm was tried with: with anything else it may fail."""
    family = kind_of(key).family
    return f"{key.m} x {key.k} x {key.n}, {family.dtype}, {family.layout}"


def algorithm_of(config: Config, key: Key) -> Algorithm:
    """Return the algorithm of a ``config`` that `config_of` made.

    Raises
    ------
    ConfigError
        Other fields, or an algorithm that was tried with something else.
    """
    fields = {name: value for name, value in config.items() if name not in {"path", "tried"}}
    whole = all(type(value) is int for value in fields.values())
    if config.get("path") != PATH or set(fields) != set(Algorithm._fields) or not whole:
        expected = f"{{'path': {PATH!r}}} as tune returns it"
        raise refused("config", expected, config, _FUNCTION)
    if config.get("tried") != _tried(key):
        expected = f"an algorithm that tune tried with ({_tried(key)})"
        raise refused("config", expected, f"({config.get('tried')})", _FUNCTION)
    return Algorithm(**fields)


def chosen_plan(key: Key, config: Config | None) -> Plan:
    """Return the plan for a configuration, for what tune found for this kind, or the library's.

    An algorithm that was tuned for another shape is not used: it may fail here and take the device
    with it.
    """
    error = handle().lt.cuSPARSELtError
    known = snapshot().winners.get(kind_of(key)) if config is None else None
    if known is not None and known.config != MODEL:
        try:
            return plan(key._replace(algorithm=algorithm_of(known.config, key)))
        except (error, ConfigError):
            pass  # it may lack what is fused here, or be no algorithm of ours
    if config is not None and config != MODEL:
        try:
            return plan(key._replace(algorithm=algorithm_of(config, key)))
        except error as why:
            expected = "an algorithm that cuSPARSELt has for these operands"
            raise refused("config", expected, f"{config} ({why})", _FUNCTION) from why
    try:
        return plan(key)
    except error as why:
        raise not_offered(
            _FUNCTION,
            f"a product ({key.m}, {key.k}) @ ({key.k}, {key.n}) of {key.dtype} into "
            f"{key.out_dtype} by this cuSPARSELt ({why})",
            "to_backend('native')",
        ) from why


def lines_of(array: Any) -> Lines | None:
    """Return the layout of a matrix (of every batch); None where the library has none for it.

    Examples
    --------
    >>> lines_of(np.empty((8, 16), np.float32, order="F"))
    Lines(by_rows=False, pitch=8)
    >>> lines_of(np.empty((8, 16), np.float32)[:, ::2]) is None
    True
    """
    itemsize, (rows, columns) = array.itemsize, array.shape[-2:]
    row, column = array.strides[-2:]
    for by_rows, line, along, size in ((True, row, column, columns), (False, column, row, rows)):
        apart = line >= size * itemsize and line % ALIGNMENT == 0
        if along == itemsize and apart and _aligned(array):
            return Lines(by_rows, line // itemsize)
    return None


def _aligned(array: Any) -> bool:
    """Whether every batch begins at a multiple of `ALIGNMENT`."""
    start = array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr
    return start % ALIGNMENT == 0 and all(s % ALIGNMENT == 0 for s in array.strides[:-2])


def _of_batch(array: Any, place: tuple[int, ...]) -> Any:
    """Return an operand's matrix for an index into the result's batch shape."""
    own = array.shape[:-2]
    last = place[len(place) - len(own) :]
    return array[tuple(p if size != 1 else 0 for p, size in zip(last, own, strict=True))]


def _zeros(out: Any, operand_dtype: np.dtype) -> Any:
    """Return accumulators of zero, with strides of 0."""
    import cupy

    dtype = accumulator_dtype(operand_dtype)
    return cupy.broadcast_to(cupy.zeros((1, 1), dtype=dtype), out.shape)


def finish(out: Any, sums: Any, epilogue: Epilogue, operand_dtype: np.dtype) -> Launch:
    """Return the launch that applies the epilogue to accumulators."""
    batch = merged_batch(out.shape[:-2], (out, 2), (sums, 2), *batched_operands(epilogue))
    m, n = out.shape[-2:]
    defines, argument = epilogue_args(epilogue, batch, accumulator_dtype(operand_dtype), out.dtype)
    struct = kernel_struct("accumulator_epilogue", "AccumulatorProblem")
    problem = struct(m=m, n=n, batches=prod(batch))
    return Launch(
        kernel("accumulator_epilogue", T=ctype(operand_dtype), **defines),
        grid(ceil_div(out.size, _THREADS)),
        (_THREADS,),
        (
            matrix_view(out, batch),
            matrix_view(sums, batch),
            batch_dims(batch),
            problem,
            argument,
        ),
    )
