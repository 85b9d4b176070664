"""What every path of attention promises."""

import numpy as np

from attention_cases import Case, attention
from sparsegpu.engines.cuda.paths._attention import AttentionFacts
from sparsegpu.engines.cuda.paths._fields import Fields
from sparsegpu.testing import assert_attention_close

#: Rows whose keys are split: blocksize, lengths in blocks, widths, the row, case and keywords.
LONG_ROWS = [
    ((64, 64), (6, 24), (64, 64), 3, {"dtype": "bfloat16"}, {"scale": 1.0, "sinks": 25}),
    # the last row, before an incomplete tile
    ((32, 64), (17, 23), (40, 96), 16, {"mask_dtype": "float32"}, {"sinks": 0}),
    ((128, 32), (5, 40), (64, 64), 0, {"heads": (2, 1)}, {"is_causal": True, "softcap": 2.5}),
    ((80, 64), (5, 20), (32, 32), 4, {}, {"dropout_p": 0.3, "seed": 7, "sinks": 0}),
    # a launch with another tile than that of all keys
    ((128, 128), (5, 20), (64, 64), 2, {}, {}),
    ((64, 16), (6, 80), (96, 200), 1, {}, {}),
]

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
    operands = np.dtype("float32" if dtype == "tf32" else dtype)
    given = {"out_dtype": operands, "mask_dtype": np.dtype(bool), **more}
    features, value_features = widths
    return AttentionFacts(
        dtype=operands,
        allow_tf32=dtype == "tf32",
        blocksize=blocksize,
        features=features,
        value_features=value_features,
        **given,
    )


def mask_dtypes(dtype):
    """Return the dtypes of masks that are added to scores of operands of a dtype."""
    return dict.fromkeys(("float32", "float32" if dtype == "tf32" else dtype))


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

    def check(
        self,
        engine,
        rng,
        blocksize,
        lengths,
        widths,
        *,
        fields=None,
        case=None,
        heads_inside=False,
        **keywords,
    ):
        lengths = tuple(n * b for n, b in zip(lengths, blocksize, strict=True))
        made = Case(
            rng,
            **{"dtype": self.DTYPES[0], "heads": (4, 2), "batch": (2,), **(case or {})},
            lengths=lengths,
            blocksize=blocksize,
            widths=widths,
        )
        if heads_inside:
            made.put_heads_inside()
        config = {"path": self.NAME, **(fields or {})}
        made.check(engine, kernel=self.SOURCE, config=config, **keywords)

    def test_shapes(self, engine, rng):
        for shape in self.SHAPES:
            for dtype in self.DTYPES:
                self.check(engine, rng, *shape, case={"dtype": dtype}, scale=self.SCALE)

    def test_heads_between_rows_and_columns(self, engine, rng):
        for shape in self.SHAPES[:3]:
            self.check(engine, rng, *shape, heads_inside=True)

    def test_fields(self, engine, rng):
        for fields in self.FIELDS:
            self.check(engine, rng, *self.SHAPES[0], fields=fields)

    def test_orders_of_tiles(self, engine, rng, band):
        for heads, lengths in (((4, 4), (7, 5)), ((1, 1), (3, 2))):
            case = {"heads": heads, "density": 0.4}
            self.check(engine, rng, self.BLOCKSIZE, lengths, (64, 64), case=case)

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
        for mask in mask_dtypes(self.DTYPES[0]):
            for shape in self.SHAPES[:3]:
                self.check(engine, rng, *shape, case={"mask_dtype": mask}, is_causal=True)

    def test_masks_far_below_zero(self, engine, rng):
        """As people have them in the place of -inf: a query's weights are equal."""
        sizes = {"lengths": (128, 192), "blocksize": self.BLOCKSIZE, "widths": (64, 64)}
        for dtype in self.DTYPES:
            mask = dtype if dtype == "float64" else "float32"
            for added in (-1e9, -1e30, np.finfo(mask).min):
                case = Case(rng, dtype=dtype, mask_dtype=mask, density=0.8, **sizes)
                case.move_far(added)
                case.check(engine, kernel=self.SOURCE, config={"path": self.NAME})

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
            out = attention(*case.on(engine), config={"path": self.NAME}, **case.how)
        out = engine.host(out)
        infinite = np.isinf(expected)
        np.testing.assert_array_equal(np.isinf(out), infinite)
        finite = np.where(infinite, 0, out).astype(case.digits)
        assert_attention_close(finite, np.where(infinite, 0, expected))

    def test_a_key_far_above_the_others(self, engine, rng):
        sizes = {"lengths": (128, 128), "blocksize": self.BLOCKSIZE, "widths": (64, 64)}
        for column in (*range(8), 101):
            case = Case(rng, dtype=self.DTYPES[0], density=0.8, **sizes)
            case.raise_key(column)
            case.check(engine, kernel=self.SOURCE, config={"path": self.NAME}, scale=1.0)

    def test_scores_of_zero(self, engine, rng):
        """Every weight is exactly one: the mean of 128 small integers has no error."""
        sizes = {"lengths": (128, 128), "blocksize": self.BLOCKSIZE, "widths": (64, 64)}
        for dtype in self.DTYPES:
            case = Case(rng, dtype=dtype, density=1, **sizes)
            exact = case.average(rng)
            with engine.runs(self.SOURCE):
                out = attention(*case.on(engine), config={"path": self.NAME}, **case.how)
            assert (engine.host(out) == exact).all()

    def test_out(self, engine, rng):
        sizes = {"lengths": (128, 128), "blocksize": self.BLOCKSIZE, "widths": (64, 64)}
        case = Case(rng, dtype=self.DTYPES[0], **sizes)
        for dtype in self.OUTPUTS:
            out = engine.xp.full((1, 64, 128), np.nan, dtype).swapaxes(-1, -2)
            with engine.runs(self.SOURCE):
                got = attention(*case.on(engine), out=out, config={"path": self.NAME}, **case.how)
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


