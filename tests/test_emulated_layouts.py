"""Attention and scatter_mm over operands that lie anywhere, on the host (tools/emulator)."""

from __future__ import annotations

import numpy as np
import pytest

import sparsegpu
from attention_cases import Case
from attention_gradient_cases import GradientCase, backward
from conftest import Engine
from emulated_layouts import BROADCAST, ELSEWHERE
from scatter_path import hand_made
from sparsegpu.testing import assert_attention_close, random_values
from test_scatter_mm import loop
from tools.emulator.attention import emulated_attention
from tools.emulator.operations import emulated_scatter_mm

LAYOUTS = BROADCAST | ELSEWHERE
REFUSED = "these operands or this device are not for"
#: What tensor maps and vectors of rows describe; the other layouts are left to other paths.
IN_ROWS = {"one matrix", "aligned", "every other row"}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("path", ["mma", "wgmma", "fma", "decode"])
def test_attention(directory, rng, path, layout):
    """Of all operands, of the incoming gradient, and of a mask."""
    case = GradientCase(
        rng,
        dtype="float32" if path == "fma" else "float16",
        heads=(2, 1),
        batch=(2,),
        lengths=(32, 64),
        blocksize=(16, 32),
        widths=(64, 32),
        density=0.8,
    )
    for name in ("query", "key", "value", "grad"):
        setattr(case, name, LAYOUTS[layout](getattr(case, name)))
    if layout != "one matrix":  # blocks are no batch
        case.mask[0] = LAYOUTS[layout](case.mask[0])
    config = {"path": path}
    try:
        with emulated_attention(directory) as launched:
            *operands, out, lse = case.forward(Engine("cpu"), config=config)
    except ValueError as error:
        assert REFUSED in str(error) and layout not in IN_ROWS
        config = None
        with emulated_attention(directory) as launched:
            *operands, out, lse = case.forward(Engine("cpu"))
    assert launched
    assert_attention_close(out, Case.expected(case)[0])
    if path in {"fma", "decode"}:
        return
    apart = np.repeat(lse, 2, axis=-1)[..., ::2]
    with emulated_attention(directory) as launched:
        found = backward(*operands, ELSEWHERE["aligned"](out), apart, config=config)
    assert layout not in IN_ROWS or "bsr_attention_backward_simt" not in launched
    case.compare(found)


@pytest.mark.parametrize(
    ("path", "name", "dtype", "block", "columns", "split"),
    [
        ("mma", "scatter_mm", "float16", (16, 24), 40, 1),
        ("mma", "bsr_strided_mm", "bfloat16", (16, 16), 12, 3),
        ("wgmma", "scatter_mm", "bfloat16", (64, 64), 64, 1),
        ("wgmma", "bsr_strided_mm_compressed", "float16", (64, 64), 72, 2),
        ("simt", "bsr_strided_mm", "float32", (3, 5), 4, 3),
    ],
)
def test_scatter_mm(directory, rng, path, name, dtype, block, columns, split):
    blocks, others, lists, shape = hand_made(rng, name, dtype, block, columns, split)
    start = random_values(rng, shape, "float32", small_integers=True)
    given = {"blocks": blocks, "others": others, "accumulators": start}
    apart = tuple(np.repeat(x, 2, axis=0)[::2] if isinstance(x, np.ndarray) else x for x in lists)
    served = 0
    for layout, lay in LAYOUTS.items():
        for operand, array in given.items():
            if operand == "accumulators" and layout in BROADCAST:
                continue
            arrays = {**given, operand: lay(array)}
            exact, _ = loop(arrays["blocks"], arrays["others"], lists, start)
            if operand != "accumulators":
                arrays["accumulators"] = start.copy()
            order = arrays["blocks"], arrays["others"], apart
            sums = arrays["accumulators"]
            try:
                with emulated_scatter_mm(directory):
                    sparsegpu.scatter_mm(*order, accumulators=sums, config={"path": path})
            except ValueError as error:
                assert REFUSED in str(error) and operand != "accumulators"
                assert layout not in IN_ROWS
                continue
            served += 1
            np.testing.assert_array_equal(sums, exact.astype(sums.dtype))
    assert served > len(LAYOUTS)
