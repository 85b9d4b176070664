"""The block-sparse arrays, and what makes, keeps and shows them."""

from .array import BsrSemiStructuredArray, bsr_array

__all__ = ["BsrSemiStructuredArray", "bsr_array"]
