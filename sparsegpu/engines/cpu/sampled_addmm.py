"""See the reference engine."""

from ..reference.sampled_addmm import sampled_addmm as sampled_addmm
