"""A user's own CUDA kernels."""

from __future__ import annotations

from .._ptx.access import Access, analyse

__all__ = ["Access", "analyse"]
