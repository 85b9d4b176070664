"""See the reference engine."""

from ..reference.softmax import bsr_softmax as bsr_softmax
