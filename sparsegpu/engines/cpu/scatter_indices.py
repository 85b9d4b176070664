"""Index lists of `ops.scatter_mm`: index arithmetic, where NumPy's own loops are the fastest."""

from __future__ import annotations

from ..reference.scatter_indices import index_lists as index_lists
