"""Which kernel serves which operation, dtype and architecture, as data.

The table is asked through `_support`. It drives dispatch, the compile matrix, the test skips and
the table in the README (``python -m tools.readme``). To add a kernel, add its row to its
operation's file.
"""

from __future__ import annotations

from .bsr import ATTENTION, CONVERSIONS, SOFTMAX
from .products import PRODUCTS, SCHEDULES
from .semi_structured import SEMI_STRUCTURED
from .source import ARCHITECTURES, FP8, OPERATIONS, PORTABLE, KernelSource

__all__ = ["ARCHITECTURES", "FP8", "KERNELS", "OPERATIONS", "PORTABLE", "KernelSource"]

# Where several paths serve an operation, the preferred one comes first.
KERNELS: tuple[KernelSource, ...] = (
    *PRODUCTS,
    *SCHEDULES,
    *CONVERSIONS,
    *SOFTMAX,
    *ATTENTION,
    *SEMI_STRUCTURED,
)
