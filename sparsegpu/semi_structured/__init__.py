"""The 2:4 arrays, and what keeps and stores them."""

from .array import SemiStructuredArray, to_semi_structured
from .blocks import BsrSemiStructuredArray

__all__ = ["BsrSemiStructuredArray", "SemiStructuredArray", "to_semi_structured"]
