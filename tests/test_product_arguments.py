"""What every product does with its input, out, scales and output dtype, one test for all."""

import numpy as np
import pytest

import sparsegpu as sg
from addmm_cases import small
from semi_structured_cases import operand
from sparsegpu.testing import random_24

SIZE = 128  # all matrices are square: shapes cannot give a transposed view away


class Product:
    """A product ``act(beta * input + left * (alpha * P) * right)``, P known on the host."""

    def __init__(self, name, engine, rng, dtype="float32"):
        self.engine = engine
        dense = random_24(rng, (SIZE, SIZE), np.dtype(dtype), small_integers=True)
        dense[:32, :64] = dense[64:, 64:] = 0  # three of eight blocks are stored
        x = small(rng, (SIZE, SIZE), dtype)
        there = engine.array(x)
        bsr = sg.bsr_array(engine.array(dense), blocksize=(32, 64))
        if name == "dense @ bsr":
            self.kernel, self.exact = "bsr_addmm", x.astype(float) @ dense
            self.function = lambda input, **keywords: sg.dense_bsr_matmul(
                there, bsr, input=input, **{"beta": 1} | keywords
            )
            return
        self.exact = dense.astype(float) @ x
        if name == "bsr @ dense":
            self.kernel, sparse, product = "bsr_addmm", bsr, sg.bsr_addmm
        elif name == "bsr of 2:4 blocks @ dense":
            self.kernel, product = "bsr_semi_structured", sg.bsr_addmm
            with engine.runs("semi_structured_compress"):
                sparse = bsr.semi_structured()
        else:
            self.kernel, product = "semi_structured_addmm", sg.semi_structured_addmm
            with engine.runs("semi_structured_compress"):
                sparse = sg.to_semi_structured(engine.array(dense))
        self.function = lambda input, **keywords: product(input, sparse, there, **keywords)

    def __call__(self, input, **keywords):
        with self.engine.runs(self.kernel):
            return self.function(input, **keywords)

    def refused(self, error, match, input, **keywords):
        with self.engine.runs(None), pytest.raises(error, match=match):
            self.function(input, **keywords)


PRODUCTS = ["bsr @ dense", "dense @ bsr", "bsr of 2:4 blocks @ dense", "2:4 @ dense"]
every_product = pytest.mark.parametrize("name", PRODUCTS)


@every_product
def test_out_is_no_other_view_of_input(engine, rng, name):
    """Of the same memory and shape as ``input``, and yet not ``input``."""
    product = Product(name, engine, rng)
    start = small(rng, (SIZE, SIZE))
    input = engine.array(start.copy())
    for out in (input.T, input[::-1], input[:, ::-1]):
        match = r"'out': expected memory apart from 'input', or input itself"
        product.refused(ValueError, match, input, out=out)
        product.refused(ValueError, match, out, out=input)
    np.testing.assert_array_equal(engine.host(input), start)
    assert product(input, beta=2, out=input) is input
    np.testing.assert_array_equal(engine.host(input), 2 * start + product.exact)
    turned = engine.array(start.copy()).T
    assert product(turned, beta=2, out=turned) is turned
    np.testing.assert_array_equal(engine.host(turned), 2 * start.T + product.exact)


@every_product
def test_out_is_apart_from_the_scales(engine, rng, name):
    product = Product(name, engine, rng)
    memory = engine.array(np.ones((SIZE + 1, SIZE), np.float32))
    for scale in ("left_alpha", "right_alpha"):
        match = f"'out': expected memory apart from '{scale}'"
        product.refused(ValueError, match, None, out=memory[:-1], **{scale: memory[3]})
    assert (engine.host(memory) == 1).all()


@every_product
@pytest.mark.parametrize("activation", [None, "relu"])
def test_scales_are_not_read_without_a_product(engine, rng, name, activation):
    product = Product(name, engine, rng)
    start = small(rng, (SIZE, SIZE))
    scale = engine.array(np.full(SIZE, np.nan, np.float32))
    expected = np.maximum(-2 * start, 0) if activation else -2 * start
    for scales in ({"left_alpha": scale}, {"right_alpha": scale}):
        out = product(engine.array(start), alpha=0, beta=-2, activation=activation, **scales)
        np.testing.assert_array_equal(engine.host(out), expected)
        assert (engine.host(product(None, alpha=0, **scales)) == 0).all()


@pytest.mark.parametrize("from_the_right", [False, True])
def test_scales_are_not_read_without_blocks(engine, rng, from_the_right):
    bsr = sg.bsr_array(engine.array(np.zeros((8, 8), np.float32)), blocksize=(2, 4))
    x, scale = engine.array(small(rng, (8, 8))), engine.array(np.full(8, np.nan, np.float32))
    for scales in ({"left_alpha": scale}, {"right_alpha": scale}):
        with engine.runs("bsr_addmm"):
            if from_the_right:
                out = sg.dense_bsr_matmul(x, bsr, input=x, beta=2, **scales)
            else:
                out = sg.bsr_addmm(x, bsr, x, beta=2, **scales)
        np.testing.assert_array_equal(engine.host(out), 2 * engine.host(x))


