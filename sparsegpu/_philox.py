"""Philox4x32-10, the counter-based generator behind attention's dropout.

Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
Being a pure function of (seed, counter), it gives the same words in every engine, in
whatever order scores are computed. ``cuda_src/common/philox.cuh`` is the same on the device.
"""

from __future__ import annotations

import numpy as np

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_MASK = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


def philox4x32(counter: np.ndarray, seed: int) -> np.ndarray:
    """Return the four words of each 64-bit counter.

    Parameters
    ----------
    counter : array of uint64, any shape
        The low 64 bits of the 128-bit counter; the high ones are zero.
    seed : int
        The 64-bit key.

    Returns
    -------
    array of uint32, shape ``counter.shape + (4,)``

    Examples
    --------
    >>> import numpy as np
    >>> [hex(w) for w in philox4x32(np.zeros(1, np.uint64), 0)[0].tolist()]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    counter = np.asarray(counter, dtype=np.uint64)
    c0, c1 = counter & _MASK, counter >> _32
    c2, c3 = np.zeros_like(c0), np.zeros_like(c0)
    k0, k1 = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
    for _ in range(10):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (
            (p1 >> _32) ^ c1 ^ np.uint64(k0),
            p1 & _MASK,
            (p0 >> _32) ^ c3 ^ np.uint64(k1),
            p0 & _MASK,
        )
        k0, k1 = (k0 + _W0) & 0xFFFFFFFF, (k1 + _W1) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=-1).astype(np.uint32)


def dropout_keep(index: np.ndarray, seed: int, p: float) -> np.ndarray:
    """Return which scores survive dropout: word ``index % 4`` of counter ``index // 4``.

    A score is kept where its word, divided by 2**32, is at least ``p``.
    """
    index = np.asarray(index, dtype=np.uint64)
    words = philox4x32(index >> np.uint64(2), seed)
    word = np.take_along_axis(words, (index & np.uint64(3))[..., None].astype(np.intp), -1)[..., 0]
    return word.astype(np.float64) >= p * 2.0**32
