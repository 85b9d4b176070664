"""The 2:4 matrix, and what keeps and stores it."""

from .array import SemiStructuredArray, to_semi_structured

__all__ = ["SemiStructuredArray", "to_semi_structured"]
