"""Attention's gradients of every dtype and block size without tensor cores."""

from attention_gradient_cases import GradientCase, backward


def test_path(engine, rng):
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        case = GradientCase(rng, dtype=dtype, heads=(4, 2))
        operands = case.forward(engine)
        with engine.runs("bsr_attention_backward_simt"):
            found = backward(*operands, config={"path": "simt"})
        case.compare(found)
