"""10,000 random calls of attention and of its gradients, over masks of every maker.

Every seed is fixed. A kind says what a kernel is compiled for: path, dtype, block size, widths and
what the score has; its cases differ in everything else. The host runs a few kinds. What a mask
holds is written down here element by element, from the definition of its maker.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm

import numpy as np
import pytest

from attention_cases import Case, attention, on_engine
from attention_gradient_cases import GradientCase, backward
from attention_path import facts
from sparsegpu import masks
from sparsegpu._arrays import dtype_of
from sparsegpu.engines.cuda.paths import ATTENTION, ATTENTION_BACKWARD
from sparsegpu.engines.cuda.paths._fields import Fields
from sparsegpu.testing import ATTENTION_TOLERANCE, assert_attention_close

KINDS, SHARE, FEW = 40, 250, 6  # 10,000 cases; a few of each kind on the host
MOST = 400  # queries and keys, unless a block has more
PATHS = ("wgmma", "mma", "decode", "fma", "mma_f64", "simt")
INTERVALS = ("banded", "sliding_window", "causal", "bigbird", "documents", "prefix")
#: Makers by what they make: elements that are bool, a `BlockMask`, elements that are added.
MAKERS = {
    "bits": (*INTERVALS, "top_k", "from_indices"),
    "bool": (*INTERVALS, "stored"),
    "added": ("stored",),
}
SCORES = (
    (),
    ("dropout",),
    ("softcap", "slopes", "sinks", "dropout"),
    ("sinks",),
    ("softcap",),
    ("slopes", "sinks"),
    ("slopes",),
)


@dataclass(frozen=True)
class Kind:
    path: str
    backward: str
    dtype: str
    blocksize: tuple[int, int]
    widths: tuple[int, int]
    score: tuple[str, ...]
    mask: str

    def served(self) -> bool:
        """Whether the paths take it, with every dtype that its mask may have."""
        score = {name: True for name in self.score}
        dtypes = [self.dtype, "float32"] if self.mask == "added" else ["bool"]
        folded = self.mask != "added" and not {"softcap", "slopes"} & set(self.score)
        return all(
            path_of(family, name).tile(
                facts(
                    self.dtype,
                    self.blocksize,
                    self.widths,
                    mask_dtype=np.dtype(dtype_of(dtype)),
                    folded=folded,
                    **score,
                ),
                Fields(),
            )
            for family, name in ((ATTENTION, self.path), (ATTENTION_BACKWARD, self.backward))
            for dtype in dtypes
        )


def kind(number: int) -> Kind:
    """Return a kind, the first drawn that its paths take."""
    rng = np.random.default_rng([18, number])
    return next(made for made in (drawn_kind(rng, number) for _ in range(100)) if made.served())


def drawn_kind(rng, number: int) -> Kind:
    path = PATHS[number % len(PATHS)]

    def side(low, high):
        return int(np.exp(rng.uniform(np.log(low), np.log(high + 1))))

    if path == "wgmma":
        blocksize = 16 * side(1, 16), int(rng.choice([16, 32, 64, 128, 256]))
    elif path == "decode":
        blocksize = side(1, 16), side(8, 256)
    else:
        least = 1 if path == "simt" else 8
        blocksize = side(least, 256), side(least, 256)
    most, step = {"simt": (70, 1), "fma": (128, 4), "mma_f64": (128, 2)}.get(path, (256, 8))
    if step == 8 and rng.integers(3):
        most = 128  # more than that is another path for gradients
    widths = tuple(step * int(rng.integers(1, most // step + 1)) for _ in range(2))
    halves = ("bfloat16", "float16")
    dtypes = {"fma": ("float32",), "mma_f64": ("float64",), "simt": (*halves, "float32", "float64")}
    dtype = str(rng.choice(dtypes.get(path, halves)))
    backward = path if path in {"wgmma", "mma", "fma"} and max(widths) <= 128 else "simt"
    score = SCORES[number % len(SCORES)]
    mask = tuple(MAKERS)[number // len(PATHS) % len(MAKERS)]
    return Kind(path, backward, dtype, blocksize, widths, score, mask)


def path_of(family, name):
    return next(path for path in family if name == path.NAME)


class RandomCase(GradientCase):
    """Operands of a kind, and a mask that one of the makers makes."""

    def __init__(self, rng, of: Kind, maker: str):
        self.rng, self.compact = rng, of.mask == "bits"
        if maker == "documents" and lcm(*of.blocksize) > MOST:
            maker = "prefix"
        (bm, bk), groups = of.blocksize, int(rng.integers(1, 3))
        rows, columns = (int(rng.integers(1, max(2, min(24, MOST // b) + 1))) for b in (bm, bk))
        lengths = rows * bm, columns * bk
        if maker == "documents":
            lengths = (lcm(bm, bk) * int(rng.integers(1, MOST // lcm(bm, bk) + 1)),) * 2
        batch = [(), (2,)][rng.integers(2)]
        heads = groups * int(rng.integers(1, 3)), groups
        of_masks = [(), (heads[0],), (*batch, heads[0]), (*(1 for _ in batch), heads[0])]
        mask_batch = of_masks[rng.integers(4)]
        super().__init__(
            rng,
            dtype=of.dtype,
            mask_dtype=str(rng.choice([of.dtype, "float32"])) if of.mask == "added" else "bool",
            lengths=lengths,
            blocksize=of.blocksize,
            widths=of.widths,
            heads=heads,
            batch=batch,
            kv_batch=() if rng.integers(3) == 0 else batch,
            mask_batch=mask_batch,
            density=rng.choice([0.2, 0.6, 1.0]),
            duplicates=not mask_batch and bool(rng.integers(2)),
        )
        self.made = None
        if maker != "stored":
            shape = lengths[0] // bm, lengths[1] // bk
            self.made, self.dense = getattr(self, maker)(shape, mask_batch)
            of_mask = self.dense.shape[:-2]
            self.mask = [None, np.empty((*of_mask, 0)), None]
        if rng.integers(2):
            self.put_heads_inside()

    def on(self, engine, strides=False):
        if self.made is None:
            return super().on(engine, strides)
        arrays = (engine.array(a) for a in (self.query, self.key, self.value))
        return (*arrays, self.made(engine))

    def dense_mask(self):
        if self.made is None:
            return super().dense_mask()
        return self.dense, np.zeros(self.dense.shape)

    # -- makers: a function that makes the mask of an engine, and its elements ------------------

    def distances(self):
        return np.arange(self.shape[1]) - np.arange(self.shape[0])[:, None]

    def call(self, maker, *arguments, **keywords):
        how = {"compact": self.compact, **keywords}
        return lambda engine: getattr(masks, maker)(*arguments, xp=engine.xp, **how)

    def banded(self, _shape, _batch):
        lower, upper = (int(n) for n in self.rng.integers(0, max(self.shape), 2))
        distance = self.distances()
        made = self.call("banded", self.shape, self.blocksize, lower, upper)
        return made, (-lower <= distance) & (distance <= upper)

    def sliding_window(self, _shape, _batch):
        window, causal = int(self.rng.integers(0, max(self.shape))), bool(self.rng.integers(2))
        distance = self.distances()
        made = self.call("sliding_window", self.shape, self.blocksize, window, causal=causal)
        return made, (abs(distance) <= window) & (distance <= (0 if causal else window))

    def causal(self, _shape, _batch):
        return self.call("causal", self.shape, self.blocksize), self.distances() <= 0

    def prefix(self, _shape, _batch):
        first = int(self.rng.integers(0, self.shape[1] + 1))
        seen = np.arange(self.shape[1]) < first
        made = self.call("prefix", self.shape, self.blocksize, first)
        return made, (self.distances() <= 0) | seen

    def documents(self, _shape, _batch):
        cuts = np.sort(self.rng.integers(0, self.shape[0] + 1, self.rng.integers(1, 6)))
        lengths, causal = np.diff(np.r_[0, cuts, self.shape[0]]), bool(self.rng.integers(2))
        document = np.repeat(np.arange(len(lengths)), lengths)
        same = document[:, None] == document
        made = self.call("documents", lengths, self.blocksize, causal=causal)
        return made, same & (self.distances() <= 0) if causal else same

    def bigbird(self, shape, _batch):
        """Its random blocks are not known: what it stores beside them, and how many, is."""
        window, first, more = (int(n) for n in self.rng.integers(0, 3, 3))
        seed = int(self.rng.integers(1 << 30))
        how = {"window": window, "global_blocks": first, "random_blocks": more, "rng": seed}
        found = masks.bigbird(self.shape, self.blocksize, **how).toarray()
        of_blocks = found[:: self.blocksize[0], :: self.blocksize[1]]
        row, column = np.arange(shape[0])[:, None], np.arange(shape[1])
        fixed = (abs(row - column) <= window) | (row < first) | (column < first)
        assert (of_blocks >= fixed).all()
        drawn = np.minimum(more, shape[1] - fixed.sum(axis=1))
        assert (of_blocks.sum(axis=1) == fixed.sum(axis=1) + drawn).all()
        return self.call("bigbird", self.shape, self.blocksize, **how), self.whole(of_blocks)

    def top_k(self, shape, batch):
        scores = self.rng.integers(-3, 4, (*batch, *shape)).astype(np.float32)
        scores[self.rng.random(scores.shape) < 0.2] = np.nan
        k = int(self.rng.integers(1, shape[1] + 1))
        of_blocks = np.zeros(scores.shape, bool)
        for at in np.ndindex(scores.shape[:-1]):
            numbers = [c for c in range(shape[1]) if not np.isnan(scores[at][c])]
            numbers.sort(key=lambda c: -scores[at][c])  # stable: ties to the lower column
            order = numbers + [c for c in range(shape[1]) if np.isnan(scores[at][c])]
            of_blocks[at][order[:k]] = True

        def made(engine):
            return masks.top_k(engine.array(scores), k, self.blocksize)

        return made, self.whole(of_blocks)

    def from_indices(self, shape, batch):
        """Unsorted, of different lengths, with anything behind what counts."""
        most = int(self.rng.integers(1, shape[1] + 3))
        counts = self.rng.integers(0, min(most, shape[1]) + 1, (*batch, shape[0]))
        lists = self.rng.integers(-100, 1000, (*batch, shape[0], most))
        of_blocks = np.zeros((*batch, *shape), bool)
        for at in np.ndindex(counts.shape):
            lists[at][: counts[at]] = self.rng.permutation(shape[1])[: counts[at]]
            of_blocks[at][lists[at][: counts[at]]] = True
        check = bool(self.rng.integers(2))
        how = {"shape": self.shape, "blocksize": self.blocksize, "check": check}

        def made(engine):
            return masks.from_indices(engine.array(lists), engine.array(counts), **how)

        return made, self.whole(of_blocks)

    def whole(self, of_blocks):
        return of_blocks.repeat(self.blocksize[0], -2).repeat(self.blocksize[1], -1)

    # -- both calls -----------------------------------------------------------------------------

    def keywords(self, of: Kind) -> dict:
        shape = [None, np.broadcast_shapes(self.query.shape[:-2])][self.rng.integers(2)]
        shape = self.query.shape[-3:-2] if shape is None else shape
        drawn = {
            "softcap": {"softcap": 2.5},
            "slopes": {"slopes": self.of_heads(self.rng, shape) / 64},
            "sinks": {"sinks": self.of_heads(self.rng, shape)},
            "dropout": {"dropout_p": 0.3, "seed": int(self.rng.integers(1 << 63))},
        }
        chosen = {"is_causal": bool(self.rng.integers(2))}
        for name in of.score:
            chosen |= drawn[name]
        return chosen

    def run(self, engine, of: Kind) -> None:
        how = self.keywords(of)
        on_it = on_engine(engine, how)
        operands = self.on(engine)
        stored = operands[3].nnzb > 0
        with engine.runs("bsr_attention" if stored else None):
            config = {"path": of.path}
            out, lse = attention(*operands, return_lse=True, config=config, **on_it)
        expected, expected_lse = Case.expected(self, **how)
        rounded = 2 * max(self.shape) * np.abs(how.get("slopes", 0)).max() * np.finfo(lse.dtype).eps
        for found, exact in ((out, expected), (lse, expected_lse)):
            share = 1 + rounded / ATTENTION_TOLERANCE[found.dtype.name]
            assert_attention_close(found, exact, share=share)
        with engine.runs("bsr_attention_backward" if stored else None):
            found = backward(
                engine.array(self.grad),
                *operands,
                out,
                lse,
                grad_lse=engine.array(self.grad_lse),
                mask_gradient=True,
                config={"path": of.backward},
                **on_it,
            )
        self.compare(found, grad_lse=self.grad_lse, **how)


def run(engine, number: int, cases: int) -> None:
    of = kind(number)
    for i in range(cases):
        rng = np.random.default_rng([number, i])
        makers = MAKERS[of.mask]
        maker = makers[i % len(makers)]
        try:
            RandomCase(rng, of, maker).run(engine, of)
        except AssertionError as error:
            error.add_note(f"case {i} of kind {number}, mask {maker}, {of}")
            raise


def test_kinds_meet():
    """Every path meets every sort of mask, and block sizes go from 1 to 256."""
    kinds = [kind(number) for number in range(KINDS)]
    assert {of.path for of in kinds} == {path.NAME for path in ATTENTION}
    assert {of.backward for of in kinds} == {path.NAME for path in ATTENTION_BACKWARD}
    assert len({(of.path, of.mask) for of in kinds}) == len(PATHS) * len(MAKERS)
    sides = {side for of in kinds for side in of.blocksize}
    assert min(sides) == 1 and max(sides) == 256


@pytest.mark.gpu
@pytest.mark.parametrize("number", range(KINDS))
def test_random_cases(cuda_engine, number):
    from sparsegpu.engines.cuda.runtime.device import runs_here

    if not runs_here(path_of(ATTENTION, kind(number).path).ARCHS):
        pytest.skip("wgmma needs compute capability 9.0")
    run(cuda_engine, number, SHARE)


@pytest.mark.parametrize("number", range(0, KINDS, 3))
def test_a_few_on_the_host(engine, number):
    if engine.on_gpu:
        pytest.skip("it runs them all")
    run(engine, number, FEW)