@every_product
def test_out_and_out_dtype_agree(engine, rng, name):
    product = Product(name, engine, rng, "float16")
    out = engine.array(np.full((SIZE, SIZE), 7, np.float16))
    match = "'out': expected dtype float32 as out_dtype says, got float16"
    product.refused(TypeError, match, None, out=out, out_dtype="float32")
    for dtype in (np.float64, np.int32):
        other = engine.array(np.full((SIZE, SIZE), 7, dtype))
        product.refused(TypeError, "'out': expected one of the dtypes float16", None, out=other)
        product.refused(TypeError, "'out'", None, out=other, out_dtype="float16")
        assert (engine.host(other) == 7).all()
    assert (engine.host(out) == 7).all()
    wide = engine.array(np.zeros((SIZE, SIZE), np.float32))
    assert product(None, out=wide, out_dtype="float32") is wide
    np.testing.assert_array_equal(engine.host(wide), product.exact)


def test_other_functions_with_out_and_out_dtype(engine, rng):
    sparse, _ = operand(engine, rng, (64, 64), np.dtype(np.float16))
    bsr = sg.bsr_array(sparse.todense(), blocksize=(32, 32))
    x = engine.array(small(rng, (64, 64), "float16"))
    bytes_ = engine.array(np.eye(64, dtype=np.int8))
    integers = sg.bsr_array(bytes_, blocksize=(32, 32))
    out = engine.array(np.full((64, 64), 7, np.float16))
    with sg.use_engine(engine.name):
        for call in (
            lambda **k: sg.bsr_matmul(bsr, x, **k),
            lambda **k: sg.semi_structured_matmul(sparse, x, **k),
            lambda **k: sg.semi_structured_linear(x, sparse, **k),
            lambda **k: sg.int_bsr_addmm(None, integers, bytes_, **k),
        ):
            with pytest.raises(TypeError, match="'out': expected dtype float32 as out_dtype says"):
                call(out=out, out_dtype="float32")
    assert (engine.host(out) == 7).all()


@every_product
def test_input_of_one_dimension(engine, rng, name):
    """It is a row, from either side."""
    product, row = Product(name, engine, rng), small(rng, (SIZE,))
    out = engine.host(product(engine.array(row), beta=3))
    np.testing.assert_array_equal(out, 3 * row + product.exact)


@every_product
def test_input_that_does_not_broadcast(engine, rng, name):
    """Its dimensions of one are repeated, those of the result are not."""
    product = Product(name, engine, rng)
    for shape in ((2, SIZE, SIZE), (SIZE, 2), (SIZE + 1,), (2 * SIZE, SIZE)):
        input = engine.array(np.ones(shape, np.float32))
        match = rf"'input': .*broadcasts to \({SIZE}, {SIZE}\)"
        product.refused(ValueError, match, input)
    bsr = sg.bsr_array(engine.array(np.ones((8, 8), np.float32)), blocksize=(2, 4))
    x, wide = (engine.array(np.ones((8, n), np.float32)) for n in (1, 3))
    with engine.runs(None), pytest.raises(ValueError, match=r"'input': .*broadcasts to \(8, 1\)"):
        sg.bsr_addmm(wide, bsr, x)


@every_product
def test_nan_goes_through_relu(engine, rng, name):
    product = Product(name, engine, rng)
    start = np.zeros((SIZE, SIZE), np.float32)
    start[5, 7] = np.nan
    out = engine.host(product(engine.array(start), activation="relu"))
    expected = np.maximum(product.exact + start, 0)  # NumPy's maximum keeps NaN
    np.testing.assert_array_equal(out, expected)


@every_product
def test_relu_of_integers(engine, rng, name):
    product = Product(name, engine, rng, "int8")
    input = rng.integers(-5, 6, (SIZE, SIZE)).astype(np.int32)
    out = product(engine.array(input), alpha=-3, beta=2, activation="relu")
    assert out.dtype == np.int32
    expected = np.maximum(-3 * product.exact + 2 * input, 0)
    np.testing.assert_array_equal(engine.host(out), expected)


# -- operations at the stored blocks ---------------------------------------------------------------


def test_out_of_blocks_is_no_other_view_of_input(engine, rng):
    blocks = small(rng, (2, 4, 4))
    data = engine.array(blocks.copy())
    bsr = sg.bsr_array((data, engine.xp.array([0, 1]), engine.xp.array([0, 1, 2])), shape=(8, 8))
    turned = bsr.with_data(bsr.data.swapaxes(-1, -2))
    x = engine.array(small(rng, (8, 8)))
    for name, call in (
        ("bsr", lambda: sg.bsr_softmax(bsr, out=turned)),
        ("input", lambda: sg.sampled_addmm(bsr, x, x, out=turned)),
    ):
        match = f"'out': expected memory apart from '{name}', or {name} itself"
        with sg.use_engine(engine.name), pytest.raises(ValueError, match=match):
            call()
    np.testing.assert_array_equal(engine.host(bsr.data), blocks)


def test_out_of_blocks_has_the_pattern(engine, rng):
    """The same number of blocks in other columns, and in other rows."""
    x = engine.array(small(rng, (4, 4)))

    def with_blocks_at(indices, indptr):
        parts = engine.array(np.full((2, 2, 2), 7, np.float32)), indices, indptr
        return sg.bsr_array(tuple(engine.xp.asarray(part) for part in parts), shape=(4, 4))

    bsr = with_blocks_at([0, 1], [0, 1, 2])
    for other in (with_blocks_at([1, 0], [0, 1, 2]), with_blocks_at([0, 1], [0, 2, 2])):
        assert not bsr.same_pattern(other) and not other.same_pattern(bsr)
        for call in (
            lambda out=other: sg.bsr_softmax(bsr, out=out),
            lambda out=other: sg.sampled_addmm(bsr, x, x, out=out),
        ):
            with (
                sg.use_engine(engine.name),
                pytest.raises(ValueError, match="'out': expected the pattern of the result"),
            ):
                call()
        assert (engine.host(other.data) == 7).all()
