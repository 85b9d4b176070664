"""Cases of block-sparse attention: operands, the dense formula in float64, dropout by Philox."""

from __future__ import annotations

import numpy as np

import sparsegpu
from sparsegpu.testing import (
    ATTENTION_TOLERANCE,
    assert_attention_close,
    random_blocks,
    random_values,
)

attention = sparsegpu.scaled_dot_product_attention


class Case:
    """Operands on the host, and the dense formula over them.

    Of dtype "tf32" operands are float32 with values that TF32 has: only weights are rounded.
    """

    def __init__(
        self,
        rng,
        *,
        dtype="float32",
        mask_dtype="bool",
        lengths=(12, 20),
        blocksize=(3, 4),
        widths=(7, 5),
        heads=(1, 1),
        batch=(),
        kv_batch=None,
        mask_batch=(),
        density=0.5,
        duplicates=False,
    ):
        (length, keys), (width, value_width), (h, kv_heads) = lengths, widths, heads
        kv_batch = batch if kv_batch is None else kv_batch
        self.how = {"allow_tf32": True} if dtype == "tf32" else {}
        self.query = self.drawn(rng, (*batch, h, length, width), dtype)
        self.key = self.drawn(rng, (*kv_batch, kv_heads, keys, width), dtype)
        self.value = self.drawn(rng, (*kv_batch, kv_heads, keys, value_width), dtype)
        self.shape, self.blocksize = lengths, blocksize
        self.mask = list(
            random_blocks(
                rng,
                lengths,
                blocksize,
                density=density,
                batch=mask_batch,
                dtype=mask_dtype,
                duplicates=duplicates,
                small_integers=duplicates,  # so that the sums are exact
            )
        )

    def drawn(self, rng, shape, dtype):
        """Return random operands; those of TF32 have as many digits as float16."""
        if not self.how:
            return random_values(rng, shape, dtype)
        return random_values(rng, shape, "float16").astype(np.float32)

    @property
    def digits(self) -> str:
        """The dtype whose tolerance results have."""
        return "float16" if self.how else self.query.dtype.name

    def put_heads_inside(self) -> None:
        """Let heads lie between rows and columns in memory, as models often make them."""
        for name in ("query", "key", "value"):
            setattr(self, name, heads_inside(getattr(self, name)))

    def raise_key(self, column: int) -> None:
        """Let one key be far above all others, so that weights relative to another overflow."""
        self.query[...], self.key[...] = 1, 0
        self.key[..., column, :] = 1000 / self.query.shape[-1]

    def move_far(self, added: float) -> None:
        """Let a mask add the same to all keys of some queries, whose scores are 0 otherwise."""
        self.query[..., 3 :: self.blocksize[0], :] = 0
        self.mask[0][..., 3, :] = added

    def average(self, rng) -> np.ndarray:
        """Let all weights be one and values small integers; return the results, if exact."""
        self.query[...], self.mask[0][...] = 0, True
        self.value[...] = rng.integers(-4, 5, self.value.shape)
        return self.value.astype(np.float64).mean(-2, keepdims=True).astype(self.query.dtype)

    def fill_row(self, rng, row: int) -> None:
        """Let a block row store all its blocks; the masks are no batch."""
        data, indices, indptr = self.mask
        columns = self.shape[1] // self.blocksize[1]
        first, end = indptr[row : row + 2]
        full = rng.permutation(np.resize(data, (columns, *data.shape[1:])))
        more = columns - (end - first)
        self.mask[:] = (
            np.concatenate([data[:first], full, data[end:]]),
            np.concatenate([indices[:first], np.arange(columns), indices[end:]]).astype(np.int32),
            indptr + more * (np.arange(len(indptr)) > row),
        )

    def on(self, engine, strides: bool = False):
        """Return query, key, value and mask as arrays of the engine."""
        q, k, v = (engine.array(a) for a in (self.query, self.key, self.value))
        if strides:
            q, k, v = (_strided(engine, a) for a in (self.query, self.key, self.value))
        parts = tuple(engine.array(a) for a in self.mask)
        return q, k, v, sparsegpu.bsr_array(parts, shape=self.shape)

    def dense_mask(self) -> tuple[np.ndarray, np.ndarray]:
        """Return which elements may be attended, and what is added to their scores."""
        data, indices, indptr = self.mask
        (bm, bk), batch = self.blocksize, indices.shape[:-1]
        stored = np.zeros((*batch, *self.shape), bool)
        total = np.zeros((*batch, *self.shape))
        for b in np.ndindex(batch):
            for i in range(self.shape[0] // bm):
                for p in range(indptr[b][i], indptr[b][i + 1]):
                    place = np.s_[
                        i * bm : (i + 1) * bm,
                        indices[b][p] * bk : (indices[b][p] + 1) * bk,
                    ]
                    stored[b][place] = True
                    total[b][place] += data[b][p].astype(np.float64)
        if data.dtype == bool:
            return total > 0, np.zeros_like(total)
        return stored & (total != -np.inf), np.where(total == -np.inf, 0, total)

    def of_heads(self, rng, shape=None):
        """Return random numbers for the heads, of the dtype that slopes and sinks have."""
        dtype = np.float64 if self.query.dtype == np.float64 else np.float32
        return rng.standard_normal(self.query.shape[:-2] if shape is None else shape).astype(dtype)

    def expected(
        self,
        *,
        scale=None,
        is_causal=False,
        dropout_p=0.0,
        seed=0,
        softcap=None,
        slopes=None,
        sinks=None,
    ):
        """Return out and lse by the dense formula in float64, of float64 in a wider type."""
        wide = np.longdouble if self.query.dtype == np.float64 else np.float64
        q, k, v = (a.astype(wide) for a in (self.query, self.key, self.value))
        group = q.shape[-3] // k.shape[-3]
        k, v = k.repeat(group, axis=-3), v.repeat(group, axis=-3)
        length, keys = self.shape
        allowed, added = self.dense_mask()
        if is_causal:
            allowed = allowed & (np.arange(keys) <= np.arange(length)[:, None])
        scale = wide(q.shape[-1]) ** -0.5 if scale is None else scale
        with np.errstate(invalid="ignore"):
            score = scale * np.einsum("...ie,...je->...ij", q, k)
        if softcap is not None:
            score = softcap * np.tanh(score / softcap)
        if slopes is not None:
            distance = np.arange(keys) - np.arange(length)[:, None]
            score = score + slopes[..., None, None].astype(wide) * distance
        score = np.where(allowed, score + added, -np.inf)
        top = np.where(allowed.any(-1), score.max(-1), 0.0)[..., None]
        sink = None if sinks is None else sinks[..., None, None].astype(wide)
        if sink is not None:
            top = np.where(sink == -np.inf, top, np.maximum(score.max(-1)[..., None], sink))
        e = np.exp(score - top)
        total = e.sum(-1, keepdims=True)
        if sink is not None:
            total = total + np.exp(sink - top)
        weights = e / np.where(total == 0, 1, total)
        kept = np.broadcast_to(allowed, weights.shape)
        if dropout_p:
            kept = kept & survivors(weights.shape, dropout_p, seed)
            weights = weights / (1 - dropout_p)
        out = np.zeros((*weights.shape[:-1], v.shape[-1]), wide)
        v = np.broadcast_to(v, (*weights.shape[:-2], *v.shape[-2:]))
        for b in np.ndindex(*weights.shape[:-1]):
            # positions left out contribute nothing, whatever stands there
            out[b] = weights[b][kept[b]] @ v[b[:-1]][kept[b]]
        with np.errstate(divide="ignore"):
            return out, (np.log(total) + top)[..., 0]

    def check(
        self, engine, *, kernel="bsr_attention", strides=False, config=None, **keywords
    ) -> None:
        operands = self.on(engine, strides)
        with engine.runs(*([kernel] if isinstance(kernel, str) else kernel)):
            out, lse = attention(
                *operands, return_lse=True, config=config, **self.how, **on_engine(engine, keywords)
            )
        expected, expected_lse = self.expected(**keywords)
        assert out.dtype == self.query.dtype
        assert lse.dtype == (np.float64 if self.query.dtype == np.float64 else np.float32)
        # A score is rounded by its own size, and far keys with slopes have large ones.
        slopes = keywords.get("slopes")
        far = 0.0 if slopes is None else max(self.shape) * np.abs(slopes).max()
        rounded = 2 * far * np.finfo(lse.dtype).eps
        for found, exact, digits in (
            (out, expected, self.digits),
            # Operands are exact in float64: the lse of 16-bit operands is as good as float32's.
            (lse, expected_lse, lse.dtype.name),
        ):
            tolerance, own = ATTENTION_TOLERANCE[digits], ATTENTION_TOLERANCE[found.dtype.name]
            assert_attention_close(found, exact, share=(tolerance + rounded) / own)


def heads_inside(array: np.ndarray) -> np.ndarray:
    """Return the same values, in memory (*batch, rows, heads, columns)."""
    return np.ascontiguousarray(array.swapaxes(-3, -2)).swapaxes(-3, -2)


def check_far_weights(attend) -> None:
    """Compare the weights of scores from 0 to -750 in float64, underflow included.

    ``attend(query, key, value, mask, scale)`` returns attention's result; values are an identity,
    so that it is the weights. A score's rounding in another base makes an error of its size.
    """
    scores = np.concatenate([np.linspace(-1, 0, 32), np.geomspace(-750, -1, 32)])
    query, key = np.zeros((1, 64, 64)), np.zeros((1, 64, 64))
    query[..., 0], key[..., 0] = 1, scores
    mask = sparsegpu.bsr_array(np.ones((64, 64), bool), blocksize=(64, 64))
    weights = attend(query, key, np.eye(64)[None], mask, 1.0)
    exact = np.exp(scores.astype(np.longdouble))
    exact /= exact.sum()
    allowed = (4 + np.abs(scores)) * 2.0**-52 * exact + 2.0**-1022
    assert (np.abs(weights - exact) <= allowed).all()


def on_engine(engine, keywords):
    """Return keywords whose arrays are the engine's."""
    return {
        name: engine.array(value) if isinstance(value, np.ndarray) else value
        for name, value in keywords.items()
    }


def _strided(engine, array):
    """Return the same values with the last two axes swapped in memory, and holes between them."""
    turned = array.swapaxes(-1, -2)
    memory = engine.xp.zeros((*turned.shape[:-1], 2 * turned.shape[-1]), array.dtype)
    memory[..., ::-2] = engine.array(np.ascontiguousarray(turned))
    return memory[..., ::-2].swapaxes(-1, -2)


def philox_words(counter, seed):
    """Return the four words of Philox4x32-10 at a counter, or at an array of them."""
    c = [counter & 0xFFFFFFFF, counter >> 32, 0, 0]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k0, b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ k1, a & 0xFFFFFFFF]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def survivors(shape, p, seed) -> np.ndarray:
    """Return which scores are kept: whose word is not below ``p * 2**32``."""
    size = int(np.prod(shape))
    words = philox_words(np.arange(-(-size // 4), dtype=np.uint64), seed)
    return (np.stack(words, axis=-1).reshape(-1)[:size] / 2**32 >= p).reshape(shape)
