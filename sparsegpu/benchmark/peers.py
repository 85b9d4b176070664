"""The same product by other libraries, each at its best; what is missing is said, not required."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import numpy as np

from .._arrays import float8_e4m3fn
from . import cusparse_peer
from .case import BSR, CSR, CUSPARSELT, DENSE, STAND_IN, TORCH
from .contest import Contestant, NotAvailableError
from .formats import FormatProblem
from .problem import Problem

#: A peer's result may differ from ours by this share of the largest element: its accuracy is not
#: under test, but that it computes the same product is.
_AGREEMENT = 0.02


def prepare(peer: str, problem: Problem | FormatProblem, tuning_s: float) -> Contestant:
    """Return a peer ready for a problem, having seen that it computes the same.

    Raises
    ------
    NotAvailableError
        Saying "missing", what the peer does not offer, or by how much it differs.
    """
    if isinstance(problem, FormatProblem):
        need("torch")
        from .torch_24_peer import conversion

        return conversion(problem)
    contestant = _PEERS[peer](problem, tuning_s)
    contestant.call()
    wide = np.float64 if problem.dense.dtype == np.float64 else np.float32
    theirs, ours = (a.astype(wide) for a in (contestant.result, problem.out))
    difference, largest = float(abs(theirs - ours).max()), float(abs(ours).max())
    if not difference <= _AGREEMENT * largest:
        raise NotAvailableError(f"differs by {difference:.3g}")
    return contestant


def need(*modules: str) -> None:
    """Say that a peer is missing where one of its modules is."""
    if any(importlib.util.find_spec(module) is None for module in modules):
        raise NotAvailableError("missing")


def cublas(problem: Problem, _: float) -> Contestant:
    """Return the dense product; of int8 through torch, since CuPy's own is not cuBLAS."""
    import cupy

    wide, dense = problem.wide(), problem.dense
    if wide.dtype == np.int8:
        need("torch")
        import torch

        # cuBLASLt's int8 wants the operand column by column.
        left, columns = torch.from_dlpack(wide), torch.from_dlpack(dense.T.copy()).T
        out = torch._int_mm(left, columns)
        return Contestant(
            lambda: torch._int_mm(left, columns, out=out), cupy.from_dlpack(out), keep=wide
        )
    if problem.dtype == float8_e4m3fn:
        need("torch")
        import torch

        from .torch_24_peer import tensor

        left, columns = (tensor(a, problem) for a in (wide, dense.T.copy().T))
        one = torch.ones((), device="cuda")
        keywords = {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16}
        answer = cupy.from_dlpack(torch._scaled_mm(left, columns, **keywords))
        return Contestant(lambda: torch._scaled_mm(left, columns, **keywords), answer, keep=wide)
    result = cupy.empty_like(problem.out)
    return Contestant(lambda: cupy.matmul(wide, dense, out=result), result)


def torch_bsr(problem: Problem, tuning_s: float) -> Contestant:
    """Return torch's Triton product, tuned."""
    need("torch", "triton")
    from .torch_peer import tuned_product

    return tuned_product(problem, tuning_s)


def cusparselt(problem: Problem, _: float) -> Contestant:
    """Return cuSPARSELt's product through our backend: plan reused, algorithm searched."""
    import cupy

    import sparsegpu as sg

    from ..engines.cusparselt.availability import why_not
    from .tune_cusparselt import searched

    reason = why_not("race")
    if reason is not None:
        raise NotAvailableError("nvmath-python is missing") from reason
    assert problem.product is not None  # a 2:4 case
    matrix = sg.SemiStructuredArray.from_dense(problem.wide()).to_backend("cusparselt")
    result = cupy.empty_like(problem.out)
    winner = searched("semi_structured_addmm", matrix, problem.dense, result.dtype, progress=False)
    note = f"{winner.config}; its own choice {winner.model_ms:.4g} ms"
    return Contestant(problem.product(matrix, result, config=winner.config), result, note)


def stand_in(problem: Problem, _: float) -> Contestant:
    """Return cuSPARSELt's product through torch, where `cusparselt` is missing."""
    from ..engines.cusparselt.availability import why_not

    if why_not("race") is None:
        raise NotAvailableError("not needed")
    need("torch")
    from .torch_24_peer import searched_product

    return searched_product(problem)


_PEERS: dict[str, Callable[[Problem, float], Contestant]] = {
    DENSE: cublas,
    TORCH: torch_bsr,
    CSR: cusparse_peer.csr,
    BSR: cusparse_peer.bsr,
    CUSPARSELT: cusparselt,
    STAND_IN: stand_in,
}
