"""The score, which turns an accumulator of query and key into a weight: parameters, definition.

    x      = scale * acc
    x      = softcap * tanh(x / softcap)                  with a softcap
    logit  = x + slopes[head] * (key - query) + mask      where the mask and causality attend
    weight = exp(logit - lse) / (1 - dropout_p)           where dropout keeps it, else 0

``cuda_src/common/score.cuh`` is the same formula on the device; tests compare the two. The
engines differ in how they add up ``exp(logit)``, whose logarithm is lse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ._philox import dropout_keep


@dataclass(frozen=True, slots=True)
class Score:
    """What is applied to the accumulators of one call; fields are validated.

    Attributes
    ----------
    heads : tuple of int
        (*B, H): heads are numbered through the batch.
    shape : (L, S)
        Queries and keys of a head.
    scale : float
    softcap : float or None
    slopes : array that broadcasts to ``heads``, or None
    is_causal : bool
    dropout_p : float
    seed : int
    """

    heads: tuple[int, ...]
    shape: tuple[int, int]
    scale: float
    softcap: float | None = None
    slopes: Any = None
    is_causal: bool = False
    dropout_p: float = 0.0
    seed: int = 0

    def logits(
        self, acc: np.ndarray, head: tuple[int, ...], mask: np.ndarray, query: Any, key: Any
    ) -> np.ndarray:
        """Turn accumulators into logits, in place, -inf where nothing is attended.

        ``mask`` (bool or float), ``query`` and ``key`` (positions) broadcast against ``acc``.

        Returns
        -------
        array of bool
            What is attended.
        """
        real = acc.dtype.type
        acc *= real(self.scale)
        if self.softcap is not None:
            acc /= real(self.softcap)
            np.tanh(acc, out=acc)
            acc *= real(self.softcap)
        if self.slopes is not None:
            slope = np.broadcast_to(self.slopes, self.heads)[head]
            acc += slope * (key - query).astype(acc.dtype)
        attended = mask
        if mask.dtype != bool:
            mask = mask.astype(acc.dtype)
            acc += mask
            attended = mask != -np.inf
        if self.is_causal:
            attended = attended & (key <= query)
        np.copyto(acc, -np.inf, where=~attended)
        return attended

    def derivative(self, acc: np.ndarray) -> Any:
        """Return what a logit changes by with its accumulator."""
        real = acc.dtype.type
        if self.softcap is None:
            return real(self.scale)
        # 1 - tanh(x)**2, which would cancel for large x
        z = np.exp(real(-2) * np.abs(acc * real(self.scale) / real(self.softcap)))
        return real(self.scale) * (real(4) * z / ((1 + z) * (1 + z)))

    def dropout(
        self,
        weights: np.ndarray,
        head: tuple[int, ...],
        attended: np.ndarray,
        query: Any,
        key: Any,
    ) -> np.ndarray:
        """Divide weights by ``1 - dropout_p``, in place; return which are kept.

        Those that are not keep a value without meaning.
        """
        if self.dropout_p == 0:
            return attended
        weights /= weights.dtype.type(1 - self.dropout_p)
        number = 0
        for n, i in zip(self.heads, head):
            number = number * n + i
        length, keys = self.shape
        index = (number * length + query) * keys + key
        return attended & dropout_keep(index, self.seed, self.dropout_p)
