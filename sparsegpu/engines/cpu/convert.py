"""Dense to blocks and back, and blocks among themselves.

Each is an indexing expression in NumPy and bound by memory, so these are the reference's
functions: making a `bsr_array` needs no numba.
"""

from ..reference.convert import block_mask as block_mask
from ..reference.convert import gather_blocks as gather_blocks
from ..reference.convert import scatter_blocks as scatter_blocks
from ..reference.convert import sum_blocks as sum_blocks
from ..reference.convert import transpose_blocks as transpose_blocks
from ..reference.convert import transpose_pattern as transpose_pattern
