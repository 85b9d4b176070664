"""Arguments that are True or False are nothing else: the word "no" would count as True."""

from __future__ import annotations

import io

import numpy as np
import pytest

import sparsegpu as sg

EYE = np.eye(64, dtype=np.float32)
HALF = EYE.astype(np.float16)
A = sg.bsr_array(EYE, blocksize=(32, 32))
W = sg.to_semi_structured(EYE)
MASK = sg.causal(64, 32)
HEADS = np.ones((1, 64, 8), np.float32)
MASK_OF_BLOCKS = sg.BlockMask.from_bsr(MASK)
PACKED = A.semi_structured()
BITS = sg.semi_structured_tile(HALF)[-1]

#: By function (as messages name it) and argument: a call with a value of the argument.
CALLS = {
    "bsr_addmm, allow_tf32": lambda v: sg.bsr_addmm(None, A, EYE, allow_tf32=v),
    "bsr_matmul, allow_tf32": lambda v: sg.bsr_matmul(A, EYE, allow_tf32=v),
    "dense_bsr_matmul, allow_tf32": lambda v: sg.dense_bsr_matmul(EYE, A, allow_tf32=v),
    "semi_structured_addmm, allow_tf32": lambda v: sg.semi_structured_addmm(
        None, W, EYE, allow_tf32=v
    ),
    "semi_structured_matmul, allow_tf32": lambda v: sg.semi_structured_matmul(W, EYE, allow_tf32=v),
    "semi_structured_linear, allow_tf32": lambda v: sg.semi_structured_linear(EYE, W, allow_tf32=v),
    "sampled_addmm, allow_tf32": lambda v: sg.sampled_addmm(A, EYE, EYE, allow_tf32=v),
    "tune, allow_tf32": lambda v: sg.tune(A, EYE, allow_tf32=v),
    "tune, progress": lambda v: sg.tune(A, EYE, progress=v),
    "scaled_dot_product_attention, is_causal": lambda v: sg.scaled_dot_product_attention(
        HEADS, HEADS, HEADS, MASK, is_causal=v
    ),
    "scaled_dot_product_attention, return_lse": lambda v: sg.scaled_dot_product_attention(
        HEADS, HEADS, HEADS, MASK, return_lse=v
    ),
    "semi_structured_from_dense, strict": lambda v: sg.semi_structured_from_dense(EYE, strict=v),
    "to_semi_structured, strict": lambda v: sg.to_semi_structured(EYE, strict=v),
    "to_semi_structured, pad": lambda v: sg.to_semi_structured(EYE, pad=v),
    "SemiStructuredArray.prune_dense_static_sort, pad": (
        lambda v: sg.SemiStructuredArray.prune_dense_static_sort(HALF, pad=v)
    ),
    "semi_structured_apply, strict": lambda v: sg.semi_structured_apply(HALF, BITS, strict=v),
    "bsr_array.semi_structured, strict": lambda v: A.semi_structured(strict=v),
    "bsr_array.semi_structured, prune": lambda v: A.semi_structured(prune=v),
    "bsr_array, check": lambda v: sg.bsr_array(A, check=v),
    "bsr_array, copy": lambda v: sg.bsr_array(A, copy=v),
    "BsrSemiStructuredArray, check": lambda v: sg.BsrSemiStructuredArray(
        (PACKED.packed, PACKED.meta, PACKED.indices, PACKED.indptr), (64, 64), check=v
    ),
    "SemiStructuredArray, check": lambda v: sg.SemiStructuredArray(
        (64, 64), W.packed, W.meta, check=v
    ),
    "semi_structured_to_dense, check": lambda v: sg.semi_structured_to_dense(
        W.packed, W.meta, check=v
    ),
    "bsr_array, pad": lambda v: sg.bsr_array(EYE, blocksize=(32, 32), pad=v),
    "tobsr, copy": lambda v: A.tobsr(copy=v),
    "BlockMask.tobsr, copy": lambda v: MASK_OF_BLOCKS.tobsr(copy=v),
    "astype, copy": lambda v: A.astype(np.float32, copy=v),
    "SemiStructuredArray.astype, copy": lambda v: W.astype(np.float32, copy=v),
    "BsrSemiStructuredArray.astype, copy": lambda v: PACKED.astype(np.float32, copy=v),
    "conj, copy": lambda v: A.conj(copy=v),
    "asformat, copy": lambda v: A.asformat("bsr", copy=v),
    "reshape, copy": lambda v: A.reshape(64, 64, copy=v),
    "to_scipy, copy": lambda v: A.to_scipy(copy=v),
    "tobsr, pad": lambda v: A.tobsr((16, 16), pad=v),
    "prune_blocks, pad": lambda v: sg.prune_blocks(EYE, (32, 32), 0.5, pad=v),
    "eye, pad": lambda v: sg.eye(64, blocksize=(32, 32), pad=v),
    "identity, pad": lambda v: sg.identity(64, blocksize=(32, 32), pad=v),
    "diags, pad": lambda v: sg.diags([1.0], 0, (64, 64), pad=v),
    "random_bsr, pad": lambda v: sg.random_bsr((64, 64), (32, 32), 0.5, rng=0, pad=v),
    "from_blocks, pad": lambda v: sg.from_blocks([0], [0], np.ones((1, 2, 2)), (2, 2), pad=v),
    "tocsr, eliminate_zeros": lambda v: A.tocsr(eliminate_zeros=v),
    "tocsc, eliminate_zeros": lambda v: A.tocsc(eliminate_zeros=v),
    "tocoo, eliminate_zeros": lambda v: A.tocoo(eliminate_zeros=v),
    "argmax, keepdims": lambda v: A.argmax(keepdims=v),
    "check_format, full_check": lambda v: A.check_format(v),
    "sliding_window, causal": lambda v: sg.sliding_window(64, 32, 1, causal=v),
    "bsr_array.save_npz, compressed": lambda v: A.save_npz(io.BytesIO(), compressed=v),
    "SemiStructuredArray.save_npz, compressed": lambda v: W.save_npz(io.BytesIO(), v),
    "BsrSemiStructuredArray.save_npz, compressed": lambda v: PACKED.save_npz(io.BytesIO(), v),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("value", ["no", "False", 1, 0, 0.0, None, [], np.int8(1), np.array(True)])
def test_what_is_no_flag(name, value):
    function, argument = name.split(", ")
    said = rf"^{function}: argument '{argument}': expected True or False, got "
    with pytest.raises(TypeError, match=said):
        CALLS[name](value)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("value", [True, False])
def test_numpys_flags_are_flags(name, value):
    CALLS[name](value)
    CALLS[name](np.bool_(value))
