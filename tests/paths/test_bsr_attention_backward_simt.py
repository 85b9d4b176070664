"""Attention's gradients without tensor cores: every dtype, block size and width."""

import numpy as np
import pytest

from attention_gradient_cases import GradientCase, backward
from gradient_path import GradientPath


class TestPath(GradientPath):
    NAME, SOURCE = "simt", "bsr_attention_backward_simt"
    DTYPES = ("bfloat16", "float16", "float32", "float64")
    SHAPES = [
        ((16, 16), (9, 11), (64, 128)),
        ((5, 7), (9, 6), (33, 65)),
        ((64, 48), (2, 3), (40, 72)),
        ((130, 3), (1, 21), (8, 5)),
    ]
    MASKED = SHAPES[1]

    test_fields = None  # it has none

    def test_refuses_fields(self, engine, rng):
        operands = GradientCase(rng, dtype="float32").forward(engine)
        config = {"path": self.NAME, "no_such_field": 1}
        with engine.runs(None), pytest.raises(ValueError, match=r"config\['no_such_field'\]"):
            backward(*operands, config=config)

    def test_scores_of_float64(self, engine, rng):
        heads = rng.standard_normal((2, 4)) / 8
        keywords = {"softcap": 2.5, "slopes": heads, "sinks": heads, "dropout_p": 0.3, "seed": 7}
        self.check(engine, rng, self.SHAPES[1], case={"dtype": "float64"}, **keywords)

    def test_rows_and_columns_of_any_stride(self, engine, rng):
        """No operand is contiguous along a row; the gradients are the same bits."""
        operands = GradientCase(rng, dtype="float32", heads=(4, 2)).forward(engine)
        config = {"path": self.NAME}
        with engine.runs(self.SOURCE):
            expected = backward(*operands, config=config)
        apart = [
            engine.xp.repeat(a, 2, axis=-1)[..., ::2] if hasattr(a, "strides") else a
            for a in operands
        ]
        assert any(a.strides[-1] == 8 for a in apart if hasattr(a, "strides"))
        with engine.runs(self.SOURCE):
            found = backward(*apart, config=config)
        for one, other in zip(expected[:3], found[:3], strict=True):
            np.testing.assert_array_equal(engine.host(one), engine.host(other))
