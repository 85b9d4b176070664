"""A case of the benchmark as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .bars import Bar

#: The block of cases that have no blocks: a group of the 2:4 pattern.
PLAIN_24 = (1, 4)


@dataclass(frozen=True)
class Case:
    """What one row of the benchmark measures.

    Attributes
    ----------
    section : str
    block : (bm, bk)
    density : float
        Of the stored blocks.
    size : (M, K, N)
        M and K are rounded down to whole blocks.
    dtype : str
    pattern : str
        As `patterns.block_pattern` has them; of attention's masks also "causal"; of solvers the
        problem.
    layout : str
        "plain", "dense @ bsr", "bsr.T @ dense", "dense columns", "out columns", "1-D dense",
        "index lists" (`bsr_scatter_mm`), those of `workload.TILES` (`scatter_mm`)
    batch : int
        0: no batch dimension. Of attention: heads.
    group : int
        Of attention: the query heads that read one key head.
    dropout : float
        Of attention: the probability with which a weight is dropped.
    fused : bool
        Whether bias, both alphas and gelu are fused into the product.
    tf32 : bool
    operation : str
        "bsr", "2:4" or "2:4 blocks" for products; one of `formats.FORMATS`, which work on an
        M x K matrix and have no N; one of `operations.OPERATIONS` or of `softmax.SOFTMAX`; one of
        pairs in `scatter`; "bsr_spgemm", of two square matrices; "sampled_addmm", whose size is
        that of the pattern and then the depth of the product; one of `attention.OPERATIONS`, with
        M queries, K keys and N features a head; one of `block_masks.OPERATIONS`; one of
        `solvers.OPERATIONS`, with N right-hand sides or modes; one of `arrays.OPERATIONS`, of
        `preparation.PREPARATIONS` or of `own_kernels.OPERATIONS`.
    path : str
        The kernel path to take; "" leaves the choice to the library.
    fields : tuple of (str, int)
        Fields of the path's configuration.
    measure : str
        "device", device time; "host", host time of a repeated call; "schedule" and "schedule of
        similar rows", the time to build the pattern's schedule; "making index lists", that
        of `scatter_mm`; "first call", the extra time of a pattern's first call; "solve" of a solver
        and "whole call" of others, the time of the whole call, which waits for the device.
    flush : bool
        Whether the case is memory-bound: the L2 is flushed before every repetition.
    peers : tuple of str
    peers_of : str
        The case on the same operands whose peers' times are used for this one, too.
    bars : tuple of Bar
        All of them must be met.
    goals : tuple of Bar
        What a row should come to in the end. They are shown, and do not decide about its verdict.
    """

    section: str
    block: tuple[int, int]
    density: float
    size: tuple[int, int, int]
    dtype: str = "bfloat16"
    pattern: str = "uniform"
    layout: str = "plain"
    batch: int = 0
    group: int = 1
    dropout: float = 0.0
    fused: bool = False
    tf32: bool = False
    operation: str = "bsr"
    path: str = ""
    fields: tuple[tuple[str, int], ...] = ()
    measure: str = "device"
    flush: bool = False
    peers: tuple[str, ...] = ()
    peers_of: str = ""
    bars: tuple[Bar, ...] = field(default=(), compare=False)
    goals: tuple[Bar, ...] = field(default=(), compare=False)

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, K and N, M and K in whole blocks."""
        m, k, n = self.size
        return m // self.block[0] * self.block[0], k // self.block[1] * self.block[1], n

    @property
    def rates_of(self) -> tuple[str, ...]:
        """The names of the cases whose rates bars and goals refer to."""
        return tuple(bar.of for bar in (*self.bars, *self.goals) if bar.kind == "case rate")

    @property
    def config(self) -> dict[str, Any]:
        """The keyword that chooses the path, empty without one."""
        return {"config": {"path": self.path, **dict(self.fields)}} if self.path else {}

    @property
    def name(self) -> str:
        """The unique name of the case in tables."""
        m, k, n = self.shape
        size = f"{m}" if m == k == n else f"{m}x{k}x{n}"
        words = [
            "" if self.operation == "bsr" else self.operation,
            "tf32" if self.tf32 else self.dtype,
            "" if self.block == PLAIN_24 else f"{self.block[0]}x{self.block[1]}",
            f"d={self.density:.3g}",
            f"{self.batch} x {size}" if self.batch else size,
            "" if self.pattern in {"uniform", "strata"} else self.pattern,
            "" if self.layout == "plain" else self.layout,
            "bias, alphas, gelu" if self.fused else "",
            f"groups of {self.group}" if self.group > 1 else "",
            f"dropout {self.dropout:g}" if self.dropout else "",
            f"{self.path} path" if self.path else "",
            *(f"{name}={value}" for name, value in self.fields),
            {"device": "", "host": "host time"}.get(self.measure, self.measure),
        ]
        return " ".join(word for word in words if word)
