"""Wrapped kernels refuse what is wrong: function, argument, what was expected, what was got."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import fake_cuda
from kernel_cases import AXPY, DeviceArray, axpy, blocks, two
from sparsegpu import kernels
from sparsegpu.kernels import build


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
        (lambda y, x: (kernels.Out(like="y"), x, 2.0, 5), ValueError, "'y': expected an Out with"),
        (lambda y, x: (kernels.Out(5, "f8", fill=0), x, 2.0, 5), TypeError,
         "'y': expected an Out of float32, as the kernel declares, got float64"),
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

    def test_numbers_beyond_their_types(self):
        text = 'extern "C" __global__ void k(int* x, int n, unsigned char c, bool b) {}'
        narrow = kernels.wrap(text, "k", grid=1, block=1, writes=["x"], reads=[], ref=id)
        x = np.zeros(2, np.int32)
        for args, words in (
            ((x, 2**31, 0, True), r"'n': expected an integer in -2147483648\.\.2147483647"),
            ((x, 0, 256, True), r"'c': expected an integer in 0\.\.255, got 256"),
            ((x, 0, -1, True), r"'c': expected an integer in 0\.\.255, got -1"),
            ((x, 0, 0, 2), r"'b': expected an integer in 0\.\.1, got 2"),
            ((x, np.float32(1), 0, True), "'n': expected an integer"),
        ):
            with pytest.raises(ValueError, match=f"^k: argument {words}"):
                narrow(*args)

    @pytest.mark.parametrize(("args", "error", "words"), [
        (lambda y: (y, DeviceArray(64), 2.0, 5), TypeError,
         "argument 'y': expected a CuPy array, as the others are, got a NumPy array"),
        (lambda y: (DeviceArray(64), y, 2.0, 5), TypeError, "argument 'x': expected a CuPy array"),
        (lambda y: (DeviceArray(64), DeviceArray(4096, device=1), 2.0, 5), ValueError,
         r"argument 'args': expected arrays of one device, got \[0, 1\]"),
    ])  # fmt: skip
    @pytest.mark.parametrize("form", ["__call__", "inplace"])
    def test_arrays_of_several_places(self, args, error, words, form, monkeypatch):
        fake_cuda.put_in_place(monkeypatch)
        monkeypatch.setattr(sys.modules["cupy"], "ndarray", DeviceArray)
        monkeypatch.setattr(build, "can_compile", lambda: False)
        monkeypatch.setattr(build, "_device_architecture", lambda: None)
        with pytest.raises(error, match=f"^axpy: {words}"):
            getattr(axpy(), form)(*args(two()[0]))

    def test_read_only_in_place(self):
        y, x = two()
        y.flags.writeable = False
        with pytest.raises(ValueError, match=r"argument 'y'.*got a read-only one"):
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
        (dict(params=["y", "x", "y", "n"]), ValueError, "argument 'params': expected names that"),
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
        (lambda: kernels.Out((2,), "no dtype"), TypeError),
        (lambda: kernels.Out(1.5, "f4"), TypeError), (lambda: kernels.Out(-1, "f4"), ValueError),
    ])  # fmt: skip
    def test_configs_and_outs(self, make, error):
        with pytest.raises(error, match=r"^(Config|Out): "):
            make()

    def test_what_is_given_by_place(self):
        assert kernels.Out((2,), "f4", 1) == kernels.Out((2,), "f4", fill=1)
        with pytest.raises(TypeError, match="positional"):
            kernels.TensorMap(np.zeros((64, 64), np.float32), (8, 32), 128)
