"""What else than a source is wrapped: CuPy's kernels and modules, cubins."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from sparsegpu import kernels
from sparsegpu.kernels import build

TEXT = 'extern "C" __global__ void k(int* x) { x[0] = N; }'
MIXED = """struct S { int a[5]; };
extern "C" __global__ void mixed(float* out, const float* x, float a, double b, S s, short h,
                                 long long n) { out[n] = x[h] + a + b + s.a[1]; }"""


def test_a_module_and_a_name():
    cupy = pytest.importorskip("cupy")
    module = cupy.RawModule(code=TEXT, options=("-DN=3",))
    assert kernels.wrap((module, "k")) == kernels.wrap(TEXT, "k", options=("-DN=3",))
    assert kernels.wrap(module, "k") == kernels.wrap((module, "k"))
    with pytest.raises(ValueError, match=r"^wrap: argument 'name': expected the name of"):
        kernels.wrap(module)


def test_cooperative_groups_are_not_offered():
    cupy = pytest.importorskip("cupy")
    raw = cupy.RawKernel(TEXT, "k", enable_cooperative_groups=True)
    with pytest.raises(NotImplementedError, match=r"^wrap: .*cooperative"):
        kernels.wrap(raw)


def fill(out, x, a, b, s, h, n):
    out[:n] = x[h] + a + b


@pytest.fixture
def cubin(tmp_path):
    """Return the file of a compiled kernel."""
    if not build.can_compile():
        pytest.skip("cuda-bindings (NVRTC) is not installed")
    from sparsegpu.engines.cuda.runtime.compile import compile_text

    path = tmp_path / "mixed.cubin"
    path.write_bytes(compile_text("mixed", MIXED, ("--gpu-architecture=sm_80",)).cubin.code)
    return path


NAMES = ["out", "x", "a", "b", "s", "h", "n"]


def wrapped(path, **changed):
    declared = dict(params=NAMES, writes=["out"], reads=["x"], grid=1, block=1, ref=fill)
    return kernels.wrap(path, "mixed", **(declared | changed))


def operands():
    return np.zeros(4, "f4"), np.ones(3, "f4"), 2.0, 4.0, bytes(20), 1, 3


def test_a_cubin(cubin):
    made = wrapped(cubin)
    assert (made.access.writes, made.access.reads) == ({"out"}, {"x"}) and made.access.opaque
    np.testing.assert_array_equal(made(*operands()), [7, 7, 7, 0])
    assert pickle.loads(pickle.dumps(made)) == made and made.resources().registers > 0
    assert made.ptx() == "" and "a cubin has no PTX" in made.explain()


def test_a_module_of_a_cubin(cubin):
    cupy = pytest.importorskip("cupy")
    module = cupy.RawModule(path=str(cubin))
    assert kernels.wrap((module, "mixed")) == kernels.wrap(cubin, "mixed")
    with pytest.raises(ValueError, match=r"^wrap: argument 'name': expected the name of"):
        kernels.wrap(module)


def test_parameters_that_a_cubin_tells(cubin):
    sizes = [formal.size for formal in build.of_cubin("mixed", cubin.read_bytes()).report.formals]
    assert sizes == [8, 8, 4, 8, 20, 2, 8]
    ready, _ = wrapped(cubin)._bound(operands(), {})
    assert [type(ready[n]) for n in ("a", "b", "h")] == [np.float32, np.float64, np.uint16]
    assert ready["n"].dtype.itemsize == 8


@pytest.mark.parametrize(("changed", "error", "words"), [
    (dict(writes=None), NotImplementedError, r"opaque kernel \(a cubin has no PTX\).*writes= in"),
    (dict(writes=["y"]), ValueError, "wrap: argument 'writes': expected names of parameters"),
    (dict(params=["out"]), ValueError, "wrap: argument 'params': expected 7 names"),
    (dict(options=["-G"]), ValueError, "'config': expected neither defines nor options"),
    (dict(configs=[kernels.Config({"N": 1})]), ValueError, "'config': expected neither defines"),
])  # fmt: skip
def test_what_a_cubin_cannot(cubin, changed, error, words):
    with pytest.raises(error, match=words):
        wrapped(cubin, **changed)(*operands())


@pytest.mark.parametrize(("place", "value", "error"), [
    (0, 1.5, TypeError), (4, bytes(19), ValueError), (5, 2**16, ValueError), (2, None, TypeError),
])  # fmt: skip
def test_arguments_of_a_cubin(cubin, place, value, error):
    args = list(operands())
    args[place] = value
    if place == 0:
        wrapped(cubin, writes=[]).config(*args)  # a number of 8 bytes may be one
        return
    with pytest.raises(error, match=f"mixed: argument '{NAMES[place]}'"):
        wrapped(cubin)(*args)


def test_no_such_kernel_in_a_cubin(cubin):
    for name, path in (("other", cubin), ("mixed", cubin.with_name("empty.cubin"))):
        if name == "mixed":
            path.write_bytes(b"")
        with pytest.raises(
            ValueError, match="wrap: argument 'name': expected a kernel of the cubin"
        ):
            kernels.wrap(path, name, writes=[])


@pytest.mark.skipif(not build.can_compile(), reason="cuda-bindings (NVRTC) is not installed")
def test_a_declaration_that_a_header_changes(tmp_path):
    (tmp_path / "names.h").write_text("#define n *m\n#define int long long\n")
    text = '#include "names.h"\nextern "C" __global__ void k(int n) { m[0] = 1; }'
    made = kernels.wrap(text, "k", options=[f"-I{tmp_path}", "-arch=sm_80"])
    assert made.access.writes == {0} and not made.access.opaque
