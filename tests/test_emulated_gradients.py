"""The kernels of attention's gradients on the host (tools/emulator)."""

from __future__ import annotations

import numpy as np
import pytest

import sparsegpu
from attention_cases import attention
from attention_gradient_cases import GradientCase, backward
from host_engine import Host
from tools.emulator.attention import emulated_attention

_SOURCES = {"mma": "sm80", "wgmma": "sm90"}
#: Gradients: path and fields, dtype, case, keywords.
GRADIENTS = [
    (
        {"path": "mma"},
        "float16",
        {"blocksize": (20, 12), "lengths": (100, 48), "widths": (40, 72), "heads": (2, 1)},
        {"is_causal": True},
    ),
    (
        {"path": "mma"},
        "tf32",
        {"blocksize": (20, 12), "lengths": (100, 48), "widths": (36, 60), "heads": (2, 1)},
        {"is_causal": True},
    ),
    (
        {"path": "fma"},
        "float32",
        {"blocksize": (20, 12), "lengths": (100, 48), "widths": (36, 76), "heads": (2, 1)},
        {"is_causal": True, "softcap": 2.5},
    ),
    (
        {"path": "fma", "tile_other": 16},
        "float32",
        {"blocksize": (9, 33), "lengths": (63, 99), "mask_dtype": "float32", "batch": (2,)},
        {"dropout_p": 0.3, "seed": 7},
    ),
    (  # the last strip of a block has rows that the mask does not have
        {"path": "mma"},
        "bfloat16",
        {"blocksize": (20, 64), "lengths": (60, 128), "density": 1.0, "mask_dtype": "float32"},
        {},
    ),
    (
        {"path": "mma", "tile_other": 16},
        "bfloat16",
        {"blocksize": (32, 32), "lengths": (64, 64), "widths": (32, 32), "mask_dtype": "float32"},
        {"dropout_p": 0.3, "seed": 7},
    ),
    (
        {"path": "wgmma", "stages": 2},
        "bfloat16",
        {"blocksize": (128, 64), "lengths": (256, 192), "widths": (64, 40), "heads": (4, 2)},
        {"is_causal": True},
    ),
    (
        {"path": "wgmma"},
        "float16",
        {"blocksize": (16, 32), "lengths": (112, 160), "widths": (32, 128), "batch": (2,)},
        {"softcap": 2.5},
    ),
    (
        {"path": "wgmma", "tile_own": 128},
        "bfloat16",
        {"blocksize": (64, 64), "lengths": (192, 192), "mask_dtype": "float32"},
        {"dropout_p": 0.3, "seed": 7},
    ),
]


def test_gradients_over_bits_of_partial_blocks(directory, rng):
    case = GradientCase(rng, heads=(4, 2), lengths=(12, 99), blocksize=(3, 33))
    *operands, bsr = case.on(Host())
    mask = sparsegpu.BlockMask.from_bsr(bsr)
    with emulated_attention(directory) as launched:
        out, lse = attention(*operands, mask, return_lse=True)
        found = backward(case.grad, *operands, mask, out, lse, mask_gradient=True)
    assert launched["bsr_attention_backward_simt"] == 3
    case.compare(found)


def test_gradients_on_tensor_cores_over_bits(directory, rng):
    """The states for the pattern and for its transpose are two, and found once."""
    case = GradientCase(
        rng, dtype="float16", widths=(64, 64), heads=(2, 1), lengths=(64, 96), blocksize=(32, 32)
    )
    *operands, bsr = case.on(Host())
    mask = sparsegpu.BlockMask.from_bsr(bsr)
    config = {"path": "mma"}
    for states in (2, 0):
        with emulated_attention(directory) as launched:
            out, lse = attention(*operands, mask, return_lse=True, config={"path": "simt"})
            found = backward(case.grad, *operands, mask, out, lse, config=config)
        assert launched["bsr_attention_backward_sm80"] == 2
        assert launched["bsr_attention_mask"] == states
        case.compare(found)


@pytest.mark.parametrize("path", ["mma", "wgmma"])
def test_gradients_with_sinks(directory, rng, path):
    """They follow from lse, in which the sinks count, at queries that attend to nothing too."""
    sizes = {"lengths": (96, 128), "blocksize": (32, 32), "widths": (64, 64), "heads": (2, 1)}
    case = GradientCase(rng, dtype="bfloat16", density=0.7, **sizes)
    case.mask[0][:, 3] = False
    sinks = np.float32([1.5, -np.inf])
    with emulated_attention(directory) as launched:
        operands = case.forward(Host(), sinks=sinks, config={"path": path})
        found = backward(*operands, sinks=sinks, config={"path": path})
    assert launched["bsr_attention_backward_sinks"] == 1
    case.compare(found, sinks=sinks)


@pytest.mark.parametrize("path", ["mma", "wgmma"])
def test_gradients_of_heads_with_masks_of_their_own(directory, rng, path):
    """Heads share keys; groups of keys have other lengths in every mask, and another order."""
    sizes = {"lengths": (112, 160), "blocksize": (16, 32), "widths": (32, 128), "heads": (4, 1)}
    case = GradientCase(rng, dtype="float16", density=0.2, mask_batch=(4,), **sizes)
    with emulated_attention(directory):
        found = backward(*case.forward(Host()), config={"path": path})
    case.compare(found)


@pytest.mark.parametrize("case", GRADIENTS, ids=str)
def test_gradients_on_tensor_cores(directory, rng, case):
    config, dtype, made, keywords = case
    kernel = "bsr_attention_backward_" + _SOURCES.get(config["path"], config["path"])
    case = GradientCase(rng, dtype=dtype, **{"density": 0.7, "widths": (64, 64), **made})
    if case.mask[0].dtype == bool:
        case.mask[0][::3] = True
    clean = case.key, case.value
    for poisoned in (False, True):
        if poisoned:  # keys that nobody sees
            case.mask[0][..., 1] = False if case.mask[0].dtype == bool else -np.inf
            case.key, case.value = case.key.copy(), case.value.copy()
            case.key[..., 1 :: case.blocksize[1], :] = np.nan
            case.value[..., 1 :: case.blocksize[1], :] = np.nan
        grad_lse = case.of_heads(rng, case.grad.shape[:-1])
        with emulated_attention(directory) as launched:
            operands = case.forward(Host(), **keywords)
            how = case.how | keywords
            found = backward(*operands, grad_lse=grad_lse, config=config, **how)
        assert launched[kernel] == 2
        case.key, case.value = clean
        case.compare(found, grad_lse=grad_lse, **keywords)
