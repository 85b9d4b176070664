"""Block masks of intervals, scores and lists: index arithmetic and sorts, which are NumPy's own."""

from __future__ import annotations

from ..reference.block_masks import interval_mask as interval_mask
from ..reference.block_masks import listed as listed
from ..reference.block_masks import top_k as top_k
