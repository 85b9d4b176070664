"""torch's 2:4: its conversions, and cuSPARSELt through it where nvmath-python is missing.

torch makes a new plan in every call. That is host time, which is not counted here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._arrays import float8_e4m3fn
from .formats import FormatWorkload
from .peer import NotAvailableError, Prepared
from .workload import Product


def searched_product(product: Product) -> Prepared:
    """Return torch's call of cuSPARSELt with the algorithm that its search finds."""
    import cupy
    import torch

    if not torch.backends.cusparselt.is_available():
        raise NotAvailableError("missing")
    left, dense = (tensor(a, product) for a in (product.left, product.dense))
    by_columns = product.out.strides[0] < product.out.strides[1]
    out_dtype = torch.bfloat16 if product.dense.itemsize == 1 else None
    rest = None, None, out_dtype, by_columns  # neither bias nor alpha
    try:
        packed = torch._cslt_compress(left)
        found = _search(packed, dense, *rest)
        result = torch._cslt_sparse_mm(packed, dense, *rest, *found)
    except RuntimeError as error:  # this version of torch does not offer it
        raise NotAvailableError(str(error).splitlines()[0][:80]) from error

    def call() -> None:
        torch._cslt_sparse_mm(packed, dense, *rest, *found)

    version = torch.backends.cusparselt.version()
    note = f"cuSPARSELt {version} of torch {torch.__version__}, algorithm {found}"
    theirs = cupy.from_dlpack(result)
    return Prepared(call, theirs.T if by_columns else theirs, note, keep=left)


def _search(*operands: Any) -> tuple[int, ...]:
    """Return the number of an algorithm, and in newer torch its split-K factor and mode."""
    import torch

    complete = getattr(getattr(torch._C, "_cusparselt", None), "mm_search", None)
    if complete is None:
        return (torch._cslt_sparse_mm_search(*operands),)
    return tuple(complete(*operands)[:3])


def conversion(workload: FormatWorkload) -> Prepared:
    """Return torch's function for a conversion in CUTLASS's layout."""
    import cupy
    import torch
    from torch.sparse import _semi_structured_conversions as conversions

    operands = [torch.from_dlpack(array) for array in workload.operands]
    works: dict[str, Callable[..., Any]] = {
        "compress": conversions.sparse_semi_structured_from_dense_cutlass,
        "expand": conversions.sparse_semi_structured_to_dense_cutlass,
        "tile": lambda dense: torch._sparse_semi_structured_tile(
            dense, "largest_abs_values_greedy"
        ),
        "apply": torch._sparse_semi_structured_apply,
        "apply_dense": torch._sparse_semi_structured_apply_dense,
    }
    work = works[workload.case.operation]
    try:
        answer = work(*operands)
    except RuntimeError as error:
        raise NotAvailableError(str(error).splitlines()[0][:80]) from error
    first = answer[0] if isinstance(answer, tuple) else answer
    ours = torch.from_dlpack(workload.results()[0])
    note = "" if torch.equal(first, ours) else "its values are not the same bits"
    return Prepared(lambda: work(*operands), cupy.from_dlpack(first), note)


def tensor(array: Any, product: Product) -> Any:
    """Return an operand as torch's, sharing its memory."""
    import torch

    shared = torch.from_dlpack(array)
    return shared.view(torch.float8_e4m3fn) if product.dtype == float8_e4m3fn else shared
