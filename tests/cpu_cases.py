"""Both host engines on one call."""

import numpy as np

import sparsegpu


def on(engine, function, *args, **keywords):
    with sparsegpu.use_engine(engine):
        return function(*args, **keywords)


def agree(function, *args, **keywords):
    """Assert that both engines give the same bits; return them."""
    cpu = on("cpu", function, *args, **keywords)
    np.testing.assert_array_equal(cpu, on("reference", function, *args, **keywords))
    return cpu