class SplitKv:
    """What paths promise that split the keys of rows which have many more than others."""

    NAME: str
    SOURCE: str

    def test_long_rows(self, engine, rng):
        for case in LONG_ROWS:
            made, keywords = long_row(rng, *case)
            for fields, kernels in (
                ({"split_kv": 0}, [self.SOURCE]),
                ({}, [self.SOURCE, "bsr_attention_reduce"]),
            ):
                config = {"path": self.NAME, **fields}
                made.check(engine, kernel=kernels, config=config, **keywords)

    def test_rows_of_similar_lengths_are_not_split(self, engine, rng):
        config = {"path": self.NAME, "split_kv": 0}
        made = Case(rng, dtype="float16", lengths=(192, 1536), blocksize=(64, 64), widths=(64, 64))
        with engine.runs(self.SOURCE):
            out = attention(*made.on(engine), config=config)
        with engine.runs(self.SOURCE):
            expected = attention(*made.on(engine), config={"path": self.NAME})
        np.testing.assert_array_equal(engine.host(out), engine.host(expected))


def long_row(rng, blocksize, lengths, widths, row, case, keywords):
    """Return a case of which one block row is full, and its keywords.

    Neither part of its keys is attended that somebody would have to look at to see it: values there
    are NaN.
    """
    lengths = tuple(n * b for n, b in zip(lengths, blocksize, strict=True))
    more = {"dtype": "float16", "density": 0.05, **case}
    made = Case(rng, lengths=lengths, blocksize=blocksize, widths=widths, **more)
    made.fill_row(rng, row)
    data = made.mask[0]
    nothing = False if data.dtype == bool else -np.inf
    data[:, :, 3] = nothing
    made.value[..., 3 :: blocksize[1], :] = np.nan
    data[made.mask[2][row] : made.mask[2][row] + 8, 2] = (
        nothing  # of a query all of the first split
    )
    if "sinks" in keywords:  # near so large a logit
        keywords = keywords | {"sinks": keywords["sinks"] + made.of_heads(rng)}
    return made, keywords
