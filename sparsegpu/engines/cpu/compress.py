"""See the reference engine."""

from ..reference.compress import compress as compress
from ..reference.compress import expand as expand
from ..reference.compress import reorder_meta as reorder_meta
from ..reference.compress import restore_meta as restore_meta
