"""Scattered products without tensor cores: every dtype, block size and stride."""

import numpy as np
import pytest

import sparsegpu as sg
from scatter_path import ScatterPath, facts
from sparsegpu.engines.cuda.paths import scatter_mm_simt
from sparsegpu.engines.cuda.paths._fields import ConfigError, Fields


class TestPath(ScatterPath):
    NAME, SOURCE = "simt", "scatter_mm_simt"
    CASES = [
        ("float32", (70, 9), 20, 2),
        ("float64", (3, 3), 3, 3),
        ("float16", (16, 16), 16, 1),
        ("bfloat16", (1, 5), 1, 4),
        ("complex64", (6, 4), 5, 1),
        ("complex128", (2, 2), 18, 1),
        ("int8", (130, 7), 65, 1),
    ]
    OUTPUTS = [
        ("float32", "float32"),
        ("float16", "float32"),
        ("bfloat16", "float16"),
        ("int8", "float32"),
        ("int8", "int32"),
        ("complex64", "complex64"),
    ]
    FIELDS = [{}, {"tile_m": 4, "tile_n": 16}, {"tile_m": 16, "group_size": 2}, {"group_size": 1}]
    TILES = {"TILE_M": 64, "TILE_N": 16, "GROUP_SIZE": 3}


def test_rows_of_parts_that_a_tile_has():
    for rows, groups in ((1, (1,)), (64, (1,)), (65, (1, 2)), (192, (1, 2, 4)), (256, (1, 2, 4))):
        fields = Fields()
        tile = scatter_mm_simt.tile(facts("float32", (rows, 4)), fields)
        assert fields.allowed["group_size"] == groups and tile.defines["GROUP_SIZE"] == groups[-1]
    for asked, group in ((1, 1), (3, 2), (4, 4), (64, 4)):
        f = facts("float32", (256, 4), group_size=asked)
        assert scatter_mm_simt.tile(f, Fields()).defines["GROUP_SIZE"] == group
    with pytest.raises(ConfigError, match=r"scatter_mm.*'group_size'"):
        config = {"path": "simt", "group_size": 2}
        scatter_mm_simt.tile(facts("float32", (16, 4)), Fields(config, "scatter_mm"))


@pytest.mark.parametrize("engine", ["cpu", "reference"])
def test_configurations_are_checked_on_every_engine(engine):
    a, x = sg.bsr_array(np.eye(4, dtype="f4"), blocksize=(2, 2)), np.ones((4, 2), "f4")
    lists = sg.bsr_scatter_mm_indices_data(a, x)
    with sg.use_engine(engine):
        for config in ({"path": "skinny"}, {"path": "simt", "stages": 2}, {"tile_m": 4}):
            with pytest.raises(ValueError, match=r"^scatter_mm: argument 'config"):
                sg.scatter_mm(a.data, x, lists, config=config)
            with pytest.raises(ValueError, match=r"^bsr_scatter_mm: argument 'config"):
                sg.bsr_scatter_mm(a, x, config=config)
        for config in ({"path": "mma", "stages": 2}, {"path": "model"}):
            assert (sg.scatter_mm(a.data, x, lists, config=config) == x).all()
            assert (sg.bsr_scatter_mm(a, x, config=config) == x).all()
