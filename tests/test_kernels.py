"""A user's kernel as an operation: names, configurations, its two forms on NumPy, errors."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

import sparsegpu
from sparsegpu import kernels
from sparsegpu._ptx import stored
from sparsegpu.kernels import build
from sparsegpu.kernels.declaration import parameters_of

AXPY = """
// extern "C" __global__ void axpy(int wrong) {}
extern "C" __global__ void axpy(float* y, const float* __restrict__ x, float a, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}"""
SPLIT = """extern "C" __global__ void split(const int* x, int* low, int* high, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { low[i] = x[i] & 15; high[i] = x[i] >> 4; }
}"""
TABLE = 'extern "C" __global__ void table(float** t, float* x) { t[0][0] = 1; }'
needs_nvrtc = pytest.mark.skipif(
    not build.can_compile(), reason="cuda-bindings (NVRTC) is not installed"
)


def add_scaled(y, x, a, n):
    y[:n] += a * x[:n]


def split_up(x, low, high, n):
    low[:n], high[:n] = x[:n] & 15, x[:n] >> 4


def blocks(meta):
    return -(-meta["n"] // 128)


def first_only(configs, args):
    return configs[:1]


def axpy(**changed):
    chosen = dict(
        grid=blocks, block=128, writes=["y"], reads=["x", "y"], ref=add_scaled,
        options=["-arch=sm_80"],
    )  # fmt: skip
    return kernels.wrap(AXPY, "axpy", **(chosen | changed))


def split(**changed):
    declared = dict(writes=["low", "high"], reads=["x"], ref=split_up)
    return kernels.wrap(SPLIT, "split", grid=blocks, block=128, **(declared | changed))


def two(n=5):
    return np.ones(n, np.float32), np.arange(n, dtype=np.float32)


class TestForms:
    def test_functional_leaves_the_arguments_alone(self):
        y, x = two()
        result = axpy()(y, x, 2.0, 5)
        assert np.array_equal(result, 1 + 2 * x) and np.array_equal(y, np.ones(5))
        assert not np.shares_memory(result, y)

    def test_in_place_writes_and_returns_none(self):
        y, x = two()
        assert axpy().inplace(y, x, 2.0, 5) is None
        assert np.array_equal(y, 1 + 2 * x)

    def test_arguments_by_name(self):
        y, x = two()
        assert np.array_equal(axpy()(n=5, a=2.0, y=y, x=x), 1 + 2 * x)

    def test_several_outputs_in_the_order_of_the_parameters(self):
        x = np.arange(40, dtype=np.int32)
        low, high = split()(x, np.zeros_like(x), np.zeros_like(x), 40)
        assert np.array_equal(low, x % 16) and np.array_equal(high, x // 16)

    def test_strides_and_what_lies_between_are_kept(self):
        whole = np.zeros(10, np.float32)
        result = axpy()(whole[::-2], two()[1], 1.0, 5)
        assert result.strides == (-8,) and np.array_equal(result, np.arange(5))
        assert not whole.any()

    def test_transposes_keep_their_order(self):
        y = np.zeros((3, 5), np.float32).T
        result = axpy(ref=lambda y, x, a, n: None)(y, two()[1], 1.0, 5)
        assert result.strides == y.strides and result.shape == y.shape

    def test_one_array_twice_is_one_copy(self):
        y, _ = two()
        assert np.array_equal(axpy()(y, y, 2.0, 5), np.full(5, 3))
        assert np.array_equal(y, np.ones(5))

    def test_two_written_views_of_the_same_bytes_share_one_copy(self):
        x = np.arange(4, dtype=np.int32)
        both = np.zeros(4, np.int32)
        low, high = split()(x, both, both.reshape(4), 4)
        assert np.shares_memory(low, high) and not both.any()

    def test_disjoint_views_of_one_base_are_two(self):
        base = np.zeros(10, np.float32)
        result = axpy()(base[::2], base[1::2], 1.0, 5)
        assert result.base is not base and not np.shares_memory(result, base)

    def test_out_is_allocated(self):
        x = np.arange(4, dtype=np.int32)
        low, high = split()(x, kernels.Out(like="x"), kernels.Out(4, np.int32, fill=7), 4)
        assert low.dtype == high.dtype == np.int32 and np.array_equal(low, x)

    def test_empty_grids_run_nothing(self):
        y, x = two(0)
        assert axpy(ref=lambda *args: 1 / 0)(y, x, 2.0, 0).shape == (0,)

    def test_another_grid(self):
        y, x = two()
        for kernel in (axpy(grid=None)[1], axpy(grid=None, block=None)[1, 32], axpy()[1, 1, 1]):
            assert np.array_equal(kernel(y, x, 2.0, 5), 1 + 2 * x)

    def test_as_cupy_launches(self):
        y, x = two()
        axpy(grid=None, block=None).launch((1,), (32,), (y, x, 2.0, 5))
        assert np.array_equal(y, 1 + 2 * x)

    def test_spec_computes_nothing(self):
        y, x = two()
        spec = axpy(ref=None).spec(y, x, 2.0, 5)
        assert spec == {"y": kernels.Spec((5,), np.dtype("f4"), (4,))}

    def test_without_ref_there_is_no_numpy(self):
        with pytest.raises(NotImplementedError, match=r"axpy.*CuPy arrays, or ref="):
            axpy(ref=None)(*two(), 2.0, 5)

    def test_the_reference_engine(self):
        with sparsegpu.use_engine("reference"):
            y, x = two()
            assert np.array_equal(axpy()(y, x, 2.0, 5), 1 + 2 * x)


class TestConfigurations:
    CONFIGS = tuple(kernels.Config({"TILE": n}, block=n) for n in (32, 64, 128))

    def test_the_first_that_pruning_leaves(self):
        args = (*two(), 2.0, 5)
        assert axpy(configs=self.CONFIGS).config(*args) == self.CONFIGS[0]
        last = axpy(configs=self.CONFIGS, prune=lambda c, args: c[2:] if args["n"] == 5 else c)
        assert last.config(*args) == last.config(*args) == self.CONFIGS[2]

    def test_a_model_and_how_many(self):
        seen = axpy(configs=self.CONFIGS, prune=(lambda c, args: -c.defines["TILE"], 2))
        assert seen.config(*two(), 2.0, 5) == self.CONFIGS[2]

    def test_none_left(self):
        with pytest.raises(ValueError, match="axpy: argument 'prune': expected at least one"):
            axpy(prune=lambda configs, args: [])(*two(), 2.0, 5)

    def test_heuristics_in_order(self):
        added = (
            lambda m: {"A": m["n"]},
            lambda m: {"B": m["A"] + 1, "C": "x", "D": 1.0, "E": True},
        )
        config = axpy(heuristics=added).config(*two(), 2.0, 5)
        assert config.defines == {"A": 5, "B": 6, "C": "x", "D": 1.0, "E": True}

    @pytest.mark.parametrize(("heuristic", "error", "words"), [
        (lambda m: {"A": np.zeros(3)}, TypeError, "heuristics.*ints, floats, bools and strings"),
        (lambda m: {"A": m["missing"]}, ValueError, "expected one of y, x, a, n, got 'missing'"),
        (lambda m: {"a b": 1}, ValueError, "names that C takes"),
    ])  # fmt: skip
    def test_heuristics_that_are_wrong(self, heuristic, error, words):
        with pytest.raises(error, match=words):
            axpy(heuristics=[heuristic])(*two(), 2.0, 5)

    def test_a_kernel_is_immutable(self):
        one = axpy()
        other = one.with_configs(self.CONFIGS)
        assert len(one.configs) == 1 and other.configs == self.CONFIGS and one != other

    def test_a_float_is_no_integer_and_true_is_no_one(self):
        given = [kernels.Config({"A": value}) for value in (1, 1.0, True, "1")]
        assert len(set(given)) == 4
        assert [c.flags() for c in given] == [("-DA=1",), ("-DA=1.0",), ("-DA=1",), ("-DA=1",)]


class TestContent:
    def test_equal_text_is_one_kernel(self):
        assert axpy() == axpy() and hash(axpy()) == hash(axpy())
        assert axpy() != axpy(options=["-arch=sm_90"])

    def test_pickled_and_copied(self):
        one = axpy(prune=first_only)
        assert pickle.loads(pickle.dumps(one)) == one == copy.deepcopy(one)

    def test_a_lambda_is_named(self):
        with pytest.raises(pickle.PicklingError, match=r"argument 'ref'.*lambda"):
            pickle.dumps(axpy(ref=lambda y, x, a, n: None))

    def test_a_path_is_a_file(self, tmp_path):
        path = tmp_path / "axpy.cu"
        path.write_text(AXPY)
        assert kernels.wrap(path, "axpy") == kernels.wrap(AXPY, "axpy")

    def test_a_raw_kernel(self):
        cupy = pytest.importorskip("cupy")
        raw = cupy.RawKernel(AXPY, "axpy", options=("-DN=3",))
        assert kernels.wrap(raw) == kernels.wrap(AXPY, "axpy", options=("-DN=3",))


@pytest.mark.parametrize(("inside", "names"), [
    ("float *y, const float* x, int n", ["y", "x", "n"]),
    ("const T * __restrict__ x, unsigned long long int n", ["x", "n"]),
    ("const float x[], S s, int", None),
    ("PARAMETERS", None),
    ("float* REST int n", None),
    ("void", []),
])  # fmt: skip
def test_names_from_the_declaration(inside, names):
    text = f'#define REST x,\nextern "C" __global__ void k({inside}) {{}}'
    found = parameters_of(text, "k", ["PARAMETERS"])
    assert (found and [d.name for d in found]) == (names if names != [] else [])


class TestErrors:
    @pytest.mark.parametrize(("args", "error", "words"), [
        (lambda y, x: (y, x, 2.0), TypeError, "argument 'args': expected also n"),
        (lambda y, x: (y, x, 2.0, 5, 6), TypeError, "expected 4 arguments"),
        (lambda y, x: (y, x, x, 5), TypeError, "argument 'a': expected a number"),
        (lambda y, x: (1, x, 2.0, 5), TypeError, "argument 'y': expected an array or None"),
        (lambda y, x: (y, x, 2, 5), ValueError, "argument 'a': expected a float"),
        (lambda y, x: (y, x, 2.0, 5.0), ValueError, "argument 'n': expected an integer"),
        (lambda y, x: (y, x, 2.0, 2**63), ValueError, "argument 'n': expected an integer in"),
        (lambda y, x: (y, x.astype("f8"), 2.0, 5), TypeError, "'x': expected an array of float32"),
        (lambda y, x: (y[:4], y[1:], 2.0, 4), ValueError, "'x': expected no partial overlap"),
        (lambda y, x: (np.broadcast_to(y[:1], 5), x, 2.0, 5), ValueError, "'y'.*stride 0"),
        (lambda y, x: (kernels.Out(like="x"), x, 2.0, 5), ValueError, "'y': expected an Out with"),
        (lambda y, x: (y, kernels.Out(like="y"), 2.0, 5), ValueError, "'x'.*not written"),
        (lambda y, x: (kernels.Out(like="z", fill=0), x, 2.0, 5), ValueError, "Out\\(like=...\\)"),
    ])  # fmt: skip
    def test_arguments(self, args, error, words):
        with pytest.raises(error, match=f"^axpy: .*{words}"):
            axpy()(*args(*two()))

    def test_names(self):
        y, x = two()
        with pytest.raises(TypeError, match="argument 'z': expected one of the parameters y, x"):
            axpy()(y, x, 2.0, z=5)
        with pytest.raises(TypeError, match="argument 'y': expected one value"):
            axpy()(y, x, 2.0, 5, y=y)

    def test_read_only_in_place(self):
        y, x = two()
        y.flags.writeable = False
        with pytest.raises(ValueError, match=r"argument 'y'.*read-only"):
            axpy().inplace(y, x, 2.0, 5)
        assert np.array_equal(axpy()(y, x, 2.0, 5), 1 + 2 * x)

    def test_out_in_place(self):
        with pytest.raises(TypeError, match=r"argument 'y'.*in-place form"):
            axpy().inplace(kernels.Out(like="x"), two()[1], 2.0, 5)

    @pytest.mark.parametrize(("launch", "error", "words"), [
        (dict(grid=(1, 70000)), ValueError, "argument 'grid': expected at most"),
        (dict(grid=(1, 1, 1, 1)), ValueError, "argument 'grid'.*one to three"),
        (dict(grid=()), ValueError, "argument 'grid'.*one to three"),
        (dict(grid=lambda m: 1.5), TypeError, "argument 'grid'"),
        (dict(grid=lambda m: m["q"]), ValueError, "expected one of y, x, a, n, got 'q'"),
        (dict(block=2048), ValueError, "argument 'block'"),
        (dict(block=(32, 64)), ValueError, "argument 'block': expected 1 to 1024 threads"),
        (dict(block=0), ValueError, "argument 'block': expected 1 to 1024 threads"),
        (dict(config=kernels.Config(shared_memory=10**6)), ValueError, "'shared_memory': expected"),
        (dict(config={"TILE": 3}), TypeError, "argument 'config'"),
    ])  # fmt: skip
    def test_launches(self, launch, error, words):
        with pytest.raises(error, match=words):
            axpy()(*two(), 2.0, 5, **launch)

    def test_no_grid(self):
        with pytest.raises(TypeError, match="axpy: argument 'grid'"):
            axpy(grid=None)(*two(), 2.0, 5)

    @pytest.mark.parametrize(("changed", "error", "words"), [
        (dict(configs=[]), ValueError, "argument 'configs': expected at least one"),
        (dict(configs=[{"A": 1}]), TypeError, "argument 'configs'"),
        (dict(prune=3), TypeError, "argument 'prune'"),
        (dict(prune=(blocks, 0)), TypeError, "argument 'prune'"),
        (dict(ref=3), TypeError, "argument 'ref'"),
        (dict(heuristics=[3]), TypeError, "argument 'heuristics'"),
        (dict(writes="y"), TypeError, "argument 'writes'"),
        (dict(options="-G"), TypeError, "argument 'options'"),
        (dict(grid=1.5), TypeError, "argument 'grid'"),
    ])  # fmt: skip
    def test_wrap(self, changed, error, words):
        with pytest.raises(error, match=f"^wrap: {words}"):
            axpy(**changed)

    def test_what_is_no_kernel(self):
        with pytest.raises(TypeError, match="wrap: argument 'kernel'"):
            kernels.wrap(3, "k")
        with pytest.raises(ValueError, match="wrap: argument 'name'"):
            kernels.wrap(AXPY)

    @pytest.mark.parametrize(("make", "error"), [
        (lambda: kernels.Config([1]), TypeError), (lambda: kernels.Config({"A": None}), TypeError),
        (lambda: kernels.Config(block=(1, 2, 3, 4)), ValueError),
        (lambda: kernels.Config(shared_memory=-1), ValueError),
        (lambda: kernels.Config(cluster=9), ValueError),
        (lambda: kernels.Config(cluster=(0, 1)), ValueError),
        (lambda: kernels.Config(cluster="2"), TypeError),
        (lambda: kernels.Out(), TypeError), (lambda: kernels.Out((2,)), TypeError),
        (lambda: kernels.Out((2,), "f4", like="x"), TypeError),
    ])  # fmt: skip
    def test_configs_and_outs(self, make, error):
        with pytest.raises(error, match=r"^(Config|Out): "):
            make()


def test_importing_needs_neither_cupy_nor_a_compiler():
    code = "import sys, sparsegpu.kernels; sys.exit('cupy' in sys.modules or 'cuda' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@needs_nvrtc
class TestCompiled:
    def test_what_is_found(self):
        found = axpy(writes=None, reads=None)
        assert found.access.writes == {"y"} and found.access.reads == {"x", "y"}
        assert "y: read, written" in found.explain() and "axpy.cu:5" in found.explain()
        assert found.resources().registers > 0 and ".entry axpy(" in found.ptx()

    def test_names_where_macros_hide_them(self):
        text = '#define P float* y, long long n\nextern "C" __global__ void k(P) { y[n] = 1; }'
        hidden = kernels.wrap(text, "k", grid=1, block=1, ref=lambda y, n: y.fill(2))
        assert hidden.access.writes == {0}
        assert np.array_equal(hidden(np.zeros(3, "f4"), 2), np.full(3, 2))
        assert kernels.wrap(text, "k", params=["out", "n"]).access.writes == {"out"}

    def test_options_change_the_kernel(self):
        text = 'extern "C" __global__ void k(int* a, int* b) { (WHICH)[0] = 1; }'
        made = kernels.wrap(text, "k", configs=[kernels.Config({"WHICH": w}) for w in "ab"])
        assert made.access.writes == {"a", "b"}
        assert [made.access_of(c).writes for c in made.configs] == [{"a"}, {"b"}]
        assert made.ptx(made.configs[0]) != made.ptx(made.configs[1])

    def test_a_declared_number_is_no_address(self):
        text = 'extern "C" __global__ void k(long long p, float* x) { *(float*)p = x[0]; }'
        assert kernels.wrap(text, "k", options=["-arch=sm_80"]).access.opaque

    def test_a_declaration_that_is_refuted(self):
        with pytest.raises(
            ValueError, match=r"wrap: argument 'writes': expected also y .*st.global"
        ):
            axpy(writes=["x"]).access  # noqa: B018
        with pytest.raises(
            ValueError, match="wrap: argument 'reads': expected names of parameters"
        ):
            axpy(reads=["z"]).access  # noqa: B018

    def test_an_opaque_kernel_asks_for_writes(self):
        t, x = np.zeros(1, "u8"), np.zeros(1, "f4")
        opaque = kernels.wrap(TABLE, "table", grid=1, block=1, ref=lambda t, x: x.fill(1))
        with pytest.raises(NotImplementedError, match=r"table.cu:1.*writes= in wrap, or inplace"):
            opaque(t, x)
        assert opaque.access.writes == {"t", "x"}
        told = kernels.wrap(
            TABLE, "table", grid=1, block=1, writes=["x"], ref=lambda t, x: x.fill(1)
        )
        assert told.access.writes == {"x"} and np.array_equal(told(t, x), [1])

    @pytest.mark.parametrize(("text", "words"), [
        ('extern "C" __global__ void other() {}', 'no extern "C" entry point k'),
        ("__global__ void k(float* x) { x[0] = 1; }", 'no extern "C" entry point k'),
        ('extern "C" __global__ void k() {\n  oops;\n}', r"k.cu:2: kernel 'k' does not compile"),
    ])  # fmt: skip
    def test_what_does_not_compile(self, text, words):
        from sparsegpu.engines.cuda.runtime.compile import CompileError

        with pytest.raises(CompileError, match=words):
            kernels.wrap(text, "k").access  # noqa: B018

    def test_a_block_over_the_kernels_bound(self):
        text = 'extern "C" __global__ void __launch_bounds__(64) k(int* x) { x[threadIdx.x] = 1; }'
        bounded = kernels.wrap(text, "k", grid=1, block=128, ref=lambda x: None)
        with pytest.raises(ValueError, match="argument 'block': expected 1 to 64 threads"):
            bounded(np.zeros(3, "i4"))

    def test_a_struct_by_its_size(self):
        text = """struct S { float* p; int n; };
        extern "C" __global__ void k(S s) { s.p[s.n] = 1; }"""
        made = kernels.wrap(text, "k", grid=1, block=1, ref=lambda s: None)
        assert made.access.writes == {"s"}
        made.inplace(np.zeros((), [("p", "u8"), ("n", "i8")]))
        with pytest.raises(ValueError, match="argument 's': expected a struct of 16 bytes, got 4"):
            made.inplace(b"1234")
        with pytest.raises(TypeError, match="argument 's': expected a struct of 16 bytes"):
            made.inplace(3)

    def test_quotes_backslashes_and_underscores(self):
        text = (
            '/* "quote\\" */ extern "C" __global__ void __k(int* _x) { /* \\ */ _x[0] = \'\\\\\'; }'
        )
        assert kernels.wrap(text, "__k").access.writes == {"_x"}


@needs_nvrtc
def test_the_cache_keeps_what_was_found(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARSEGPU_CACHE_DIR", str(tmp_path))
    text = 'extern "C" __global__ void keep(float* out, const float* x) { *out = *x; }'
    build.build.cache_clear()
    first = kernels.wrap(text, "keep").access
    monkeypatch.setattr(build, "report", None)  # nothing is analysed again
    build.build.cache_clear()
    again = kernels.wrap(text, "keep").access
    assert again == first and again.because == first.because
    assert (again.writes, again.reads) == ({"out"}, {"x"})
    monkeypatch.setattr(stored, "version", lambda: "another state of the analysis")
    build.build.cache_clear()
    with pytest.raises(TypeError, match="not callable"):
        kernels.wrap(text, "keep").access  # noqa: B018
