"""torch's sparse BSR tensors: over the same values, on the host or the device, both ways."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays import as_array, bfloat16, is_torch
from .._checks import bad_type
from ..ops._common import on_device
from .base import BsrBase


def is_sparse_bsr(arg: Any) -> bool:
    """Return whether ``arg`` is a tensor of layout ``torch.sparse_bsr``."""
    return is_torch(arg) and str(arg.layout) == "torch.sparse_bsr"


def parts_of(function: str, argument: str, tensor: Any) -> tuple[Any, Any, Any]:
    """Return data, indices and indptr of a torch.sparse_bsr tensor; the data is shared."""
    if tensor.requires_grad:
        expected = "a tensor without gradient (x.detach())"
        raise bad_type(function, argument, expected, "one that requires it")
    parts = tensor.values(), tensor.col_indices(), tensor.crow_indices()
    data, indices, indptr = (as_array(part, function, argument) for part in parts)
    return data, indices, indptr


class TorchTensors(BsrBase):
    """``to_torch`` of `bsr_array`."""

    __slots__ = ()

    def to_torch(self) -> Any:
        """Return a tensor of layout ``torch.sparse_bsr`` over the same values.

        On the host or the device of the array. torch wants sorted blocks without duplicates;
        arrays that are not so are brought into that form first, and then share nothing.
        ``bsr_array(tensor)`` is the way back.

        Returns
        -------
        torch.Tensor

        Raises
        ------
        ImportError
            When PyTorch is not installed.
        ValueError
            Matrices of a batch that would keep different numbers of blocks.
        """
        function = "to_torch"
        array = self._canonical(function)
        try:
            import torch
        except ModuleNotFoundError as error:
            raise ImportError(f"{function}: PyTorch is not installed; pip install torch") from error
        pattern, xp = array._pattern, self._xp
        with on_device(array._data):
            data = xp.ascontiguousarray(array._data)
            carried = data.view(np.int16) if xp is np and data.dtype == bfloat16 else data
            values = torch.from_dlpack(carried)
            values = values.view(torch.bfloat16) if carried is not data else values
            starts, columns = (
                torch.from_dlpack(part.copy()) for part in (pattern._indptr, pattern._indices)
            )
            return torch.sparse_bsr_tensor(
                starts, columns, values, size=self.shape, check_invariants=False
            )
