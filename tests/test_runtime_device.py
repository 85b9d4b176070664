"""The runtime and the shared device code on a GPU, through probe kernels of their own."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from sparsegpu._arrays import accumulator_dtype, bfloat16, float8_e4m3fn
from sparsegpu._epilogue import ACTIVATIONS, Epilogue, apply_epilogue
from sparsegpu._philox import dropout_keep, philox4x32
from sparsegpu.engines.cuda._epilogue_args import epilogue_args
from sparsegpu.engines.cuda.runtime import launch
from sparsegpu.engines.cuda.runtime.tensor_map import tensor_map
from sparsegpu.engines.cuda.runtime.types import ctype
from sparsegpu.engines.cuda.runtime.view import batch_dims, matrix_view
from sparsegpu.testing import accuracy_bound, assert_close

pytestmark = pytest.mark.gpu

PROBES = Path(__file__).parent / "cuda_probes"
F16, F32, F64 = (np.dtype(t) for t in (np.float16, np.float32, np.float64))
S8, S32 = np.dtype(np.int8), np.dtype(np.int32)
C64, C128 = np.dtype(np.complex64), np.dtype(np.complex128)


@pytest.fixture
def cp(cuda_engine):
    return cuda_engine.xp


@cache
def probe(name: str, **defines) -> launch.Kernel:
    """Return a probe kernel; kept, since a module may not go while its kernel still runs."""
    return launch._compiled(name, defines, root=PROBES)


def run(kernel: launch.Kernel, grid: tuple, block: tuple, args: tuple, shared: int = 0) -> None:
    launch.submit(launch.Launch(kernel, grid, block, args, shared))


def blocks(n: int) -> tuple[tuple[int], tuple[int]]:
    return (-(-n // 128),), (128,)


# -- launching ------------------------------------------------------------------------------


def test_a_kernel_runs_and_is_counted(cp):
    out = cp.zeros(1000, np.int32)
    before = launch.launch_counts().get("probe_small", 0)
    kernel = probe("probe_small", VALUE=7, SHARED=0)
    run(kernel, *blocks(1000), (out, np.int32(999)))
    run(kernel, (0,), (128,), (out, np.int32(1000)))
    assert (out[:999] == 7).all() and out[999] == 0
    assert launch.launch_counts()["probe_small"] == before + 1


def test_a_launch_is_packed_once_and_repeated(cp):
    out = cp.zeros(256, np.int32)
    kernel = probe("probe_small", VALUE=6, SHARED=0)
    before = launch.launch_counts().get("probe_small", 0)
    packed = launch.Launch(kernel, (2,), (128,), (out, np.int32(200)))
    for _ in range(2):
        out.fill(0)
        launch.submit(packed)
        assert (out[:200] == 6).all() and not out[200:].any()
    run(kernel, (0,), (128,), (out, np.int32(256)))
    assert not out[200:].any()
    assert launch.launch_counts()["probe_small"] == before + 2


def test_a_launch_that_asks_too_much_says_what(cp):
    kernel = probe("probe_small", VALUE=6, SHARED=0)
    packed = launch.Launch(kernel, (3, 2), (4096,), (cp.zeros(1, np.int32), np.int32(1)))
    message = r"'probe_small' does not launch with grid \(3, 2, 1\), block \(4096, 1, 1\), 0 bytes"
    with pytest.raises(launch.LaunchError, match=message):
        launch.submit(packed)


def test_more_than_48_kb_of_shared_memory(cp):
    out = cp.zeros(128, np.int32)
    kernel = probe("probe_small", VALUE=5, SHARED=80 * 1024)
    run(kernel, (1,), (128,), (out, np.int32(128)), 80 * 1024)
    assert (out == 5).all()


def test_work_goes_to_the_current_stream(cp):
    kernel = probe("probe_small", VALUE=9, SHARED=0)
    out = cp.zeros(128, np.int32)
    run(kernel, (1,), (128,), (out, np.int32(0)))  # what a first launch loads, no capture may
    cp.cuda.Device().synchronize()
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        run(kernel, (1,), (128,), (out, np.int32(128)))
        graph = stream.end_capture()
    assert (out == 0).all(), "captured, not run"
    graph.launch(stream)
    stream.synchronize()
    assert (out == 9).all()


# -- views ----------------------------------------------------------------------------------


def test_views_reach_every_element(cp, rng):
    base = cp.asarray(rng.standard_normal((2, 3, 2, 6, 10)).astype(F32))
    batch = (2, 1, 3, 2)
    views = (
        base[:, None],
        base[:, None, :, ::-1, ::2, ::-1],
        base[:1, None].swapaxes(-1, -2),
        base[0, :, :1, :, 3:4],
        base[0, 0, 0, 0],
        base[0, 0, 0, 0, 0],
        None,
    )
    for view in views:
        shape = (1, 1) if view is None or view.ndim < 2 else view.shape[-2:]
        rows, cols = shape if min(shape) > 1 else (6, 10)
        expected = (
            cp.full((*batch, rows, cols), -1, F32)
            if view is None
            else cp.broadcast_to(view, (*batch, rows, cols))
        )
        out = cp.zeros((*batch, cols, rows), F32).swapaxes(-1, -2)
        count = 12 * rows * cols
        sizes = (np.int32(12), np.int32(rows), np.int32(cols))
        args = (matrix_view(view, batch), matrix_view(out, batch), batch_dims(batch), *sizes)
        run(probe("probe_view"), *blocks(count), args)
        assert (out == expected).all()


# -- types and generator --------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [F16, bfloat16, float8_e4m3fn, S8], ids=str)
def test_every_value_widens_exactly_and_comes_back(cp, dtype):
    bits = np.arange(2 ** (8 * dtype.itemsize), dtype=f"u{dtype.itemsize}")
    values = bits.view(dtype)
    carrier = cp.asarray(bits) if dtype == float8_e4m3fn else cp.asarray(values)
    acc = accumulator_dtype(dtype)
    wide, back = cp.zeros(bits.size, acc), cp.zeros_like(carrier)
    zero = cp.zeros(bits.size, bool)
    args = (carrier, wide, back, zero, np.int32(bits.size))
    run(probe("probe_types", T=ctype(dtype)), *blocks(bits.size), args)
    with np.errstate(invalid="ignore"):  # signalling NaN
        expected = values.astype(acc)
    np.testing.assert_array_equal(wide.get(), expected)
    np.testing.assert_array_equal(zero.get(), expected == 0)
    finite = expected == expected  # not NaN; asked without a cast, since int8 has none
    np.testing.assert_array_equal(back.get().view(bits.dtype)[finite], bits[finite])


def test_philox_is_the_twin_of_the_definition(cp, rng):
    counter = rng.integers(0, 2**64, 500, dtype=np.uint64)
    counter[:8] = [0, 1, 2, 3, 2**32, 2**63, 2**64 - 1, 5]
    for seed, p in ((0, 2.0**-40), (1, 0.5), (2**64 - 3, 0.1), (2**33 + 7, 0.999)):
        words = cp.zeros((500, 4), np.uint32)
        keep = cp.zeros(500, np.uint8)
        args = (cp.asarray(counter), words, keep, np.uint64(seed), np.float64(p), np.int32(500))
        run(probe("probe_philox"), *blocks(500), args)
        np.testing.assert_array_equal(words.get(), philox4x32(counter, seed))
        np.testing.assert_array_equal(keep.get().astype(bool), dropout_keep(counter, seed, p))


# -- the epilogue ---------------------------------------------------------------------------

BATCH, ROWS, COLS = (2, 1, 3), 5, 7


def draw(rng, shape, dtype):
    if dtype.kind == "i":
        return rng.integers(-100, 100, shape).astype(dtype)
    values = np.asarray(rng.standard_normal(shape) * 4)
    if dtype.kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


def epilogues(rng, dtype, out_dtype):
    """Yield epilogues with every kind of side operand, shape and stride."""
    shapes = {"full": (*BATCH, ROWS, COLS), "row": (3, 1, COLS), "column": (ROWS, 1), "one": ()}
    inputs = {dtype, out_dtype} | ({S32} if dtype == S8 else set())
    sides = itertools.cycle((dtype, out_dtype, F32))
    cases = [
        (1, 0, None, None, None),
        (2, 3, "full", None, None),
        (0.5, -1.25, "row", (*BATCH, ROWS), (1, COLS)),
        (-3, 1, "column", (3, ROWS), None),
        (1, 1, "one", None, (*BATCH, COLS)),
    ]
    for (alpha, beta, shape, left, right), input_dtype in itertools.product(
        cases, sorted(inputs, key=str)
    ):
        input = None if shape is None else np.asarray(draw(rng, shapes[shape], input_dtype))
        if shape == "full":
            input = np.ascontiguousarray(input.swapaxes(-1, -2)).swapaxes(-1, -2)
        left = None if left is None else draw(rng, left, next(sides))
        right = None if right is None else draw(rng, right, next(sides))
        if dtype.kind == "c" and alpha == 0.5:
            alpha = 0.5 + 2j
        yield Epilogue(alpha, beta, input, left, right)


def on_device(cp, e: Epilogue) -> Epilogue:
    def move(array):
        return None if array is None else cp.asarray(array)

    sides = (move(e.input), move(e.left_alpha), move(e.right_alpha))
    return Epilogue(e.alpha, e.beta, *sides, e.activation)


HALVES_AND_FLOAT = (F16, bfloat16, F32)
#: ``Activation`` of common/epilogue.cuh.
NUMBERED = ("none", "relu", "gelu", "gelu_erf", "silu")


@pytest.mark.parametrize(
    "dtype, out_dtype",
    [
        *itertools.product((bfloat16,), HALVES_AND_FLOAT),
        *itertools.product((S8,), (S32, S8, F16, F32)),
        *((d, d) for d in (F32, F64, C64, C128)),
    ],
    ids=str,
)
def test_epilogue_equals_its_definition(cp, rng, dtype, out_dtype):
    acc_dtype = accumulator_dtype(dtype)
    acc = draw(rng, (*BATCH, ROWS, COLS), acc_dtype)
    if acc_dtype == S32:
        acc *= 5000
    for e in epilogues(rng, dtype, out_dtype):
        for activation in ACTIVATIONS if acc_dtype.kind != "c" else (None,):
            e = Epilogue(e.alpha, e.beta, e.input, e.left_alpha, e.right_alpha, activation)
            expected = np.empty(acc.shape, out_dtype)
            apply_epilogue(acc, e, expected)
            moved = on_device(cp, e)  # alive until the kernel is launched
            defines, argument = epilogue_args(moved, BATCH, acc_dtype, out_dtype)
            out = cp.zeros(acc.shape, out_dtype)
            number = NUMBERED.index(defines.pop("ACT"))  # one module has all activations
            kernel = probe("probe_epilogue", T=ctype(dtype), **defines)
            sizes = (np.int32(ROWS), np.int32(COLS), batch_dims(BATCH))
            args = (cp.asarray(acc), out, *sizes, argument, np.int32(number))
            run(kernel, (1, 6), (ROWS * COLS,), args)
            compare(out.get(), expected, activation, (e, defines))


#: One rounding more or less of the output, by kind and size: u * (scale + abs(expected)).
LEEWAY = {
    "f2": (2.0**-7, 1),
    "f4": (2.0**-20, 1),
    "f8": (2.0**-48, 1),
    "c8": (2.0**-20, 64),
    "c16": (2.0**-48, 64),
}


def compare(got, expected, activation, what):
    """Bit for bit where only additions and products happen in real numbers, else a few ulps."""
    kind = "c" if expected.dtype.kind == "c" else "f"
    wide = C128 if kind == "c" else F64
    u, scale = LEEWAY.get(f"{kind}{expected.dtype.itemsize}", (0, 0))
    integer = expected.dtype.kind == "i"
    got, expected = got.astype(wide), expected.astype(wide)
    if kind == "f" and activation in {None, "relu"}:
        np.testing.assert_array_equal(got, expected, err_msg=str(what))
        return
    with np.errstate(invalid="ignore"):  # inf - inf
        error = np.abs(got - expected)
    allowed = 1 if integer else u * (scale + np.abs(expected))
    assert ((got == expected) | (error <= allowed)).all(), what


@pytest.mark.parametrize("activation", ["gelu", "silu"])
def test_activations_of_two_do_not_disturb_each_other(cp, rng, activation):
    bits = np.arange(2**16, dtype=np.uint16)
    halves = [bits.view(dtype).astype(F32) for dtype in (np.float16, bfloat16)]
    x = np.concatenate([*halves, np.linspace(-20, 20, 2**17, dtype=F32)])
    x = np.concatenate([rng.permutation(x), rng.permutation(x[-(2**17) :])])
    out = cp.zeros(x.shape, F32)
    kernel = probe("probe_activations", ACT=activation)
    run(kernel, *blocks(x.size // 2), (cp.asarray(x), out, np.int32(x.size // 2)))
    out = out.get()
    finite = np.isfinite(x)
    assert np.isnan(out[np.isnan(x)]).all() and (out[x == np.inf] == np.inf).all()
    exact, bound = accuracy_bound(x[finite, None], np.ones((1, 1), F32), activation=activation)
    assert_close(out[finite, None], exact, bound)


# -- tensor cores ---------------------------------------------------------------------------


def sparse_case(rng, dtype, k):
    """Return a 2:4 matrix (16 x k), its packed values and its codes, 4 bits a group."""
    group, keep = (2, 1) if dtype == F32 else (4, 2)
    groups = k // group
    dense = np.zeros((16, groups, group), F32)
    packed = rng.integers(1, 8, (16, groups, keep)) * rng.choice([-1, 1], (16, groups, keep))
    codes = np.zeros((16, groups), np.uint64)
    for r, q in np.ndindex(16, groups):
        if keep == 1:
            (i,) = places = [rng.integers(2)]
            codes[r, q] = 0b1110 if i else 0b0100
        else:
            places = i, j = sorted(rng.choice(4, 2, replace=False))
            codes[r, q] = i | j << 2
        dense[r, q, places] = packed[r, q]
    return dense.reshape(16, k), packed.reshape(16, k // 2).astype(dtype), codes


def lane_metadata(codes, dtype, selector):
    """Return each lane's metadata as ptx/mma_sp.cuh describes it."""
    e = np.full(32, 0xDEADBEEF, np.uint32)

    def word(row, first, count):
        return sum(int(codes[row, first + i]) << (4 * i) for i in range(count))

    for g, t in np.ndindex(8, 4):
        if dtype.itemsize == 1:
            e[4 * g + t] = word(g + 8 * (t % 2), 8 * (t // 2), 8)
        elif t // 2 == selector:
            low, high = (word(row, 4 * (t % 2), 4) for row in (g, g + 8))
            e[4 * g + t] = low | high << 16
    return e


@pytest.mark.parametrize("sparse", [0, 1], ids=["dense", "sparse"])
@pytest.mark.parametrize("dtype", [F16, bfloat16, F32, S8, float8_e4m3fn], ids=str)
def test_fragments_lie_where_the_comments_say(cp, rng, dtype, sparse):
    if dtype == float8_e4m3fn and int(cp.cuda.Device().compute_capability) < 89:
        pytest.skip("fp8 tensor cores need compute capability 8.9")
    k = (64 if sparse else 32) // dtype.itemsize
    b = rng.integers(-7, 8, (k, 8)).astype(F32)
    acc = accumulator_dtype(dtype)

    def device(array):
        array = np.ascontiguousarray(array.astype(dtype))
        return cp.asarray(array.view(np.uint8) if dtype == float8_e4m3fn else array)

    for selector, ldmatrix in itertools.product((0, 1), (0, 1)):
        pointless = selector and (not sparse or dtype.itemsize == 1)
        if pointless or (ldmatrix and dtype.itemsize != 2):
            continue
        a, packed, codes = sparse_case(rng, dtype, k)
        if not sparse:
            a = packed = rng.integers(-7, 8, (16, k)).astype(F32)
        e = lane_metadata(codes, dtype, selector) if sparse else np.zeros(32, np.uint32)
        kernel = probe(
            "probe_mma", T=ctype(dtype), SPARSE=sparse, SELECTOR=selector, LDMATRIX=ldmatrix
        )
        out = cp.zeros((16, 8), acc)
        run(kernel, (1,), (32,), (device(packed), device(b), cp.asarray(e), out))
        np.testing.assert_array_equal(out.get(), (a @ b).astype(acc))


# -- tensor maps ----------------------------------------------------------------------------


def test_tensor_maps_encode_and_are_kept(cp):
    if int(cp.cuda.Device().compute_capability) < 90:
        pytest.skip("tensor maps need compute capability 9.0")
    array = cp.zeros((128, 256), F16)
    first = tensor_map(array, (64, 64), 128)
    assert len(first) == 128 and any(first)
    assert tensor_map(array, (64, 64), 128) is first
    assert tensor_map(array, (32, 64), 128) is not first
