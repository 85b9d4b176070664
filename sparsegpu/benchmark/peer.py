"""The peers: other libraries that do the same work."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: The peers of BSR products: dense cuBLAS on the same matrix, and three sparse products.
DENSE, TORCH, CSR, BSR = "cuBLAS dense", "torch BSR, tuned", "cuSPARSE CSR", "cuSPARSE BSR"
#: torch's Triton kernels of other operations on blocks.
TORCH_SOFTMAX, TORCH_SCATTER = "torch bsr_softmax", "torch bsr_scatter_mm"
#: The peers of 2:4: cuSPARSELt, torch's call of it, used where nvmath-python is missing, and
#: torch's conversions.
CUSPARSELT, STAND_IN = "cuSPARSELt, searched", "cuSPARSELt through torch, searched"
TORCH_24 = "torch 2:4"
#: The peer of sparse times sparse: cupyx's product of CSR matrices.
SPGEMM = "cuSPARSE SpGEMM"
#: The peers of attention: torch's FlexAttention, compiled, its tiles searched; its dense attention,
#: where the mask is causal or full, or the keys are gathered before; and its compiled block masks.
FLEX, CUDNN, FLASH = "FlexAttention, searched", "cuDNN dense", "FlashAttention dense"
GATHERED, FLEX_MASK = "torch, contiguous keys", "create_block_mask, compiled"
#: The peers of solvers and of what is done with arrays, on CSR matrices: cupyx's on the same GPU,
#: SciPy's on the host.
CUPYX, SCIPY = "cupyx, CSR", "SciPy, CSR, on the host"
#: The peers of wrapped kernels: the same launch, and what the functional form cannot do without.
RAW, COPY = "cupy.RawKernel", "cupy allocation and copy"
PEERS = (
    *(DENSE, TORCH, TORCH_SOFTMAX, TORCH_SCATTER, CSR, BSR, CUSPARSELT, STAND_IN),
    *(TORCH_24, SPGEMM),
    *(FLEX, CUDNN, FLASH, GATHERED, FLEX_MASK),
    *(CUPYX, SCIPY),
    *(RAW, COPY),
)


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


def need(*modules: str) -> None:
    """Raise `NotAvailableError` where a peer's module is not installed."""
    if any(importlib.util.find_spec(module) is None for module in modules):
        raise NotAvailableError("missing")
