"""Views, dtype names, epilogue arguments, tensor maps, launches: what needs no GPU."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import numpy as np
import pytest

from sparsegpu._arrays import bfloat16, float8_e4m3fn
from sparsegpu._epilogue import Epilogue
from sparsegpu.engines.cuda._epilogue_args import epilogue_args
from sparsegpu.engines.cuda.runtime import device, launch, tensor_map
from sparsegpu.engines.cuda.runtime.tensor_map import encode_arguments, tensor_map_key
from sparsegpu.engines.cuda.runtime.types import ctype
from sparsegpu.engines.cuda.runtime.view import batch_dims, matrix_view, vector_view


class OnDevice:
    """What a host function reads of a CuPy array, over a NumPy one."""

    class device:
        id = 0

    class data:
        ptr = 1 << 40

    def __init__(self, array: np.ndarray):
        self.shape, self.strides, self.dtype = array.shape, array.strides, array.dtype
        self.itemsize, self.ndim = array.itemsize, array.ndim


def unpacked(view: bytes) -> tuple[int, ...]:
    pointer, *strides = struct.unpack("<Q6q", view)
    assert pointer in {0, 1 << 40}
    return tuple(strides)


# -- views ----------------------------------------------------------------------------------


def test_a_view_holds_strides_in_elements():
    array = np.zeros((3, 4, 5), np.float16)
    assert unpacked(matrix_view(OnDevice(array), (3,))) == (5, 1, 0, 0, 0, 20)
    assert unpacked(matrix_view(OnDevice(array.swapaxes(1, 2)), (3,))) == (1, 5, 0, 0, 0, 20)
    assert unpacked(matrix_view(OnDevice(array[::-1, ::2]), (3,))) == (10, 1, 0, 0, 0, -20)
    complex_ = np.zeros((4, 5), np.complex128)
    assert unpacked(matrix_view(OnDevice(complex_[:, ::-1]), ())) == (5, -1, 0, 0, 0, 0)


def test_a_view_broadcasts():
    assert unpacked(matrix_view(OnDevice(np.zeros(())), (2, 3))) == (0,) * 6
    assert unpacked(matrix_view(OnDevice(np.zeros(7)), (2, 3))) == (0, 1, 0, 0, 0, 0)
    assert unpacked(matrix_view(OnDevice(np.zeros((7, 1))), (2,))) == (1, 0, 0, 0, 0, 0)
    array = np.zeros((2, 1, 4, 5))
    assert unpacked(matrix_view(OnDevice(array), (2, 3))) == (5, 1, 0, 0, 20, 0)
    assert unpacked(matrix_view(OnDevice(array[0]), (2, 3))) == (5, 1, 0, 0, 0, 0)


def test_batch_dimensions_of_size_one_do_not_count():
    array = np.zeros((2, 1, 3, 1, 4, 1, 5, 6, 7))
    shape = (2, 1, 3, 1, 4, 1, 5)
    assert unpacked(matrix_view(OnDevice(array), shape)) == (7, 1, 2520, 840, 210, 42)
    assert struct.unpack("<4i", batch_dims(shape)) == (2, 3, 4, 5)
    assert struct.unpack("<4i", batch_dims(())) == (1, 1, 1, 1)


def test_vectors_and_absent_operands():
    assert unpacked(vector_view(OnDevice(np.zeros((3, 8))[:, ::2]), (3,))) == (2, 0, 0, 0, 0, 8)
    assert unpacked(vector_view(OnDevice(np.zeros((3, 1))), (3,))) == (0, 0, 0, 0, 0, 1)
    for absent in (matrix_view(None, (2,)), vector_view(None, (2,))):
        assert absent == bytes(56)


def test_what_a_view_cannot_carry():
    shape = (2,) * 5
    with pytest.raises(NotImplementedError, match="5 dimensions larger than 1; supported: up to 4"):
        matrix_view(OnDevice(np.zeros((*shape, 3, 3))), shape)
    with pytest.raises(NotImplementedError, match="up to 4"):
        batch_dims(shape)
    odd = np.zeros(10, np.dtype([("x", "<f4"), ("y", "<i2")]))["x"]
    with pytest.raises(ValueError, match=r"strides that are multiples of the item size 4"):
        matrix_view(OnDevice(odd), ())


@pytest.mark.parametrize("view", [matrix_view, vector_view])
def test_a_view_refuses_elements_that_no_load_could_read(view):
    """Of complex numbers at an odd float: such a load would end all work on the device."""
    numbers = OnDevice(np.zeros((3, 4), np.complex128))
    numbers.data = SimpleNamespace(ptr=(1 << 40) + 8)
    for batch in ((), (3,)):
        with pytest.raises(ValueError, match=r"a multiple of the item size 16, got 0x10000000008"):
            view(numbers, batch)


# -- dtypes ---------------------------------------------------------------------------------


def test_dtype_names():
    assert [ctype(d) for d in (bfloat16, float8_e4m3fn, np.dtype(bool))] == ["bf16", "e4m3", "b8"]
    with pytest.raises(TypeError, match=r"'dtype': expected one of float16, .* got int16"):
        ctype(np.dtype(np.int16))


# -- the epilogue's argument ----------------------------------------------------------------

F32, S32 = np.dtype(np.float32), np.dtype(np.int32)


@pytest.mark.parametrize(
    "epilogue, acc, out, mode",
    [
        (Epilogue(), F32, bfloat16, "identity"),
        (Epilogue(alpha=2), F32, F32, "scaled"),
        (Epilogue(activation="gelu"), F32, F32, "scaled"),
        (Epilogue(), S32, S32, "identity"),
        (Epilogue(alpha=-3), S32, S32, "exact"),
        (Epilogue(alpha=2.0, activation="relu"), S32, S32, "exact"),
        (Epilogue(alpha=0.5), S32, S32, "scaled"),
        (Epilogue(alpha=2**40), S32, S32, "scaled"),
        (Epilogue(alpha=-3), S32, np.dtype(np.int8), "scaled"),
        (Epilogue(left_alpha=OnDevice(np.zeros(4, np.float32))), S32, S32, "scaled"),
    ],
)
def test_epilogue_mode(epilogue, acc, out, mode):
    defines, argument = epilogue_args(epilogue, (), acc, out)
    assert defines["EPILOGUE"] == mode
    assert defines["ACT"] == (epilogue.activation or "none") and defines["OUT"] == ctype(out)
    assert len(argument) == (192 if mode == "exact" else 184)


def test_epilogue_argument_bytes():
    e = Epilogue(
        2 + 1j,
        3,
        OnDevice(np.zeros((4, 1), np.complex64)),
        OnDevice(np.zeros((2, 4), np.float32)),
        None,
    )
    defines, argument = epilogue_args(e, (2,), np.dtype(np.complex64), np.dtype(np.complex64))
    assert (defines["INPUT"], defines["LEFT"], defines["RIGHT"]) == ("c64", "f32", "none")
    content = argument
    assert len(content) == 192
    assert unpacked(content[:56]) == (1, 0, 0, 0, 0, 0)
    assert unpacked(content[56:112]) == (1, 0, 0, 0, 0, 4)
    assert content[112:168] == bytes(56)
    assert struct.unpack("<2i", content[168:176]) == (0, 0)
    assert np.frombuffer(content[176:], np.complex64).tolist() == [2 + 1j, 3]


# -- tensor maps ----------------------------------------------------------------------------


def test_tensor_map_key():
    array = OnDevice(np.zeros((128, 256), np.float16))
    key = tensor_map_key(array, (32, 64), 128)
    assert (key.shape, key.strides, key.box) == ((256, 128), (512,), (64, 32))
    assert key == tensor_map_key(array, (32, 64), 128) and hash(key) == hash(key)
    assert key != tensor_map_key(array, (32, 64), 0)
    assert key != tensor_map_key(array, (16, 64), 128)
    other = tensor_map_key(array, (4, 64, 64), shape=(4, 128, 64), strides=(128, 512, 2))
    assert (other.shape, other.strides) == ((64, 128, 4), (512, 128))


@pytest.mark.parametrize(
    "array, box, swizzle, message",
    [
        (np.zeros((8, 8), np.complex64), (8, 8), 0, "'array': expected one of the dtypes"),
        (np.zeros((8, 64), np.float16).T, (8, 8), 0, "contiguous innermost"),
        (np.zeros((8, 65), np.float16), (8, 8), 0, "multiples of 16 bytes"),
        (np.zeros((8, 512), np.float16), (8, 512), 0, "1..256 elements"),
        (np.zeros((8, 512), np.float16), (8, 128), 128, "at most the swizzle"),
        (np.zeros((8, 512), np.float16), (8, 12), 0, "multiple of 16 bytes"),
        (np.zeros((8, 512), np.float16), (8,), 0, "the same number each"),
        (np.zeros((8, 512), np.float16), (8, 8), 48, "0, 32, 64 or 128"),
    ],
)
def test_tensor_map_refusals(array, box, swizzle, message):
    with pytest.raises((ValueError, TypeError), match=message):
        tensor_map_key(OnDevice(array), box, swizzle)


def test_tensor_map_arguments():
    pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    key = tensor_map_key(OnDevice(np.zeros((128, 256), bfloat16)), (32, 64), 128)
    kind, rank, pointer, shape, strides, box, steps, _, swizzle, _, _ = encode_arguments(key)
    assert kind.name.endswith("BFLOAT16") and swizzle.name.endswith("SWIZZLE_128B")
    assert (rank, pointer) == (2, 1 << 40)
    numbers = [[int(n) for n in values] for values in (shape, strides, box, steps)]
    assert numbers == [[256, 128], [512], [64, 32], [1, 1]]


@pytest.fixture
def encoded(monkeypatch):
    """Yield the keys that are encoded; without a driver, and nothing stays kept."""
    keys = []
    monkeypatch.setattr(tensor_map, "in_context", lambda f, key: keys.append(key) or bytes(128))
    tensor_map.encode.cache_clear()
    yield keys
    tensor_map.encode.cache_clear()


def test_the_maps_that_were_used_last_are_kept(encoded):
    array = OnDevice(np.zeros((8, 64), np.float32))
    of = [(rows, columns) for rows in range(1, 257) for columns in (4, 8, 16)]
    assert len(of) > tensor_map.CAPACITY
    for box in of:
        tensor_map.tensor_map(array, box)
        tensor_map.tensor_map(array, of[0])
    assert len(encoded) == len(of) == len(set(encoded))
    tensor_map.tensor_map(array, of[1])
    assert len(encoded) == len(of) + 1, "the least recently used map was not forgotten"


# -- launching ------------------------------------------------------------------------------


def test_kernels_are_kept_by_device_source_and_defines(monkeypatch):
    loaded = []
    number = [0]
    monkeypatch.setattr(device, "_get_device", lambda: number[0])
    monkeypatch.setattr(launch, "_kernels", {})
    monkeypatch.setattr(launch, "_compiled", lambda *key: loaded.append(key) or object())
    first = launch.kernel("k", T="f32", N=1)
    assert launch.kernel("k", T="f32", N=1) is first
    assert launch.kernel("k", T="f32", N=2) is not first
    number[0] = 1
    assert launch.kernel("k", T="f32", N=1) is not first
    assert len(loaded) == 3
