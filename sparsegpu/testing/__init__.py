"""Tools to test code that uses sparsegpu, and sparsegpu itself: data, patterns and the bound."""

from .._arrays import dtype_of
from .bound import (
    ATTENTION_TOLERANCE,
    accumulator_roundoff,
    accuracy_bound,
    assert_attention_close,
    assert_close,
    assert_gradient_close,
    assert_within_bound,
    exact_activation,
    softmax_backward_bound,
    softmax_bound,
    unit_roundoff,
)
from .data import (
    dense_from_blocks,
    exact_dtype,
    random_24,
    random_blocks,
    random_values,
    to_host,
)

__all__ = [
    "ATTENTION_TOLERANCE",
    "accumulator_roundoff",
    "accuracy_bound",
    "assert_attention_close",
    "assert_close",
    "assert_gradient_close",
    "assert_within_bound",
    "dense_from_blocks",
    "dtype_of",
    "exact_activation",
    "exact_dtype",
    "random_24",
    "random_blocks",
    "random_values",
    "softmax_backward_bound",
    "softmax_bound",
    "to_host",
    "unit_roundoff",
]


def __dir__() -> list[str]:
    return __all__
