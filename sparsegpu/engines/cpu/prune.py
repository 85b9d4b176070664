"""See the reference engine."""

from ..reference.prune import apply as apply
from ..reference.prune import apply_dense as apply_dense
from ..reference.prune import bitmask as bitmask
from ..reference.prune import prune_24 as prune_24
from ..reference.prune import prune_tile as prune_tile
from ..reference.prune import tile as tile
