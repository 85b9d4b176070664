"""BSR @ dense."""

from ..reference.addmm import bsr_addmm as bsr_addmm
