"""What paths of attention and of products at blocks may take, as `memory_cases` states it.

No product takes anything beside its result, from the second call on: the parts of a sum that is
split are workspace of the pattern.
"""

from functools import partial

import sparsegpu as sg
from memory_cases import (
    BLOCK_ROWS,
    BLOCKSIZE,
    CASES,
    SHAPE,
    Case,
    case,
    index_work,
    parts,
    sparse,
    values,
)
from scatter_cases import FORMATS
from sparsegpu.testing import random_blocks

INNER = 256
#: The kernels of paths, and the dtype to look at.
SAMPLED = {
    "wgmma": ("bsr_sampled_addmm_sm90", "float16"),
    "mma": ("bsr_sampled_addmm_sm80", "bfloat16"),
    "fma": ("bsr_sampled_addmm_f32", "float32"),
    "mma_f64": ("bsr_sampled_addmm_f64", "float64"),
    "simt": ("bsr_sampled_addmm_simt", "complex64"),
}
SCATTER = {
    "wgmma": ("scatter_mm_sm90", "float16"),
    "mma": ("scatter_mm_sm80", "bfloat16"),
    "fma": ("scatter_mm_f32", "float32"),
    "mma_f64": ("scatter_mm_f64", "float64"),
    "simt": ("scatter_mm_simt", "complex64"),
}
SPGEMM = {  # and a side of the blocks
    "fma": ("bsr_spgemm_f32", "float32", 16),
    "mma_f64": ("bsr_spgemm_f64", "float64", 4),
    "mma_f64_tiled": ("bsr_spgemm_f64_tiled", "float64", 16),
    "small": ("bsr_spgemm_small", "float32", 4),
    "simt": ("bsr_spgemm_simt", "complex64", 4),
}
#: Of attention and of its gradients.
ATTENTION = {
    "wgmma": ("bsr_attention_sm90", "float16"),
    "mma": ("bsr_attention_sm80", "bfloat16"),
    "mma_f64": ("bsr_attention_f64", "float64"),
    "fma": ("bsr_attention_fma", "float32"),
}
GRADIENTS = {
    "wgmma": ("bsr_attention_backward_sm90", "float16"),
    "mma": ("bsr_attention_backward_sm80", "bfloat16"),
    "fma": ("bsr_attention_backward_fma", "float32"),
}


def blocks(cp, rng, side, dtype, shape=SHAPE):
    arrays = random_blocks(rng, shape, (side, side), density=0.5, dtype=dtype, shuffled=False)
    return sg.bsr_array(tuple(map(cp.asarray, arrays)), shape=shape)


def sampled_by(path, cp, rng, **fields):
    kernel, dtype = SAMPLED[path]
    a, config = sparse(cp, rng, dtype), {"path": path, **fields}
    x, y = (values(cp, rng, s, dtype) for s in ((SHAPE[0], INNER), (INNER, SHAPE[1])))
    return Case((kernel,), lambda: sg.sampled_addmm(a, x, y, config=config).data)


def scattered_by(path, name, cp, rng):
    """Tiles of 64 columns."""
    kernel, dtype = SCATTER[path]
    a, x = blocks(cp, rng, 64, dtype), values(cp, rng, (SHAPE[1], 128), dtype)
    lists = sg.bsr_scatter_mm_indices_data(a, x, name, SPLIT_N=2)
    if name == "scatter_mm":
        x = cp.ascontiguousarray(x.reshape(-1, 64, 2, 64).swapaxes(1, 2)).reshape(-1, 64, 64)
    return Case((kernel,), lambda: sg.scatter_mm(a.data, x, lists, config={"path": path}))


def multiplied_by(path, cp, rng):
    """Of blocks that the path was made for."""
    kernel, dtype, side = SPGEMM[path]
    a, b = blocks(cp, rng, side, dtype), blocks(cp, rng, side, dtype, SHAPE[::-1])
    return Case((kernel,), lambda: sg.bsr_spgemm(a, b, config={"path": path}).data)


def operands_of_attention(cp, rng, dtype):
    """Return query, key, value and mask, and the bytes of a schedule and of the mask's bits."""
    side, lengths = 64, SHAPE
    q, k = (values(cp, rng, (2, 3, n, 64), dtype) for n in lengths)
    mask = blocks(cp, rng, side, "bool")
    bits = mask.nnzb * side * (side // 32) * 4
    return (q, k, k, mask), 4 * (lengths[0] // side + mask.nnzb) + bits


def attention_by(path, cp, rng):
    """No score matrix."""
    kernel, dtype = ATTENTION[path]
    operands, known = operands_of_attention(cp, rng, dtype)
    how = {"config": {"path": path}, "return_lse": True}
    return Case((kernel,), lambda: sg.scaled_dot_product_attention(*operands, **how), known)


def gradients_by(path, cp, rng):
    """One float a query, and what is known of the pattern and of its transpose."""
    kernel, dtype = GRADIENTS[path]
    operands, known = operands_of_attention(cp, rng, dtype)
    out, lse = sg.scaled_dot_product_attention(*operands, return_lse=True)
    how = {"config": {"path": path}}

    def call():
        return sg.scaled_dot_product_attention_backward(out, *operands, out, lse, **how)[:3]

    return Case((kernel,), call, 2 * known + lse.nbytes)


for path in ATTENTION:
    CASES[f"attention_by_{path}"] = partial(attention_by, path)
for path in GRADIENTS:
    CASES[f"attention_gradients_by_{path}"] = partial(gradients_by, path)
for path in SAMPLED:
    CASES[f"sampled_addmm_by_{path}"] = partial(sampled_by, path)
    if path != "simt":
        CASES[f"sampled_addmm_by_{path}_in_parts"] = partial(sampled_by, path, split_k=2)
for path in SCATTER:
    for name in FORMATS:
        CASES[f"{name}_by_{path}"] = partial(scattered_by, path, name)
for path in SPGEMM:
    CASES[f"spgemm_by_{path}"] = partial(multiplied_by, path)


@case
def first_sampled_addmm_in_parts(cp, rng):
    """The pattern's indices, and float32 sums of two parts, rounded up by an eighth at most."""
    a, split = sparse(cp, rng), {"path": "mma", "split_k": 2}
    arrays, nnzb, (bm, bn) = parts(a), a.nnzb, BLOCKSIZE
    x, y = values(cp, rng, (SHAPE[0], INNER)), values(cp, rng, (INNER, SHAPE[1]))
    sums = 2 * nnzb * bm * bn * 4

    def call():
        made = sg.bsr_array(arrays, shape=SHAPE, check=False)
        return sg.sampled_addmm(made, x, y, config=split).data

    kernels = "bsr_sampled_addmm_sm80", "bsr_sampled_addmm_reduce"
    return Case(kernels, call, index_work(int32=[nnzb, BLOCK_ROWS + 1]) + sums + sums // 8)
