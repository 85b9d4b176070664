"""See the reference engine."""

from ..reference.attention import attention as attention
