"""The peers: other libraries that do the same work."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

#: The peers of BSR products: dense cuBLAS on the same matrix, and three sparse products.
DENSE, TORCH, CSR, BSR = "cuBLAS dense", "torch BSR, tuned", "cuSPARSE CSR", "cuSPARSE BSR"
#: torch's Triton kernels of other operations on blocks.
TORCH_SOFTMAX, TORCH_SCATTER = "torch bsr_softmax", "torch bsr_scatter_mm"
#: The peers of products of pairs, torch's Triton kernel and a composition of its dense ones, and
#: of making index lists.
TORCH_PAIRS, TORCH_BMM = "torch scatter_mm", "torch bmm, index_add"
TORCH_LISTS = "torch bsr_scatter_mm_indices_data"
#: cuSPARSE's sampled products, of single elements and of blocks.
SDDMM_CSR, SDDMM_BSR = "cuSPARSE SDDMM, CSR", "cuSPARSE SDDMM, BSR"
#: The peers of 2:4: cuSPARSELt, torch's call of it, used where nvmath-python is missing, and
#: torch's conversions.
CUSPARSELT, STAND_IN = "cuSPARSELt, searched", "cuSPARSELt through torch, searched"
TORCH_24 = "torch 2:4"
#: The peer of sparse times sparse: cupyx's product of CSR matrices.
SPGEMM = "cuSPARSE SpGEMM"
#: The peers of attention: torch's FlexAttention, compiled, its tiles searched; its Triton kernels
#: of BSR masks, one after the other; its dense attention, where the mask is causal or full, or the
#: keys are gathered before; and its compiled block masks.
FLEX, TRITON = "FlexAttention, searched", "torch Triton, BSR mask"
CUDNN, FLASH = "cuDNN dense", "FlashAttention dense"
GATHERED, FLEX_MASK = "torch, contiguous keys", "create_block_mask, compiled"
#: The peers of solvers and of what is done with arrays, on CSR matrices: cupyx's on the same GPU,
#: SciPy's on the host.
CUPYX, SCIPY = "cupyx, CSR", "SciPy, CSR, on the host"
#: The peers of wrapped kernels: the same launch, and what the functional form cannot do without.
RAW, COPY = "cupy.RawKernel", "cupy allocation and copy"
PEERS = (
    *(DENSE, TORCH, TORCH_SOFTMAX, TORCH_SCATTER, CSR, BSR, CUSPARSELT, STAND_IN),
    *(TORCH_PAIRS, TORCH_BMM, TORCH_LISTS, SDDMM_CSR, SDDMM_BSR),
    *(TORCH_24, SPGEMM),
    *(FLEX, TRITON, CUDNN, FLASH, GATHERED, FLEX_MASK),
    *(CUPYX, SCIPY),
    *(RAW, COPY),
)
#: A peer's result may differ from ours by this fraction of the largest element. This only tests
#: that it computes the same: its accuracy is not our concern.
_AGREEMENT = 0.02


class NotAvailableError(Exception):
    """A peer is not installed or does not offer a case; the message says which."""


@dataclass
class Prepared:
    """A peer that is ready to be timed.

    Attributes
    ----------
    call : callable
        Computes the result again.
    result : array
        Where the call writes.
    note : str
        How the peer's parameters were chosen.
    keep : object
        What must stay in memory.
    """

    call: Callable[[], Any]
    result: Any
    note: str = ""
    keep: Any = None


def compare(result: Any, ours: Any) -> None:
    """Raise `NotAvailableError` where a peer's result differs from ours."""
    wide = np.float64 if ours.dtype == np.float64 else np.float32
    theirs, ours = (a.astype(wide) for a in (result, ours))
    difference, largest = float(abs(theirs - ours).max()), float(abs(ours).max())
    if not difference <= _AGREEMENT * largest:
        raise NotAvailableError(f"differs by {difference:.3g}")


def need(*modules: str) -> None:
    """Raise `NotAvailableError` where a peer's module is not installed."""
    if any(importlib.util.find_spec(module) is None for module in modules):
        raise NotAvailableError("missing")
