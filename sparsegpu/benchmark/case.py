"""A row of the race as data, and the names of the peers."""

from __future__ import annotations

from dataclasses import dataclass, field

from .bars import Bar

#: The peers: dense cuBLAS of the same matrix, and three sparse products.
DENSE, TORCH, CSR, BSR = "cuBLAS dense", "torch BSR, tuned", "cuSPARSE CSR", "cuSPARSE BSR"
#: Of 2:4: the vendor's library, torch's call of it, which stands in for it where nvmath-python is
#: missing, and torch's conversions.
CUSPARSELT, STAND_IN = "cuSPARSELt, searched", "cuSPARSELt through torch, searched"
TORCH_24 = "torch 2:4"
PEERS = (DENSE, TORCH, CSR, BSR, CUSPARSELT, STAND_IN, TORCH_24)


@dataclass(frozen=True)
class Case:
    """One row of the race.

    Attributes
    ----------
    section : str
    block : (bm, bk)
    density : float
        Of the stored blocks.
    size : (M, K, N)
        Before rounding M and K down to whole blocks.
    dtype : str
    pattern : {"uniform", "power law", "full row", "strata"}
    layout : str
        "plain", "dense @ bsr", "bsr.T @ dense", "dense columns", "out columns", "1-D dense"
    batch : int
        0: no batch dimension.
    fused : bool
        Bias, both alphas and gelu behind the product.
    tf32 : bool
    operation : str
        "bsr", "2:4", "2:4 blocks", or one of `formats.FORMATS`: work on an M x K matrix, where N
        does not matter.
    path : str
        The kernel path to take; "" leaves the choice to the library.
    measure : {"device", "host", "schedule", "schedule by likeness", "first call"}
        Time on the device, of the host, of building the pattern's schedule (of neighbouring rows,
        or of rows that are alike), or what the first call on a pattern takes longer than the next.
    flush : bool
        Memory-bound: operands are not in the L2.
    peers : tuple of str
    peers_of : str
        The case on the same operands whose peers' times are this one's, too.
    bars : tuple of Bar
        All of them must be cleared.
    """

    section: str
    block: tuple[int, int]
    density: float
    size: tuple[int, int, int]
    dtype: str = "bfloat16"
    pattern: str = "uniform"
    layout: str = "plain"
    batch: int = 0
    fused: bool = False
    tf32: bool = False
    operation: str = "bsr"
    path: str = ""
    measure: str = "device"
    flush: bool = False
    peers: tuple[str, ...] = ()
    peers_of: str = ""
    bars: tuple[Bar, ...] = field(default=(), compare=False)

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, K and N, of whole blocks."""
        m, k, n = self.size
        return m // self.block[0] * self.block[0], k // self.block[1] * self.block[1], n

    @property
    def name(self) -> str:
        """What the table calls it; no two cases share it."""
        m, k, n = self.shape
        size = f"{m}" if m == k == n else f"{m}x{k}x{n}"
        words = [
            "" if self.operation == "bsr" else self.operation,
            "tf32" if self.tf32 else self.dtype,
            f"{self.block[0]}x{self.block[1]}" if self.operation in {"bsr", "2:4 blocks"} else "",
            f"d={self.density:.3g}",
            f"{self.batch} x {size}" if self.batch else size,
            "" if self.pattern in {"uniform", "strata"} else self.pattern,
            "" if self.layout == "plain" else self.layout,
            "bias, alphas, gelu" if self.fused else "",
            f"{self.path} path" if self.path else "",
            {"device": "", "host": "host time"}.get(self.measure, self.measure),
        ]
        return " ".join(word for word in words if word)
