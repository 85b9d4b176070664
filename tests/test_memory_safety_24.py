"""What a caller does to the arrays of 2:4 containers: no effect, or an error, never in memory."""

from __future__ import annotations

import copy
import io
import operator
import pickle
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

import sparsegpu
from covering import covered
from sparsegpu import BsrSemiStructuredArray, SemiStructuredArray, bsr_array
from sparsegpu.bsr.ufuncs import Ufuncs
from sparsegpu.testing import random_24, to_host
from test_memory_safety import set_field

PARTS = ("packed", "meta", "packed_t", "meta_t", "bitmask")
#: Every method of `BsrSemiStructuredArray` that reads its values, and what a message calls it.
METHODS = {
    "aslinearoperator": lambda a: a.aslinearoperator(),
    "astype": lambda a: a.astype("float16", copy=False),
    "copy": lambda a: a.copy(),
    "get": lambda a: a.get(),
    "save_npz": lambda a: a.save_npz("never_written.npz"),
    "to_device": lambda a: a.to_device(),
    "toarray": lambda a: a.toarray(),
    "tobsr": lambda a: a.tobsr(),
    "todense": lambda a: a.todense(),
    "multiply": lambda a: a.multiply(2),
    "power": lambda a: a.power(2),
    "round": lambda a: a.round(),
    **{name: operator.methodcaller(name) for name in vars(Ufuncs) if name[0] != "_"},
}
NOT_READING = {
    *("T", "blocksize", "density", "device", "dtype", "format", "from_bsr", "indices", "indptr"),
    *("load_npz", "meta", "nbytes", "ndim", "nnz", "nnzb", "packed", "pattern", "shape", "size"),
    *("spy", "transpose"),
}
NAMES = {"toarray": "BsrSemiStructuredArray.tobsr", "todense": "BsrSemiStructuredArray.tobsr"}
NAMES |= {name: name for name in ("aslinearoperator", "multiply", "power", "round")}
NAMES |= {name: f"numpy.{name}" for name in vars(Ufuncs) if name[0] != "_"}
CALLS = {
    **{name: (NAMES.get(name, f"BsrSemiStructuredArray.{name}"), f) for name, f in METHODS.items()},
    "A @ x": ("BsrSemiStructuredArray @", lambda a: a @ dense_of(a)),
    "2 * A": (r"BsrSemiStructuredArray \*", lambda a: 2 * a),
    "A + A": (r"BsrSemiStructuredArray \+", lambda a: a + a),
    "-A": ("BsrSemiStructuredArray -", lambda a: -a),
    "abs(A)": ("abs", abs),
    "A == A": ("BsrSemiStructuredArray.tobsr", lambda a: a == a),
    "deepcopy": ("BsrSemiStructuredArray.copy", copy.deepcopy),
    "pickle": ("BsrSemiStructuredArray.__reduce__", pickle.dumps),
    "bsr_addmm": ("bsr_addmm", lambda a: sparsegpu.bsr_addmm(None, a, dense_of(a))),
    "bsr_array": ("BsrSemiStructuredArray.tobsr", bsr_array),
}


def dense_of(a):
    return a.pattern.xp.ones((64, 8), np.float16)


def matrix(engine, rng, rows=64, columns=64):
    return engine.array(random_24(rng, (rows, columns), "float16", small_integers=True))


@covered(part=["packed", "meta"], name=CALLS)
def test_blocks_are_looked_at(engine, rng, name, part):
    if name == "to_device" and not engine.on_gpu:
        pytest.skip("needs a GPU")
    function, call = CALLS[name]
    a = bsr_array(matrix(engine, rng), blocksize=(32, 32)).semi_structured()
    array = getattr(a, part)
    before = array.shape
    set_field(array, "shape", (1, *before[1:-1], before[0] * before[-1]))
    with engine.runs(None), pytest.raises(ValueError, match=f"^{function}: argument") as error:
        call(a)
    assert str(before) in str(error.value)


