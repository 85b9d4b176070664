"""The same work in other libraries, with searched parameters where they have any."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._arrays import float8_e4m3fn
from . import cusparse_peer
from .arrays import ArrayWorkload, prepare_array
from .attention import AttentionWorkload
from .block_masks import MaskWorkload
from .formats import FormatWorkload
from .own_kernels import KernelWorkload, prepare_kernel
from .peer import (
    BSR,
    CSR,
    CUSPARSELT,
    DENSE,
    SDDMM_BSR,
    SDDMM_CSR,
    STAND_IN,
    TORCH,
    TORCH_LISTS,
    TORCH_PAIRS,
    TORCH_SCATTER,
    NotAvailableError,
    Prepared,
    compare,
    need,
)
from .sampled import SampledProduct, prepare_sampled
from .scatter import PairsWorkload
from .softmax import SoftmaxWorkload
from .solvers import SolverWorkload, prepare_solver
from .spgemm import SpgemmWorkload
from .workload import Product, Workload


def prepare(peer: str, workload: Workload, tuning_s: float) -> Prepared:
    """Prepare a peer for a workload and compare its result with ours.

    Raises
    ------
    NotAvailableError
        The peer is missing, does not offer the case, or its result differs.
    """
    if isinstance(workload, FormatWorkload):
        need("torch")
        from .torch_24_peer import conversion

        return conversion(workload)
    if isinstance(workload, SolverWorkload):
        return prepare_solver(peer, workload)
    if isinstance(workload, KernelWorkload):
        return prepare_kernel(peer, workload)
    if isinstance(workload, ArrayWorkload):
        return prepare_array(workload)
    if isinstance(workload, SpgemmWorkload):
        return dense_spgemm(workload) if peer == DENSE else cusparse_peer.spgemm(workload)
    if isinstance(workload, AttentionWorkload | MaskWorkload):
        need("torch", "triton")
        from .torch_attention_peer import prepared as prepare_attention

        prepared = prepare_attention(peer, workload, tuning_s)
        if isinstance(workload, AttentionWorkload):
            compare(prepared.result, workload.results()[0])
        return prepared
    if isinstance(workload, SoftmaxWorkload):
        need("torch", "triton")
        from .torch_peer import softmax

        return softmax(workload)
    if isinstance(workload, SampledProduct):
        if peer in {SDDMM_CSR, SDDMM_BSR}:
            return cusparse_peer.sddmm(peer, workload)
        return prepare_sampled(peer, workload)
    if isinstance(workload, PairsWorkload):
        need("torch", "triton")
        from .torch_scatter_peer import pairs, pairs_composed

        prepared = (pairs if peer == TORCH_PAIRS else pairs_composed)(workload)
        compare(prepared.result, workload.results()[0])
        return prepared
    assert isinstance(workload, Product)
    prepared = _PEERS[peer](workload, tuning_s)
    prepared.call()
    compare(prepared.result, workload.out)
    return prepared


def cublas(product: Product, _: float) -> Prepared:
    """Prepare the dense product; of int8 through torch, since CuPy does not use cuBLAS for it."""
    import cupy

    wide, dense = product.wide(), product.dense
    if wide.dtype == np.int8:
        need("torch")
        import torch

        # cuBLASLt's int8 wants the operand column by column.
        left, columns = torch.from_dlpack(wide), torch.from_dlpack(dense.T.copy()).T
        out = torch._int_mm(left, columns)
        return Prepared(
            lambda: torch._int_mm(left, columns, out=out), cupy.from_dlpack(out), keep=wide
        )
    if product.dtype == float8_e4m3fn:
        need("torch")
        import torch

        from .torch_24_peer import tensor

        left, columns = (tensor(a, product) for a in (wide, dense.T.copy().T))
        one = torch.ones((), device="cuda")
        keywords = {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16}
        answer = cupy.from_dlpack(torch._scaled_mm(left, columns, **keywords))
        return Prepared(lambda: torch._scaled_mm(left, columns, **keywords), answer, keep=wide)
    result = cupy.empty_like(product.out)
    return Prepared(lambda: cupy.matmul(wide, dense, out=result), result)


def torch_bsr(product: Product, tuning_s: float) -> Prepared:
    """Prepare torch's Triton product, tuned."""
    need("torch", "triton")
    from .torch_peer import tuned_product

    return tuned_product(product, tuning_s)


def torch_scatter(product: Product, _: float) -> Prepared:
    """Prepare torch's product by index lists, with its default parameters."""
    need("torch", "triton")
    from .torch_scatter_peer import scatter_product

    return scatter_product(product)


def torch_lists(product: Product, _: float) -> Prepared:
    """Prepare torch's index lists of a product."""
    need("torch", "triton")
    from .torch_scatter_peer import index_lists

    return index_lists(product)


def dense_spgemm(workload: SpgemmWorkload) -> Prepared:
    """Prepare the dense product of the two matrices."""
    import cupy

    left, right = workload.left.toarray(), workload.right.toarray()
    result = cupy.matmul(left, right)
    compare(result, workload.call().toarray())
    return Prepared(lambda: cupy.matmul(left, right, out=result), result)


def cusparselt(product: Product, _: float) -> Prepared:
    """Prepare cuSPARSELt's product through our backend: plan reused, algorithm searched."""
    import cupy

    import sparsegpu as sg

    from ..engines.cusparselt.availability import why_not
    from ..tuning.tune_cusparselt import searched

    reason = why_not("bench")
    if reason is not None:
        raise NotAvailableError("nvmath-python is missing") from reason
    assert product.product is not None  # a 2:4 case
    matrix = sg.SemiStructuredArray.from_dense(product.wide()).to_backend("cusparselt")
    result = cupy.empty_like(product.out)
    winner = searched("semi_structured_addmm", matrix, product.dense, result.dtype, progress=False)
    note = f"{winner.config}; its own choice {winner.model_ms:.4g} ms"
    return Prepared(product.product(matrix, result, config=winner.config), result, note)


def stand_in(product: Product, _: float) -> Prepared:
    """Prepare cuSPARSELt's product through torch, where `cusparselt` is not available."""
    from ..engines.cusparselt.availability import why_not

    if why_not("bench") is None:
        raise NotAvailableError("not needed")
    need("torch")
    from .torch_24_peer import searched_product

    return searched_product(product)


_PEERS: dict[str, Callable[[Product, float], Prepared]] = {
    DENSE: cublas,
    TORCH: torch_bsr,
    TORCH_SCATTER: torch_scatter,
    TORCH_LISTS: torch_lists,
    CSR: cusparse_peer.csr,
    BSR: cusparse_peer.bsr,
    CUSPARSELT: cusparselt,
    STAND_IN: stand_in,
}
