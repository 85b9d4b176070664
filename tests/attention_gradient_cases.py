"""Cases of attention's gradients: the dense formula in float64, and sums of absolute products."""

from __future__ import annotations

import numpy as np
from ml_dtypes import finfo

import sparsegpu
from attention_cases import Case, attention, heads_inside, on_engine, survivors
from sparsegpu.testing import ATTENTION_TOLERANCE, assert_gradient_close, to_host

backward = sparsegpu.scaled_dot_product_attention_backward


class GradientCase(Case):
    """Operands and incoming gradients on the host, and the dense formula over them."""

    def __init__(self, rng, **how):
        super().__init__(rng, **how)
        heads = np.broadcast_shapes(self.query.shape[:-3], self.key.shape[:-3])
        rows = (*heads, *self.query.shape[-3:-1])
        self.grad = self.drawn(rng, (*rows, self.value.shape[-1]), self.query.dtype)
        self.grad_lse = self.of_heads(rng, rows)

    def put_heads_inside(self) -> None:
        super().put_heads_inside()
        self.grad = heads_inside(self.grad)

    def forward(self, engine, **keywords):
        """Return grad, the operands, out and lse on the engine, as backward takes them."""
        operands = self.on(engine)
        out, lse = attention(*operands, return_lse=True, **keywords)
        return (engine.array(self.grad), *operands, out, lse)

    def expected(
        self,
        *,
        grad_lse=None,
        scale=None,
        is_causal=False,
        dropout_p=0.0,
        seed=0,
        softcap=None,
        slopes=None,
        sinks=None,
    ):
        """Return exact gradients by name, and the sums of absolute products, by the formula."""
        q, k, v, grad = (
            a.astype(np.float64) for a in (self.query, self.key, self.value, self.grad)
        )
        group = q.shape[-3] // k.shape[-3]
        k, v = k.repeat(group, axis=-3), v.repeat(group, axis=-3)
        (length, keys), heads = self.shape, grad.shape[:-2]
        allowed, added = self.dense_mask()
        if is_causal:
            allowed = allowed & (np.arange(keys) <= np.arange(length)[:, None])
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        x = scale * np.einsum("...ie,...je->...ij", q, k)
        slope = np.full_like(x, scale)
        if softcap is not None:
            slope = scale / np.cosh(x / softcap) ** 2
            x = softcap * np.tanh(x / softcap)
        if slopes is not None:
            x = x + slopes[..., None, None] * (np.arange(keys) - np.arange(length)[:, None])
        x = np.where(allowed, x + added, -np.inf)
        sink = np.full((*heads, 1, 1), -np.inf)
        if sinks is not None:
            sink[...] = sinks[..., None, None]
        top = np.maximum(x.max(-1, keepdims=True), sink)
        top = np.where(top == -np.inf, 0, top)
        e, e_sink = np.exp(x - top), np.exp(sink - top)
        total = e.sum(-1, keepdims=True) + e_sink
        total = np.where(total == 0, 1, total)
        p, p_sink = e / total, (e_sink / total)[..., 0]
        kept = np.ones(p.shape)
        if dropout_p:
            kept = survivors(p.shape, dropout_p, seed) / (1 - dropout_p)
        smallest = float(finfo(self.query.dtype).smallest_subnormal)
        underflow = smallest / (2 * ATTENTION_TOLERANCE[self.digits])
        lse_term = np.zeros(grad.shape[:-1]) if grad_lse is None else grad_lse.astype(np.float64)

        def through(q, k, v, grad, slope, lse_term, sign):
            """The chain rule; with absolute values and ``sign`` 1 the sums of absolute products."""
            dweight = kept * np.einsum("...ie,...je->...ij", grad, v)
            delta = (p * dweight).sum(-1) + sign * lse_term
            dlogit = p * (dweight + sign * delta[..., None])
            # What is rounded to the operands' dtype may underflow: an error of its own size.
            least = underflow * allowed if sign > 0 else 0
            dacc = dlogit * slope + least * abs(scale)
            return {
                "query": np.einsum("...ij,...je->...ie", dacc, k),
                "key": np.einsum("...ij,...ie->...je", dacc, q),
                "value": np.einsum("...ij,...ie->...je", p * kept + least, grad),
                "mask": dlogit,
                "sinks": sign * (p_sink * delta).sum(-1),
            }

        exact = through(q, k, v, grad, slope, lse_term, -1)
        sizes = through(*map(np.abs, (q, k, v, grad, slope, lse_term)), 1)
        own = {"query": self.query, "key": self.key, "value": self.value, "sinks": sinks}
        for parts in (exact, sizes):
            for name, array in own.items():
                if array is not None:
                    parts[name] = _summed_to(array.shape, parts[name])
            parts["mask"] = _summed_to((*self.mask[1].shape[:-1], *self.shape), parts["mask"])
        return exact, sizes

    def check(self, engine, **keywords):
        """Compare every gradient, that of the mask at what the mask stores."""
        forward = {name: value for name, value in keywords.items() if name != "grad_lse"}
        operands = self.forward(engine, **on_engine(engine, forward))
        with engine.runs("bsr_attention_backward"):
            more = self.how | on_engine(engine, keywords)
            found = backward(*operands, mask_gradient=True, **more)
        self.compare(found, **keywords)

    def compare(self, found, **keywords):
        exact, sizes = self.expected(**keywords)
        for name in ("query", "key", "value"):
            gradient, operand = getattr(found, name), getattr(self, name)
            assert gradient.dtype == operand.dtype
            assert_gradient_close(gradient, exact[name], sizes[name], self.digits)
        if found.mask is not None:
            assert found.mask.dtype == np.float32
            dense = to_host(found.mask.toarray())
            assert_gradient_close(dense, exact["mask"], sizes["mask"], self.digits)
        if keywords.get("sinks") is not None:
            assert found.sinks.dtype == keywords["sinks"].dtype
            assert_gradient_close(found.sinks, exact["sinks"], sizes["sinks"], self.digits)
        else:
            assert found.sinks is None


def _summed_to(shape, wide):
    """Sum over what an operand of this shape broadcasts over, and over groups of heads."""
    if len(shape) > 2 and wide.ndim >= 3 and shape[-3] not in {1, wide.shape[-3]}:
        n = shape[-3]
        wide = wide.reshape(*wide.shape[:-3], n, wide.shape[-3] // n, *wide.shape[-2:]).sum(-3)
    wide = wide.sum(axis=tuple(range(wide.ndim - len(shape))))
    return wide.sum(axis=tuple(d for d, n in enumerate(shape) if n == 1 and wide.shape[d] != 1),
                    keepdims=True)  # fmt: skip
