"""Sampled products: dense @ dense at the stored blocks, beside the whole dense product and others.

A case's size is (M, N, K) here: its matrix, M x N, is the pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

import sparsegpu as sg

from .._arrays import bfloat16, dtype_of
from ..testing import accuracy_bound, assert_close, to_host
from ..tuning.operands import random_array
from .case import Case
from .check import fraction_used
from .peer import DENSE, TORCH, NotAvailableError, Prepared, compare, need
from .workload import Workload, make_matrix

#: The operation, as cases call it.
SAMPLED = "sampled_addmm"
_CHECKED = 64  # blocks


@dataclass(eq=False)
class SampledProduct(Workload):
    """``out = (mat1 @ mat2)[stored blocks]``.

    Attributes
    ----------
    out : bsr_array
    mat1, mat2 : arrays (M, K), (K, N)
    """

    out: sg.bsr_array
    mat1: Any
    mat2: Any

    @property
    def flops(self) -> int:
        return 2 * self.stored * self.mat1.shape[-1]

    def results(self) -> tuple[Any, ...]:
        self.out.data.fill(-77 if self.out.dtype.kind == "i" else np.nan)
        self.call()
        return (self.out.data,)

    def error(self) -> float:
        """Check some blocks, the first and the last among them, and that all were written."""
        (values,) = self.results()
        if not bool((values == values).all()):
            raise AssertionError("NaN in the result: elements were not written")
        indptr, indices = to_host(self.out.indptr), to_host(self.out.indices)
        (bm, bn), count = self.out.blocksize, indices.size
        picked = np.unique(np.linspace(0, count - 1, _CHECKED).astype(np.int64))
        worst = 0.0
        for p in picked.tolist():
            i, j = int(np.searchsorted(indptr, p, side="right")) - 1, int(indices[p])
            left = to_host(self.mat1[i * bm : (i + 1) * bm])
            right = to_host(self.mat2[:, j * bn : (j + 1) * bn])
            exact, bound = accuracy_bound(left, right, allow_tf32=self.case.tf32)
            result = to_host(values[p])
            assert_close(result, exact, bound)
            worst = max(worst, fraction_used(result, exact, bound))
        return worst


def make_sampled(case: Case, xp: ModuleType, seed: int = 0) -> SampledProduct:
    """Draw the operands of a case in the given array library."""
    out, dtype = make_matrix(case, xp, seed), dtype_of(case.dtype)
    if dtype == np.int8:
        out = out.astype(np.int32)
    m, n, k = case.shape
    mat1 = random_array(xp, (m, k), dtype, seed + 1)
    mat2 = random_array(xp, (k, n), dtype, seed + 2)
    if case.layout == "dense columns":
        mat2 = mat2.T.copy().T
    keywords: dict[str, Any] = {"beta": 0, "out": out, "allow_tf32": case.tf32}
    if case.path:
        keywords["config"] = {"path": case.path}
    call = partial(sg.sampled_addmm, out, mat1, mat2, **keywords)
    operands = (out.indices, out.indptr, mat1, mat2)
    return SampledProduct(case, call, out.data, operands, out, mat1, mat2)


def prepare_sampled(peer: str, product: SampledProduct) -> Prepared:
    """Prepare the dense product or torch's, and compare the latter with ours.

    Raises
    ------
    NotAvailableError
        The peer is missing, does not offer the case, or its result differs.
    """
    if peer == DENSE:
        import cupy

        result = cupy.matmul(product.mat1, product.mat2)
        return Prepared(lambda: cupy.matmul(product.mat1, product.mat2, out=result), result)
    if peer != TORCH or product.out.dtype not in (np.float16, bfloat16, np.float32):
        raise NotAvailableError("not offered")
    need("torch", "triton")
    import cupy
    import torch
    from torch.sparse._triton_ops import sampled_addmm

    from .torch_peer import bsr_tensor

    matrix = product.out.with_data(cupy.zeros_like(product.out.data))
    where = bsr_tensor(matrix)
    mat1, mat2 = (torch.from_dlpack(a) for a in (product.mat1, product.mat2))
    call = partial(sampled_addmm, where, mat1, mat2, beta=0.0, out=where, skip_checks=True)
    call()
    compare(matrix.data, product.results()[0])
    return Prepared(call, matrix.data, keep=matrix)
