"""Attention's tensor-core kernels on the host (tools/emulator): what a GPU would be told to do."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import sparsegpu
from attention_cases import Case, attention, check_far_weights
from attention_gradient_cases import GradientCase, backward
from attention_path import LONG_ROWS, long_row
from host_engine import Host
from sparsegpu.pattern import Pattern
from sparsegpu.testing import assert_attention_close
from tools.emulator.attention import emulated_attention

#: Everything that the score of two heads may have.
EVERYTHING = {
    "softcap": 2.5,
    "slopes": np.array([0.02, -0.01]),
    "sinks": np.array([0.5, -np.inf]),
    "dropout_p": 0.3,
    "seed": 7,
}

DROPOUT = {"dropout_p": 0.3, "seed": 7}
#: By path; few, as each takes seconds to build: fields, dtype, mask, block, blocks, widths, more.
CASES = {
    "mma": [
        # With such a scale the maximum rises by whole units.
        ({}, "bfloat16", "bool", (16, 16), (9, 11), (64, 64), {"scale": 1.0}),
        ({"tile_k": 16}, "float16", "float32", (20, 12), (5, 4), (40, 72), {"is_causal": True}),
        ({}, "tf32", "bool", (16, 16), (9, 11), (64, 128), {"scale": 1.0}),
        ({"tile_k": 16}, "tf32", "float32", (20, 12), (5, 4), (36, 76), {"is_causal": True}),
    ],
    "wgmma": [
        ({"stages": 2}, "float16", "bool", (256, 64), (1, 5), (64, 64), {"is_causal": True}),
        ({}, "bfloat16", "bool", (32, 32), (5, 7), (64, 128), {"scale": 1.0}),
        ({}, "float16", "bool", (64, 64), (2, 3), (192, 256), {}),
        ({"tile_q": 128}, "bfloat16", "bool", (32, 32), (9, 6), (64, 64), {"is_causal": True}),
        ({}, "bfloat16", "bool", (64, 64), (3, 3), (64, 64), DROPOUT),
        # Words of dropout for more strips than are made at once.
        ({"tile_q": 128}, "float16", "bool", (128, 128), (2, 3), (64, 64), DROPOUT),
        # Many tiles for a team, and room for the queries of one.
        ({"query_stages": 1, "stages": 3}, "float16", "bool", (64, 64), (21, 3), (64, 64), {}),
    ],
    "fma": [
        ({}, "float32", "bool", (8, 33), (9, 5), (40, 72), {"scale": 1.0}),
        ({"tile_k": 32}, "float64", "float32", (128, 64), (1, 3), (64, 32), {"is_causal": True}),
    ],
    "mma_f64": [
        ({}, "float64", "bool", (8, 33), (9, 5), (40, 72), {"scale": 1.0}),
        ({"tile_q": 32}, "float64", "float32", (128, 64), (1, 3), (64, 32), {"is_causal": True}),
        ({}, "float64", "bool", (64, 64), (2, 3), (130, 114), EVERYTHING),
    ],
    "decode": [
        ({"piece_keys": 512}, "bfloat16", "bool", (2, 64), (3, 24), (64, 40), {"scale": 1.0}),
    ],
}
KERNELS = {
    "mma": {"bsr_attention_sm80": 1},
    "wgmma": {"bsr_attention_sm90": 1},
    "fma": {"bsr_attention_fma": 1},
    "mma_f64": {"bsr_attention_f64": 1},
    "decode": {"bsr_attention_decode": 1, "bsr_attention_decode_reduce": 1},
}

#: Few queries: fields, dtype, case, keywords, whether a row has several pieces.
FEW_QUERIES = [
    (
        {"tile_k": 32, "stages": 2, "warps": 2, "piece_keys": 512},
        "float16",
        {"blocksize": (3, 33), "lengths": (9, 33 * 30), "widths": (40, 72), "heads": (12, 4)},
        {"softcap": 2.5, "slopes": 0.01, "sinks": True, "dropout_p": 0.3, "seed": 7},
        True,
    ),
    (
        {"warps": 2},
        "float16",
        {"blocksize": (16, 32), "lengths": (48, 160), "widths": (160, 64), "mask_dtype": "float32"},
        {"is_causal": True, "sinks": True},
        False,
    ),
    (
        {"stages": 2},
        "bfloat16",
        {"blocksize": (1, 16), "lengths": (40, 64), "widths": (32, 32), "heads": (20, 1)},
        {},
        False,
    ),
]


#: Paths that read bits of partial blocks, and the kernels that they launch.
PACKED = {
    "simt": {"bsr_attention_simt": 1},
    "mma": {"bsr_attention_mask": 1, "bsr_attention_sm80": 1},
    "wgmma": {"bsr_attention_mask": 1, "bsr_attention_sm90": 1},
    "decode": {"bsr_attention_mask": 1, "bsr_attention_decode": 1},
    "fma": {"bsr_attention_mask": 1, "bsr_attention_fma": 1},
    "mma_f64": {"bsr_attention_mask": 1, "bsr_attention_f64": 1},
}


def check(directory, rng, path, case):
    """Compute a case, and again with NaN where nobody looks."""
    fields, dtype, mask, blocksize, blocks, widths, keywords = case
    made = Case(
        rng,
        dtype=dtype,
        mask_dtype=mask,
        lengths=tuple(n * b for n, b in zip(blocks, blocksize, strict=True)),
        blocksize=blocksize,
        widths=widths,
        heads=(2, 1),
        density=0.7,
    )
    states = {"bsr_attention_mask": 1} if mask == "bool" else {}
    if mask == "bool":
        made.mask[0][::3] = True
        made.mask[0][:, -1] = True  # the last row says nothing of a block
    for poisoned in (False, True):
        if poisoned:  # what nobody attends to is left out, not multiplied by zero
            made.mask[0][:, :, 1] = False if mask == "bool" else -np.inf
            made.value[..., 1 :: blocksize[1], :] = np.nan
        with emulated_attention(directory) as launched:
            made.check(Host(), config={"path": path, **fields}, **keywords)
        assert launched == KERNELS[path] | states


@pytest.mark.parametrize("case", CASES["mma"], ids=str)
def test_mma(directory, rng, case):
    check(directory, rng, "mma", case)


@pytest.mark.parametrize("case", CASES["wgmma"], ids=str)
def test_wgmma(directory, rng, case):
    check(directory, rng, "wgmma", case)


@pytest.mark.parametrize(
    ("path", "case"),
    [("mma", CASES["mma"][0]), ("wgmma", CASES["wgmma"][1]), ("mma_f64", CASES["mma_f64"][0])],
)
@pytest.mark.parametrize("column", [4, 7, 101])
def test_a_key_far_above_the_others(directory, rng, path, case, column):
    fields, dtype, mask, (bm, bk), (rows, columns), widths, keywords = case
    sizes = {"lengths": (rows * bm, columns * bk), "blocksize": (bm, bk), "widths": widths}
    made = Case(rng, dtype=dtype, mask_dtype=mask, heads=(2, 1), **sizes)
    made.raise_key(column)
    with emulated_attention(directory):
        made.check(Host(), config={"path": path, **fields}, **keywords)


@pytest.mark.parametrize(
    ("path", "dtype"), [("mma", "bfloat16"), ("wgmma", "float16"), ("mma_f64", "float64")]
)
def test_scores_of_zero(directory, rng, path, dtype):
    """Every weight is exactly one: the mean of 128 small integers has no error."""
    sizes = {"lengths": (128, 128), "blocksize": (64, 64), "widths": (64, 64)}
    made = Case(rng, dtype=dtype, density=1, **sizes)
    exact = made.average(rng)
    with emulated_attention(directory):
        out = attention(*made.on(Host()), config={"path": path})
    assert (out == exact).all()


@pytest.mark.parametrize("path", ["mma", "wgmma"])
def test_orders_of_tiles(directory, rng, band, path):
    """Of more tiles than there are teams, some of which have a tile less than others."""
    how = {"lengths": (160, 160), "blocksize": (32, 32), "widths": (64, 64), "dtype": "float16"}
    forward = Case(rng, heads=(8, 4), density=0.5, **how)
    made = GradientCase(rng, heads=(8, 4), density=0.5, **how)
    with emulated_attention(directory):
        forward.check(Host(), config={"path": path})
        found = backward(*made.forward(Host()), config={"path": path})
    made.compare(found)


@pytest.mark.parametrize("path", ["mma", "wgmma"])
def test_heads_between_rows_and_columns(directory, rng, path):
    how = {"lengths": (128, 192), "blocksize": (64, 64), "widths": (64, 128), "dtype": "float16"}
    made = Case(rng, heads=(4, 2), batch=(2,), **how)
    made.put_heads_inside()
    with emulated_attention(directory) as launched:
        made.check(Host(), config={"path": path})
    assert launched == KERNELS[path] | {"bsr_attention_mask": 1}

    made = GradientCase(rng, heads=(4, 2), batch=(2,), **how)
    made.put_heads_inside()
    with emulated_attention(directory):
        found = backward(*made.forward(Host()), config={"path": path})
    made.compare(found)


@pytest.mark.parametrize(
    ("path", "case"), [*zip(("wgmma", "mma") * 3, LONG_ROWS, strict=True)], ids=str
)
def test_split_keys(directory, rng, path, case):
    made, keywords = long_row(rng, *case)
    with emulated_attention(directory) as launched:
        made.check(Host(), config={"path": path, "split_kv": 1}, **keywords)
    assert launched["bsr_attention_reduce"] == 1


@pytest.mark.parametrize("case", CASES["fma"], ids=str)
def test_fma(directory, rng, case):
    check(directory, rng, "fma", case)


@pytest.mark.parametrize("case", CASES["mma_f64"], ids=str)
def test_mma_f64(directory, rng, case):
    check(directory, rng, "mma_f64", case)


def test_weights_of_float64_from_0_to_underflow(directory):
    def attend(*operands):
        with emulated_attention(directory) as launched:
            *arrays, scale = operands
            out = attention(*arrays, scale=scale, config={"path": "mma_f64"})
        assert launched["bsr_attention_f64"] == 1
        return out

    check_far_weights(attend)


@pytest.mark.parametrize("case", CASES["decode"], ids=str)
def test_decode(directory, rng, case):
    check(directory, rng, "decode", case)


@pytest.mark.parametrize("case", FEW_QUERIES, ids=str)
def test_few_queries(directory, rng, case):
    """Heads in one tile, scores of a head each, pieces and their merging."""
    fields, dtype, made, more, pieces = case
    keywords = dict(more)
    made = Case(rng, dtype=dtype, density=0.7, batch=(2,), **{"heads": (4, 2), **made})
    nothing = False if made.mask[0].dtype == bool else -np.inf
    made.mask[0][..., 3] = nothing
    made.mask[0][: made.mask[2][1]] = nothing  # of all the first block row sees
    of_heads = made.of_heads(rng)
    if keywords.pop("sinks", False):
        keywords["sinks"] = np.where(of_heads > 0, of_heads, -np.inf)
    if "slopes" in keywords:
        keywords["slopes"] = keywords["slopes"] * of_heads[..., ::-1]
    made.value[..., 3 :: made.blocksize[1], :] = np.nan
    with emulated_attention(directory) as launched:
        made.check(Host(), config={"path": "decode", **fields}, **keywords)
    assert launched["bsr_attention_decode"] == 1
    assert launched["bsr_attention_decode_reduce"] == pieces


@pytest.mark.parametrize("scale", [0.3, -0.3])
@pytest.mark.parametrize("path", PACKED)
def test_sinks(directory, rng, path, scale):
    """Among the scores, far above and below them, absent, and no numbers, with empty rows too."""
    dtype = {"fma": "float32", "mma_f64": "float64"}.get(path, "bfloat16")
    blocksize = (16 if path == "decode" else 32, 32)
    how = {"lengths": (96, 96), "blocksize": blocksize, "widths": (64, 64), "heads": (6, 2)}
    case = Case(rng, dtype=dtype, density=1.0, **how)
    case.mask[0][:, 3] = False
    sinks = np.array([0.5, 300, -300, -np.inf, np.inf, np.nan])
    sinks = sinks.astype(case.of_heads(rng).dtype)
    with emulated_attention(directory), np.errstate(invalid="ignore"):
        case.check(Host(), config={"path": path}, scale=scale, sinks=sinks)


@pytest.mark.parametrize("path", PACKED)
def test_masks_far_below_zero(directory, rng, path):
    """As people have them in the place of -inf: a query's weights are equal."""
    dtype = {"fma": "float32", "mma_f64": "float64"}.get(path, "float16")
    how = {"lengths": (96, 96), "blocksize": (16, 32), "widths": (64, 64), "mask_dtype": "float32"}
    for added in (-1e9, -1e20, np.finfo(np.float32).min):
        case = Case(rng, dtype=dtype, **how)
        case.move_far(added)
        with emulated_attention(directory):
            case.check(Host(), config={"path": path})


