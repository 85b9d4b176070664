"""A user's kernel as an operation: names, configurations, its two forms on NumPy."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

import sparsegpu
from kernel_cases import AXPY, axpy, first_only, split, two
from sparsegpu import kernels
from sparsegpu.kernels import arguments, memory
from sparsegpu.kernels.declaration import parameters_of


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

    def test_whether_device_arrays_share_bytes_is_told_by_their_places(self, monkeypatch):
        for module in (arguments, memory):
            monkeypatch.setattr(module, "is_cupy", lambda array: True)
        base = np.zeros((8, 12), np.float32)
        views = [base, base[::2], base[1::2], base[:, :6], base[:, 6:], base[::-1, 3], base[3:5].T]

        def on_device(array):
            place = SimpleNamespace(ptr=array.__array_interface__["data"][0])
            given = {n: getattr(array, n) for n in ("shape", "strides", "itemsize", "size")}
            return SimpleNamespace(data=place, **given)

        for a, b in product(views, repeat=2):
            assert arguments.share(on_device(a), on_device(b)) == np.shares_memory(a, b)

    def test_two_written_views_of_the_same_bytes_share_one_copy(self):
        x = np.arange(4, dtype=np.int32)
        both = np.zeros(4, np.int32)
        low, high = split()(x, both, both.reshape(4), 4)
        assert np.shares_memory(low, high) and not both.any()

    def test_disjoint_views_of_one_base_are_two(self):
        base = np.zeros(10, np.float32)
        result = axpy()(base[::2], base[1::2], 1.0, 5)
        assert result.base is not base and not np.shares_memory(result, base)

    def test_views_of_other_dtypes_share_one_copy(self):
        text = 'extern "C" __global__ void k(float* x, int* bits) { bits[0] = x[1]; }'

        def ref(x, bits):
            bits[0] = x[1]

        made = kernels.wrap(text, "k", grid=1, block=1, writes=["bits"], reads=["x"], ref=ref)
        x = np.array([1, 7], np.float32)
        result = made(x, x.view(np.int32))
        assert result.tolist() == [7, x.view(np.int32)[1]] and x.tolist() == [1, 7]

    def test_numbers_arrive_in_the_types_of_the_parameters(self):
        seen = []
        made = axpy(ref=lambda y, x, a, n: seen.append((a, n)), grid=1)
        y, x = two()
        for a, n in ((1.0, 2**40), (np.float64(1 / 3), -(2**63)), (1e300, np.int8(3))):
            made(y, x, a, n)
        assert [(type(a), type(n)) for a, n in seen] == [(np.float32, np.int64)] * 3
        assert [n for _, n in seen] == [2**40, -(2**63), 3]
        assert [a for a, _ in seen] == [1, np.float32(1 / 3), np.inf]

    def test_out_is_allocated(self):
        x = np.arange(4, dtype=np.int32)
        low, high = split()(x, kernels.Out(like="x"), kernels.Out(4, np.int32, fill=7), 4)
        assert low.dtype == high.dtype == np.int32 and np.array_equal(low, x)

    def test_empty_grids_run_nothing(self):
        y, x = two(0)
        assert axpy(ref=lambda *args: 1 / 0)(y, x, 2.0, 0).shape == (0,)

    def test_empty_arrays_of_several_dimensions(self):
        """NumPy gives them strides of 0, as it does to what is broadcast."""
        y, x = np.zeros((0, 3), np.float32), two()[1]
        assert axpy(ref=lambda *args: None)(y, x, 2.0, 0).shape == (0, 3)
        axpy(ref=lambda *args: None).inplace(y, x, 2.0, 0)

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


def grid_of(meta):
    return meta["n"], 2


class TestConfigurations:
    @pytest.mark.parametrize(("grid", "expected"), [
        (5, (5,)), ((5,), (5,)), ([5, 2], (5, 2)), (np.int64(5), (5,)), ((5, 2, 1), (5, 2, 1)),
        (lambda m: -(-m["n"] // m["TILE"]), (3,)), (lambda m: [m["n"], 2], (5, 2)),
        (grid_of, (5, 2)),
    ])  # fmt: skip
    def test_grids(self, grid, expected):
        made = axpy(grid=grid, configs=[kernels.Config({"TILE": 2}), kernels.Config()])
        bound, _ = made._bound((*two(), 2.0, 5), {})
        assert made._launch(bound, made.configs[0], None, None).grid == expected

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

    @pytest.mark.parametrize(("prune", "words"), [
        (lambda configs, args: None, "a list of kernels.Config from it, got None"),
        (lambda configs, args: [3], r"a list of kernels.Config from it, got \[3\]"),
        ((lambda config, args: "fast", 1), "a number from it, got 'fast'"),
    ])  # fmt: skip
    def test_pruning_that_is_wrong(self, prune, words):
        with pytest.raises(TypeError, match=f"axpy: argument 'prune': expected {words}"):
            axpy(configs=self.CONFIGS, prune=prune)(*two(), 2.0, 5)

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
        for name in ("grid", "configs", "name"):
            with pytest.raises(AttributeError):
                setattr(one, name, other.configs)

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


def test_importing_needs_neither_cupy_nor_a_compiler():
    code = "import sys, sparsegpu.kernels; sys.exit('cupy' in sys.modules or 'cuda' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
