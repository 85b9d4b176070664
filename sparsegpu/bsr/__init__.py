"""The block-sparse array, and what makes, keeps and shows it."""

from .array import bsr_array

__all__ = ["bsr_array"]