@pytest.mark.parametrize("path", PACKED)
def test_bits_of_partial_blocks(directory, rng, path):
    """A BlockMask is read as it is, its blocks in any order."""
    made = {"blocksize": (16 if path == "decode" else 32, 32), "widths": (64, 64), "heads": (2, 1)}
    dtype = {"fma": "float32", "mma_f64": "float64"}.get(path, "bfloat16")
    case = Case(rng, dtype=dtype, lengths=(160, 224), **made)
    case.mask[0][::3], case.mask[0][1::3] = True, False  # whole blocks, and such that hold nothing
    mask = sparsegpu.BlockMask.from_bsr(case.on(Host())[-1])
    kind, bits, starts = mask.kind, mask.bits, mask.indptr
    order = np.concatenate([np.arange(*ends)[::-1] for ends in pairwise(starts)])
    place = np.cumsum(kind == 2) - 1
    pattern = Pattern(starts, mask.indices[order], mask.shape, mask.blocksize)
    mask = sparsegpu.BlockMask(pattern, kind[order], bits[place[order][kind[order] == 2]])
    for again in (False, True):
        with emulated_attention(directory) as launched:
            out = attention(case.query, case.key, case.value, mask, config={"path": path})
        kernels = PACKED[path].keys() - ({"bsr_attention_mask"} if again else set())
        assert launched == dict.fromkeys(kernels, 1)
        assert_attention_close(out, case.expected()[0])
