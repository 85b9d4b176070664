"""Block masks for attention: bool block-sparse arrays that say which scores exist.

Every mask is exact by element: a block is stored when any of its elements may be attended.
`scaled_dot_product_attention` takes all of them as they are. A `bsr_array` holds a byte per element
of the stored blocks, a `BlockMask` (``compact=True``) a byte per block and a bit per element of
those that are attended in part.

In all of them ``length`` is the number of queries and keys, or a pair (L, S) of both, which
``blocksize``, an integer or a pair, divides; ``xp`` (``numpy`` or ``cupy``) says where the mask is
made.
"""

from .blocks import bigbird, from_indices, top_k
from .intervals import banded, causal, documents, prefix, sliding_window

__all__ = [
    "banded",
    "bigbird",
    "causal",
    "documents",
    "from_indices",
    "prefix",
    "sliding_window",
    "top_k",
]


def __dir__() -> list[str]:
    return __all__
