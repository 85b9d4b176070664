"""See the reference engine."""

from ..reference.scatter_mm import bsr_strided_mm as bsr_strided_mm
from ..reference.scatter_mm import bsr_strided_mm_compressed as bsr_strided_mm_compressed
from ..reference.scatter_mm import scatter_mm as scatter_mm
