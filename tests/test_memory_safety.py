"""What a caller does to shared arrays behind a container's back ends in an error, never in memory.

`bsr_array` shares its values with the caller, who may set their shape or dtype in place; every
function and method compares them with the pattern before it reads them.
"""

from __future__ import annotations

import copy
import pickle
import re
import warnings
from operator import methodcaller
from types import SimpleNamespace

import numpy as np
import pytest

import sparsegpu
from covering import covered
from sparsegpu import bsr_array
from sparsegpu.linalg import aslinearoperator

ONES = np.ones((4, 4), np.float32)
UFUNCS = (
    *("arcsin", "arcsinh", "arctan", "arctanh", "ceil", "deg2rad", "expm1", "floor", "log1p"),
    *("rad2deg", "rint", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
)
#: Every attribute of a `bsr_array` that reads its values, and what a message calls it.
METHODS = {
    **{name: (f"numpy.{name}", methodcaller(name)) for name in UFUNCS},
    "T": ("transpose", lambda a: a.T),
    "mT": ("transpose", lambda a: a.mT),
    "_repr_html_": None,
    "aslinearoperator": ("aslinearoperator", lambda a: a.aslinearoperator()),
    "asformat": ("asformat", lambda a: a.asformat("bsr")),
    "astype": ("astype", lambda a: a.astype("float32", copy=False)),
    "blocksize": None,
    "check_format": ("check_format", lambda a: a.check_format(full_check=False)),
    "conj": ("conj", lambda a: a.conj(copy=False)),
    "conjugate": ("conj", lambda a: a.conjugate()),
    "copy": ("copy", lambda a: a.copy()),
    "data": None,
    "density": None,
    "device": None,
    "argmax": ("argmax", lambda a: a.argmax()),
    "argmin": ("argmin", lambda a: a.argmin()),
    "count_nonzero": ("count_nonzero", lambda a: a.count_nonzero()),
    "nonzero": ("nonzero", lambda a: a.nonzero()),
    "maximum": ("maximum", lambda a: a.maximum(0)),
    "minimum": ("minimum", lambda a: a.minimum(0)),
    "power": ("power", lambda a: a.power(2)),
    "round": ("round", lambda a: a.round()),
    "setdiag": ("setdiag", lambda a: a.setdiag(1)),
    "sorted_indices": ("copy", lambda a: a.sorted_indices()),
    "trace": ("trace", lambda a: a.trace()),
    "H": ("conj", lambda a: a.H),
    "diagonal_blocks": ("diagonal_blocks", lambda a: a.diagonal_blocks()),
    "nbytes": None,
    "reshape": ("reshape", lambda a: a.reshape(2, 8)),
    "diagonal": ("diagonal", lambda a: a.diagonal()),
    "dot": ("dot", lambda a: a.dot(array_like(a, ONES))),
    "dtype": None,
    "eliminate_zeros": ("eliminate_zeros", lambda a: a.eliminate_zeros()),
    "format": None,
    "get": ("get", lambda a: a.get()),
    "getrow": ("getrow", lambda a: a.getrow(0)),
    "has_canonical_format": None,
    "has_sorted_indices": None,
    "imag": ("imag", lambda a: a.imag),
    "indices": None,
    "indptr": None,
    "matvec": ("aslinearoperator", lambda a: a.matvec(array_like(a, ONES[0]))),
    "max": ("max", lambda a: a.max(axis=1)),
    "nanmax": ("nanmax", lambda a: a.nanmax(axis=1)),
    "nanmin": ("nanmin", lambda a: a.nanmin(axis=1)),
    "mean": ("mean", lambda a: a.mean()),
    "min": ("min", lambda a: a.min()),
    "multiply": ("multiply", lambda a: a.multiply(array_like(a, ONES))),
    "ndim": None,
    "nnz": None,
    "nnzb": None,
    "pattern": None,
    "real": ("real", lambda a: a.real),
    "rmatvec": ("aslinearoperator", lambda a: a.rmatvec(array_like(a, ONES[0]))),
    "same_pattern": None,
    "save_npz": ("bsr_array.save_npz", lambda a: a.save_npz("never_written.npz")),
    "semi_structured": ("bsr_array.semi_structured", lambda a: a.semi_structured()),
    "shape": None,
    "size": None,
    "sort_indices": ("sort_indices", lambda a: a.sort_indices()),
    "spy": None,
    "sum": ("sum", lambda a: a.sum()),
    "sum_duplicates": ("sum_duplicates", lambda a: a.sum_duplicates()),
    "to_device": ("to_device", lambda a: a.to_device()),
    "to_scipy": ("to_scipy", lambda a: a.to_scipy()),
    "to_torch": ("to_torch", lambda a: a.to_torch()),
    "toarray": ("toarray", lambda a: a.toarray()),
    "tobsr": ("tobsr", lambda a: a.tobsr()),
    "tocoo": ("tocoo", lambda a: a.tocoo()),
    "tocsc": ("tocsc", lambda a: a.tocsc()),
    "tocsr": ("tocsr", lambda a: a.tocsr()),
    "todense": ("todense", lambda a: a.todense()),
    "transpose": ("transpose", lambda a: a.transpose()),
    "with_data": None,
}
OPERATORS = {
    "A @ x": ("bsr_array @", lambda a: a @ array_like(a, ONES[0])),
    "A @ X": ("bsr_array @", lambda a: a @ array_like(a, ONES)),
    "x @ A": ("bsr_array @", lambda a: array_like(a, ONES[0]) @ a),
    "A @ B": ("bsr_array @", lambda a: a @ good(a)),
    "B @ A": ("bsr_array @", lambda a: good(a) @ a),
    "A * 2": ("bsr_array *", lambda a: a * 2),
    "A / 2": ("bsr_array /", lambda a: a / 2),
    "-A": ("bsr_array -", lambda a: -a),
    "+A": ("copy", lambda a: +a),
    "abs(A)": ("abs", abs),
    "A + 0": ("bsr_array +", lambda a: a + 0),
    "A + B": ("bsr_array +", lambda a: a + good(a)),
    "B - A": ("bsr_array -", lambda a: good(a) - a),
    "A + X": ("bsr_array +", lambda a: a + array_like(a, ONES)),
    "X - A": ("bsr_array -", lambda a: array_like(a, ONES) - a),
    "A * B": ("bsr_array *", lambda a: a * good(a)),
    "B * A": ("bsr_array *", lambda a: good(a) * a),
    "A > 1": ("bsr_array >", lambda a: a > 1),
    "A != B": ("bsr_array !=", lambda a: a != good(a)),
    "B != A": ("bsr_array !=", lambda a: good(a) != a),
    "A == X": ("bsr_array ==", lambda a: a == array_like(a, ONES)),
    "A[0]": ("bsr_array[i]", lambda a: a[0]),
    "A[0, 1]": ("bsr_array[i, j]", lambda a: a[0, 1]),
    "A[:2]": ("bsr_array[i:j]", lambda a: a[:2]),
    "A[:, :]": ("bsr_array[i:j]", lambda a: a[:, :]),
    "pickle": ("pickle", pickle.dumps),
    "deepcopy": ("copy", copy.deepcopy),
    "bsr_array(A)": ("bsr_array", bsr_array),
    "bsr_array(A, blocksize)": ("bsr_array", lambda a: bsr_array(a, blocksize=(1, 1))),
}
FUNCTIONS = {
    "bsr_addmm": lambda a: sparsegpu.bsr_addmm(None, a, array_like(a, ONES)),
    "bsr_matmul": lambda a: sparsegpu.bsr_matmul(a, array_like(a, ONES)),
    "dense_bsr_matmul": lambda a: sparsegpu.dense_bsr_matmul(array_like(a, ONES), a),
    "int_bsr_addmm": lambda a: sparsegpu.int_bsr_addmm(None, a, array_like(a, ONES)),
    "bsr_spgemm": lambda a: sparsegpu.bsr_spgemm(a, good(a)),
    "sampled_addmm": lambda a: sparsegpu.sampled_addmm(a, *two(a), beta=0),
    "sampled_addmm ": lambda a: sparsegpu.sampled_addmm(good(a), *two(a), out=a),
    "bsr_softmax": lambda a: sparsegpu.bsr_softmax(a),
    "bsr_softmax ": lambda a: sparsegpu.bsr_softmax(good(a), out=a),
    "bsr_softmax_backward": lambda a: sparsegpu.bsr_softmax_backward(a, good(a)),
    "bsr_softmax_backward ": lambda a: sparsegpu.bsr_softmax_backward(good(a), a),
    "scaled_dot_product_attention": lambda a: sparsegpu.scaled_dot_product_attention(
        *[array_like(a, ONES[None])] * 3, a
    ),
    "scaled_dot_product_attention_backward": (
        lambda a: sparsegpu.scaled_dot_product_attention_backward(
            *[array_like(a, ONES[None])] * 4, a, array_like(a, ONES[None]), array_like(a, ONES[:1])
        )
    ),
    "bsr_scatter_mm": lambda a: sparsegpu.bsr_scatter_mm(a, array_like(a, ONES)),
    "bsr_scatter_mm_indices_data": lambda a: sparsegpu.bsr_scatter_mm_indices_data(
        a, array_like(a, ONES)
    ),
    "save_npz": lambda a: sparsegpu.save_npz("never_written.npz", a),
    "aslinearoperator": aslinearoperator,
    "BsrSemiStructuredArray.from_bsr": lambda a: sparsegpu.BsrSemiStructuredArray.from_bsr(a),
}
CALLS = {
    **{name: call for name, call in METHODS.items() if call is not None},
    **OPERATORS,
    **{f"{name}()": (name.strip(), call) for name, call in FUNCTIONS.items()},
}
SPOILT = {
    "fewer blocks": (ValueError, lambda data: set_field(data, "shape", (1, 4, 4))),
    "other blocks": (ValueError, lambda data: set_field(data, "shape", (4, 4, 1))),
    "more dimensions": (ValueError, lambda data: set_field(data, "shape", (2, 2, 2, 2))),
    "wider values": (ValueError, lambda data: set_field(data, "dtype", np.float64)),
    "other values": (TypeError, lambda data: set_field(data, "dtype", np.uint32)),
}


def set_field(data, name, value):
    """Set shape or dtype in place (which NumPy advises against, and allows)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        setattr(data, name, value)


def parts(engine, dtype=np.float32):
    data = np.arange(1, 17).reshape(4, 2, 2).astype(dtype)
    return tuple(map(engine.array, (data, np.array([0, 1, 0, 1]), np.array([0, 2, 4]))))


def array_like(a, array):
    return a.pattern.xp.asarray(array)


def good(a):
    """Return an array of the same pattern whose values nobody touched."""
    return a.with_data(a.pattern.xp.ones(a.pattern.data_shape, np.float32))


def two(a):
    return array_like(a, ONES), array_like(a, ONES)


@pytest.mark.parametrize("name", CALLS)
def test_every_function_looks_at_what_it_is_handed(engine, name):
    if name == "to_device" and not engine.on_gpu:
        pytest.skip("needs a GPU")
    function, call = CALLS[name]
    for spoilt, (error, spoil) in SPOILT.items():
        if engine.on_gpu and "values" in spoilt:
            continue  # CuPy does not let a dtype be set
        given = parts(engine)
        a = bsr_array(given, shape=(4, 4))
        spoil(given[0])
        with engine.runs(None), pytest.raises(error, match=f"^{re.escape(function)}: argument"):
            call(a)


def test_every_attribute_is_one_of_those_above():
    public = {name for name in dir(bsr_array) if not name.startswith("__")}
    ours = {name for name in public if not name.startswith("_") or name == "_repr_html_"}
    assert ours == METHODS.keys()


def test_the_reported_crash(engine):
    data = engine.xp.ones((4, 2, 2))
    a = bsr_array((data, [0, 1, 0, 1], [0, 2, 4]) if not engine.on_gpu else parts(engine, float))
    data = a.data
    set_field(data, "shape", (1, 4, 4))
    x = engine.xp.ones(4)
    with pytest.raises(
        ValueError, match=r"argument 'self': expected shape \(4, 2, 2\).*\(1, 4, 4\)"
    ):
        a @ x
    set_field(data, "shape", (4, 2, 2))  # and back: nothing was lost
    with engine.runs("bsr_addmm"):
        assert (a @ x).shape == (4,)


def test_values_are_still_shared(engine):
    data, indices, indptr = parts(engine)
    a = bsr_array((data, indices, indptr), shape=(4, 4))
    assert a.data is data
    data[...] = 2
    with engine.runs("bsr_addmm"):
        assert (engine.host(a @ engine.array(ONES[0])) == 8).all()


def test_a_call_that_was_made_before_is_checked_again(engine):
    given = parts(engine)
    a, x = bsr_array(given, shape=(4, 4)), engine.array(ONES)
    with engine.runs("bsr_addmm"):
        for _ in range(3):
            a @ x
    set_field(given[0], "shape", (1, 4, 4))
    with engine.runs(None), pytest.raises(ValueError, match="bsr_array @: argument 'self'"):
        a @ x


@pytest.mark.parametrize(
    ("data", "error", "match"),
    [
        (np.ones((3, 2, 2), np.float32), ValueError, r"shape \(4, 2, 2\)"),
        (np.ones((4, 2, 2), np.uint8), TypeError, "one of the dtypes"),
        ([1, 2, 3], TypeError, "list"),
    ],
)
def test_operands_of_other_kinds(data, error, match):
    """Operations take anything with a pattern and data."""
    a = bsr_array(parts(SimpleNamespace(array=np.asarray)), shape=(4, 4))
    other = SimpleNamespace(pattern=a.pattern, data=data, with_data=a.with_data, get=None)
    for function, call in FUNCTIONS.items():
        with pytest.raises(error, match=f"^{function.strip()}: argument.*{match}"):
            call(other)


def test_values_of_another_device():
    """Without a GPU: CuPy arrays over addresses that are never read."""
    cupy = pytest.importorskip("cupy")

    def array(device, shape):
        memory = cupy.cuda.UnownedMemory(4096, 4096, None, device)
        return cupy.ndarray(shape, np.float32, cupy.cuda.MemoryPointer(memory, 0))

    from sparsegpu.ops._common import check_values

    facts = SimpleNamespace(xp=cupy, data_shape=(4, 2, 2), device=0)
    check_values("f", "bsr", facts, array(0, (4, 2, 2)))
    with pytest.raises(ValueError, match=r"f: argument 'bsr': expected device 0 .*, got device 1"):
        check_values("f", "bsr", facts, array(1, (4, 2, 2)))
    with pytest.raises(TypeError, match="f: argument 'bsr': expected data in a cupy array"):
        check_values("f", "bsr", facts, np.ones((4, 2, 2), np.float32))


# -- the pattern ----------------------------------------------------------------------------------


@covered(given=["parts", "dense"], name=["indices", "indptr", "rows"])
def test_what_a_pattern_hands_out_is_not_the_pattern(engine, name, given):
    a, x = bsr_array(parts(engine), shape=(4, 4)), engine.array(ONES[0])
    if given == "dense":
        a = bsr_array(engine.array(ONES), blocksize=(2, 2))
    with engine.runs("bsr_addmm"):
        expected = engine.host(a @ x)
    taken = getattr(a.pattern, name)
    shape = taken.shape
    set_field(taken, "shape", (*shape, 1))
    if not engine.on_gpu:
        set_field(taken, "dtype", np.int8)
        with pytest.raises(ValueError):
            taken.setflags(write=True)
    assert getattr(a.pattern, name).shape == shape
    assert name == "rows" or getattr(a, name).shape == shape
    with engine.runs("bsr_addmm"):
        assert (engine.host(a @ x) == expected).all()
        assert (engine.host(a.toarray().sum(axis=1)) == expected).all()


@pytest.mark.parametrize("name", ["shape", "blocksize", "nnzb", "indices", "data_shape", "device"])
def test_facts_of_a_pattern_cannot_be_set(name):
    pattern = bsr_array(np.eye(4), blocksize=(2, 2)).pattern
    with pytest.raises(AttributeError):
        setattr(pattern, name, getattr(pattern, name))


@pytest.mark.parametrize(
    "indices_format", ["scatter_mm", "bsr_strided_mm", "bsr_strided_mm_compressed"]
)
def test_index_lists_are_not_what_scatter_mm_reads(engine, indices_format):
    a, x = bsr_array(parts(engine), shape=(4, 4)), engine.array(ONES)
    lists = sparsegpu.bsr_scatter_mm_indices_data(a, x, indices_format, SPLIT_N=1)
    others = x.reshape(2, 2, 4) if indices_format == "scatter_mm" else x
    with engine.runs("scatter_mm"):
        expected = engine.host(sparsegpu.scatter_mm(a.data, others, lists))
    for array in lists[1:]:
        if not isinstance(array, dict):
            set_field(array, "shape", (*array.shape, 1))
    with engine.runs("scatter_mm"):
        assert (engine.host(sparsegpu.scatter_mm(a.data, others, lists)) == expected).all()
        again = sparsegpu.bsr_scatter_mm_indices_data(a, x, indices_format, SPLIT_N=1)
        assert (engine.host(sparsegpu.scatter_mm(a.data, others, again)) == expected).all()