@pytest.mark.parametrize("part", ["packed", "meta"])
def test_blocks_that_do_not_lie_as_engines_read_them(rng, part):
    host = SimpleNamespace(array=np.asarray)
    a = bsr_array(matrix(host, rng), blocksize=(32, 32)).semi_structured()
    array = getattr(a, part)
    set_field(array, "strides", (0, *array.strides[1:]))
    with pytest.raises(
        ValueError, match=f"argument 'self': expected '{part}' that is C-contiguous"
    ):
        a @ np.ones(64, np.float16)


def test_every_method_of_blocks_is_one_of_those_above():
    public = {name for name in dir(BsrSemiStructuredArray) if not name.startswith("_")}
    assert public == METHODS.keys() | NOT_READING


@pytest.mark.parametrize("field", ["shape", "dtype", "strides"])
def test_halves_keep_their_own_views(engine, rng, field):
    """Whoever sets a field of what they gave, or were shown, changes nothing of the matrix."""
    if engine.on_gpu and field != "shape":
        pytest.skip("CuPy does not let it be set")
    given = [*sparsegpu.semi_structured_tile(matrix(engine, rng))]
    a = SemiStructuredArray((64, 64), *given)
    b = SemiStructuredArray.prune_dense_static_sort(matrix(engine, rng))
    x = engine.xp.ones((64, 8), np.float16)
    expected = [facts(engine, array) for array in (a, b)]
    with engine.runs("semi_structured_addmm"):
        products = [engine.host(y) for y in (a @ x, x.T @ a, b @ x, x.T @ b)]
    for array in (a, b):
        for part in PARTS:
            spoil(getattr(array, part), field)
    with engine.runs("semi_structured_addmm"):
        again = [engine.host(y) for y in (a @ x, x.T @ a, b @ x, x.T @ b)]
    assert all((p == q).all() for p, q in zip(products, again))
    for array, wanted in zip((a, b), expected):
        assert all((p == q).all() for p, q in zip(facts(engine, array), wanted))


def spoil(array, field):
    value = {
        "shape": (*array.shape, 1),
        "dtype": f"V{array.itemsize}",
        "strides": (0,) * array.ndim,
    }[field]
    set_field(array, field, value)


def facts(engine, a):
    """Return what all conversions of an array say of it, those to the host by the host's engine."""
    with nullcontext() if engine.on_gpu else sparsegpu.use_engine(engine.name):
        return _facts(a)


def _facts(a):
    file = io.BytesIO()
    a.save_npz(file)
    file.seek(0)
    others = [a, a.copy(), a.T.T, a.T.copy().T, a.astype("float16"), a.get()]
    others += [pickle.loads(pickle.dumps(a)), SemiStructuredArray.load_npz(file)]
    dense = [other.todense() for other in others]
    dense.append(a.T.todense().T)
    dense.append(sparsegpu.semi_structured_apply_dense(dense[0], a.copy().bitmask))
    return [to_host(array) for array in dense]


def test_shown_parts_are_always_the_same_arrays(engine, rng):
    a = SemiStructuredArray.from_dense(matrix(engine, rng))
    assert a.packed is a.packed and a.T.packed_t is a.packed and a.values() is a.packed
    assert a.packed_t is None
    a.half(transposed=True)
    assert a.T.packed is a.packed_t


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"packed": np.ones((32, 8), np.float16)}, ValueError, "argument 'packed'"),
        ({"packed": np.ones((64, 32), np.uint16)}, TypeError, "argument 'packed'"),
        ({"meta": np.ones((64, 2), np.int16)}, ValueError, "argument 'meta'"),
        ({"meta": np.ones((64, 4), np.int32)}, TypeError, "argument 'meta'"),
        ({"shape": (128, 64)}, ValueError, "argument 'packed'"),
    ],
)
def test_operands_of_other_kinds(rng, change, error, match):
    """Products take anything with packed values and metadata, once these fit together."""
    packed, meta = sparsegpu.semi_structured_from_dense(random_24(rng, (64, 64), "float16"))
    given = {"packed": packed, "meta": meta, "shape": (64, 64), "dtype": packed.dtype}
    x = np.ones((64, 8), np.float16)
    assert sparsegpu.semi_structured_matmul(SimpleNamespace(**given), x).shape == (64, 8)
    with pytest.raises(error, match=match):
        sparsegpu.semi_structured_matmul(SimpleNamespace(**given | change), x)
