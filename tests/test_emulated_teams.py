"""Which team of attention's kernels for Hopper takes which tile, emulated on the host."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sparsegpu._math import ceil_div
from sparsegpu.engines.cuda.paths._tile_order import unevenness
from sparsegpu.engines.cuda.runtime.structs import kernel_struct
from tools.emulator.build import HostKernel
from tools.emulator.host import device_array

PROBES = Path(__file__).parent / "cuda_probes"


class Shares:
    """What teams take of the tiles of some heads; see ``probe_teams.cu``."""

    def __init__(self, directory, *, heads, groups, grid, band, teams=2, slices=1):
        problem = kernel_struct("bsr_attention_sm90", "AttentionProblem")(
            groups=groups,
            heads=heads,
            band=band,
            **dict.fromkeys(("nnzb", "queries", "features", "value_features"), 0),
        )
        sizes = (heads * groups * slices, teams * grid, teams * grid)
        self.takers, self.counts, work = (device_array(n, np.int32) for n in sizes)
        for array in (self.takers, self.counts, work):
            array[...] = 0
        probe = HostKernel(
            "probe_teams", {"TEAMS_EACH": teams, "SLICES_EACH": slices}, directory, root=PROBES
        )
        probe(grid, teams, [self.takers, self.counts, work, problem])
        self.unevenness = work.max() / work.mean()


@pytest.mark.parametrize("band", [1, 2, 3, 8, 9])
@pytest.mark.parametrize(("groups", "slices"), [(1, 1), (5, 3), (64, 1)])
@pytest.mark.parametrize("grid", [1, 3, 66])
def test_every_tile_has_one_taker(directory, band, groups, slices, grid):
    shares = Shares(directory, heads=8, groups=groups, slices=slices, grid=grid, band=band)
    assert (shares.takers == 1).all()
    assert np.ptp(shares.counts) <= (1 if band == 1 else ceil_div(8, band))  # one each time


@pytest.mark.parametrize(("heads", "groups"), [(8, 64), (16, 128), (32, 64), (7, 30)])
def test_one_head_after_the_other_is_as_uneven_as_computed(directory, heads, groups):
    shares = Shares(directory, heads=heads, groups=groups, grid=66, band=1)
    assert shares.unevenness == pytest.approx(unevenness(heads, groups, 132))


@pytest.mark.parametrize(("heads", "groups", "band"), [(8, 64, 8), (61, 64, 20), (128, 64, 5)])
def test_heads_that_take_turns_are_shared_out_evenly(directory, heads, groups, band):
    assert Shares(directory, heads=heads, groups=groups, grid=66, band=band).unevenness < 1.06
