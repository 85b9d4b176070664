"""Attention's gradients on tensor cores: blocks, widths, heads, scores, what is not attended."""

import numpy as np
import pytest

from attention_gradient_cases import GradientCase, backward
from attention_path import facts
from sparsegpu.engines.cuda.paths import bsr_attention_backward_sm80
from sparsegpu.engines.cuda.paths._fields import ConfigError, Fields
from sparsegpu.testing import to_host

#: blocksize, lengths in blocks, widths.
SHAPES = [
    ((64, 64), (3, 4), (64, 64)),
    ((128, 128), (2, 3), (128, 64)),
    ((16, 16), (9, 11), (64, 128)),
    ((20, 12), (7, 6), (40, 72)),
    ((8, 8), (17, 9), (32, 32)),
    ((256, 64), (1, 5), (32, 96)),
]


def check(engine, rng, shape, *, case=None, fields=None, poison=False, **keywords):
    blocksize, blocks, widths = shape
    made = GradientCase(
        rng,
        **{"dtype": "bfloat16", "heads": (4, 2), "batch": (2,), "density": 0.7, **(case or {})},
        lengths=tuple(n * b for n, b in zip(blocks, blocksize, strict=True)),
        blocksize=blocksize,
        widths=widths,
    )
    clean = made.key, made.value
    if poison:  # keys that nobody sees
        made.mask[0][..., 1] = False
        made.key, made.value = made.key.copy(), made.value.copy()
        made.key[..., 1 :: blocksize[1], :] = np.nan
        made.value[..., 1 :: blocksize[1], :] = np.inf
    config = {"path": "mma", **(fields or {})}
    forward = {name: value for name, value in keywords.items() if name != "grad_lse"}
    operands = made.forward(engine, **forward_on(engine, forward))
    with engine.runs("bsr_attention_backward_sm80"):
        found = backward(
            *operands, mask_gradient=True, config=config, **forward_on(engine, keywords)
        )
    made.key, made.value = clean
    made.compare(found, **keywords)
    return operands, found


def forward_on(engine, keywords):
    return {
        name: engine.array(value) if isinstance(value, np.ndarray) else value
        for name, value in keywords.items()
    }


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(engine, rng, dtype, shape):
    check(engine, rng, shape, case={"dtype": dtype})
    check(engine, rng, shape, case={"dtype": dtype}, is_causal=True)


@pytest.mark.parametrize("fields", [{"tile_own": 128}, {"tile_other": 16}, {"tile_other": 64}])
def test_fields(engine, rng, fields):
    check(engine, rng, SHAPES[0], fields=fields)


def test_scores(engine, rng):
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
        check(engine, rng, SHAPES[0], **keywords)


def test_masks(engine, rng):
    for mask in ("float32", "bfloat16"):
        check(engine, rng, SHAPES[2], case={"mask_dtype": mask})
    for batch in ((4,), (2, 1), (2, 4)):
        check(engine, rng, SHAPES[2], case={"mask_batch": batch})
    check(engine, rng, SHAPES[2], case={"kv_batch": ()})  # shared by the batch


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_is_not_attended_shows_in_no_gradient(engine, rng, shape):
    check(engine, rng, shape, poison=True)


def test_the_same_bits_every_run(engine, rng):
    operands, found = check(engine, rng, SHAPES[0])
    for _ in range(3):
        with engine.runs("bsr_attention_backward_sm80"):
            again = backward(*operands, config={"path": "mma"})
        for first, second in zip(found[:3], again[:3], strict=True):
            np.testing.assert_array_equal(to_host(first), to_host(second))


def test_what_it_does_not_take():
    tile = bsr_attention_backward_sm80.tile
    assert tile(facts("float16", (7, 64), (64, 64)), Fields()) is None
    assert tile(facts("float16", (64, 64), (136, 64)), Fields()) is None
    assert tile(facts("float16", (64, 64), (20, 64)), Fields()) is None
    small = facts("float16", (64, 64), (128, 128), shared_memory=64 * 1024)
    with pytest.raises(ConfigError, match="'tile_other'"):
        tile(small, Fields({"path": "mma", "tile_other": 64}))
