"""Calls of everything public that are right, and arguments that may be wrong in them."""

from __future__ import annotations

import inspect
import io
import operator

import numpy as np
import scipy.sparse

import sparsegpu as sg
from sparsegpu._arrays import float8_e4m3fn
from sparsegpu.bsr.ufuncs import Ufuncs

#: Arguments that are not tried: anything has a truth value; files have tests of their own.
OTHERS = {"self", "cls", "file", "transposed", "ax", "rng", "xp", "keywords"}


PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 k_0) { .reg .b64 %rd<2>; ld.param.u64 %rd1, [k_0]; ret; }
"""


def bsr(dtype="float32", shape=(32, 64), blocksize=(16, 32)):
    return sg.random_bsr(shape, blocksize, 0.5, dtype=dtype, rng=0)


def dense(*shape, dtype="float32"):
    return np.ones(shape, dtype)


def half(shape=(32, 64)):
    return np.tile(np.array([0, 1, 0, 2], np.float16), (shape[0], shape[1] // 4))


def weight():
    return sg.to_semi_structured(half())


def blocks_24():
    return sg.bsr_array(half((64, 64)), blocksize=(32, 32)).semi_structured()


def spd():
    return sg.identity(16, blocksize=(4, 4))


def system():
    """Return the arguments that all solvers of linear systems have."""
    return dict(
        b=np.ones(16), x0=np.ones(16), rtol=1e-5, maxiter=9, callback=None, check_every=4,
        verbose=False, residuals=None,
    )  # fmt: skip


def epilogue(m, n, dtype="float32"):
    """Return the keywords of every product, none of which changes anything."""
    return dict(
        beta=1, alpha=1, left_alpha=dense(m, dtype=dtype), right_alpha=dense(n, dtype=dtype),
        activation=None, out=dense(m, n, dtype=dtype), out_dtype=dtype, config=None,
    )  # fmt: skip


def functions():
    """Return the arguments of a call that works, by the name of every public function."""
    packed, meta = sg.semi_structured_from_dense(half((128, 64)))
    tile = half((32, 32))
    tile = sg.prune_tile(tile)
    bitmask = sg.compressed_swizzled_bitmask(tile)
    product = epilogue(32, 3)
    of_24 = epilogue(32, 3, "float16")
    query = dense(2, 32, 8)
    mask = sg.bsr_array(dense(32, 32), blocksize=(16, 16))
    heads = dict(softcap=None, slopes=np.ones(2, "f4"), sinks=np.ones(2, "f4"))
    a, x = bsr(), dense(64, 3)
    lists = sg.bsr_scatter_mm_indices_data(a, x)
    number = dict(scale_sparse=1.0, scale_dense=1.0)
    return {
        "bsr_array": dict(arg=dense(4, 8), shape=(4, 8), blocksize=(2, 4), dtype="float32"),
        "BsrSemiStructuredArray": dict(
            parts=tuple(getattr(blocks_24(), n) for n in ("packed", "meta", "indices", "indptr")),
            shape=(64, 64),
        ),
        "BlockMask": dict(
            pattern=mask.pattern, kind=np.ones(mask.nnzb, "u1"), bits=np.zeros((0, 16, 1), "u4")
        ),
        "SemiStructuredArray": dict(
            shape=(128, 64), packed=packed, meta=meta, packed_t=None, meta_t=None, bitmask=None,
            dtype=None, backend="native",
        ),
        "to_semi_structured": dict(dense=half(), backend="native", dtype=None),
        "save_npz": dict(array=a),
        "save_safetensors": dict(arrays={"a": a, "x": x}, metadata={"by": "tests"}),
        "random_bsr": dict(shape=(4, 8), blocksize=(2, 4), density=0.5, dtype="float32"),
        "prune_blocks": dict(dense=dense(4, 8), blocksize=(2, 4), density=0.5, norm=2),
        "vstack": dict(blocks=[bsr(), bsr()], dtype=None),
        "hstack": dict(blocks=[bsr(), bsr()], dtype=None),
        "block_array": dict(blocks=[[bsr(), None], [None, bsr()]], dtype=None),
        "block_diag": dict(blocks=[bsr(), bsr()], dtype=None),
        "kron": dict(A=bsr(), B=dense(2, 3)),
        "tril": dict(A=bsr(), k=0),
        "triu": dict(A=bsr(), k=1),
        "diags": dict(
            diagonals=[dense(2, 2, 2)], offsets=[0], shape=(4, 4), dtype=None, blocksize=(2, 2)
        ),
        "eye": dict(m=4, n=6, k=0, dtype="float32", blocksize=(2, 2)),
        "identity": dict(n=4, dtype="float32", blocksize=(2, 2)),
        "from_blocks": dict(rows=[0, 1], cols=[1, 0], blocks=dense(2, 2, 2), shape=(4, 4)),
        "banded": dict(length=8, blocksize=2, lower=1, upper=1),
        "bigbird": dict(length=8, blocksize=2, window=1, global_blocks=1, random_blocks=1),
        "causal": dict(length=8, blocksize=2),
        "sliding_window": dict(length=8, blocksize=2, window=1),
        "bsr_addmm": dict(input=dense(32, 1), bsr=a, dense=x, **product),
        "bsr_matmul": dict(bsr=a, dense=x, **product),
        "bsr_linear": dict(
            x=dense(3, 64), weight=a, bias=dense(32), **epilogue(3, 32)
        ),
        "int_bsr_addmm": dict(
            input=dense(32, 1, dtype="int8"), bsr=bsr("int8"), dense=dense(64, 3, dtype="int8"),
            alpha=1, beta=1,
        ),
        "dense_bsr_matmul": dict(dense=dense(3, 32), bsr=a, input=None, **epilogue(3, 64)),
        "sampled_addmm": dict(
            input=a, mat1=dense(32, 5), mat2=dense(5, 64), beta=1, alpha=1, out=a.copy(),
            config=None,
        ),
        "bsr_softmax": dict(bsr=a, out=a.copy()),
        "bsr_softmax_backward": dict(grad=a, softmax=a.copy(), out=a.copy()),
        "bsr_spgemm": dict(
            a=a, b=(b := bsr(shape=(64, 32), blocksize=(32, 8))), out_dtype=None,
            out=sg.bsr_spgemm(a, b), config=None,
        ),
        "scaled_dot_product_attention": dict(
            query=query, key=query, value=query, mask=mask, scale=None, dropout_p=0.0, seed=None,
            **heads, out=query.copy(), config=None,
        ),
        "scaled_dot_product_attention_backward": dict(
            grad=query, query=query, key=query, value=query, mask=mask, out=query,
            lse=dense(2, 32), grad_lse=None, scale=None, dropout_p=0.0, seed=None, **heads,
            config=None,
        ),
        "scatter_mm": dict(
            blocks=a.data, others=x, indices_data=lists, accumulators=dense(32, 3), config=None
        ),
        "bsr_scatter_mm": dict(bsr=a, other=x, indices_data=None, out=dense(32, 3), config=None),
        "bsr_scatter_mm_indices_data": dict(
            bsr=a, other=x, indices_format="scatter_mm", SPLIT_N=1, TILE_M=16, GROUP_SIZE=4
        ),
        "semi_structured_from_dense": dict(dense=half()),
        "semi_structured_to_dense": dict(packed=packed, meta=meta),
        "meta_reorder_offsets": dict(m=32, meta_ncols=2, meta_dtype="int16"),
        "reorder_meta": dict(meta=meta),
        "check_meta": dict(meta=meta, dtype=None),
        "describe_meta": dict(meta=meta, row=0, group=0, dtype=None),
        "restore_meta": dict(meta=meta),
        "to_cusparselt_layout": dict(packed=packed, meta=meta, capability=None),
        "from_cusparselt_layout": dict(
            buffer=sg.to_cusparselt_layout(packed, meta), shape=(128, 64), capability=None
        ),
        "permute_for_24": dict(
            dense=half(), criterion="magnitude", keep="2:4", window=8, escapes=0, seed=0,
            progress=False,
        ),
        "prune_24": dict(dense=half(), criterion="magnitude", keep="2:4"),
        "prune_tile": dict(dense=half(), algorithm="causal1122"),
        "semi_structured_tile": dict(dense=half((32, 32)), algorithm="", layout="cutlass"),
        "compressed_swizzled_bitmask": dict(pruned=tile),
        "semi_structured_apply": dict(dense=tile, bitmask=bitmask),
        "semi_structured_apply_dense": dict(dense=tile, bitmask=bitmask),
        "kernels.analyse": dict(ptx=PTX, name="k"),
        "kernels.wrap": dict(
            kernel='extern "C" __global__ void k(int* x) { *x = 1; }', name="k", params=["x"],
            grid=1, block=1, shared_memory=0, configs=None, key=(), prune=None,
            heuristics=(), writes=["x"], reads=None, ref=None, options=(),
        ),
        "kernels.Config": dict(
            defines={"A": 1}, block=1, shared_memory=0, options=(), cluster=2
        ),
        "kernels.Out": dict(like="x"),
        "semi_structured_addmm": dict(
            input=None, sparse=weight(), dense=dense(64, 3, dtype="float16"), **of_24
        ),
        "semi_structured_matmul": dict(
            sparse=weight(), dense=dense(64, 3, dtype="float16"), **of_24
        ),
        "semi_structured_linear": dict(
            x=dense(3, 64, dtype="float16"), weight=weight(), bias=dense(32, dtype="float16"),
            **epilogue(3, 32, "float16"),
        ),
        "scaled_mm": dict(
            sparse=sg.to_semi_structured(np.zeros((32, 64), np.int8)),
            dense=dense(64, 3, dtype="int8"), input=None, activation=None, out_dtype="float32",
            dense_dtype=None, out=dense(32, 3), config=None, **number,
        ),
        "quantize_int8": dict(W=dense(4, 8), axis=1),
        "tune": dict(
            bsr=a, dense=x, op="bsr_addmm", shape=None, blocksize=None, dtype="float32",
            density=0.1, out_dtype=None,
        ),
        "is_supported": dict(op="bsr_addmm", dtype="float32", cc=(9, 0)),
        "linalg.aslinearoperator": dict(A=bsr("float64")),
        "linalg.amg": dict(
            A=spd(), B=np.eye(16, 4), smoother="chebyshev", degree=2, max_levels=4, max_coarse=9,
            verbose=False,
        ),
        "linalg.block_jacobi": dict(A=spd()),
        "linalg.bicgstab": dict(A=spd(), M=spd(), **system(), atol=0.0),
        "linalg.cg": dict(A=spd(), M=spd(), **system(), atol=0.0),
        "linalg.gmres": dict(
            A=spd(), M=spd(), **system(), atol=0.0, restart=3, callback_type="x"
        ),
        "linalg.lobpcg": dict(
            A=spd(), X=np.eye(16, 2), B=spd(), M=spd(), Y=np.eye(16, 1, -3), tol=1e-5, maxiter=5,
            largest=True, verbosityLevel=0, retLambdaHistory=True, retResidualNormsHistory=True,
            restartControl=20, check_every=4, verbose=False,
        ),
        "linalg.minres": dict(A=spd(), M=spd(), **system(), shift=0.0, show=False, check=False),
    }  # fmt: skip


def methods():
    """Return the arguments of a call that works, by class and the name of every public method."""
    square = np.ones((64, 64))
    same = dict(
        astype=dict(dtype="float16"), copy={}, get={}, save_npz={}, toarray={}, todense={},
    )  # fmt: skip
    without_arguments = {name: {} for name in vars(Ufuncs) if not name.startswith("_")}
    of_24 = without_arguments | dict(
        multiply=dict(other=2), power=dict(n=2), round=dict(decimals=0), aslinearoperator={}
    )
    return {
        "bsr_array": same | without_arguments | dict(
            asformat=dict(format="csr"), aslinearoperator={}, check_format={}, conj={},
            conjugate={}, diagonal=dict(k=0), diagonal_blocks=dict(k=0),
            dot=dict(other=square), eliminate_zeros={},
            count_nonzero=dict(axis=0), maximum=dict(other=square), minimum=dict(other=square),
            argmax=dict(axis=0), argmin=dict(axis=0), nonzero={},
            power=dict(n=2, dtype="float32"), round=dict(decimals=0),
            setdiag=dict(values=1.0, k=0), sorted_indices={}, trace=dict(offset=0),
            getrow=dict(i=0), matvec=dict(x=np.ones(64)), max=dict(axis=0, out=np.ones(64)),
            mean=dict(axis=0, dtype="float64", out=np.ones(64)),
            min=dict(axis=0, out=np.ones(64)), nanmax=dict(axis=0, out=np.ones(64)),
            nanmin=dict(axis=0, out=np.ones(64)), multiply=dict(other=square),
            reshape={}, rmatvec=dict(x=np.ones(64)), same_pattern=dict(other=bsr()),
            semi_structured={}, sort_indices={}, spy={},
            sum=dict(axis=0, dtype="float64", out=np.ones(64)), sum_duplicates={},
            toarray=dict(order=None, out=square.copy()),
            todense=dict(order=None, out=square.copy()), tobsr=dict(blocksize=(32, 32)),
            tocoo={}, tocsc={}, tocsr={}, to_scipy={}, to_torch={}, transpose=dict(axes=None),
            with_data=dict(data=np.ones((4, 32, 32))), to_device={},
        ),
        "SemiStructuredArray": same | of_24 | dict(
            from_dense=dict(dense=half(), backend="native", dtype=None), half={},
            held=dict(transposed=False),
            indices={}, load_npz={}, prune_dense_static_sort=dict(
                dense=half((32, 64)), algorithm="", backend="native", dtype=None
            ),
            spy={}, to_backend=dict(backend="native"), transpose=dict(axes=None), values={},
            to_device={},
        ),
        "BsrSemiStructuredArray": same | of_24 | dict(
            from_bsr=dict(bsr=sg.bsr_array(half((64, 64)), blocksize=(32, 32))), load_npz={},
            spy={}, tobsr={}, transpose={}, to_device={},
        ),
    }  # fmt: skip


def instances():
    """Return an array of each class that has methods."""
    a = sg.bsr_array(np.ones((64, 64)), blocksize=(32, 32))
    return {"bsr_array": a, "SemiStructuredArray": weight(), "BsrSemiStructuredArray": blocks_24()}


def wrong_values():
    """Return what may be wrong for an argument, by kind, dtype, shape or value."""
    masked = np.ma.masked_equal(np.eye(4), 0)
    return {
        "None": None, "object": object(), "text": "nonsense", "bytes": b"x", "float": 2.5,
        "negative": -3, "zero": 0, "huge": 10**30, "beyond floats": 10**400, "nan": float("nan"),
        "complex": 1j, "bool": True, "class": int, "function": len, "dict": {"path": "x"},
        "set": {1}, "empty list": [], "ragged list": [[1], [1, 2]], "list of text": ["a"],
        "tuple": (1, 2, 3, 4, 5), "tuple of None": (None, None), "negative pair": (-2, 2),
        "huge pair": (10**30, 10**30), "zeros": (0, 0), "floats": (1.5, 2.5),
        "int64": dense(3, 5, dtype="int64"), "uint8": dense(32, 64, dtype="uint8"),
        "bool array": dense(32, 64, dtype="bool"), "objects": np.array([object(), None]),
        "text array": np.array(["a", "b"]), "dates": np.zeros((4, 4), "M8[s]"),
        "records": np.zeros((4, 4), "i4,f4"), "longdouble": dense(4, 4, dtype="longdouble"),
        "fp8": np.zeros((32, 64), float8_e4m3fn), "no dimensions": np.array(2.0),
        "one dimension": dense(7), "five dimensions": dense(2, 1, 3, 5, 7),
        "half": dense(3, 5, dtype="float16"), "double": dense(64, 3, dtype="float64"),
        "complex array": dense(64, 3, dtype="complex64"), "empty": dense(0, 0),
        "transposed": dense(3, 64).T, "read-only": np.broadcast_to(np.float32(1), (64, 3)),
        "masked": masked, "scipy": scipy.sparse.csr_array(np.eye(3)),
        "another bsr": bsr("float64", (6, 6), (2, 3)), "another 24": weight().T,
        "blocks of 24": blocks_24(), "batch": bsr("float32", (2, 32, 64)), "file": io.BytesIO(),
    }  # fmt: skip


def documented(function):
    """Return the names of the exceptions under Raises in a docstring."""
    lines = inspect.cleandoc(function.__doc__ or "").splitlines()
    if "Raises" not in lines:
        return set()
    found = set()
    for line in lines[lines.index("Raises") + 2 :]:
        if line.startswith("---"):
            break
        if line and not line.startswith(" "):
            found.update(line.split(", "))
    return found


def public_function(name):
    return operator.attrgetter(name)(sg)
