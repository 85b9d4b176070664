"""See the reference engine."""

from ..reference.semi_structured import semi_structured_addmm as semi_structured_addmm
