"""Kernels that numba.cuda and cupyx.jit compile from Python, as operations."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pytest

from kernel_cases import numba_cuda
from sparsegpu import kernels
from sparsegpu.kernels import build, foreign
from sparsegpu.kernels.foreign import Signature, Typed, signature_of

TYPES = "void(float32[::1], float32[:, :], float32, int64, boolean)"


def add_column(out, x, a, n, really):
    if really:
        out[:n] += a * x[:n, 1]


def made_by_numba():
    cuda = numba_cuda()

    @cuda.jit
    def column(out, x, a, n, really):
        i = cuda.grid(1)
        if i < n and really:
            out[i] += a * x[i, 1]

    return column


def made_by_cupyx():
    pytest.importorskip("cupy", reason="CuPy is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # it is experimental
        from cupyx import jit

        @jit.rawkernel()
        def column(out, x, a, n, really):
            i = jit.grid(1)
            if i < n and really:
                out[i] += a * x[i, 1]

    return column


@pytest.fixture(params=[made_by_numba, made_by_cupyx], ids=["numba", "cupyx"])
def column(request):
    if not build.can_compile():
        pytest.skip("cuda-bindings (NVRTC) is not installed")
    return request.param()


def blocks(meta):
    return -(-meta["n"] // 64)


def wrapped(function, types=TYPES, **changed):
    declared = dict(grid=blocks, block=64, ref=add_column)
    return kernels.wrap((function, types), **(declared | changed))


def operands():
    return np.ones(4, np.float32), np.arange(12, dtype=np.float32).reshape(3, 4).T, 2.0, 3, True


def test_what_is_found(column):
    made = wrapped(column)
    assert made.name == "column"
    assert (made.access.writes, made.access.reads) == ({"out"}, {"out", "x"})
    assert not made.access.opaque and not made.access.side_effects
    assert made.resources().registers > 0 and ".entry column(" in made.ptx()
    lines = made.explain().splitlines()
    assert "  out: read, written" in lines and lines.count("  x: read") == 1
    assert "  really: not touched" in lines


def test_both_forms(column):
    out, x, *rest = operands()  # x[:, 1] is 4, 5, 6, 7
    np.testing.assert_array_equal(wrapped(column)(out, x, *rest), [9, 11, 13, 1])
    assert (out == 1).all()
    wrapped(column).inplace(out, x, *rest)
    np.testing.assert_array_equal(out, [9, 11, 13, 1])
    new = wrapped(column)(kernels.Out(4, "float32", fill=1), x, *rest)
    np.testing.assert_array_equal(new, out)


def test_equal_content_is_one_kernel(column):
    one = wrapped(column)
    assert one == wrapped(column) and hash(one) == hash(wrapped(column))
    assert one != wrapped(column, TYPES.replace("::1", ":"))
    assert copy.deepcopy(one) is one
    assert pickle.loads(pickle.dumps(one)) == one


@pytest.mark.parametrize(("changed", "error", "words"), [
    (dict(out=np.ones(8, "f4")[::2]), ValueError, "'out': expected an array in C order without"),
    (dict(out=np.ones((2, 2), "f4")), ValueError, "'out': expected 1 dimensions, as declared"),
    (dict(x=np.ones((4, 4))), TypeError, "'x': expected an array of float32"),
    (dict(x=None), TypeError, "'x': expected an array, got NoneType"),
    (dict(a=1), ValueError, "'a': expected a float"),
    (dict(n=2**63), ValueError, "'n': expected an integer in"),
    (dict(really=2), ValueError, r"'really': expected an integer in 0\.\.1"),
    (dict(config=kernels.Config({"N": 1})), ValueError, "'config': expected no defines"),
])  # fmt: skip
def test_arguments_that_are_wrong(column, changed, error, words):
    named = dict(zip(("out", "x", "a", "n", "really"), operands(), strict=True))
    with pytest.raises(error, match=f"column: argument {words}"):
        wrapped(column)(**(named | changed))


@pytest.mark.parametrize(("types", "error", "words"), [
    (None, TypeError, r"expected a pair \(function, 'void"),
    ("void(float32)", ValueError, r"\(out, x, a, n, really\), got 'void\(float32\)'"),
    ("float32[:]", ValueError, "a type for each of its parameters"),
    (TYPES.replace("boolean", "complex64"), NotImplementedError, "a number of type complex64"),
    (TYPES.replace("boolean", "what"), ValueError, "types of boolean, int8.*got 'what'"),
    (TYPES.replace(":, :", "::1, ::1"), ValueError, "axes as in"),
])  # fmt: skip
def test_signatures_that_are_wrong(column, types, error, words):
    with pytest.raises(error, match=f"^wrap: .*{words}"):
        wrapped(column, types)


def test_a_function_alone_or_with_other_names(column):
    with pytest.raises(TypeError, match=r"^wrap: argument 'kernel': expected a pair"):
        kernels.wrap(column)
    with pytest.raises(ValueError, match=r"^wrap: argument 'params': expected None"):
        wrapped(column, params=["a", "b", "c", "d", "e"])


def test_a_device_function():
    cuda = numba_cuda()
    with pytest.raises(TypeError, match="a kernel, not a device function"):
        kernels.wrap((cuda.jit(device=True)(add_column), TYPES))


def test_ptx_that_does_not_link():
    if not build.can_compile():
        pytest.skip("cuda-bindings (NVRTC) is not installed")
    from sparsegpu.engines.cuda.runtime.compile import CompileError, link_ptx

    head = ".version 8.0\n.target sm_80\n.address_size 64\n"
    start = r"^k\.ptx: kernel 'k' does not compile \(nvJitLink [\d.]+\)\nflags: -arch=sm_80"
    for text, option, words in (
        (f"{head}.visible .entry k() {{ oops; }}", "-lineinfo", "oops"),
        (f"{head}.visible .entry k() {{ ret; }}", "-no-such-option", "UNRECOGNIZED_OPTION"),
        (f"{head}.visible .entry other() {{ ret; }}", "-lineinfo", "no entry point k"),
    ):
        with pytest.raises(CompileError, match=f"(?s){start} {option}\n.*{words}"):
            link_ptx("k", text, ("-arch=sm_80", option))
    program = link_ptx("k", f"{head}.visible .entry k() {{ ret; }}", ("-arch=sm_90",))
    assert program.cubin.resources.registers > 0 and program.ptx.startswith(head)


@pytest.mark.parametrize(("text", "layouts"), [
    ("void(float32[:, ::1])", "C"), ("void(float32[::1,:])", "F"), ("(float32[:,:])", "A"),
    ("void( int8[::1] )", "C"), ("none(uint16)", ""),
])  # fmt: skip
def test_signatures(text, layouts):
    (found,) = signature_of(text, ["x"])
    assert found.layout == layouts and str(found) in text.replace(",:", ", :")


def test_arrays_as_kernels_take_them():
    array = np.zeros((3, 5), np.float32)[:, ::2]
    typed = Typed("x", "float32", 2, "A"), Typed("n", "int32")
    ready = {"x": array, "n": np.int32(7)}
    where = array.__array_interface__["data"][0]
    *words, n = Signature("numba", typed).packed(ready)
    assert n == 7 and {len(word) for word in words} == {8}
    assert [int.from_bytes(w, "little") for w in words] == [0, 0, 9, 4, where, 3, 3, 20, 8]
    struct, n = Signature("cupyx", typed).packed(ready)
    assert n == 7 and np.frombuffer(struct, np.int64).tolist() == [where, 9, 3, 3, 20, 8]
    backwards = np.zeros(4, np.int16)[::-1]
    (struct,) = Signature("cupyx", (Typed("x", "int16", 1, "A"),)).packed({"x": backwards})
    assert np.frombuffer(struct, np.int64)[-1] == -2


def test_every_parameter_of_the_ptx_has_its_name(column):
    made = wrapped(column)
    built = made._build(None)
    signature = made._content["signature"]
    assert [d.name for d in signature.declared()] == list(made._names_of(built))
    assert len(signature.declared()) == (19 if signature.is_ptx else 5)
    sizes = [
        len(v) if isinstance(v, bytes) else v.itemsize
        for v in signature.packed(
            dict(
                zip(
                    "oxanr",
                    [*operands()[:2], np.float32(2), np.int64(3), np.bool_(True)],
                    strict=True,
                )
            )
        )
    ]
    assert sizes == [formal.size for formal in built.report.formals]


def test_what_is_no_function_of_theirs():
    assert not foreign.is_foreign(add_column) and not foreign.is_foreign("text")
