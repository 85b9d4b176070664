"""What every path of attention but the plain one promises."""

import numpy as np

from attention_cases import Case, attention
from sparsegpu.engines.cuda.paths._attention import AttentionFacts
from sparsegpu.engines.cuda.paths._fields import Fields
from sparsegpu.testing import assert_attention_close

#: (blocksize, lengths in blocks, widths): whole tiles and parts of them, of queries and of keys.
SHAPES = [
    ((64, 64), (3, 4), (64, 64)),
    ((128, 128), (2, 3), (128, 64)),
    ((16, 16), (9, 11), (64, 128)),
    ((48, 32), (3, 5), (40, 72)),
    ((256, 64), (1, 5), (32, 96)),
]


def facts(dtype, blocksize, widths, **more):
    """Return what a tile is chosen by."""
    given = {"out_dtype": np.dtype(dtype), "mask_dtype": np.dtype(bool), **more}
    features, value_features = widths
    return AttentionFacts(
        dtype=np.dtype(dtype),
        blocksize=blocksize,
        features=features,
        value_features=value_features,
        **given,
    )


class AttentionPath:
    """Each test's launches must hold the path's kernel (on the host there is only one way)."""

    NAME: str
    SOURCE: str
    MODULE: object
    DTYPES: tuple[str, ...] = ("bfloat16", "float16")
    SHAPES = SHAPES
    BLOCKSIZE = (64, 64)
    FIELDS: list = [{}]  # configurations beside the path
    OUTPUTS: tuple[str, ...] = ("float16", "float32")
    SCALE = 1.0  # of `test_shapes`: with a large one the maximum rises by whole units

    def check(self, engine, rng, blocksize, lengths, widths, *, fields=None, case=None, **keywords):
        lengths = tuple(n * b for n, b in zip(lengths, blocksize, strict=True))
        made = Case(
            rng,
            **{"dtype": self.DTYPES[0], "heads": (4, 2), "batch": (2,), **(case or {})},
            lengths=lengths,
            blocksize=blocksize,
            widths=widths,
        )
        config = {"path": self.NAME, **(fields or {})}
        made.check(engine, kernel=self.SOURCE, config=config, **keywords)

    def test_shapes(self, engine, rng):
        for shape in self.SHAPES:
            for dtype in self.DTYPES:
                self.check(engine, rng, *shape, case={"dtype": dtype}, scale=self.SCALE)

    def test_fields(self, engine, rng):
        for fields in self.FIELDS:
            self.check(engine, rng, *self.SHAPES[0], fields=fields)

    def test_causal(self, engine, rng):
        for shape in self.SHAPES:
            self.check(engine, rng, *shape, case={"density": 0.9}, is_causal=True)

    def test_scores(self, engine, rng):
        """Everything that the score may have, alone and together."""
        of_heads = "float64" if self.DTYPES[0] == "float64" else "float32"
        heads = rng.standard_normal((2, 4)).astype(of_heads)
        sinks = np.where(heads > 0, heads, -np.inf).astype(of_heads)
        for keywords in (
            {"scale": -0.3},
            {"softcap": 2.5},
            {"slopes": heads},
            {"sinks": sinks},
            {"dropout_p": 0.3, "seed": 7},
            {"softcap": 2.5, "slopes": heads, "sinks": sinks, "dropout_p": 0.3, "seed": 7},
        ):
            self.check(engine, rng, *self.SHAPES[0], **keywords)

    def test_masks_that_are_added(self, engine, rng):
        for mask in ("float32", self.DTYPES[0]):
            for shape in self.SHAPES[:3]:
                self.check(engine, rng, *shape, case={"mask_dtype": mask}, is_causal=True)

    def test_batches_of_masks(self, engine, rng):
        for batch in ((4,), (2, 1), (2, 4)):
            case = {"mask_batch": batch, "heads": (4, 4)}
            self.check(engine, rng, *self.SHAPES[2], case=case)

    def test_values_that_are_not_attended(self, engine, rng):
        """What tensor cores would multiply by zero is left out."""
        (bm, bk), (m, n), widths = self.SHAPES[0]
        case = Case(
            rng,
            dtype=self.DTYPES[0],
            lengths=(m * bm, n * bk),
            blocksize=(bm, bk),
            widths=widths,
            density=0.9,
        )
        case.mask[0][:, :, 5] = False  # keys that nobody sees
        case.mask[0][:, 3, 7] = False  # and keys that one query does not see
        case.value[..., 5::bk, :] = np.nan
        case.key[..., 5::bk, :] = np.inf
        case.value[..., 7::bk, 2] = np.inf
        expected, _ = case.expected()
        with engine.runs(self.SOURCE):
            out = attention(*case.on(engine), config={"path": self.NAME})
        out = engine.host(out)
        infinite = np.isinf(expected)
        np.testing.assert_array_equal(np.isinf(out), infinite)
        assert_attention_close(np.where(infinite, 0, out), np.where(infinite, 0, expected))

    def test_a_key_far_above_the_others(self, engine, rng):
        sizes = {"lengths": (128, 128), "blocksize": self.BLOCKSIZE, "widths": (64, 64)}
        for column in (*range(8), 101):
            case = Case(rng, dtype=self.DTYPES[0], density=0.8, **sizes)
            case.raise_key(column)
            case.check(engine, kernel=self.SOURCE, config={"path": self.NAME}, scale=1.0)

    def test_out(self, engine, rng):
        sizes = {"lengths": (128, 128), "blocksize": self.BLOCKSIZE, "widths": (64, 64)}
        case = Case(rng, dtype=self.DTYPES[0], **sizes)
        for dtype in self.OUTPUTS:
            out = engine.xp.full((1, 64, 128), np.nan, dtype).swapaxes(-1, -2)
            with engine.runs(self.SOURCE):
                got = attention(*case.on(engine), out=out, config={"path": self.NAME})
            assert got is out
            known_to = np.float64 if dtype == "float64" else np.float16
            assert_attention_close(got.astype(known_to), case.expected()[0])

    def test_tiles_fit(self):
        for (blocksize, _, widths), dropout in zip(self.SHAPES, (False, True) * 3, strict=False):
            tile = self.MODULE.tile(
                facts(self.DTYPES[0], blocksize, widths, dropout=dropout), Fields()
            )
            assert tile.shared_memory <= 227 * 1024
            assert tile.threads % 32 == 0
            assert tile.defines["FEATURES"] >= widths[0] > tile.defines["FEATURES"] - 64
