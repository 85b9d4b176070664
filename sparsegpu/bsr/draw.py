"""How a `bsr_array` shows itself."""

from __future__ import annotations

from typing import Any


class Drawings:
    """Methods of `bsr_array` that show it."""

    __slots__ = ()

    def __repr__(self: Any) -> str:
        bm, bk = self.blocksize
        where = "cpu" if isinstance(self.device, str) else f"cuda:{self.device.id}"
        blocks = f"{self.nnzb} block{'s' if self.nnzb != 1 else ''} of {bm}x{bk} stored"
        return (
            f"<sparsegpu.{type(self).__name__}, shape {self.shape}, {self.dtype}, {blocks} "
            f"(density {self.density:.3g}), on {where}>"
        )
