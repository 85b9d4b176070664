"""What every path of attention's gradients promises."""

import numpy as np

from attention_cases import on_engine
from attention_gradient_cases import GradientCase, backward
from attention_path import mask_dtypes
from sparsegpu.testing import to_host


class GradientPath:
    """Each test's launches must hold the path's kernel (on the host there is only one way)."""

    NAME: str
    SOURCE: str
    SHAPES: list  # blocksize, lengths in blocks, widths
    FIELDS: list  # configurations beside the path
    DTYPES: tuple[str, ...] = ("bfloat16", "float16")
    MASKED = ((16, 16), (9, 11), (64, 128))  # a shape for masks of every kind

    def check(
        self,
        engine,
        rng,
        shape,
        *,
        case=None,
        fields=None,
        poison=False,
        heads_inside=False,
        **keywords,
    ):
        blocksize, blocks, widths = shape
        made = GradientCase(
            rng,
            **{
                "dtype": self.DTYPES[0],
                "heads": (4, 2),
                "batch": (2,),
                "density": 0.7,
                **(case or {}),
            },
            lengths=tuple(n * b for n, b in zip(blocks, blocksize, strict=True)),
            blocksize=blocksize,
            widths=widths,
        )
        if heads_inside:
            made.put_heads_inside()
        clean = made.key, made.value
        if poison:  # keys that nobody sees
            made.mask[0][..., 1] = False
            made.key, made.value = made.key.copy(), made.value.copy()
            made.key[..., 1 :: blocksize[1], :] = np.nan
            made.value[..., 1 :: blocksize[1], :] = np.inf
        config = {"path": self.NAME, **(fields or {})}
        forward = {name: value for name, value in keywords.items() if name != "grad_lse"}
        operands = made.forward(engine, **on_engine(engine, forward))
        with engine.runs(self.SOURCE):
            more = made.how | on_engine(engine, keywords)
            found = backward(*operands, mask_gradient=True, config=config, **more)
        made.key, made.value = clean
        made.compare(found, **keywords)
        return operands, made.how, found

    def pytest_generate_tests(self, metafunc):
        if "dtype" in metafunc.fixturenames:
            metafunc.parametrize("dtype", sorted(self.DTYPES, reverse=True))

    def test_shapes(self, engine, rng, dtype):
        for shape in self.SHAPES:
            self.check(engine, rng, shape, case={"dtype": dtype})
            self.check(engine, rng, shape, case={"dtype": dtype}, is_causal=True)

    def test_heads_between_rows_and_columns(self, engine, rng):
        for shape in self.SHAPES[:3]:
            self.check(engine, rng, shape, heads_inside=True)

    def test_fields(self, engine, rng):
        for fields in self.FIELDS:
            self.check(engine, rng, self.SHAPES[0], fields=fields)

    def test_orders_of_tiles(self, engine, rng, band):
        blocksize, _, widths = self.SHAPES[0]
        for heads, blocks in (((4, 4), (7, 5)), ((4, 2), (3, 6))):
            case = {"heads": heads, "density": 0.4}
            self.check(engine, rng, (blocksize, blocks, widths), case=case)

    def test_scores(self, engine, rng):
        """Everything that the score may have, alone and together."""
        heads = (rng.standard_normal((2, 4)) / 8).astype(np.float32)
        grad_lse = rng.standard_normal((2, 4, 192)).astype(np.float32)
        for keywords in (
            {"scale": -0.3},
            {"grad_lse": grad_lse},
            {"softcap": 2.5},
            {"slopes": heads},
            {"sinks": heads},
            {"dropout_p": 0.3, "seed": 7},
            {"softcap": 2.5, "slopes": heads, "sinks": heads, "dropout_p": 0.3, "seed": 7},
        ):
            self.check(engine, rng, ((64, 64), (3, 4), (64, 64)), **keywords)

    def test_masks(self, engine, rng):
        for mask in mask_dtypes(self.DTYPES[0]):
            self.check(engine, rng, self.MASKED, case={"mask_dtype": mask})
        for batch in ((4,), (2, 1), (2, 4)):
            self.check(engine, rng, self.MASKED, case={"mask_batch": batch})
            # groups of other lengths in every mask, which are not taken in the same order
            self.check(engine, rng, self.MASKED, case={"mask_batch": batch, "density": 0.15})
        self.check(engine, rng, self.MASKED, case={"kv_batch": ()})  # shared by the batch
        self.check(engine, rng, self.MASKED, case={"density": 0.1})  # rows without a block
        self.check(engine, rng, self.MASKED, case={"duplicates": True})

    def test_what_is_not_attended_shows_in_no_gradient(self, engine, rng):
        for shape in self.SHAPES:
            self.check(engine, rng, shape, poison=True)

    def test_the_same_bits_every_run(self, engine, rng):
        operands, how, found = self.check(engine, rng, self.SHAPES[0])
        for _ in range(3):
            with engine.runs(self.SOURCE):
                again = backward(*operands, config={"path": self.NAME}, **how)
            for first, second in zip(found[:3], again[:3], strict=True):
                np.testing.assert_array_equal(to_host(first), to_host(second))
